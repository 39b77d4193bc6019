"""A scaler that keeps a share of the events within the SLO at the least cost: one number per candidate, each tick.

A newsvendor buys papers before he knows how many he can sell: one too many costs its price, one too few a lost sale.
Here a replica costs its seconds, and too few of them cost late events. With λ replica-seconds as the price of a late
event, the scaler minimises replicas + λ · expected late events over 1 … P replicas, in closed form: Arrow, Harris and
Marschak, "Optimal Inventory Policy", Econometrica 19 (1951), for the loss function; docs/newsvendor.md explains it.

All times of the calculation are in decision intervals T, which is one second of the run; the monitor's slots cover it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, erfc, inf, pi, sqrt
from typing import Any, ClassVar, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from controller.scalers.shared.base import JITTER, CannotDecide, all_reasons
from controller.scalers.shared.beliefs import Beliefs, Believed, typical
from controller.scalers.shared.differencing import differencing
from controller.scalers.shared.estimates import SETTLING, Estimates
from controller.scalers.shared.jumps import REMEMBERED, STEPS, JumpPrice
from controller.scalers.shared.lpt import group_numbers, groups_of, lpt_for_all
from controller.scalers.shared.newsvendor import PATIENCE, CumulativePrice, clip, first_price
from controller.scalers.shared.parameters import Candidates as Values
from controller.scalers.shared.parameters import NotNegative, OpenShare, Positive
from controller.scalers.shared.recourse import FEW_PARTITIONS, Load, Service, weights
from controller.scalers.shared.stream_scaler import RateState, StreamParameters, StreamScaler, StreamTick
from penstock.contracts import ARRIVAL_SLOTS, Decision, Groups, StreamObservation, Term, hold
from penstock.plan import match_members, same_grouping

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MARGIN: Final = 0.05
"""Of an interval: the spread of service times around the limit."""
SPARE: Final = 0.85
"""Of the time between a pause and the limit, the part that a smooth load may use as a buffer."""
CLUMP: Final = 5.0
"""Late events of a long rebalance come together: their count varies like that of so many times fewer single ones."""
LEAST_EXPECTED: Final = 5.0
"""Late events of a scale-in or of a jump: fewer of them are not compared with those that are counted."""
LEAST_RATIO, MOST_RATIO = 0.1, 3.0
REGRET: Final = 0.25
"""Fewer replicas, where a rebalance is long, get this part of the cost that they would have saved by now as a credit:
the longer they would have been enough, the longer they will be.
"""
BESIDE_JUMPS: Final = 0.75
"""Of the late events that the price aims at, those that it may use where jumps are expected, which need the others."""
LEAST_BESIDE_JUMPS: Final = 0.25
"""That part, if jumps have used more of the contract than the rest."""
LEAST_LIMIT: Final = 0.5
"""Of the SLO, what is left at least to waiting and service when the delivery of an event took its part."""
MOST_BUSY: Final = 0.97
BURSTS: Final = 0.5
"""Of β: arrivals are bursts."""
AT_TURNS: Final = 2.0
"""Times the variance of a forecast over a start-up, in bursts that others cannot answer in time: its errors are the
largest where a load turns, and come one after the other there.
"""
LONG: Final = 0.5
"""Of the limit: a rebalance that takes more than this part of it cannot always fall between the bursts."""
OVERDUE: Final = 0.5
"""Of a start-up: a replica that takes longer by this part, and one interval, is not counted on."""
GAP: Final = 1.5
"""Intervals from one reading to the next: a reading is missing."""
SPREAD: Final = 0.01
"""Of the next burst, its weight where partitions are grouped for a replica that joins in the midst of this one: it is
grouped in its turn, but partitions of which no event waits are not to be left to one replica.
"""
TIE: Final = 1e-9


class LateRatios(msgspec.Struct, frozen=True):
    """How many events were late after scale-ins or jumps, as multiples of those that were expected to be late: when a
    removed replica leaves is not observed, and jumps differ.

    ``ratios``: of the last ones. ``until``: tick at which the late events of the present one are counted, None if there
    is none; ``late``: the count before it; ``expected``: its own.
    """

    ratios: tuple[float, ...] = ()
    until: int | None = None
    late: int = 0
    expected: float = 0.0

    def begun(self, until: int, late: int | None, expected: float) -> "LateRatios":
        """With a decision for fewer replicas, or with a jump."""
        before = self.counted(late)
        if late is None or expected < LEAST_EXPECTED:
            return before
        return LateRatios(before.ratios, until, late, expected)

    def updated(self, ticks: int, late: int | None) -> "LateRatios":
        """With the count of late events."""
        return self if self.until is None or ticks < self.until else self.counted(late)

    def counted(self, late: int | None) -> "LateRatios":
        """With those of the present one."""
        if late is None or self.until is None:
            return self
        ratio = clip((late - self.late) / self.expected, LEAST_RATIO, MOST_RATIO)
        return LateRatios((*self.ratios, ratio)[-REMEMBERED:])


class LateEvents(msgspec.Struct, frozen=True):
    """Late events by their cause. ``counted``: all of them. ``unforeseen``: of loads that nothing had announced when
    replicas for them had to be requested. ``joined``: replicas at the last count; ``stopped_until``: other late events
    up to this tick are of a rebalance, ``stopped`` their number. ``by_jumps``: of expected jumps, which λ itself does
    not answer. ``scale_ins``, ``jumps``: how many events those made late.
    """

    counted: int | None = None
    unforeseen: int = 0
    joined: int = 0
    stopped: int = 0
    stopped_until: int = 0
    by_jumps: int = 0
    scale_ins: LateRatios = LateRatios()
    jumps: LateRatios = LateRatios()

    def updated(
        self, observed: StreamObservation, estimates: Estimates, after_rebalance: int, *, insured: bool
    ) -> "LateEvents":
        """With a new count, which may be unknown. ``after_rebalance``: tick up to which late events are of a rebalance
        that begins now. ``insured``: jumps are expected.
        """
        ticks, joined = estimates.ticks, observed.replicas.joined
        late = 0 if observed.late is None or self.counted is None else max(0, observed.late - self.counted)
        surprised = ticks <= estimates.surprised_until
        of_a_jump = insured and (surprised or ticks <= estimates.jumps.calm_until)
        stopped_until = self.stopped_until if joined == self.joined else after_rebalance
        return LateEvents(
            counted=observed.late,
            unforeseen=self.unforeseen + late * surprised,
            joined=joined,
            stopped=self.stopped + late * (not surprised and ticks <= stopped_until),
            stopped_until=stopped_until,
            by_jumps=self.by_jumps + late * of_a_jump,
            scale_ins=self.scale_ins.updated(ticks, observed.late),
            jumps=self.jumps.updated(ticks, observed.late),
        )

    def beside_jumps(self, slo_share: float, finished: int | None) -> float:
        """Of the late events that are allowed, the part that other causes may use: what jumps leave, within limits."""
        used = self.by_jumps / ((1 - slo_share) * finished) if finished else 0.0
        return clip(1 - used, LEAST_BESIDE_JUMPS, BESIDE_JUMPS)


class NewsvendorState(RateState, frozen=True):
    """``slots``: arrivals of the last interval by partition, read at ``read_s``. ``fewer``: decisions in a row that
    wanted fewer replicas. ``requested_s``: time of the last request. ``late``: late events by cause. ``beliefs``: what
    is measured of replicas and rebalances. ``idle``: decisions in a row in which fewer replicas would have cost less,
    but for the change. ``jump_price``: the least price for which jumps are the reason. ``starting_s``: times at which
    the replicas were requested that start, oldest first.
    """

    estimates: Estimates = Estimates()
    price: CumulativePrice = CumulativePrice()
    slots: tuple[tuple[int, ...], ...] = ()
    read_s: float | None = None
    fewer: int = 0
    requested_s: float | None = None
    late: LateEvents = LateEvents()
    beliefs: Beliefs = Beliefs()
    idle: int = 0
    jump_price: JumpPrice = JumpPrice()
    starting_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class NewsvendorParameters(StreamParameters):
    """``slo_share`` of the events is to take ``slo_s`` at most. ``price_s`` fixes λ in replica-seconds per late event;
    None: it is found from the share. ``service_rate_per_s``, ``start_up_s`` and ``rebalance_time_s`` (medians) count
    until they are measured; with ``calibrate`` false they always do. ``announced_peak_per_s``: arrivals per second that
    may come at any time, without warning; None: until the load changes, it is expected to triple.
    """

    candidates: ClassVar[Mapping[str, Values]] = {
        "slo_share": Values((0.99, 0.995, 1.0, 1.004, 1.007), ("slo_share",)),
        "slo_s": Values((0.8, 1.0), ("slo_s",)),
    }
    slo_s: Positive = 0.5
    slo_share: OpenShare = 0.99
    start_up_s: NotNegative = 1.2
    rebalance_time_s: NotNegative = 0.09
    cooperative: bool = False
    price_s: Positive | None = None
    calibrate: bool = True
    announced_peak_per_s: Positive | None = None

    @property
    def configured(self) -> Believed:
        """The beliefs at the start."""
        return Believed(self.service_rate_per_s, self.start_up_s, self.rebalance_time_s)


class Fleet(NamedTuple):
    """One replica and one rebalance, in intervals and events: μ, w (less the delivery of an event), S, t_r, and how a
    rebalance stops the group.
    """

    rate: float
    limit: float
    start_up: float
    pause: float
    cooperative: bool

    @classmethod
    def of(cls, p: NewsvendorParameters, believed: Believed) -> "Fleet":
        """From seconds."""
        interval_s = p.decision_interval_s
        return cls(
            believed.service_rate_per_s * interval_s,
            max(LEAST_LIMIT * p.slo_s, p.slo_s - believed.delivery_s) / interval_s,
            believed.start_up_s / interval_s,
            believed.rebalance_time_s / interval_s,
            p.cooperative,
        )

    @property
    def ahead(self) -> int:
        """h: intervals from a decision until a replica that it requests serves a whole one."""
        return max(1, ceil(self.start_up + 1))

    @property
    def horizon(self) -> float:
        """D: intervals over which the cost of a change is spread."""
        return 2 + 10 * self.pause

    @property
    def long_pause(self) -> bool:
        """A rebalance takes so long that it cannot always fall between the bursts."""
        return self.pause > LONG * self.limit

    def in_time(self, estimates: Estimates) -> bool:
        """Replicas that are requested when a burst is seen can still serve it within the limit."""
        return estimates.since_burst() + self.start_up + self.pause < self.limit

    def regroups_bursts(self, estimates: Estimates) -> bool:
        """Arrivals are bursts, each of which can still be grouped anew when it is seen."""
        return estimates.burstiness() > BURSTS and estimates.since_burst() + self.pause < self.limit

    def answers_bursts(self, estimates: Estimates) -> bool:
        """Arrivals are bursts, each of which can still be answered when it is seen."""
        return estimates.burstiness() > BURSTS and self.in_time(estimates)

    def after_rebalance(self, estimates: Estimates) -> int:
        """Tick up to which late events are of a rebalance that begins now."""
        return estimates.ticks + ceil(self.pause) + SETTLING

    @property
    def patience(self) -> int:
        """Decisions in a row that have to want fewer replicas, less one."""
        return ceil(PATIENCE * self.start_up)


class Candidate(NamedTuple):
    """A number of replicas with the grouping that it would end with, and the events that its rebalance makes late.
    ``staying``: the better groups of the present number. ``idle``: fewer replicas would cost less, but for the change.
    ``late_of_a_jump``: events that a jump makes late with the present replicas; ``late_by_price``: those per interval
    with the replicas that each price of a late event asks for.
    """

    replicas: int
    groups: Groups
    changed: bool
    staying: Groups
    late_by_pause: float
    idle: bool
    late_of_a_jump: float
    late_by_price: tuple[float, ...]


class Candidates(NamedTuple):
    """All candidates: one row each. ``group_of`` has the group of each partition, −1 for none. ``at_once``: no replica
    has to start first.
    """

    replicas: Ints
    group_of: Ints
    changed: Bools
    at_once: Bools

    def groups(self, index: int) -> Groups:
        """The grouping of a candidate."""
        return groups_of(self.group_of[index].tolist(), int(self.group_of[index].max()) + 1)


class Loads(NamedTuple):
    """The groups of several groupings in one row. Of each group, ``share`` (q): its part of the arrivals, ``lag`` (l):
    its waiting events. ``first``: where the groups of each grouping begin, ``sizes``: how many they are.
    """

    share: Floats
    lag: Floats
    first: Ints
    sizes: Ints

    @classmethod
    def of(cls, group_of: Ints, shares: Sequence[float], lags: Sequence[float]) -> "Loads":
        """From the group of each partition, one row a grouping."""
        # Methods and ufuncs: other functions of NumPy take as long again for as few partitions as most topics have.
        sizes = np.maximum(group_of.max(axis=1) + 1, 1)
        ends = sizes.cumsum()
        first, total = ends - sizes, int(ends[-1])
        flat = group_of + first[:, None]
        flat[group_of < 0] = total
        flat = flat.ravel()

        def by_group(values: Sequence[float]) -> Floats:
            every = np.asarray(values, dtype=np.float64)[None].repeat(len(group_of), 0).ravel()
            return np.bincount(flat, every, total + 1)[:total].astype(np.float64, copy=False)

        return cls(by_group(shares), by_group(lags), first, sizes)

    def total(self, late: Floats) -> Floats:
        """By grouping, the sum over its groups."""
        total: Floats = np.add.reduceat(late, self.first)
        return total

    def each(self, value: Floats) -> Floats:
        """By group, the value of its grouping."""
        repeated: Floats = value.repeat(self.sizes)
        return repeated


class Scores(NamedTuple):
    """By candidate, expected late events: per interval with this capacity, of one jump, of jumps per interval, of those
    that wait now, and of those that the rebalance stops. ``next_replicas``: those that answer the next burst, None if
    none can. ``cost``: in replica-intervals over the horizon, or until that answer and with it.
    """

    missed: Floats
    of_a_jump: Floats
    jump: Floats
    waiting: Floats
    paused: Floats
    next_replicas: Floats | None
    running: Floats
    saved: Floats
    cost: Floats


class Outlook(NamedTuple):
    """What candidates are scored on. ``scale_in``, ``jump``: late events after a scale-in and after a jump as multiples
    of the expected ones. ``ready``: replicas that have joined; ``most``: that are allowed. ``idle``: decisions in a row
    in which fewer replicas would have cost less, but for the change.
    """

    fleet: Fleet
    estimates: Estimates
    price: float
    lags: Sequence[float]
    oldest: float
    in_force: Groups
    ready: int
    most: int
    replicas: int
    since_request: float
    scale_in: float
    jump: float
    idle: int

    @property
    def events(self) -> float:
        """m: events of the next interval, or of the first in which a replica requested now serves, if that is more."""
        return max(self.estimates.forecast(0), self.estimates.forecast(self.fleet.ahead - 1))

    @property
    def groups_own_events(self) -> bool:
        """Bursts can be grouped anew by their own events: few partitions, and no jump is expected."""
        few = len(self.lags) <= FEW_PARTITIONS  # beyond, groups differ little
        return few and not self.estimates.jumps.rate and self.fleet.regroups_bursts(self.estimates)

    def packed(self, most: int) -> Ints:
        """Groups for each number of replicas from 1 to ``most``: LPT of the events that wait and those of the next
        interval. Of few partitions, a burst that can still be grouped anew is grouped by the events that wait only,
        where fewer of them are late by that: the next one is grouped, too. If jumps are expected, groups are those that
        a jump falls on.
        """
        shares, lags = np.asarray(self.estimates.shares), np.asarray(self.lags, dtype=np.float64)
        groupings = lpt_for_all((np.maximum(1.0, self.estimates.forecast(0)) * shares + lags).tolist(), most)
        if not self.groups_own_events:
            return groupings
        at_once = most if self.fleet.in_time(self.estimates) else self.ready
        usual = groupings[:at_once]
        of_waiting = np.array([differencing(self.lags, n) for n in range(1, at_once + 1)])
        stopped = np.full(at_once, self.fleet.pause)
        fewer = self.too_late(self.loads(of_waiting), stopped) < self.too_late(self.loads(usual), stopped) - TIE
        return np.concatenate((np.where(fewer[:, None], of_waiting, usual), groupings[at_once:]))

    def loads(self, group_of: Ints) -> Loads:
        """Shares of the arrivals and waiting events by group."""
        return Loads.of(group_of, self.estimates.shares, self.lags)

    def score(self, candidates: Candidates, packed: Ints) -> Scores:
        """J of all candidates, the present one first. ``packed``: LPT(n) for n from 1 on, on which a jump falls."""
        loads = self.loads(candidates.group_of)
        missed, next_replicas = self.by_load(candidates.replicas, candidates.group_of, loads)
        of_a_jump = self.late_of_a_jump(packed)[candidates.replicas - 1]
        jump = self.jump * self.estimates.jumps.rate * of_a_jump
        waiting, paused = self.waiting(candidates, loads, packed), self.paused(candidates, loads)
        waiting = waiting + self.starting(candidates, loads, missed)
        running = candidates.replicas + self.price * (missed + jump)
        fewer = candidates.replicas < self.replicas
        saved = np.where(fewer, REGRET * self.idle * np.maximum(0.0, running[0] - running), 0.0)
        following = (self.horizon - 1) * running if next_replicas is None else next_replicas
        cost = running + following + self.price * (waiting + paused) - saved
        return Scores(missed, of_a_jump, jump, waiting, paused, next_replicas, running, saved, cost)

    @property
    def horizon(self) -> float:
        """Intervals over which the replicas stay: where others can answer the next burst, until that."""
        return 1.0 if self.fleet.answers_bursts(self.estimates) else self.fleet.horizon

    def by_load(self, replicas: Ints, group_of: Ints, loads: Loads) -> tuple[Floats, Floats | None]:
        """(Late events per interval; replicas that the next burst asks for, None if none can serve it in time).

        A burst that can still be grouped anew when it is seen, or served by other replicas, is answered by the choice
        of the least cost. Both are means over a sample of bursts.
        """
        if not self.fleet.regroups_bursts(self.estimates):
            return self.missed(loads), None
        rate, limit, _, pause, _ = self.fleet
        e, beta, since = self.estimates, self.estimates.burstiness(), self.estimates.since_burst()
        service = Service(rate * limit, rate * since, rate * (limit - since - pause))
        in_time, most = self.fleet.in_time(e), max(self.most, int(replicas.max()))
        variance = max(e.ahead_variance, e.variance) * (1.0 if in_time else AT_TURNS)
        load = Load(self.events, variance, np.asarray(e.shares))
        kept, answered = load.late(group_of, most, service)
        choices = replicas[:, None].repeat(most + 1, axis=1)
        if in_time:
            choices[:, 1:] = np.arange(1, most + 1)
        else:
            choices, answered = choices[:, :2], answered[np.arange(len(replicas)), :, replicas - 1, None]
        late = beta * np.concatenate((kept[:, :, None], answered), axis=2)
        least = (choices[:, None, :] + self.price * late).argmin(axis=2)
        late = np.take_along_axis(late, least[:, :, None], axis=2)[:, :, 0] @ weights()
        if beta < 1:
            late = late + (1 - beta) * self.missed(loads)
        return late, np.take_along_axis(choices, least, axis=1) @ weights() if in_time else None

    def missed(self, loads: Loads, stopped: Sequence[float] = ()) -> Floats:
        """Late events per interval if no burst is answered. The load of a group is normal: counted noise, the split
        over partitions, and the error of the forecast. Of a burst, only what exceeds the capacity up to the limit is
        late; of a smooth load on an overloaded replica, soon everything. ``stopped``: by grouping, the time of a
        rebalance before the next burst, after which more of what waits now is left.
        """
        rate, limit, start_up, pause, _ = self.fleet
        e, m, tau = self.estimates, self.events, start_up + 1
        beta, until_burst = e.burstiness(), 1 - e.since_burst()
        serving = np.maximum(0.0, until_burst - loads.each(np.asarray(stopped))) if stopped else until_burst
        own = min(e.variance, m)
        common = max(0.0, max(e.ahead_variance, e.variance) - own)
        buffer = SPARE * max(0.0, limit - pause - MARGIN) / limit
        q, lag = loads.share, loads.lag
        smooth = rate * (1 + buffer * limit / tau) - lag / tau if buffer > 0 else np.full_like(lag, MOST_BUSY * rate)
        burst = rate * limit - np.maximum(0.0, lag - rate * serving)
        capacity, mean = beta * burst + (1 - beta) * smooth, m * q
        variance = (beta + (1 - beta) / tau) * (mean * (1 - q) + q * q * own) + q * q * common
        deviation = np.sqrt(np.maximum(variance, 1e-9))
        z = (capacity - mean) / deviation
        above = _above(z)
        late = beta * deviation * (_density(z) - z * above) + (1 - beta) * mean * above
        return loads.total(np.where(q > 0, late, 0.0))

    def too_late(self, loads: Loads, stopped: Floats) -> Floats:
        """By grouping, events that wait now and will be late. ``stopped``: time of a rebalance before their service."""
        left = np.maximum(0.0, self.fleet.limit - self.oldest - stopped)
        return loads.total(np.maximum(0.0, loads.lag - self.fleet.rate * loads.each(left)))

    def waiting(self, candidates: Candidates, loads: Loads, packed: Ints) -> Floats:
        """Events that wait now and cannot be finished in time: in the candidate's groups, or until its replicas have
        started in those of now, or of those that have joined if a burst can still be grouped anew.
        """
        rate, limit, _, pause, _ = self.fleet
        at_once = self.too_late(loads, np.where(candidates.changed & candidates.at_once, pause, 0.0))
        later = sum(
            max(0.0, sum(self.lags[p] for p in group) - rate * max(0.0, limit - self.oldest)) for group in self.in_force
        )
        if self.fleet.regroups_bursts(self.estimates):
            joined = self.loads(packed[self.ready - 1 : self.ready])
            later = min(later, float(self.too_late(joined, np.array([pause]))[0]))
        return np.where(candidates.at_once, at_once, later)

    def left_after(self, wait: float) -> float:
        """Time that is left to the events that wait now after so many intervals and a rebalance."""
        return self.fleet.limit - self.oldest - wait - self.fleet.pause

    def serves_a_burst(self, wait: float) -> bool:
        """Whether a burst that can still be grouped anew is in time after so many intervals and a rebalance."""
        return wait > JITTER and self.left_after(wait) > 0 and self.fleet.regroups_bursts(self.estimates)

    def lags_after(self, wait: float, arrived: Sequence[int]) -> list[float]:
        """Events of each partition that wait after so many intervals with the groups of now. ``arrived``: of the last
        interval. A replica serves one partition after the other, first the one that it has begun; the order of the
        others is not known, and each gets the same part of the rest of the time.
        """
        lags = [float(lag) for lag in self.lags]
        for group in self.in_force:
            served, begun = self.fleet.rate * wait, [p for p in group if 0 < lags[p] < arrived[p]]
            for p in begun:
                served, lags[p] = max(0.0, served - lags[p]), max(0.0, lags[p] - served)
            others = [p for p in group if p not in begun]
            left = 1 - served / max(served, sum(lags[p] for p in others), TIE)
            for p in others:
                lags[p] *= left
        return lags

    def packed_then(self, usual: Ints, lags: Sequence[float], replicas: int) -> Ints:
        """Groups for replicas that join in the midst of a burst, of which so many events wait then. ``usual``: where
        bursts are not grouped by their own events.
        """
        if not self.groups_own_events:
            return usual
        next_ones = SPREAD * self.events * np.asarray(self.estimates.shares)
        return np.array(differencing((next_ones + lags).tolist(), replicas))

    def burst_cannot_wait(self, ready: Ints, soon: Ints, lags: Sequence[float], wait: float) -> bool:
        """Whether a burst has fewer late events if it is grouped for those that have joined, and not for those that
        join within its limit, in ``wait`` intervals, when ``lags`` are left: until then such a plan leaves the groups
        as they are. A further member stops the group in both cases.
        """
        rate, pause, left = self.fleet.rate, self.fleet.pause, self.left_after(wait)
        both = np.array([soon, ready])
        loads, replicas = self.loads(both), int(soon.max()) + 1
        later, _ = self.by_load(np.array([replicas, replicas]), both, loads)
        waits = Loads.of(both[:1], self.estimates.shares, lags).lag
        late_with_all = np.maximum(0.0, waits - rate * left).sum()
        now = loads.lag[loads.first[1] :]
        late_with_ready = np.maximum(0.0, now - rate * (left + wait - pause)).sum()
        return bool(late_with_ready + later[1] < late_with_all + later[0] - TIE)

    def starting(self, candidates: Candidates, loads: Loads, missed: Floats) -> Floats:
        """Events that are late because replicas have to start first: those that arrive while their backlog is worked
        off, and those of the time by which a further request puts off the replicas that start already.
        """
        rate, limit, start_up, _, _ = self.fleet
        m, n, now = self.events, candidates.replicas, self.replicas
        share = np.array([sum(self.estimates.shares[p] for p in group) for group in self.in_force] or [1.0])
        lag = np.array([sum(self.lags[p] for p in group) for group in self.in_force] or [0.0])
        kept = ~candidates.at_once & (n == now)
        wait = np.where(kept, max(0.0, start_up - self.since_request), start_up)
        held = np.maximum(0.0, lag + (m * share - rate) * wait[:, None] - rate * limit).sum(axis=1)
        own = loads.total(np.maximum(0.0, loads.lag + (m * loads.share - rate) * start_up - rate * limit))
        backlog = np.where(candidates.at_once, own, held)
        spare = np.maximum(0.1 * n * rate, n * rate - m)
        late: Floats = m * backlog / spare
        if kept.any():
            present = np.array([group_numbers(self.in_force, len(self.lags))])
            late_now, _ = self.by_load(present.max(axis=1) + 1, present, self.loads(present))
            lost = max(0.0, float(late_now[0]) - float(missed[int(np.argmax(kept))]))
            late = late + np.where(n > now, lost * min(self.since_request, start_up), 0.0)
        return late

    def paused(self, candidates: Candidates, loads: Loads) -> Floats:
        """Events that the rebalance makes late."""
        rate, limit, _, pause, cooperative = self.fleet
        e, m, q = self.estimates, self.events, loads.share
        stopped = stopped_of_each = np.ones(1)
        if cooperative:
            stopped = np.ones(len(candidates.replicas))
            for index in np.flatnonzero(candidates.changed).tolist():
                stopped[index] = sum(e.shares[p] for p in moved(self.in_force, candidates.groups(index)))
            stopped_of_each = loads.each(stopped)
        beta, until_burst = e.burstiness(), 1 - e.since_burst()
        full = candidates.replicas * rate
        idle = np.maximum(0.0, limit - m / full)
        lengthened = np.minimum(4.0, full / np.maximum(0.1 * full, full - m))
        burst = m * stopped * np.maximum(0.0, pause - until_burst - idle) * lengthened
        fewer = candidates.replicas < self.replicas
        if self.fleet.long_pause:
            leaving = m * loads.total(q * stopped_of_each * late_at_any_time(m * q / rate, pause, limit))
            burst = np.where(fewer, np.maximum(burst, leaving), burst)
        stops = loads.each(np.where(fewer, 2.0, 1.0))  # with the new plan, and when the removed replicas leave
        # Events that are late without the stop, too, are not its events.
        beyond = np.maximum(0.0, stops * pause - np.maximum(0.0, limit - MARGIN - loads.lag / rate))
        smooth = loads.total(m * q * stopped_of_each * beyond / np.maximum(0.1, 1 - m * q / rate))
        late = np.where(fewer, self.scale_in, 1.0) * (beta * burst + (1 - beta) * smooth)
        return np.where(candidates.changed, late, 0.0)

    def late_of_a_jump(self, packed: Ints) -> Floats:
        """Late events of one jump while no replica can be added in time; 0 before the first one. Of a burst none is
        late if replicas can still serve it in time.
        """
        if not self.estimates.jumps.rate:
            return np.zeros(len(packed))
        rate, limit, start_up, pause, _ = self.fleet
        e, beta = self.estimates, self.estimates.burstiness()
        loads, exposed = self.loads(packed), start_up + 0.5 + pause
        x = e.jumps.reach * loads.share
        excess = np.maximum(x - rate, 1e-9)
        smooth = np.where(x > rate, x * np.maximum(0.0, exposed + limit - limit * rate / excess), 0.0)
        burst = np.maximum(np.maximum(0.0, x - rate * limit) * exposed, smooth)
        return loads.total((0.0 if self.fleet.in_time(e) else beta) * burst + (1 - beta) * smooth)


class Newsvendor(StreamScaler[NewsvendorParameters, NewsvendorState]):
    """The least replicas + price · expected late events."""

    name: ClassVar[str] = "newsvendor"
    paper: ClassVar[str] = "own method: docs/newsvendor.md; loss function of Arrow, Harris, Marschak 1951"
    reads_arrivals: ClassVar[bool] = True
    interval_of_run_s: ClassVar[float] = 1.0

    def decide_tick(self, tick: StreamTick, state: NewsvendorState) -> tuple[Decision, NewsvendorState]:
        """Learn from the interval, score all candidates, take the cheapest."""
        p, observed = self.parameters, tick.observation
        beliefs = state.beliefs.updated(observed)
        believed = beliefs.believed(p.configured) if p.calibrate else p.configured
        fleet = Fleet.of(p, believed)
        try:
            slots = arrivals(tick)
        except CannotDecide as reason:
            return hold(observed.fleet, str(reason)), msgspec.structs.replace(state, beliefs=beliefs)
        elapsed = inf if state.read_s is None else (observed.time_s - state.read_s) / p.decision_interval_s
        known = state.estimates if elapsed < GAP else state.estimates.after_gap()
        known = known.announced((p.announced_peak_per_s or 0.0) * p.decision_interval_s)
        estimates = known.updated(slots, fleet.ahead, in_time=fleet.answers_bursts(known))
        insured = estimates.jumps.rate > 0 and not fleet.answers_bursts(estimates)
        late = state.late.updated(observed, estimates, fleet.after_rebalance(estimates), insured=insured)
        price = state.price.updated(
            observed.finished,
            None if observed.late is None else observed.late - late.by_jumps,
            p.slo_share,
            fleet.start_up,
            smallest=tick.replicas <= 1,
            together=CLUMP if fleet.long_pause else 1.0,
            part=late.beside_jumps(p.slo_share, observed.finished) if insured else 1.0,
            noise=not (estimates.jumps.heights or fleet.long_pause),
        )
        learned = msgspec.structs.replace(
            state,
            estimates=estimates,
            price=price,
            slots=slots,
            read_s=observed.time_s,
            requested_s=observed.time_s if state.requested_s is None else state.requested_s,
            late=late,
            beliefs=beliefs,
        )
        oldest = age_of_oldest(tick.load.lags, slots, state.slots if elapsed <= 1 + JITTER else ())
        outlook, least = self.outlook(tick, learned, fleet, oldest, insured=insured)
        packed = outlook.packed(tick.most)
        chosen, scored = choose(tick, outlook, packed, first_price(p.slo_share))
        why = terms(tick, outlook, p, believed, least) | scored
        if refused := cannot(late, observed, p, believed):
            why["cannot"] = refused
        following = self.following(tick, learned, outlook, chosen, counted=state.late.counted)
        target = chosen.replicas
        if target < tick.replicas and following.fewer <= fleet.patience:
            target = tick.replicas
            wanted = f"fewer replicas are wanted for {following.fewer} decisions"
            why["reason"] = f"{wanted}, more than {fleet.patience} are needed"
        starting_s = requests(state.starting_s, observed, target)
        following = msgspec.structs.replace(following, starting_s=starting_s)
        # Until fewer replicas have been enough for long, bursts are grouped for all.
        groups = chosen.groups if target == chosen.replicas else chosen.staying
        if target > observed.replicas.joined > 0:
            waits = [(at_s - observed.time_s) / p.decision_interval_s + fleet.start_up for at_s in starting_s]
            groups = while_starting(tick, outlook, packed, waits, [sum(each) for each in slots])
            why["grouped"] = len(groups)
        if target == tick.replicas and not same_grouping(groups, tick.current):
            return tick.reassigned(groups, why), following
        return tick.resized(target, groups, why), following

    def outlook(
        self, tick: StreamTick, learned: NewsvendorState, fleet: Fleet, oldest: float, *, insured: bool
    ) -> tuple[Outlook, float]:
        """What candidates are scored on, and the least price for which jumps are the reason; 0 where none is."""
        p, observed, late = self.parameters, tick.observation, learned.late
        assert learned.price.value is not None and learned.requested_s is not None
        least = 0.0
        if p.price_s is not None:
            price = p.price_s / p.decision_interval_s
        else:
            if insured:
                least = learned.jump_price.least(p.slo_share, observed.finished, observed.late)
            price = max(learned.price.value, least)
        outlook = Outlook(
            fleet=fleet,
            estimates=learned.estimates,
            price=price,
            lags=tick.load.lags,
            oldest=oldest,
            in_force=in_force(tick),
            ready=max(1, min(tick.observation.replicas.joined, tick.most)),
            most=tick.most,
            replicas=tick.replicas,
            since_request=(observed.time_s - learned.requested_s) / p.decision_interval_s,
            scale_in=typical(1.0, late.scale_ins.ratios) if fleet.long_pause and p.calibrate else 1.0,
            jump=typical(1.0, late.jumps.ratios) if p.calibrate else 1.0,
            idle=learned.idle,
        )
        return outlook, least

    def following(
        self, tick: StreamTick, learned: NewsvendorState, outlook: Outlook, chosen: Candidate, *, counted: int | None
    ) -> NewsvendorState:
        """The state after the decision. ``counted``: late events before this interval, in which a jump may begin."""
        fleet, e, late = outlook.fleet, outlook.estimates, learned.late
        fewer = learned.fewer + 1 if chosen.replicas < tick.replicas else 0
        scale_ins, jumps, stopped_until = late.scale_ins, late.jumps, late.stopped_until
        if e.jumps.jumped:
            jumps = jumps.begun(e.jumps.calm_until, counted, chosen.late_of_a_jump)
        if fewer > fleet.patience and fleet.long_pause:
            until = e.ticks + ceil(fleet.horizon)
            scale_ins = scale_ins.begun(until, late.counted, chosen.late_by_pause / outlook.scale_in)
        kept = chosen.replicas == tick.replicas or 0 < fewer <= fleet.patience
        regrouped = chosen.changed if chosen.replicas == tick.replicas else chosen.staying is not tick.current
        if kept and regrouped:
            stopped_until = fleet.after_rebalance(e)
        return msgspec.structs.replace(
            learned,
            fewer=fewer,
            requested_s=tick.observation.time_s if chosen.replicas > tick.replicas else learned.requested_s,
            late=msgspec.structs.replace(late, scale_ins=scale_ins, jumps=jumps, stopped_until=stopped_until),
            idle=learned.idle + 1 if fleet.long_pause and chosen.idle and kept else 0,
            jump_price=learned.jump_price.updated(chosen.late_by_price, sum(map(sum, learned.slots))),
        )


def choose(tick: StreamTick, outlook: Outlook, packed: Ints, first: float) -> tuple[Candidate, dict[str, Term]]:
    """The candidate of the least cost, the present one if none is cheaper, with the arithmetic. ``packed``: LPT(n) for
    n from 1 on; ``first``: price.
    """
    ready, starting = tick.observation.replicas.joined, tick.replicas - tick.observation.replicas.joined
    now = tick.replicas
    others = np.arange(1, tick.most + 1)
    present: list[tuple[int, Any, bool, bool]] = []
    if 0 < now <= tick.most:
        others = others[others != now]
        kept = packed[now - 1] if starting else group_numbers(tick.current, len(tick.partitions))
        present.append((now, kept, starting > 0, starting == 0))
        if not starting and not same_grouping(groups_of(packed[now - 1].tolist(), now), tick.current):
            present.append((now, packed[now - 1], True, True))
    candidates = Candidates(
        np.array([*(each[0] for each in present), *others.tolist()], dtype=np.int64),
        np.concatenate([*(np.array([each[1]], dtype=np.int64) for each in present), packed[others - 1]]),
        np.array([*(each[2] for each in present), *[True] * len(others)]),
        np.array(
            [*(each[3] for each in present), *(others <= ready if outlook.fleet.start_up else others > 0).tolist()]
        ),
    )
    scores = outlook.score(candidates, packed)
    cost = scores.cost.tolist()
    best = 0
    for index, each in enumerate(cost):
        if each < cost[best] - TIE:
            best = index
    replicas, changed = int(candidates.replicas[best]), bool(candidates.changed[best])
    groups = tick.current if present and best == 0 else groups_of(candidates.group_of[best].tolist(), replicas)
    anew = len(present) > 1 and cost[1] < cost[0] - TIE
    staying = groups_of(packed[now - 1].tolist(), now) if anew else tick.current
    why: dict[str, Term] = {
        "candidates": candidates.replicas.tolist(),
        "regrouped": candidates.changed.tolist(),
        "late_by_load": scores.missed.tolist(),
        "late_by_jump": scores.jump.tolist(),
        "late_waiting": scores.waiting.tolist(),
        "late_by_pause": scores.paused.tolist(),
        "cost": cost,
        "chosen": best,
        "wanted": replicas,
    }
    if scores.next_replicas is not None:
        why["next_replicas"] = scores.next_replicas.tolist()
    if outlook.fleet.long_pause:
        why["saved"] = scores.saved.tolist()
    idle = bool((scores.running[candidates.replicas < now] < scores.running[0]).any())
    by_price = by_prices(candidates.replicas, scores, first) if outlook.estimates.jumps.rate else (0.0,) * len(STEPS)
    paused, of_a_jump = float(scores.paused[best]), float(scores.of_a_jump[0])
    return Candidate(replicas, groups, changed, staying, paused, idle, of_a_jump, by_price), why


def requests(before: tuple[float, ...], observed: StreamObservation, replicas: int) -> tuple[float, ...]:
    """When the replicas were requested that start, after a decision for so many ``replicas``: the oldest join first,
    the youngest are removed first.
    """
    joined, starting = observed.replicas.joined, observed.replicas.current - observed.replicas.joined
    known = before[-starting:] if starting else ()
    times = (*(observed.time_s for _ in range(starting - len(known))), *known)
    wanted = max(0, replicas - joined)
    return (*times[:wanted], *(observed.time_s for _ in range(wanted - len(times))))


def while_starting(
    tick: StreamTick, outlook: Outlook, packed: Ints, waits: Sequence[float], arrived: Sequence[int]
) -> Groups:
    """Groups of those that will have joined by the next decision; of those that have joined, if no other will, where
    that makes fewer events late until then. ``waits``: intervals until each other one is expected. One that is long
    overdue may never join, and a plan that names it would wait for it. ``arrived``: events of the last interval by
    partition.
    """
    ready, overdue = min(tick.observation.replicas.joined, tick.most), -1 - OVERDUE * outlook.fleet.start_up
    joining = [wait for wait in waits if overdue <= wait <= 1 + JITTER]
    soon = min(ready + len(joining), tick.most)
    if soon > ready:
        for_ready, for_all, wait = packed[ready - 1], packed[soon - 1], max(joining)
        if outlook.serves_a_burst(wait):
            lags = outlook.lags_after(wait, arrived)
            for_all = outlook.packed_then(for_all, lags, soon)
            if outlook.burst_cannot_wait(for_ready, for_all, lags, wait):
                for_all, soon = for_ready, ready
        return groups_of(for_all.tolist(), soon)
    now = outlook._replace(replicas=ready, fleet=outlook.fleet._replace(start_up=0.0))
    group_of = np.array([group_numbers(outlook.in_force, len(tick.partitions)), packed[ready - 1]])
    both = Candidates(np.array([ready, ready]), group_of, np.array([False, True]), np.array([True, True]))
    loads = now.loads(group_of)
    until = min((wait for wait in waits if wait > 0), default=inf)
    until = min(until, outlook.fleet.horizon)
    by_load = until * now.missed(loads, (0.0, now.fleet.pause))
    late = by_load + now.waiting(both, loads, packed) + now.paused(both, loads)
    return groups_of(packed[ready - 1].tolist(), ready) if late[1] < late[0] - TIE else outlook.in_force


def by_prices(replicas: Ints, scores: Scores, first: float) -> tuple[float, ...]:
    """Late events of jumps per interval with the replicas that each price asks for; ``first``: one of them."""
    prices = first * np.asarray(STEPS)
    best = np.argmin(replicas + prices[:, None] * (scores.missed + scores.jump), axis=1)
    return tuple(scores.jump[best].tolist())


def terms(
    tick: StreamTick, outlook: Outlook, p: NewsvendorParameters, believed: Believed, least: float
) -> dict[str, Term]:
    """What the candidates are scored on. ``least``: price for which jumps are the reason."""
    e, ready = outlook.estimates, tick.observation.replicas.joined
    return {
        "partitions": list(tick.partitions),
        "lag": list(outlook.lags),
        "rate_per_s": list(tick.load.rates_per_s),
        "replicas": tick.replicas,
        "ready": ready,
        "service_rate_per_s": believed.service_rate_per_s,
        "start_up_s": believed.start_up_s,
        "rebalance_time_s": believed.rebalance_time_s,
        **({"delivery_s": believed.delivery_s} if believed.delivery_s else {}),
        "measured": list(believed.measured),
        "forecast": outlook.events,
        "variance": e.variance,
        "ahead_variance": e.ahead_variance,
        "burstiness": e.burstiness(),
        "jumps": e.jumps.rate,
        "peak": e.jumps.peak,
        "reach": e.jumps.reach,
        "oldest_s": outlook.oldest * p.decision_interval_s,
        **({"since_burst_s": e.since_burst() * p.decision_interval_s} if outlook.fleet.regroups_bursts(e) else {}),
        "price_s": outlook.price * p.decision_interval_s,
        "slo_share": p.slo_share,
        "horizon_s": outlook.horizon * p.decision_interval_s,
        **({"scale_in_ratio": outlook.scale_in} if outlook.fleet.long_pause else {}),
        **({"jump_ratio": outlook.jump} if e.jumps.rate else {}),
        **({"first_jump": e.jumps.first} if e.jumps.first else {}),
        **({"announced_peak_per_s": p.announced_peak_per_s} if p.announced_peak_per_s else {}),
        **({"least_price_s": least * p.decision_interval_s} if least else {}),
    }


def arrivals(tick: StreamTick) -> tuple[tuple[int, ...], ...]:
    """Arrivals of the last interval by partition and slot. Raises CannotDecide if one is unknown."""
    slots = [each.arrivals_by_slot for each in tick.observation.partitions]
    known = tuple(each for each in slots if each is not None)
    if len(known) < len(slots):
        missing = tick.partitions[slots.index(None)]
        reasons = all_reasons(tick.observation.unknown)
        raise CannotDecide(f"arrivals by slot of partition {missing} are unknown{reasons}")
    return known


def cannot(late: LateEvents, observed: StreamObservation, p: NewsvendorParameters, believed: Believed) -> str:
    """Why no number of replicas that follows from the load could have kept the contract so far; empty if one could.
    Events of a rebalance that is shorter than the SLO can be in time, so that they are no reason.
    """
    allowed = (1 - p.slo_share) * (observed.finished or 0)
    unforeseen, stopped = late.unforeseen, late.stopped if believed.rebalance_time_s > p.slo_s else 0
    if unforeseen + stopped <= allowed:
        return ""
    causes = (
        (unforeseen, f"under loads beyond forecast and peak of a start-up ({believed.start_up_s:.3g} s) before"),
        (stopped, f"after rebalances, each of which stops the group for {believed.rebalance_time_s:.3g} s"),
    )
    (first, why), *others = ((count, cause) for count, cause in causes if count)
    said = "".join(
        (f"{first} of {observed.finished} events were late {why}", *(f", and {n} {each}" for n, each in others))
    )
    if stopped > unforeseen:
        way_out = "; a fixed number of replicas has no rebalances"
    else:
        way_out = "" if p.announced_peak_per_s else "; --set newsvendor.announced_peak_per_s=RATE announces such a load"
    return (
        f"no number of replicas that follows from the load can meet this: {said}; "
        f"the contract allows {allowed:.0f}{way_out}"
    )


def in_force(tick: StreamTick) -> Groups:
    """Groups of positions as the replicas hold them, and those of the plan where the observation is incomplete."""
    held = [partition for group in tick.observation.assigned.values() for partition in group]
    if sorted(held) != sorted(tick.partitions):
        return tick.current
    position = {partition: index for index, partition in enumerate(tick.partitions)}
    return tuple(tuple(position[p] for p in group) for group in tick.observation.assigned.values() if group)


def age_of_oldest(lags: Sequence[float], slots: Sequence[Sequence[int]], earlier: Sequence[Sequence[int]]) -> float:
    """Age of the oldest waiting event in intervals, two at most: of each partition, the newest arrivals wait."""
    oldest = 0.0
    for partition, lag in enumerate(lags):
        if lag <= 0:
            continue
        history = (*(earlier[partition] if len(earlier) == len(slots) else ()), *slots[partition])
        left, age = lag, 2.0
        for back, count in enumerate(reversed(history)):
            left -= count
            if left <= 0:
                age = (back + 0.5) / ARRIVAL_SLOTS
                break
        oldest = max(oldest, age)
    return oldest


def moved(before: Groups, after: Groups) -> set[int]:
    """Partitions that change their replica when groups are matched to replicas by overlap."""
    names = [str(index) for index in range(max(len(before), len(after)))]
    held = {name: before[index] if index < len(before) else () for index, name in enumerate(names)}
    matched = match_members(after, held)
    return {p for name in names for p in matched[name] if p not in held[name]}


def late_at_any_time(busy: Floats, pause: float, limit: float) -> Floats:
    """Part of a burst that a stop of the group makes late, mean over the times in an interval at which it can begin;
    more than 1 where it meets several bursts. ``busy``: time that a group needs for its burst.

    A stop that begins before the burst puts all of it off, by the part that lies after the burst's arrival; one that
    begins while the burst is served puts off the rest of it by ``pause``.
    """
    busy = np.clip(busy, 1e-9, 1.0)
    within = min(pause, limit)
    before = (np.maximum(0.0, busy + within - limit) ** 2 - np.maximum(0.0, busy - limit) ** 2) / (2 * busy)
    during = np.maximum(0.0, busy**2 - max(0.0, limit - pause) ** 2) / (2 * busy)
    late: Floats = before + pause - within + during
    return late


def _density(z: Floats) -> Floats:
    density: Floats = np.exp(-z * z / 2) / sqrt(2 * pi)
    return density


def _above(z: Floats) -> Floats:
    """1 − Φ(z)."""
    return np.fromiter(map(erfc, (z / sqrt(2)).tolist()), np.float64, len(z)) / 2
