"""Modified Worst Fit with the R-score: bin packing of partitions by rate that moves as little as it can.

Landau, Saurabh, Andrade and Barbosa, "Multi-Objective Optimization of Consumer Group Autoscaling in Message Broker
Systems", arXiv 2402.06085. Written from the description in our specification and from what their public code does;
where these leave something open, we chose:

- consumers are taken by their heaviest partition (the variant MWFP); ``order`` total takes them by their total (MWF);
- a partition heavier than a consumer's capacity counts as that capacity: it fills a consumer of its own;
- a consumer carries ``capacity_share`` of its service rate, 0.9 as the bin-pack scalers' f_up (theirs is measured);
- the packing is made anew when a consumer's rate exceeds its capacity, when replicas and plan do not agree, and when
  ``refresh_s`` have passed since the last time (their state machine has such a time; its value is ours).
"""

from dataclasses import dataclass
from math import fsum, inf
from typing import ClassVar, Literal, NamedTuple

import msgspec

from controller.scalers.packing import TOLERANCE
from controller.scalers.parameters import require_not_negative, require_positive, require_replicas
from controller.scalers.single_fleet import TOLERANCE_S
from controller.scalers.stream import (
    CannotDecide,
    EndOffsets,
    Tick,
    in_partitions,
    read,
    reassign,
    resize,
)
from penstock.contracts import Decision, Groups, StreamObservation, Term, hold

Order = Literal["heaviest", "total"]


class Consumer:
    """A consumer of the next assignment: its index in the current one (new ones follow), what it holds, its rate."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.partitions: list[int] = []
        self.rate_per_s = 0.0

    def take(self, partition: int, rate_per_s: float) -> None:
        """Assign a partition to it."""
        self.partitions.append(partition)
        self.rate_per_s += rate_per_s


class Assignment(NamedTuple):
    """Groups by consumer: the current consumers first (empty if it is no longer needed), then the new ones.

    ``overfull``: more consumers would have been needed than were allowed.
    """

    groups: Groups
    overfull: bool = False

    @property
    def used(self) -> Groups:
        """Groups that hold something."""
        return tuple(group for group in self.groups if group)


def modified_worst_fit(
    rates_per_s: list[float],
    current: Groups,
    capacity_per_s: float,
    *,
    order: Order = "heaviest",
    most: int | None = None,
) -> Assignment:
    """The modified any-fit with worst fit as its rule: the open consumer with most room.

    Consumer by consumer: from its lightest partition on, as long as one fits into a consumer that is open already, it
    goes there; then, from its heaviest on, it keeps what it can carry; from the first that it cannot, its partitions
    are unassigned. These go last, heaviest first, to an open consumer or to one opened for them.
    """
    rates = [min(rate, capacity_per_s) for rate in rates_per_s]
    packing = _Packing(rates, capacity_per_s, len(current), most)
    loose: list[int] = []
    for index in _by_weight(rates, current, order):
        mine = sorted(current[index], key=lambda p: rates[p], reverse=True)
        while mine and packing.place(mine[-1]):
            mine.pop()
        while mine and packing.keep(mine[0], index):
            mine.pop(0)
        loose += mine
    for partition in sorted(loose, key=lambda p: rates[p], reverse=True):
        if not packing.place(partition):
            packing.open_for(partition)
    return packing.assignment()


def r_score(rates_per_s: list[float], current: Groups, following: Groups, capacity_per_s: float) -> float:
    """Σ rate of the partitions that change their consumer, over a consumer's capacity: capacities that stand still."""
    homes = {partition: index for index, group in enumerate(current) for partition in group}
    moved = (p for index, group in enumerate(following) for p in group if homes.get(p) != index)
    return fsum(rates_per_s[p] for p in moved) / capacity_per_s


def _by_weight(rates: list[float], current: Groups, order: Order) -> list[int]:
    weigh = max if order == "heaviest" else fsum
    holding = [index for index, group in enumerate(current) if group]
    return sorted(holding, key=lambda index: weigh([rates[p] for p in current[index]]), reverse=True)


class _Packing:
    """Open consumers, by index."""

    def __init__(self, rates: list[float], capacity_per_s: float, known: int, most: int | None) -> None:
        self.rates, self.capacity_per_s = rates, capacity_per_s
        self.known, self.most = known, most or inf
        self.open: dict[int, Consumer] = {}
        self.overfull = False

    def fits(self, partition: int, consumer: Consumer) -> bool:
        return consumer.rate_per_s + self.rates[partition] <= self.capacity_per_s + TOLERANCE

    def place(self, partition: int) -> bool:
        """Worst fit among the open consumers; among equals the one opened first."""
        fitting = [consumer for consumer in self.open.values() if self.fits(partition, consumer)]
        if not fitting:
            return False
        self._give(partition, min(fitting, key=lambda consumer: consumer.rate_per_s))
        return True

    def keep(self, partition: int, index: int) -> bool:
        """Leave the partition with its consumer, which is opened if it may be and is not."""
        if index not in self.open:
            if len(self.open) >= self.most:
                return False
            self.open[index] = Consumer(index)
        if not self.fits(partition, self.open[index]):
            return False
        self._give(partition, self.open[index])
        return True

    def open_for(self, partition: int) -> None:
        """Open a new consumer: the partition's own one is open, and full. At the limit the emptiest takes it."""
        if len(self.open) >= self.most:
            self.overfull = True
            self._give(partition, min(self.open.values(), key=lambda consumer: consumer.rate_per_s))
            return
        index = max((self.known, *(i + 1 for i in self.open)))
        self.open[index] = Consumer(index)
        self._give(partition, self.open[index])

    def _give(self, partition: int, consumer: Consumer) -> None:
        consumer.take(partition, self.rates[partition])

    def assignment(self) -> Assignment:
        size = max((self.known, *(index + 1 for index in self.open)))
        groups = (tuple(sorted(self.open[i].partitions)) if i in self.open else () for i in range(size))
        return Assignment(tuple(groups), self.overfull)


@dataclass(frozen=True)
class MwfRscoreParameters:
    """See the module for what was chosen. ``max_replicas`` None: as many as partitions."""

    service_rate_per_s: float = 200.0
    capacity_share: float = 0.9
    order: Order = "heaviest"
    refresh_s: float = 30.0
    hold_s: float = 0.0
    decision_interval_s: float = 1.0
    max_replicas: int | None = None

    def __post_init__(self) -> None:
        require_positive(
            service_rate_per_s=self.service_rate_per_s,
            capacity_share=self.capacity_share,
            decision_interval_s=self.decision_interval_s,
        )
        require_not_negative(refresh_s=self.refresh_s, hold_s=self.hold_s)
        if self.capacity_share > 1:
            raise ValueError(f"capacity_share={self.capacity_share:g}: expected at most 1")
        require_replicas(self.max_replicas)

    @property
    def capacity_per_s(self) -> float:
        """C: what one consumer carries."""
        return self.service_rate_per_s * self.capacity_share


class MwfRscoreState(msgspec.Struct, frozen=True):
    """The reading that rates are differences to, and when the partitions were last packed."""

    offsets: EndOffsets = EndOffsets()
    packed_s: float | None = None


class MwfRscore:
    """As few consumers as the rates need, with as little standing still as possible."""

    name: ClassVar[str] = "mwf-rscore"
    fleets: ClassVar[type[StreamObservation]] = StreamObservation
    paper: ClassVar[str] = "Landau, Saurabh, Andrade, Barbosa, arXiv 2402.06085"
    Parameters: ClassVar[type[MwfRscoreParameters]] = MwfRscoreParameters
    State: ClassVar[type[MwfRscoreState]] = MwfRscoreState

    def __init__(self, parameters: MwfRscoreParameters) -> None:
        self.parameters = parameters

    @property
    def period_s(self) -> float:
        """The decision interval."""
        return self.parameters.decision_interval_s

    def start(self, seed: int) -> MwfRscoreState:  # noqa: ARG002 - nothing is drawn
        """No reading yet."""
        return MwfRscoreState()

    def decide(self, observation: StreamObservation, state: MwfRscoreState) -> tuple[Decision, MwfRscoreState]:
        """Pack anew if there is a reason to, and follow the packing."""
        p = self.parameters
        seen = MwfRscoreState(state.offsets.updated(observation, p.decision_interval_s), state.packed_s)
        try:
            tick = read(
                observation,
                state.offsets,
                interval_s=p.decision_interval_s,
                hold_s=p.hold_s,
                max_replicas=p.max_replicas,
                needs_lag=False,
            )
        except CannotDecide as reason:
            return hold(observation.fleet, str(reason)), seen
        rates = list(tick.load.rates_per_s)
        why: dict[str, Term] = {
            "partitions": list(tick.partitions),
            "rate_per_s": [*rates],
            "current": list(in_partitions(tick.current, tick.partitions)),
            "current_from": tick.assignment,
            "capacity_per_s": p.capacity_per_s,
            "replicas": tick.replicas,
        }
        trigger = self._trigger(tick, observation.time_s, state.packed_s)
        why["trigger"] = trigger
        if trigger is None:
            return Decision(action="none", why={tick.fleet: {**why, "action": "none"}}), seen
        packed = modified_worst_fit(rates, tick.current, p.capacity_per_s, order=p.order, most=tick.most)
        why["r_score"] = r_score(rates, tick.current, packed.groups, p.capacity_per_s)
        why |= {"MWF": len(packed.used), "MWF_groups": list(in_partitions(packed.used, tick.partitions))}
        if packed.overfull:
            why["capped"] = f"{tick.most} replicas are not enough"
        after = MwfRscoreState(seen.offsets, observation.time_s)
        if len(packed.used) != tick.replicas:
            return resize(tick, len(packed.used), packed.used, why), after
        return reassign(tick, packed.used, why), after

    def _trigger(self, tick: Tick, time_s: float, packed_s: float | None) -> str | None:
        """Why to pack now, None for no reason."""
        p = self.parameters
        if len([group for group in tick.current if group]) != tick.replicas:
            return "replicas and plan do not agree"
        for index, group in enumerate(tick.current):
            if fsum(tick.load.rates_per_s[each] for each in group) > p.capacity_per_s + TOLERANCE and len(group) > 1:
                return f"consumer {index} is over its capacity"
        if packed_s is None or time_s - packed_s >= p.refresh_s - TOLERANCE_S:
            return "refresh"
        return None
