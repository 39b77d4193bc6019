"""Modified Worst Fit with the R-score: bin packing of partitions by rate that moves as few of them as possible.

Landau, Saurabh, Andrade and Barbosa, "Multi-Objective Optimization of Consumer Group Autoscaling in Message Broker
Systems", arXiv 2402.06085. Written from the paper's description and the behaviour of their public code; where these
leave something open, we chose:

- consumers are taken by their heaviest partition (the variant MWFP); ``order`` total takes them by their total (MWF);
- a partition heavier than a consumer's capacity counts as that capacity: it fills a consumer of its own;
- a consumer carries ``capacity_share`` of its service rate, 0.9 as the bin-pack scalers' f_up (theirs is measured);
- the partitions are packed again when a consumer's rate exceeds its capacity, when replicas and plan do not agree, and
  when ``refresh_s`` have passed since the last time (their state machine has such a time; its value is ours).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import fsum, inf
from typing import ClassVar, Literal, NamedTuple

import msgspec

from controller.queueing.rounding import TOLERANCE
from controller.scalers.shared.base import TOLERANCE_S
from controller.scalers.shared.parameters import Candidates, NotNegative, Positive
from controller.scalers.shared.stream_scaler import RateState, StreamParameters, StreamScaler, StreamTick, in_partitions
from penstock.contracts import Decision, Groups, Term

Order = Literal["heaviest", "total"]


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

    Consumer by consumer: its partitions move, the lightest first, to consumers that are open already, as long as one
    fits; it keeps the others, the heaviest first, as long as it can carry them. The remaining ones go last, heaviest
    first, to an open consumer or to one opened for them.
    """
    rates = [min(rate, capacity_per_s) for rate in rates_per_s]
    packing = _Packing(rates, capacity_per_s, len(current), most)
    loose: list[int] = []
    weigh = max if order == "heaviest" else fsum
    holding = [index for index, group in enumerate(current) if group]
    for index in sorted(holding, key=lambda index: weigh([rates[p] for p in current[index]]), reverse=True):
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
    """Σ rate of the partitions that change their consumer, over C: how many consumers' capacities stand still."""
    homes = {partition: index for index, group in enumerate(current) for partition in group}
    moved = (p for index, group in enumerate(following) for p in group if homes.get(p) != index)
    return fsum(rates_per_s[p] for p in moved) / capacity_per_s


class _Packing:
    """The open consumers of the next assignment by index, in the order of opening: their partitions and their rates."""

    def __init__(self, rates: list[float], capacity_per_s: float, known: int, most: int | None) -> None:
        self.rates, self.capacity_per_s = rates, capacity_per_s
        self.known, self.most = known, most or inf
        self.groups: dict[int, list[int]] = {}
        self.load_per_s: dict[int, float] = {}
        self.overfull = False

    def fits(self, partition: int, index: int) -> bool:
        return self.load_per_s[index] + self.rates[partition] <= self.capacity_per_s + TOLERANCE

    def place(self, partition: int) -> bool:
        """Worst fit among the open consumers; among equals the one opened first."""
        fitting = [index for index in self.groups if self.fits(partition, index)]
        if fitting:
            self._give(partition, min(fitting, key=self.load_per_s.__getitem__))
        return bool(fitting)

    def keep(self, partition: int, index: int) -> bool:
        """Leave the partition with its consumer, which is opened if it may be and is not."""
        if index not in self.groups:
            if len(self.groups) >= self.most:
                return False
            self._open(index)
        if not self.fits(partition, index):
            return False
        self._give(partition, index)
        return True

    def open_for(self, partition: int) -> None:
        """Open a new consumer, since the partition's own one is open, and full. At the limit the emptiest takes it."""
        if len(self.groups) >= self.most:
            self.overfull = True
            self._give(partition, min(self.groups, key=self.load_per_s.__getitem__))
            return
        index = max((self.known, *(i + 1 for i in self.groups)))
        self._open(index)
        self._give(partition, index)

    def _open(self, index: int) -> None:
        self.groups[index], self.load_per_s[index] = [], 0.0

    def _give(self, partition: int, index: int) -> None:
        self.groups[index].append(partition)
        self.load_per_s[index] += self.rates[partition]

    def assignment(self) -> Assignment:
        size = max((self.known, *(index + 1 for index in self.groups)))
        return Assignment(tuple(tuple(sorted(self.groups.get(i, ()))) for i in range(size)), self.overfull)


@dataclass(frozen=True)
class MwfRscoreParameters(StreamParameters):
    """See the module for what was chosen."""

    candidates: ClassVar[Mapping[str, Candidates]] = {
        "capacity_share": Candidates((0.3, 0.45, 0.6, 0.75, 0.9)),
        "hold_s": Candidates((0.0, 10.0, 30.0)),
        "decision_interval_s": Candidates((1.0, 5.0)),
        "refresh_s": Candidates((10.0, 30.0, 120.0)),
    }
    capacity_share: Positive = 0.9
    order: Order = "heaviest"
    refresh_s: NotNegative = 30.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.capacity_share > 1:
            raise ValueError(f"capacity_share={self.capacity_share:g}: expected at most 1")

    @property
    def capacity_per_s(self) -> float:
        """C: events per second that one consumer carries."""
        return self.service_rate_per_s * self.capacity_share


class MwfRscoreState(RateState, frozen=True):
    """``packed_s``: when the partitions were last packed."""

    packed_s: float | None = None


class MwfRscore(StreamScaler[MwfRscoreParameters, MwfRscoreState]):
    """As few consumers as the rates need, with as few moves of partitions as possible."""

    name: ClassVar[str] = "mwf-rscore"
    paper: ClassVar[str] = "Landau, Saurabh, Andrade, Barbosa, arXiv 2402.06085"
    needs_lag: ClassVar[bool] = False

    def decide_tick(self, tick: StreamTick, state: MwfRscoreState) -> tuple[Decision, MwfRscoreState]:
        """Pack again if there is a reason to, and follow the packing."""
        p, rates = self.parameters, list(tick.load.rates_per_s)
        trigger = self._trigger(tick, state.packed_s)
        why: dict[str, Term] = {
            "partitions": list(tick.partitions),
            "rate_per_s": rates,
            "current": list(in_partitions(tick.current, tick.partitions)),
            "current_from": tick.assignment,
            "capacity_per_s": p.capacity_per_s,
            "replicas": tick.replicas,
            "trigger": trigger,
        }
        if trigger is None:
            return tick.resized(tick.replicas, tick.current, why), state
        packed = modified_worst_fit(rates, tick.current, p.capacity_per_s, order=p.order, most=tick.most)
        groups = in_partitions(packed.used, tick.partitions)
        why["r_score"] = r_score(rates, tick.current, packed.groups, p.capacity_per_s)
        why |= {"MWF": len(groups), "MWF_groups": list(groups)}
        if packed.overfull:
            why["capped"] = f"{tick.most} replicas are not enough"
        after = msgspec.structs.replace(state, packed_s=tick.observation.time_s)
        if len(groups) != tick.replicas:
            return tick.resized(len(groups), packed.used, why), after
        return tick.reassigned(packed.used, why), after

    def _trigger(self, tick: StreamTick, packed_s: float | None) -> str | None:
        """The reason to pack now, if there is one."""
        p = self.parameters
        if len([group for group in tick.current if group]) != tick.replicas:
            return "replicas and plan do not agree"
        for index, group in enumerate(tick.current):
            if fsum(tick.load.rates_per_s[each] for each in group) > p.capacity_per_s + TOLERANCE and len(group) > 1:
                return f"consumer {index} is over its capacity"
        if packed_s is None or tick.observation.time_s - packed_s >= p.refresh_s - TOLERANCE_S:
            return "refresh"
        return None
