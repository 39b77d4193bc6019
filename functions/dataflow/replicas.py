"""How many replicas of each function take requests, asked of the gateway again and again (AMESoS, section 4)."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from functions.dataflow.http import LOST, HttpPool, NotConnectedError
from penstock.functions import FunctionReport
from penstock.openfaas import DeployedFunction

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 2.0
UNKNOWN_PATH: Final = (404, 405)

_reports = msgspec.json.Decoder(tuple[FunctionReport, ...])
_deployed = msgspec.json.Decoder(tuple[DeployedFunction, ...])


class NoAnswerError(Exception):
    """The gateway did not say; the text is why."""


async def serving(pool: HttpPool, functions: Sequence[str]) -> dict[str, int]:
    """Replicas that take requests, by function; those that are not deployed are missing. An OpenFaaS gateway that is
    none of ours tells its available replicas. Raises NoAnswerError.
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
            raise NoAnswerError(f"it answers {reply.status} when it is asked for its functions")
    except (NotConnectedError, TimeoutError, *LOST) as error:
        raise NoAnswerError(f"{type(error).__name__}: {error}") from None
    except msgspec.DecodeError as error:
        raise NoAnswerError(f"not what a gateway says: {error}") from None
    return {name: found[name] for name in functions if name in found}


async def watch(
    pool: HttpPool, functions: Sequence[str], tell: Callable[[dict[str, int]], None], interval_s: float
) -> None:
    """``tell`` what the gateway says, until cancelled; while it is silent, nothing."""
    trouble = ""
    while True:
        try:
            tell(await serving(pool, functions))
        except NoAnswerError as error:
            if str(error) != trouble:
                log.warning("gateway: %s", error)
            trouble = str(error)
        else:
            trouble = ""
        await asyncio.sleep(interval_s)
