"""Polls the gateway for the number of serving replicas of each function (AMESoS, section 4)."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from functions.dataflow.http import LOST, HttpPool, NotConnectedError
from penstock.functions import FunctionReport
from penstock.log_once import LogOnce
from penstock.openfaas import DeployedFunction

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 2.0
UNKNOWN_PATH: Final = (404, 405)

_reports = msgspec.json.Decoder(tuple[FunctionReport, ...])
_deployed = msgspec.json.Decoder(tuple[DeployedFunction, ...])


class NoAnswerError(Exception):
    """The gateway gave no answer; the text is the reason."""


async def serving(pool: HttpPool, functions: Sequence[str]) -> dict[str, int]:
    """Serving replicas by function; functions that are not deployed are missing. A gateway other than Penstock's gives
    OpenFaaS' available replicas. Raises NoAnswerError.
    """
    found: dict[str, int] = {}
    try:
        reply = await pool.call("GET", "/penstock/functions", timeout_s=TIMEOUT_S, authorised=True)
        if reply.status == 200:
            found = {each.name: each.serving for each in _reports.decode(reply.body)}
        elif reply.status in UNKNOWN_PATH:
            reply = await pool.call("GET", "/system/functions", timeout_s=TIMEOUT_S, authorised=True)
            if reply.status == 200:
                found = {each.name: each.available_replicas for each in _deployed.decode(reply.body)}
        if reply.status != 200:
            raise NoAnswerError(f"it answers {reply.status} to a request for its functions")
    except (NotConnectedError, TimeoutError, *LOST) as error:
        raise NoAnswerError(f"{type(error).__name__}: {error}") from None
    except msgspec.DecodeError as error:
        raise NoAnswerError(f"not an answer of a gateway: {error}") from None
    return {name: found[name] for name in functions if name in found}


async def watch(
    pool: HttpPool, functions: Sequence[str], report: Callable[[dict[str, int]], None], interval_s: float
) -> None:
    """``report`` the serving replicas until cancelled; nothing while the gateway gives no answer."""
    trouble = LogOnce(log, "gateway: %s")
    while True:
        try:
            report(await serving(pool, functions))
        except NoAnswerError as error:
            trouble.note(error)
        else:
            trouble.clear()
        await asyncio.sleep(interval_s)
