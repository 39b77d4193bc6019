"""One call of a function through the gateway, and its verdict for the request."""

from dataclasses import dataclass
from typing import Literal

from functions.dataflow.http import LOST, HttpPool, NotConnectedError, Reply
from penstock.clock import NANOS_PER_SECOND
from penstock.function_messages import DEADLINE_HEADER, EVENT_HEADER, FINISHED_HEADER, REPLICA_HEADER, STARTED_HEADER

REFUSALS = frozenset((429, 503))
"""Nothing was executed: all replicas are busy, or there is none."""
WHY_BYTES = 200
"""Longest part of an error's body in the reason."""

Verdict = Literal["done", "refused", "failed", "impossible"]
"""``failed``: to be retried. ``impossible``: the function rejects this request for good (4xx)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcome of a call. ``busy_ns``: processing time, None if the gateway does not report it."""

    verdict: Verdict
    body: bytes = b""
    reason: str = ""
    replica: str = ""
    busy_ns: int | None = None


async def call(pool: HttpPool, function: str, body: bytes, *, event: int, deadline_ns: int, timeout_s: float) -> Answer:
    """``POST /function/{function}``. Raises only CancelledError."""
    headers = {
        "Content-Type": "application/json",
        EVENT_HEADER: str(event),
        DEADLINE_HEADER: str(deadline_ns),
    }
    try:
        reply = await pool.call("POST", f"/function/{function}", body, headers, timeout_s=timeout_s)
    except NotConnectedError as error:
        return Answer("refused", reason=f"gateway is away: {error}")
    except TimeoutError:
        return Answer("failed", reason=f"no answer within {timeout_s:g} s")
    except LOST as error:
        return Answer("failed", reason=f"connection lost: {str(error) or type(error).__name__}")
    return judge(reply)


def judge(reply: Reply) -> Answer:
    """The verdict of a reply."""
    replica = reply.headers.get(REPLICA_HEADER.lower(), "")
    if reply.status == 200:
        return Answer("done", reply.body, replica=replica, busy_ns=_busy_ns(reply))
    said = reply.body[:WHY_BYTES].decode(errors="replace").strip()
    reason = f"status {reply.status}" + (f": {' '.join(said.split())}" if said else "")
    rejected: Verdict = "impossible" if 400 <= reply.status < 500 else "failed"
    return Answer("refused" if reply.status in REFUSALS else rejected, reason=reason, replica=replica)


def _busy_ns(reply: Reply) -> int | None:
    """From the replica's own times, or from OpenFaaS' watchdog (X-Duration-Seconds)."""
    try:
        started, finished = reply.headers.get(STARTED_HEADER.lower()), reply.headers.get(FINISHED_HEADER.lower())
        if started is not None and finished is not None:
            return max(0, int(finished) - int(started))
        if (seconds := reply.headers.get("x-duration-seconds")) is not None:
            return max(0, round(float(seconds) * NANOS_PER_SECOND))
    except ValueError:
        pass
    return None
