"""What nobody can undercut: the least cost of keeping a share of the events of a known schedule within the SLO.

A consumer group is paid per replica and second, and one decision a second is carried out. Of a burst, n replicas
finish at most g(n) events in time, under the best grouping of the partitions. The least Σ n with Σ g(n) at the share is
bounded from below by Lagrangian duality (Everett, Operations Research 11, 1963): a price for each late event makes the
seconds independent but for start-up and stop of replicas, and dynamic programming solves the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, ClassVar, NamedTuple

import numpy as np

from controller.scalers.shared.base import NoState, resize
from controller.scalers.shared.lpt import groups_of, lpt
from experiments.driver import schedule_of
from experiments.experiment import Experiment, Options, run_spec, system_at_speed
from penstock.clock import NANOS_PER_SECOND
from penstock.compiled import njit
from penstock.contracts import Decision, Groups, StreamObservation
from penstock.distributions import Floats
from penstock.errors import PenstockError
from penstock.plan import same_grouping
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from penstock.systems import StreamSystem
from simulator.in_memory_run import run_to_end
from simulator.lindley import Ints
from simulator.stream import StreamEngine

EXACT_PARTITIONS = 10
"""Up to so many partitions all groupings are tried; beyond, a burst may be split over the replicas at will."""
ROUNDS = 40
PLANS = 9
"""Prices at which a plan is tried, by bisection, for each of the margins."""
MARGINS = (1.0, 0.98, 0.95, 0.9)
"""Parts of a replica's capacity that a plan counts on: service times vary, and rebalances stop the group."""
HIGHEST_PRICE = 100.0
"""Replica-seconds per late event at which bisection begins."""


class Bound(NamedTuple):
    """``least_minutes``: no scaler that keeps ``share`` pays less, in replica-minutes. ``plan_minutes``: what the
    cheapest plan found paid in the simulator, keeping ``plan_share``; None if none of them kept the share.
    ``assumptions`` are those of a run in virtual time.
    """

    share: float
    events: int
    least_minutes: float
    plan_minutes: float | None
    plan_share: float | None
    assumptions: str


@dataclass(frozen=True, slots=True, eq=False)
class Bursts:
    """Events by second and partition, and a decision ``phase`` seconds after each burst. In seconds of the run."""

    counts: Ints
    rate: float
    limit: float
    """Of an event, less the margin of a plan."""
    phase: float
    system: StreamSystem
    pause: float
    most: int

    @classmethod
    def of(cls, spec: RunSpec, schedule: Schedule) -> "Bursts":
        """Of a run of a consumer group. PenstockError for events that are not in bursts at whole seconds."""
        second_ns = round(NANOS_PER_SECOND / spec.speed)
        assert isinstance(spec.system, StreamSystem)
        system = system_at_speed(spec.system, 1 / spec.speed)
        if (schedule.intended_offset_ns % second_ns).max() > 1000:
            raise PenstockError(f"{spec.experiment}: a bound is known for bursts at whole seconds only")
        if not spec.worker.service_time_s:
            raise PenstockError("worker.service_time_s is 0: the bound needs the service time")
        seconds = ceil(spec.duration_s * spec.speed)
        second = schedule.intended_offset_ns // second_ns
        counts = np.zeros((seconds, spec.partitions), np.int64)
        np.add.at(counts, (second, schedule.partition), 1)
        pause = system.rebalance_s + spec.worker.rebalance_pause_s * spec.speed
        return cls(
            counts,
            1 / (spec.worker.service_time_s * spec.speed),
            spec.slo_s * spec.speed,
            spec.tick_phase_s * spec.speed % 1.0,
            system,
            pause,
            min(spec.max_replicas, spec.partitions),
        )

    @property
    def within(self) -> bool:
        """Whether decisions fall between a burst and its limit."""
        return self.phase < self.limit

    def paid_early(self) -> int:
        """Whole seconds for which a replica is paid before it can serve: one that joins before the limit counts as if
        it had been there from the start.
        """
        head_start = self.limit - self.phase + (0 if self.within else 1)
        return ceil(max(0.0, self.system.start_up_s - head_start) - 1e-9)

    def late(self) -> Floats:
        """At least so many events are late, by second, and by replicas before and after the decision that concerns it,
        less one each. For decisions between bursts that is the decision before the burst, else the one after it.
        """
        n = np.arange(1, self.most + 1)
        total = self.counts.sum(axis=1)
        at_once = self.system.start_up_s == 0 and not self.system.cooperative
        changes = (n[:, None] != n[None, :]) & at_once
        if self.within:
            after = np.maximum(0.0, self.limit - self.phase - self.pause * changes)
            capacity = self.rate * (n[:, None] * self.phase + n[None, :] * after)
            return np.asarray(np.maximum(0.0, total[:, None, None] - np.floor(capacity + 1e-9)))
        lost = np.maximum(0.0, self.phase + self.pause - 1)
        late: Floats = np.empty((len(total), self.most, self.most))
        for seconds, stopped in ((self.limit, ~changes), (max(0.0, self.limit - lost), changes)):
            served = most_in_time(self.counts, int(self.rate * seconds + 1e-9), self.most, EXACT_PARTITIONS)
            late = np.where(stopped, (total[:, None] - served)[:, None, :], late)
        return late

    def transitions(self) -> Floats:
        """Replica-seconds beside those that serve, by replicas before and after."""
        added = np.arange(self.most)[None, :] - np.arange(self.most)[:, None]
        return np.asarray(np.maximum(0, added) * self.paid_early() + np.maximum(0, -added) * self.system.stop_s)


@njit(cache=True)
def served_by_subset(loads: Ints, capacity: int, most: int) -> tuple[Floats, Floats]:
    """(by subset of the partitions: events that one group of them finishes; by groups less one and subset: the most
    that so many groups finish), ``capacity`` events each. Dynamic programming over subsets, written as sets of bits.
    """
    sets = 1 << len(loads)
    one, best = np.zeros(sets), np.zeros((most, sets))
    for members in range(sets):
        load = 0
        for p in range(len(loads)):
            if members >> p & 1:
                load += loads[p]
        one[members] = min(load, capacity)
    best[0] = one
    for n in range(1, most):
        best[n] = best[n - 1]
        if best[n, sets - 1] == loads.sum():
            continue
        for members in range(1, sets):
            part = members
            while part:
                served = one[part] + best[n - 1, members ^ part]
                if served > best[n, members]:
                    best[n, members] = served
                part = (part - 1) & members
    return one, best


@njit(cache=True)
def most_in_time(counts: Ints, capacity: int, most: int, exact: int) -> Floats:
    """g(n), shape (seconds, most): the most events of each second that n groups of partitions finish, ``capacity``
    each. Of more than ``exact`` partitions, the pooled capacity.
    """
    found = np.empty((len(counts), most))
    for t in range(len(counts)):
        if counts.shape[1] > exact:
            found[t] = np.minimum(counts[t].sum(), np.arange(1, most + 1) * capacity)
        else:
            found[t] = served_by_subset(counts[t], capacity, most)[1][:, -1]
    return found


def best_groups(loads: Sequence[int], capacity: int, groups: int) -> Groups:
    """The grouping that finishes the most events; longest processing time first where that is as good, or where there
    are too many partitions to try all.
    """
    packed = groups_of(lpt(loads, groups), groups)
    if len(loads) > EXACT_PARTITIONS:
        return packed
    one, best = served_by_subset(np.array(loads, np.int64), capacity, groups)
    rest = best.shape[1] - 1
    if sum(min(sum(loads[p] for p in group), capacity) for group in packed) >= best[-1, rest]:
        return packed
    parts = []
    for n in range(groups - 1, 0, -1):
        fits = (part for part in range(rest + 1) if part & rest == part)
        part = next(each for each in fits if one[each] + best[n - 1, rest ^ each] == best[n, rest])
        parts.append(part)
        rest ^= part
    return tuple(tuple(p for p in range(len(loads)) if part >> p & 1) for part in (*parts, rest))


@njit(cache=True)
def cheapest(late: Floats, transitions: Floats, price: float, first: int, within: bool) -> tuple[float, float, Ints]:
    """(replica-seconds, late events, replicas by second) of the least replica-seconds + price · late events, from
    ``first`` replicas in the first second on.
    """
    seconds, most = late.shape[0], late.shape[1]
    value = np.full((seconds + 1, most), np.inf)
    step = np.zeros((seconds + 1, most), np.int64)
    value[0, first - 1] = 0.0 if within else price * late[0, first - 1, first - 1]
    for t in range(1, seconds + 1):
        # The decision of second t - 1 concerns its own burst, or the next one.
        burst = t - 1 if within else t
        for n in range(most):
            for before in range(most):
                total = value[t - 1, before]
                total += price * late[burst, before, n] if burst < seconds else 0.0
                total += n + 1 + transitions[before, n] if t < seconds else 0.0
                if total < value[t, n]:
                    value[t, n], step[t, n] = total, before
    plan = np.empty(seconds + 1, np.int64)
    plan[seconds] = np.argmin(value[seconds])
    for t in range(seconds, 0, -1):
        plan[t - 1] = step[t, plan[t]]
    paid, missed = 0.0, 0.0 if within else late[0, first - 1, first - 1]
    for t in range(1, seconds + 1):
        burst = t - 1 if within else t
        missed += late[burst, plan[t - 1], plan[t]] if burst < seconds else 0.0
        paid += plan[t] + 1 + transitions[plan[t - 1], plan[t]] if t < seconds else 0.0
    return paid, missed, plan + 1


def least(bursts: Bursts, first: int, share: float) -> float:
    """Replica-seconds that no plan undercuts. PenstockError if the largest fleet cannot keep the share."""
    late, transitions = bursts.late(), bursts.transitions()
    events, fewest = int(bursts.counts.sum()), late.min(axis=(1, 2)).sum()
    allowed = (1 - share) * events
    if fewest > allowed:
        raise PenstockError(f"--share {share:g}: of {events} events, {fewest:.0f} are late with {bursts.most} replicas")
    ends = first * bursts.phase + (1 - bursts.phase)  # before the first decision, and one replica after the last
    best, low, high = 0.0, 0.0, 1.0
    while cheapest(late, transitions, high, first, bursts.within)[1] > allowed and high < 1e6:
        high *= 2
    for _ in range(ROUNDS):
        price = (low + high) / 2
        paid, missed, _ = cheapest(late, transitions, price, first, bursts.within)
        best = max(best, paid + price * (missed - allowed))
        low, high = (price, high) if missed > allowed else (low, price)
    return best + ends


class ClairvoyantPlan:
    """Carries a plan out: the replicas of the coming bursts, requested in time. Those that will have joined by the next
    burst, which is known, are grouped for it.
    """

    name: ClassVar[str] = "clairvoyant-plan"
    fleets: ClassVar[type[Any]] = StreamObservation
    paper: ClassVar[str] = "none"
    Parameters: ClassVar[type[Any]] = NoState
    State: ClassVar[type[Any]] = NoState
    parameters = NoState()

    def __init__(self, bursts: Bursts, plan: Sequence[int], period_s: float) -> None:
        self._bursts, self.period_s = bursts, period_s
        self._capacity = int(bursts.rate * bursts.limit + 1e-9)
        until_next = 1 - bursts.phase
        joined = bursts.system.start_up_s + bursts.pause if bursts.system.start_up_s else 0.0
        self._ahead = ceil(max(0.0, joined - until_next) - 1e-9)
        self._wanted = [max(plan[at + 1 : at + 2 + self._ahead] or plan[-1:]) for at in range(len(plan))]

    def start(self, seed: int) -> NoState:  # noqa: ARG002 - nothing is drawn
        """Nothing to remember."""
        return NoState()

    def decide(self, observation: StreamObservation, state: NoState) -> tuple[Decision, NoState]:
        """The plan's next replicas. Equal numbers are regrouped if more of the next burst is in time then."""
        second = int(observation.time_s / self.period_s)
        replicas = self._wanted[min(second, len(self._wanted) - 1)]
        there = min(self._wanted[max(0, second - self._ahead) : second + 1] or [replicas])
        loads = [each.lag or 0 for each in observation.partitions]
        if not self._bursts.within and second + 1 < len(self._bursts.counts):
            loads = [lag + int(new) for lag, new in zip(loads, self._bursts.counts[second + 1], strict=True)]
        groups = best_groups(loads, self._capacity, there)
        if replicas != observation.replicas.current:
            return resize(observation, replicas, {}, groups), state
        if same_grouping(groups, observation.plan) or self._served(groups, loads) <= self._served(
            observation.plan, loads
        ):
            return Decision(action="none"), state
        return Decision(action="reassign", targets={observation.fleet: replicas}, assignment=groups), state

    def _served(self, groups: Groups, loads: Sequence[int]) -> float:
        return sum(min(sum(loads[p] for p in group), self._capacity) for group in groups)


def bound(experiment: Experiment, options: Options, share: float) -> Bound:
    """The least cost of keeping ``share`` on the schedule of these options, and of a plan that was carried out.

    PenstockError where no bound is known, and for a share that the largest fleet cannot keep.
    """
    spec, schedule = described(experiment, options)
    bursts = Bursts.of(spec, schedule)
    replica_minutes = least(bursts, spec.initial_replicas, share) / spec.speed / 60
    found = [plan for margin in MARGINS if (plan := cheapest_plan(bursts, margin, spec, schedule, share)) is not None]
    cost, kept = min(found, default=(None, None))
    return Bound(share, len(schedule), replica_minutes, cost, kept, spec.assumptions)


def described(experiment: Experiment, options: Options) -> tuple[RunSpec, Schedule]:
    """A run of these options and its schedule, whoever would scale it. PenstockError for another kind of fleet."""
    if not isinstance(experiment.system, StreamSystem):
        raise PenstockError(f"{experiment.name}: a bound is known for consumer groups only")
    spec = run_spec(experiment, "overprovision", options, run="bound")
    return spec, schedule_of(experiment, options, spec)


def least_minutes(experiment: Experiment, options: Options, share: float) -> float:
    """The bound alone, in replica-minutes."""
    spec, schedule = described(experiment, options)
    return least(Bursts.of(spec, schedule), spec.initial_replicas, share) / spec.speed / 60


def least_of_run(spec: RunSpec, schedule: Schedule) -> float:
    """The bound of a run's own schedule and share. PenstockError where none is known."""
    if not isinstance(spec.system, StreamSystem) or spec.worker.service_law != "deterministic":
        raise PenstockError(f"{spec.experiment}: no bound is known for such a fleet")
    return least(Bursts.of(spec, schedule), spec.initial_replicas, spec.slo_share) / spec.speed / 60


def cheapest_plan(
    bursts: Bursts, margin: float, spec: RunSpec, schedule: Schedule, share: float
) -> tuple[float, float] | None:
    """(replica-minutes, share) of the cheapest plan found that keeps the share in the simulator; None if none does."""
    careful = replace(bursts, limit=bursts.limit * margin)
    late, transitions = careful.late(), careful.transitions()
    low, high, best = 0.0, HIGHEST_PRICE, None
    for tried in range(PLANS):
        price = high if tried == 0 else (low + high) / 2 if low else high / 4
        _, _, plan = cheapest(late, transitions, price, spec.initial_replicas, careful.within)
        scaler = ClairvoyantPlan(bursts, plan.tolist(), 1.0 / spec.speed)
        run = run_to_end(spec, StreamEngine(spec, schedule), scaler)
        _, response_s = run.responses()
        kept = float((response_s <= spec.slo_s + 1e-9).mean())
        if kept < share and tried == 0:
            return None
        if kept < share:
            low = price
        else:
            high, found = price, (run.replica_minutes(), kept)
            best = found if best is None else min(best, found)
    return best
