"""Polls the gateway for the number of serving replicas of each function (AMESoS, section 4)."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from functions.dataflow.http import LOST, HttpPool, NotConnectedError
from penstock.function_messages import FunctionReport
from penstock.log_once import LogOnce
from penstock.openfaas import DeployedFunction

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 2.0
UNKNOWN_PATH: Final = (404, 405)

_reports = msgspec.json.Decoder(tuple[FunctionReport, ...])
_deployed = msgspec.json.Decoder(tuple[DeployedFunction, ...])


class NoAnswerError(Exception):
    """The gateway gave no answer; the text is the reason."""


class ServingReplicas:
    """Reads them from a gateway: Penstock's own, or any other, which is asked once whether it is Penstock's."""

    def __init__(self, pool: HttpPool) -> None:
        self._pool = pool
        self._is_penstock = True

    async def read(self, functions: Sequence[str]) -> dict[str, int]:
        """Serving replicas by function; functions that are not deployed are missing. A gateway other than Penstock's
        gives OpenFaaS' available replicas. Raises NoAnswerError.
        """
        try:
            found = await self._read()
        except (NotConnectedError, TimeoutError, *LOST) as error:
            raise NoAnswerError(f"{type(error).__name__}: {error}") from None
        except msgspec.DecodeError as error:
            raise NoAnswerError(f"not an answer of a gateway: {error}") from None
        return {name: found[name] for name in functions if name in found}

    async def _read(self) -> dict[str, int]:
        if self._is_penstock:
            reply = await self._pool.call("GET", "/penstock/functions", timeout_s=TIMEOUT_S, authorised=True)
            if reply.status == 200:
                return {each.name: each.serving for each in _reports.decode(reply.body)}
            self._is_penstock = reply.status not in UNKNOWN_PATH
        if not self._is_penstock:
            reply = await self._pool.call("GET", "/system/functions", timeout_s=TIMEOUT_S, authorised=True)
            if reply.status == 200:
                return {each.name: each.available_replicas for each in _deployed.decode(reply.body)}
        raise NoAnswerError(f"it answers {reply.status} to a request for its functions")


async def watch(
    pool: HttpPool, functions: Sequence[str], report: Callable[[dict[str, int]], None], interval_s: float
) -> None:
    """``report`` the serving replicas until cancelled; nothing while the gateway gives no answer."""
    trouble = LogOnce(log, "gateway: %s")
    gateway = ServingReplicas(pool)
    while True:
        try:
            report(await gateway.read(functions))
        except NoAnswerError as error:
            trouble.note(error)
        else:
            trouble.clear()
        await asyncio.sleep(interval_s)
