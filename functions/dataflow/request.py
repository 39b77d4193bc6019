"""A request on its way through the pipeline, and its visits to functions."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from penstock.clock import NANOS_PER_SECOND
from penstock.records import Event, Outcome, Result


class Delivery(Protocol):
    """A record that a connector has brought. ``fresh``: a predecessor of this manager had not seen it."""

    @property
    def value(self) -> bytes:
        """The record: JSON of an ``Event``, if all is well."""
        ...

    @property
    def broker_ns(self) -> int | None:
        """When the broker got it, where the broker tells."""
        ...

    @property
    def fresh(self) -> bool:
        """Whether it counts as an arrival."""
        ...

    def done(self, result: Result) -> None:
        """It has left the pipeline with this terminal Result, and all its Results are out: it may be acknowledged."""
        ...


class Failure(msgspec.Struct, frozen=True):
    """Why a request will not be completed."""

    outcome: Outcome
    reason: str


class Request:
    """One event in the pipeline. ``results``: its DataFlow, by number of the function, -1 for what came in.

    ``missing``: how many results a merge still waits for. ``sinks``: how many have not delivered. ``visits``: those
    that wait, are put aside, or are in a call. ``unpublished``: Results that are not out yet.
    """

    __slots__ = (
        "deadline_ns",
        "deliveries",
        "event",
        "failure",
        "final",
        "missing",
        "results",
        "settled",
        "sinks",
        "unpublished",
        "visits",
    )

    def __init__(
        self, event: Event, delivery: Delivery, deadline_s: float, missing: Mapping[int, int], sinks: int
    ) -> None:
        self.event = event
        self.deliveries = [delivery]
        own_ns = event.deadline_ns
        self.deadline_ns = event.intended_ns + round(deadline_s * NANOS_PER_SECOND) if own_ns is None else own_ns
        self.results: dict[int, bytes] = {-1: bytes(event.payload)}
        self.missing = dict(missing)
        self.sinks = sinks
        self.visits = 0
        self.unpublished = 0
        self.failure: Failure | None = None
        self.final: Result | None = None
        self.settled = False


class Visit:
    """A request at a function. ``estimate_s``: what is left of the pipeline for it, this function included.

    Times in ns since the epoch. ``attempt`` counts calls that came to nothing, and the one that goes on.
    """

    __slots__ = ("attempt", "estimate_s", "function", "received_ns", "request", "sample", "started_ns")

    def __init__(self, request: Request, function: int, estimate_s: float, received_ns: int) -> None:
        self.request = request
        self.function = function
        self.estimate_s = estimate_s
        self.received_ns = received_ns
        self.started_ns = received_ns
        self.attempt = 1
        self.sample: tuple[int, float] | None = None

    def laxity_s(self, at_ns: int) -> float:
        """Time to the deadline minus what is left (Equation 2, reading A4)."""
        return (self.request.deadline_ns - at_ns) / NANOS_PER_SECOND - self.estimate_s
