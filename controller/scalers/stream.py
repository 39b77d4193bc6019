"""What every scaler of a Kafka consumer group reads from an observation before it decides.

Rates are differences of end offsets over the scaler's own decision interval, never the producer's numbers; what cannot
be known makes the scaler hold (bin-pack paper, sections 4 and 5; order of one decision as in its controller).
"""

from collections.abc import Mapping
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from controller.scalers.packing import Load
from penstock.contracts import Decision, Groups, PartitionObservation, StreamObservation, Term
from penstock.plan import range_groups, same_grouping

JITTER = 0.1
"""A tick may be late by this share of the decision interval and still count as being on time."""


class CannotDecide(Exception):  # noqa: N818 - not an error: it becomes a decision to hold
    """Why a scaler holds."""


class EndOffsets(msgspec.Struct, frozen=True):
    """The reading that the next rates are differences to."""

    time_s: float | None = None
    by_partition: dict[int, int] = msgspec.field(default_factory=dict)

    def updated(self, observation: StreamObservation, interval_s: float) -> "EndOffsets":
        """The reading to keep: this one if the new one is incomplete or comes within half an interval."""
        if self.time_s is not None and 0 <= observation.time_s - self.time_s < interval_s / 2:
            return self
        offsets = {p.partition: p.end_offset for p in observation.partitions if p.end_offset is not None}
        if not offsets or len(offsets) < len(observation.partitions):
            return self
        return EndOffsets(observation.time_s, offsets)


class RateState(msgspec.Struct, frozen=True):
    """State of a scaler that needs rates. ``skipped``: reassignments to the grouping in force, left out (B18)."""

    offsets: EndOffsets = EndOffsets()
    skipped: int = 0


class DecidesPeriodically(Protocol):
    """Parameters of a scaler with a decision interval."""

    @property
    def decision_interval_s(self) -> float:
        """Seconds between two decisions."""
        ...


P = TypeVar("P", bound=DecidesPeriodically)


class RateScaler(Generic[P]):
    """What scalers that read rates have in common around their ``decide``."""

    fleets: ClassVar[type[StreamObservation]] = StreamObservation
    State: ClassVar[type[RateState]] = RateState

    def __init__(self, parameters: P) -> None:
        self.parameters = parameters

    @property
    def period_s(self) -> float:
        """The decision interval."""
        return self.parameters.decision_interval_s

    def start(self, seed: int) -> RateState:  # noqa: ARG002 - nothing is drawn
        """No reading yet."""
        return RateState()


class Tick(NamedTuple):
    """Where a decision starts: loads by position, the current number of replicas and who holds what.

    ``partitions`` are Kafka's numbers by position; ``current`` groups positions; ``most`` is the largest fleet allowed.
    """

    fleet: str
    partitions: tuple[int, ...]
    load: Load
    replicas: int
    current: Groups
    assignment: str
    most: int


def read(
    observation: StreamObservation,
    last: EndOffsets,
    *,
    interval_s: float,
    hold_s: float,
    max_replicas: int | None,
    needs_lag: bool = True,
) -> Tick:
    """The start of a decision. Raises CannotDecide with the reason if something is unknown or within the hold time.

    Lags are zero for scalers that do not read them.
    """
    if not observation.partitions:
        raise CannotDecide(f"no partitions known{_reasons(observation)}")
    lags = _lags(observation) if needs_lag else [0] * len(observation.partitions)
    rates = _rates(observation, last, interval_s)
    _check_hold_time(observation, hold_s, interval_s)
    partitions = tuple(p.partition for p in observation.partitions)
    current, assignment = _current(observation, partitions)
    return Tick(
        observation.fleet,
        partitions,
        Load(lags, rates),
        observation.replicas.current,
        current,
        assignment,
        min(len(partitions), max_replicas or len(partitions)),
    )


def in_partitions(groups: Groups, partitions: tuple[int, ...]) -> Groups:
    """Groups of positions as groups of Kafka's partition numbers."""
    if partitions == tuple(range(len(partitions))):
        return groups
    return tuple(tuple(partitions[position] for position in group) for group in groups)


def resize(tick: Tick, replicas: int, groups: Groups, why: Mapping[str, Term]) -> Decision:
    """Scale up or down to ``replicas`` with ``groups`` of positions; no action where that is the current number."""
    if replicas == tick.replicas:
        return Decision(action="none", why={tick.fleet: {**why, "action": "none"}})
    action = "up" if replicas > tick.replicas else "down"
    return Decision(
        action="up" if replicas > tick.replicas else "down",
        targets={tick.fleet: replicas},
        assignment=in_partitions(groups, tick.partitions),
        why={tick.fleet: {**why, "action": action}},
    )


def reassign(tick: Tick, groups: Groups, why: Mapping[str, Term]) -> Decision:
    """Keep the replicas and group the partitions anew; no action if that is the grouping in force (B18)."""
    if same_grouping(groups, tick.current):
        reason = "the reassignment is the assignment in force: a rebalance would change nothing (B18)"
        return Decision(action="none", why={tick.fleet: {**why, "action": "none", "reason": reason}})
    return Decision(
        action="reassign",
        targets={tick.fleet: tick.replicas},
        assignment=in_partitions(groups, tick.partitions),
        why={tick.fleet: {**why, "action": "reassign"}},
    )


def _lags(observation: StreamObservation) -> list[int]:
    return [_lag(p, observation) for p in observation.partitions]


def _lag(p: PartitionObservation, observation: StreamObservation) -> int:
    lag = p.lag
    if lag is not None:
        return lag
    if p.end_offset == 0:
        return 0  # nothing was ever written: there is nothing that a commit could tell
    what = "end offset" if p.end_offset is None else "committed offset"
    raise CannotDecide(f"lag of partition {p.partition} is unknown: no {what}{_reasons(observation)}")


def _rates(observation: StreamObservation, last: EndOffsets, interval_s: float) -> list[float]:
    if last.time_s is None or observation.time_s < last.time_s:
        raise CannotDecide("no rate yet: this is the first reading of the end offsets")
    elapsed = observation.time_s - last.time_s
    if elapsed < interval_s / 2:
        raise CannotDecide(f"no rate yet: {elapsed:.3g} s since the last reading, decision interval {interval_s:g} s")
    # Arrivals come in bursts at whole seconds in some workloads: a tick that is late by little saw whole intervals.
    whole = round(elapsed / interval_s) * interval_s
    seconds = whole if abs(elapsed - whole) <= JITTER * interval_s else elapsed
    rates = []
    for p in observation.partitions:
        before = last.by_partition.get(p.partition)
        if p.end_offset is None:
            raise CannotDecide(f"rate of partition {p.partition} is unknown: no end offset{_reasons(observation)}")
        if before is None:
            raise CannotDecide(f"no rate yet: partition {p.partition} is new")
        if p.end_offset < before:
            raise CannotDecide(
                f"rate of partition {p.partition} is unknown: its end offset fell from {before} to {p.end_offset} "
                "(was the topic made anew?)"
            )
        rates.append((p.end_offset - before) / seconds)
    return rates


def _check_hold_time(observation: StreamObservation, hold_s: float, interval_s: float) -> None:
    if hold_s == 0 or observation.last_scale_s is None:
        return
    elapsed = observation.time_s - observation.last_scale_s
    if elapsed <= hold_s + JITTER * interval_s:
        raise CannotDecide(f"hold time: {elapsed:.3g} s since the last scale, more than {hold_s:g} s must pass")


def _current(observation: StreamObservation, partitions: tuple[int, ...]) -> tuple[Groups, str]:
    planned = [partition for group in observation.plan for partition in group]
    if sorted(planned) == sorted(partitions):
        if partitions == tuple(range(len(partitions))):
            return observation.plan, "plan"
        positions = {partition: position for position, partition in enumerate(partitions)}
        return tuple(tuple(positions[p] for p in group) for group in observation.plan), "plan"
    why = "range: the plan is of other partitions" if planned else "range: no plan yet"
    return range_groups(range(len(partitions)), observation.replicas.current), why


def _reasons(observation: StreamObservation) -> str:
    """What the monitor said about values that it could not read."""
    said = "; ".join(f"{field}: {reason}" for field, reason in observation.unknown.items())
    return f" ({said})" if said else ""
