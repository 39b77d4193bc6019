"""A scaler that keeps a share of the events within the SLO at the least cost: one number per candidate, each tick.

A newsvendor buys papers before he knows how many he can sell: one too many costs its price, one too few a lost sale.
Here a replica costs its seconds, and too few of them cost late events. With λ replica-seconds as the price of a late
event, the scaler minimises replicas + λ · expected late events over 1 … P replicas, in closed form: Arrow, Harris and
Marschak, "Optimal Inventory Policy", Econometrica 19 (1951), for the loss function; docs/newsvendor.md explains it.

All times of the calculation are in decision intervals T, which is one second of the run; the monitor's slots cover it.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, erfc, exp, inf, pi, sqrt
from typing import ClassVar, Final, NamedTuple

import msgspec

from controller.scalers.shared.base import JITTER, CannotDecide, all_reasons
from controller.scalers.shared.parameters import NotNegative, OpenShare, Positive
from controller.scalers.shared.stream_scaler import RateState, StreamParameters, StreamScaler, StreamTick
from penstock.contracts import ARRIVAL_SLOTS, Decision, Groups, Term, hold
from penstock.plan import match_members, same_grouping

LEVEL_GAIN: Final = 0.35
TREND_GAIN: Final = 0.1
VARIANCE_GAIN: Final = 0.1
AHEAD_VARIANCE_GAIN: Final = 0.05
SHARE_GAIN: Final = 0.03
SLOT_GAIN: Final = 0.1
SETTLING_TICKS: Final = 50
"""Ticks in which estimates take larger steps, 1/t."""
MARGIN: Final = 0.05
"""Of an interval: the spread of service times around the limit."""
SPARE: Final = 0.7
"""Of the time between a pause and the limit, the part that a smooth load may use as a buffer."""
MOST_BUSY: Final = 0.97
FIRST_PRICE: Final = 0.0025
PRICE_GAIN: Final = 0.012
LEAST_PRICE: Final = 0.03
LARGEST_PRICE: Final = 5.0
AIM: Final = 0.9
"""Of the late events that the contract allows, the part that the price aims at."""
PEAK_TICKS: Final = 600.0
JUMP_TICKS: Final = 300.0
JUMP_WEIGHT: Final = 3.0
TIE: Final = 1e-9


class Estimates(msgspec.Struct, frozen=True):
    """Everything that is learned, in events and intervals.

    ``level``, ``trend``, ``variance``: Holt's smoothing of the arrivals per interval, and of its squared errors.
    ``forecasts``: made in the last intervals, each for the time at which a replica requested then would serve;
    ``ahead_variance``: of their errors. ``peak``, ``jumps``, ``calm_until``: the largest load, the rate of jumps to it,
    and until when errors count as the same jump. ``shares``: of the arrivals, by partition. ``profile``: of the
    arrivals, by slot of the interval.
    """

    ticks: int = 0
    level: float = 0.0
    trend: float = 0.0
    variance: float = 1.0
    ahead_variance: float = 0.0
    forecasts: tuple[float, ...] = ()
    peak: float = 0.0
    jumps: float = 0.0
    calm_until: int = 0
    shares: tuple[float, ...] = ()
    profile: tuple[float, ...] = (1 / ARRIVAL_SLOTS,) * ARRIVAL_SLOTS

    def forecast(self, ticks: int) -> float:
        """Events of the interval that begins ``ticks`` intervals from now."""
        return max(0.0, self.level + self.trend * (ticks + 1))

    def burstiness(self) -> float:
        """β: 0 for smooth arrivals, 1 for all of them in one instant of the interval."""
        s = self.profile
        most = max(s[k] + s[(k + 1) % ARRIVAL_SLOTS] for k in range(ARRIVAL_SLOTS))
        return _clip((most - 0.2) / 0.6, 0.0, 1.0)

    def since_burst(self) -> float:
        """Time from the last burst to now."""
        return 1 - (self.profile.index(max(self.profile)) + 0.5) / ARRIVAL_SLOTS

    def updated(self, slots: Sequence[Sequence[int]], ahead: int) -> "Estimates":
        """With the arrivals of one more interval by partition and slot. ``ahead``: intervals until a replica serves."""
        by_partition = [sum(each) for each in slots]
        arrived, ticks = sum(by_partition), self.ticks + 1
        level, trend, variance = float(arrived), 0.0, max(float(arrived), 1.0)
        if self.ticks:
            before = max(0.0, self.level + self.trend)
            error = arrived - before
            variance = self.variance + VARIANCE_GAIN * (error**2 - self.variance)
            level, trend = max(0.0, before + LEVEL_GAIN * error), self.trend + TREND_GAIN * LEVEL_GAIN * error
        peak = max(float(arrived), self.peak * (1 - 1 / PEAK_TICKS))
        jumps, calm_until, ahead_variance = self.jumps, self.calm_until, self.ahead_variance
        forecasts = self.forecasts
        if len(forecasts) >= ahead:
            error, forecasts = arrived - forecasts[0], forecasts[1:]
            jumps *= 1 - 1 / JUMP_TICKS
            if error > max(0.3 * peak, 4 * sqrt(max(peak, 1.0))) and ticks > max(10, calm_until):
                jumps, calm_until = jumps + JUMP_WEIGHT / JUMP_TICKS, ticks + ahead + 5
            step = AHEAD_VARIANCE_GAIN if ahead_variance else 1.0
            ahead_variance += step * (error**2 - ahead_variance)
        shares = self.shares if len(self.shares) == len(slots) else (1 / len(slots),) * len(slots)
        profile = self.profile
        if arrived:
            early = min(0.5, 1 / ticks)
            step = max(SHARE_GAIN, early) * min(1.0, arrived / 50)
            shares = tuple(
                share + step * (own / arrived - share) for share, own in zip(shares, by_partition, strict=True)
            )
            step = max(SLOT_GAIN, early) * min(1.0, arrived / 20)
            of_slot = [sum(each) / arrived for each in zip(*slots, strict=True)]
            profile = tuple(share + step * (own - share) for share, own in zip(profile, of_slot, strict=True))
        made = Estimates(
            ticks, level, trend, variance, ahead_variance, forecasts, peak, jumps, calm_until, shares, profile
        )
        return msgspec.structs.replace(made, forecasts=(*forecasts, made.forecast(ahead - 1)))


class Price(msgspec.Struct, frozen=True):
    """λ, found while the contract is kept or missed. ``value``: replica-intervals per late event; None at the start.

    ``finished``, ``late``: the last counts. ``usual``: finished events per interval, smoothed. ``owed``: steps that
    were too large for one interval, so that late events in a clump raise the price as much as single ones.
    """

    value: float | None = None
    usual: float = 0.0
    readings: int = 0
    owed: float = 0.0
    finished: int | None = None
    late: int | None = None

    def updated(self, finished: int | None, late: int | None, slo_share: float) -> "Price":
        """With new counts; unknown ones leave the price as it is."""
        allowed = AIM * (1 - slo_share)
        value = self.value if self.value is not None else FIRST_PRICE / allowed**0.75
        if finished is None or late is None or self.finished is None or self.late is None:
            return msgspec.structs.replace(self, value=value, finished=finished, late=late)
        done, missed = max(0, finished - self.finished), max(0, late - self.late)
        usual = self.usual + 0.02 * (done - self.usual)
        if self.readings < SETTLING_TICKS:
            usual = max(usual, done)
        excess = self.owed + (missed / allowed - done) / max(1.0, usual)
        step = _clip(excess, -1.5, 25.0)
        value = _clip(value * exp(PRICE_GAIN * step), LEAST_PRICE, LARGEST_PRICE)
        owed = max(0.0, excess - step) if value < LARGEST_PRICE else 0.0
        return Price(value, usual, self.readings + 1, owed, finished, late)


class NewsvendorState(RateState, frozen=True):
    """``slots``: arrivals of the last interval by partition, read at ``read_s``. ``fewer``: decisions in a row that
    wanted fewer replicas.
    """

    estimates: Estimates = Estimates()
    price: Price = Price()
    slots: tuple[tuple[int, ...], ...] = ()
    read_s: float | None = None
    fewer: int = 0


@dataclass(frozen=True)
class NewsvendorParameters(StreamParameters):
    """``slo_share`` of the events is to take ``slo_s`` at most. ``price_s`` fixes λ in replica-seconds per late event;
    None: it is found from the share. ``start_up_s`` and ``rebalance_time_s`` are medians: overstated, they cost more
    than understated.
    """

    slo_s: Positive = 0.5
    slo_share: OpenShare = 0.99
    start_up_s: NotNegative = 1.2
    rebalance_time_s: NotNegative = 0.09
    cooperative: bool = False
    price_s: Positive | None = None


class Fleet(NamedTuple):
    """One replica and one rebalance, in intervals and events: μ, w, S, t_r, and how a rebalance stops the group."""

    rate: float
    limit: float
    start_up: float
    pause: float
    cooperative: bool

    @classmethod
    def of(cls, p: NewsvendorParameters) -> "Fleet":
        """From seconds."""
        interval_s = p.decision_interval_s
        return cls(
            p.service_rate_per_s * interval_s,
            p.slo_s / interval_s,
            p.start_up_s / interval_s,
            p.rebalance_time_s / interval_s,
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
    def patience(self) -> int:
        """Decisions in a row that have to want fewer replicas, less one."""
        return ceil(0.2 * self.start_up)


class Candidate(NamedTuple):
    """A number of replicas with the grouping that it would end with. ``at_once``: no replica has to start first."""

    replicas: int
    groups: Groups
    changed: bool
    at_once: bool


class Score(NamedTuple):
    """Expected late events: per interval with this capacity and after a jump, of those that wait now, and of those that
    the rebalance stops. ``cost``: of the candidate, in replica-intervals over the horizon.
    """

    missed: float
    jump: float
    waiting: float
    paused: float
    cost: float


class Outlook(NamedTuple):
    """What a candidate is scored on."""

    fleet: Fleet
    estimates: Estimates
    price: float
    lags: Sequence[float]
    oldest: float
    in_force: Groups

    @property
    def events(self) -> float:
        """m: events of the next interval, or of the first in which a replica requested now serves, if that is more."""
        return max(self.estimates.forecast(0), self.estimates.forecast(self.fleet.ahead - 1))

    def score(self, candidate: Candidate, packed: Groups) -> Score:
        """J of a candidate. ``packed``: LPT(n), on which a jump would fall."""
        missed, jump = self.missed(candidate.groups), self.after_a_jump(packed)
        waiting = self.waiting(candidate)
        paused = self.paused(candidate) if candidate.changed else 0.0
        horizon = self.fleet.horizon
        cost = horizon * (candidate.replicas + self.price * (missed + jump)) + self.price * (waiting + paused)
        return Score(missed, jump, waiting, paused, cost)

    def load(self, group: Sequence[int]) -> tuple[float, float]:
        """(q, l): a group's share of the arrivals and its waiting events."""
        return sum(self.estimates.shares[p] for p in group), sum(self.lags[p] for p in group)

    def missed(self, groups: Groups) -> float:
        """Late events per interval. The load of a group is normal: counted noise, the split over partitions, and the
        error of the forecast. Of a burst, only what exceeds the capacity up to the limit is late; of a smooth load
        on an overloaded replica, soon everything.
        """
        rate, limit, start_up, pause, _ = self.fleet
        e, m, tau = self.estimates, self.events, start_up + 1
        beta, until_burst = e.burstiness(), 1 - e.since_burst()
        own = min(e.variance, m)
        common = max(0.0, max(e.ahead_variance, e.variance) - own)
        buffer = SPARE * max(0.0, limit - pause - MARGIN) / limit
        total = 0.0
        for group in groups:
            q, lag = self.load(group)
            if q <= 0:
                continue
            smooth = rate * (1 + buffer * limit / tau) - lag / tau if buffer > 0 else MOST_BUSY * rate
            burst = rate * limit - max(0.0, lag - rate * until_burst)
            capacity, mean = beta * burst + (1 - beta) * smooth, m * q
            variance = (beta + (1 - beta) / tau) * (mean * (1 - q) + q * q * own) + q * q * common
            deviation = sqrt(max(variance, 1e-9))
            z = (capacity - mean) / deviation
            total += beta * deviation * (_density(z) - z * _above(z)) + (1 - beta) * mean * _above(z)
        return total

    def waiting(self, candidate: Candidate) -> float:
        """Events that wait now and cannot be finished in time."""
        rate, limit, _, pause, _ = self.fleet
        left = max(0.0, limit - self.oldest - (pause if candidate.changed and candidate.at_once else 0.0))
        groups = candidate.groups if candidate.at_once else self.in_force
        return sum(max(0.0, self.load(group)[1] - rate * left) for group in groups)

    def paused(self, candidate: Candidate) -> float:
        """Events that the rebalance makes late."""
        rate, limit, _, pause, cooperative = self.fleet
        e, m, groups = self.estimates, self.events, candidate.groups
        stopped = sum(e.shares[p] for p in moved(self.in_force, groups)) if cooperative else 1.0
        beta, until_burst = e.burstiness(), 1 - e.since_burst()
        full = candidate.replicas * rate
        idle = max(0.0, limit - m / full)
        burst = m * stopped * max(0.0, pause - until_burst - idle) * min(4.0, full / max(0.1 * full, full - m))
        smooth = 0.0
        for group in groups:
            q, lag = self.load(group)
            late = max(0.0, pause + lag / rate + MARGIN - limit)
            smooth += m * q * stopped * late / max(0.1, 1 - m * q / rate)
        return beta * burst + (1 - beta) * smooth

    def after_a_jump(self, packed: Groups) -> float:
        """Late events per interval if the load may jump to its peak while no replica can be added in time."""
        rate, limit, start_up, pause, _ = self.fleet
        e, beta, total = self.estimates, self.estimates.burstiness(), 0.0
        if e.jumps < 1e-5:
            return 0.0
        exposed = start_up + 0.5 + pause
        for group in packed:
            x = e.peak * self.load(group)[0]
            smooth = x * max(0.0, exposed + limit - limit * rate / (x - rate)) if x > rate else 0.0
            burst = max(max(0.0, x - rate * limit) * exposed, smooth)
            total += beta * burst + (1 - beta) * smooth
        return e.jumps * total


class Newsvendor(StreamScaler[NewsvendorParameters, NewsvendorState]):
    """The least replicas + price · expected late events."""

    name: ClassVar[str] = "newsvendor"
    paper: ClassVar[str] = "own method: docs/newsvendor.md; loss function of Arrow, Harris, Marschak 1951"
    reads_arrivals: ClassVar[bool] = True

    def decide_tick(self, tick: StreamTick, state: NewsvendorState) -> tuple[Decision, NewsvendorState]:
        """Learn from the interval, score all candidates, take the cheapest."""
        p, observed = self.parameters, tick.observation
        fleet = Fleet.of(p)
        try:
            slots = arrivals(tick)
        except CannotDecide as reason:
            return hold(observed.fleet, str(reason)), state
        estimates = state.estimates.updated(slots, fleet.ahead)
        price = state.price.updated(observed.finished, observed.late, p.slo_share)
        value = price.value if p.price_s is None or price.value is None else p.price_s / p.decision_interval_s
        assert value is not None
        elapsed = inf if state.read_s is None else (observed.time_s - state.read_s) / p.decision_interval_s
        earlier = state.slots if elapsed <= 1 + JITTER else ()
        oldest = age_of_oldest(tick.load.lags, slots, earlier)
        outlook = Outlook(fleet, estimates, value, tick.load.lags, oldest, in_force(tick))
        chosen, scored = choose(tick, outlook)
        why = terms(tick, outlook, p) | scored
        fewer = state.fewer + 1 if chosen.replicas < tick.replicas else 0
        following = NewsvendorState(state.offsets, estimates, price, slots, observed.time_s, fewer)
        if 0 < fewer <= fleet.patience:
            why["reason"] = f"fewer replicas are wanted for {fewer} decisions, more than {fleet.patience} are needed"
            return tick.resized(tick.replicas, chosen.groups, why), following
        if chosen.replicas == tick.replicas and chosen.changed and not same_grouping(chosen.groups, tick.current):
            return tick.reassigned(chosen.groups, why), following
        return tick.resized(chosen.replicas, chosen.groups, why), following


def choose(tick: StreamTick, outlook: Outlook) -> tuple[Candidate, dict[str, Term]]:
    """The candidate of the least cost, the present one if none is cheaper, with the arithmetic."""
    ready, starting = tick.observation.replicas.joined, tick.replicas - tick.observation.replicas.joined
    weights = [
        max(1.0, outlook.estimates.forecast(0)) * share + lag
        for share, lag in zip(outlook.estimates.shares, outlook.lags, strict=True)
    ]
    packed = {n: lpt(weights, n) for n in range(1, tick.most + 1)}
    keep = Candidate(tick.replicas, tick.current, changed=starting > 0, at_once=starting == 0)
    candidates = [keep] if 0 < tick.replicas <= tick.most else []
    if candidates and not starting and not same_grouping(packed[tick.replicas], tick.current):
        candidates.append(Candidate(tick.replicas, packed[tick.replicas], changed=True, at_once=True))
    at_once = outlook.fleet.start_up == 0
    candidates += [
        Candidate(n, groups, changed=True, at_once=at_once or n <= ready)
        for n, groups in packed.items()
        if n != tick.replicas or not candidates
    ]
    scores = [outlook.score(each, packed[each.replicas]) for each in candidates]
    best = 0
    for index, score in enumerate(scores):
        if score.cost < scores[best].cost - TIE:
            best = index
    why: dict[str, Term] = {
        "candidates": [each.replicas for each in candidates],
        "regrouped": [each.changed for each in candidates],
        "late_by_load": [score.missed for score in scores],
        "late_by_jump": [score.jump for score in scores],
        "late_waiting": [score.waiting for score in scores],
        "late_by_pause": [score.paused for score in scores],
        "cost": [score.cost for score in scores],
        "chosen": best,
        "wanted": candidates[best].replicas,
    }
    return candidates[best], why


def terms(tick: StreamTick, outlook: Outlook, p: NewsvendorParameters) -> dict[str, Term]:
    """What the candidates are scored on."""
    e, ready = outlook.estimates, tick.observation.replicas.joined
    return {
        "partitions": list(tick.partitions),
        "lag": list(outlook.lags),
        "rate_per_s": list(tick.load.rates_per_s),
        "replicas": tick.replicas,
        "ready": ready,
        "forecast": outlook.events,
        "variance": e.variance,
        "ahead_variance": e.ahead_variance,
        "burstiness": e.burstiness(),
        "jumps": e.jumps,
        "peak": e.peak,
        "oldest_s": outlook.oldest * p.decision_interval_s,
        "price_s": outlook.price * p.decision_interval_s,
        "slo_share": p.slo_share,
        "horizon_s": outlook.fleet.horizon * p.decision_interval_s,
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


def lpt(weights: Sequence[float], groups: int) -> Groups:
    """Partitions by falling weight, each to the least loaded group: longest processing time first (Graham 1969)."""
    loads = [(0.0, 0, index) for index in range(groups)]
    members: list[list[int]] = [[] for _ in range(groups)]
    for partition in sorted(range(len(weights)), key=lambda p: (-weights[p], p)):
        load, count, index = loads[0]
        members[index].append(partition)
        heapq.heapreplace(loads, (load + weights[partition], count + 1, index))
    return tuple(tuple(sorted(each)) for each in members)


def moved(before: Groups, after: Groups) -> set[int]:
    """Partitions that change their replica when groups are matched to replicas by overlap."""
    names = [str(index) for index in range(max(len(before), len(after)))]
    held = {name: before[index] if index < len(before) else () for index, name in enumerate(names)}
    matched = match_members(after, held)
    return {p for name in names for p in matched[name] if p not in held[name]}


def _clip(value: float, least: float, most: float) -> float:
    return max(least, min(value, most))


def _density(z: float) -> float:
    return exp(-z * z / 2) / sqrt(2 * pi)


def _above(z: float) -> float:
    """1 − Φ(z)."""
    return erfc(z / sqrt(2)) / 2
