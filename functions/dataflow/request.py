"""A request in the pipeline, and its visits to functions."""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.clock import NANOS_PER_SECOND
from penstock.records import Event, Result


@dataclass(slots=True)
class Delivery:
    """A record from a connector: JSON of an ``Event``, unless it is invalid. ``done`` acknowledges it: it has left with
    this terminal Result, and all its Results are published. ``fresh``: no predecessor of this manager has received it,
    so it counts as an arrival. ``broker_ns``: reception time at the broker, if the broker reports it.
    """

    value: bytes
    done: Callable[[Result], None]
    fresh: bool = True
    broker_ns: int | None = None


@dataclass(slots=True, eq=False)
class Request:
    """One event in the pipeline. ``results``: its DataFlow, by number of the function, -1 for its payload.

    ``missing``: results that a merge still waits for. ``sinks``: sinks that have not delivered. ``visits``: those that
    wait, are set aside, or are in a call. ``unpublished``: Results that are not published yet. ``failed``: it will not
    be completed.
    """

    event: Event
    deliveries: list[Delivery]
    deadline_ns: int
    results: dict[int, bytes]
    missing: dict[int, int]
    sinks: int
    visits: int = 0
    unpublished: int = 0
    failed: bool = False
    final: Result | None = None
    settled: bool = False

    @property
    def outcome(self) -> Result:
        """Its final Result, once there is one."""
        assert self.final is not None
        return self.final

    @property
    def missed(self) -> bool:
        """Whether it has missed its deadline; an abandoned request always has."""
        return self.outcome.outcome == "dead-lettered" or self.outcome.finished_ns > self.deadline_ns


@dataclass(slots=True, eq=False)
class Visit:
    """A request at a function. ``estimate_s``: remaining time in the pipeline, this function included. ``attempt``
    counts the calls, the present one included. Times in ns since the epoch.
    """

    request: Request
    function: int
    estimate_s: float
    received_ns: int
    started_ns: int = 0
    attempt: int = 1
    sample: tuple[int, float] | None = None

    def laxity_s(self, at_ns: int) -> float:
        """Time to the deadline minus the estimate (Equation 2, reading A4)."""
        return (self.request.deadline_ns - at_ns) / NANOS_PER_SECOND - self.estimate_s
