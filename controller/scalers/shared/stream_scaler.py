"""The base class of scalers of Kafka consumer groups: lags and rates of partitions, and decisions on groups of them.

Rates are differences of end offsets over the decision interval. An unknown value makes the scaler hold. A decision has
the order of the bin-pack paper's controller (sections 4 and 5).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar, NamedTuple, TypeVar

import msgspec

from controller.scalers.shared.base import JITTER, BaseScaler, CannotDecide, all_reasons, resize, seconds_since
from controller.scalers.shared.packing import Load
from controller.scalers.shared.parameters import Count, NotNegative, Parameters, Positive
from penstock.contracts import Decision, Groups, PartitionObservation, StreamObservation, Term, hold
from penstock.plan import range_groups, same_grouping


class EndOffsets(msgspec.Struct, frozen=True):
    """The reading from which the next rates are counted."""

    time_s: float | None = None
    by_partition: dict[int, int] = msgspec.field(default_factory=dict)

    def updated(self, observation: StreamObservation, interval_s: float) -> "EndOffsets":
        """The new reading; the old one if the new one is incomplete or comes within half an interval."""
        if self.time_s is not None and 0 <= observation.time_s - self.time_s < interval_s / 2:
            return self
        offsets = {p.partition: p.end_offset for p in observation.partitions if p.end_offset is not None}
        if not offsets or len(offsets) < len(observation.partitions):
            return self
        return EndOffsets(observation.time_s, offsets)


class RateState(msgspec.Struct, frozen=True):
    """The state of a scaler that reads rates: the last reading."""

    offsets: EndOffsets = EndOffsets()


class StreamTick(NamedTuple):
    """The input of a decision: loads by position, the current number of replicas and their groups of positions.

    ``partitions`` are Kafka's numbers by position; ``assignment`` says where the groups are from; ``most`` is the
    largest fleet allowed.
    """

    observation: StreamObservation
    partitions: tuple[int, ...]
    load: Load
    current: Groups
    assignment: str
    most: int

    @property
    def replicas(self) -> int:
        """The current number."""
        return self.observation.replicas.current

    def resized(self, replicas: int, groups: Groups, why: Mapping[str, Term]) -> Decision:
        """Scale up or down to ``replicas`` with ``groups`` of positions; no action if that is the current number."""
        return resize(self.observation, replicas, why, in_partitions(groups, self.partitions))

    def reassigned(self, groups: Groups, why: Mapping[str, Term]) -> Decision:
        """Keep the replicas and group the partitions anew; no action if that is the grouping in force (B18)."""
        if same_grouping(groups, self.current):
            reason = "the reassignment is the assignment in force: a rebalance would change nothing (B18)"
            return resize(self.observation, self.replicas, {**why, "action": "none", "reason": reason})
        return Decision(
            action="reassign",
            targets={self.observation.fleet: self.replicas},
            assignment=in_partitions(groups, self.partitions),
            why={self.observation.fleet: {**why, "action": "reassign"}},
        )


@dataclass(frozen=True)
class StreamParameters(Parameters):
    """``service_rate_per_s`` is μ of one consumer. ``hold_s``: strictly more must pass after a scale-up or -down (B13);
    the authors' controller has 10 s, the printed algorithm none. ``max_replicas`` None: as many as partitions (B16).
    """

    service_rate_per_s: Positive = 200.0
    hold_s: NotNegative = 0.0
    max_replicas: Count | None = None


P = TypeVar("P", bound=StreamParameters)
S = TypeVar("S", bound=RateState)


class StreamScaler(ABC, BaseScaler[P, S]):
    """A scaler that reads rates, and lags unless ``needs_lag`` is false (they are zero then). ``groups_partitions``:
    into others than ranges.
    """

    fleets: ClassVar[type[StreamObservation]] = StreamObservation
    needs_lag: ClassVar[bool] = True
    groups_partitions: ClassVar[bool] = True

    @abstractmethod
    def decide_tick(self, tick: StreamTick, state: S) -> tuple[Decision, S]:
        """One decision on complete readings. ``state`` has the new end offsets already."""

    def decide(self, observation: StreamObservation, state: S) -> tuple[Decision, S]:
        """Hold if something is unknown or the hold time is not over; else ``decide_tick``."""
        p = self.parameters
        following = msgspec.structs.replace(state, offsets=state.offsets.updated(observation, p.decision_interval_s))
        try:
            tick = read(observation, state.offsets, p, needs_lag=self.needs_lag)
        except CannotDecide as reason:
            return hold(observation.fleet, str(reason)), following
        return self.decide_tick(tick, following)


def read(observation: StreamObservation, last: EndOffsets, p: StreamParameters, *, needs_lag: bool) -> StreamTick:
    """The input of a decision. Raises CannotDecide for an unknown value and within the hold time."""
    if not observation.partitions:
        raise CannotDecide(f"no partitions known{all_reasons(observation.unknown)}")
    count = len(observation.partitions)
    lags = [_lag(each, observation) for each in observation.partitions] if needs_lag else [0] * count
    rates = _rates(observation, last, p.decision_interval_s)
    elapsed = inf if observation.last_scale_s is None else observation.time_s - observation.last_scale_s
    if p.hold_s > 0 and elapsed <= p.hold_s + JITTER * p.decision_interval_s:
        raise CannotDecide(f"hold time: {elapsed:.3g} s since the last scale, more than {p.hold_s:g} s must pass")
    partitions = tuple(each.partition for each in observation.partitions)
    current, assignment = _current(observation, partitions)
    most = min(count, p.max_replicas or count)
    return StreamTick(observation, partitions, Load(lags, rates), current, assignment, most)


def in_partitions(groups: Groups, partitions: tuple[int, ...]) -> Groups:
    """Groups of positions as groups of Kafka's partition numbers."""
    if partitions == tuple(range(len(partitions))):
        return groups
    return tuple(tuple(partitions[position] for position in group) for group in groups)


def _lag(p: PartitionObservation, observation: StreamObservation) -> int:
    lag = p.lag
    if lag is not None:
        return lag
    if p.end_offset == 0:
        return 0  # nothing was ever written, so a missing commit means nothing
    what = "end offset" if p.end_offset is None else "committed offset"
    raise CannotDecide(f"lag of partition {p.partition} is unknown: no {what}{all_reasons(observation.unknown)}")


def _rates(observation: StreamObservation, last: EndOffsets, interval_s: float) -> list[float]:
    seconds = seconds_since(last.time_s, observation.time_s, interval_s, "end offsets")
    rates = []
    for p in observation.partitions:
        before = last.by_partition.get(p.partition)
        if p.end_offset is None:
            raise CannotDecide(
                f"rate of partition {p.partition} is unknown: no end offset{all_reasons(observation.unknown)}"
            )
        if before is None:
            raise CannotDecide(f"no rate yet: partition {p.partition} is new")
        if p.end_offset < before:
            raise CannotDecide(
                f"rate of partition {p.partition} is unknown: its end offset fell from {before} to {p.end_offset} "
                "(was the topic made anew?)"
            )
        rates.append((p.end_offset - before) / seconds)
    return rates


def _current(observation: StreamObservation, partitions: tuple[int, ...]) -> tuple[Groups, str]:
    """The grouping in force by position, and where it is from: the last plan, or Kafka's range assignor."""
    planned = [partition for group in observation.plan for partition in group]
    if sorted(planned) == sorted(partitions):
        if partitions == tuple(range(len(partitions))):
            return observation.plan, "plan"
        positions = {partition: position for position, partition in enumerate(partitions)}
        return tuple(tuple(positions[p] for p in group) for group in observation.plan), "plan"
    why = "range: the plan is of other partitions" if planned else "range: no plan yet"
    return range_groups(range(len(partitions)), observation.replicas.current), why
