"""newsvendor for a bank of bounded queues: queues that cost their seconds against events that are rejected or late.

Each number of queues is followed through the next seconds as M/M/s/K over time: what each queue has now, containers
that the provider adds one by one, and the forecast of the arrivals, split so that all queues take equally long. A
queue costs its seconds, an event that is rejected or comes too late costs λ. docs/newsvendor.md explains the method.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, fsum, inf, log, sqrt
from typing import ClassVar, Final, NamedTuple

import msgspec
import numpy as np

from controller.queueing.mmsk import Probabilities, probabilities
from controller.queueing.mmsk_over_time import LARGEST_STATE, Matrix, late_probabilities, transition
from controller.scalers.shared.base import BaseScaler, CannotDecide, all_reasons, check_known, reason_of
from controller.scalers.shared.newsvendor import LEVEL_GAIN, PATIENCE, REMOVAL, Forecast, Price
from controller.scalers.shared.parameters import BoundedParameters, Count, NotNegative, OpenShare, Positive
from controller.scalers.shared.queue_scaler import container_rate_per_s
from penstock.contracts import Action, Decision, QueueObservation, QueueStatus, Term, hold

PRICE_UNIT_S: Final = 0.03
"""Time of a queue with all its containers for one event at which the price is what ``Price`` says."""
FIRST_PRICE: Final = 0.001
PRICE_GAIN: Final = 0.03
JUMP: Final = 5.0
"""Standard deviations of a count from its forecast beyond which the load has jumped: the level begins anew."""
GRID: Final = 1.02
"""Rates are rounded up to powers of this, so that the probabilities of few rates are computed."""
OFFERED: Final = range(-80, 41)
"""Powers of the grid, as parts of what its containers can serve, among which a queue's best load is looked for: 0.2 to
2.2.
"""
MOST_KEPT: Final = 256
TIE: Final = 1e-9


class NewsvendorQueueState(msgspec.Struct, frozen=True):
    """What is learned; ``late``: events rejected or expected to be late so far; ``fewer``: decisions in a row at which
    fewer queues were the better choice.
    """

    forecast: Forecast = Forecast()
    price: Price = Price()
    late: float = 0.0
    rejected: int | None = None
    completed: int | None = None
    fewer: int = 0


@dataclass(frozen=True, kw_only=True)
class NewsvendorQueueParameters(BoundedParameters):
    """``slo_share`` of the events is to be served within ``slo_s``. ``price_s`` fixes λ in queue-seconds per event that
    is not; None: it is found from the share.

    ``service_rate_per_s`` (μ of a container) and ``capacity`` (K) None: as observed. A new queue has its first
    container after ``first_container_s`` and one more every ``container_ramp_s``, up to ``max_servers``.
    ``horizon_s``: for how long queues and late events are counted, from the first container of a new queue on, and at
    least twice as long as the others take to come.
    """

    slo_s: Positive = 0.5
    slo_share: OpenShare = 0.99
    price_s: Positive | None = None
    service_rate_per_s: Positive | None = None
    capacity: Count | None = None
    max_servers: Count = 10
    first_container_s: NotNegative = 0.0
    container_ramp_s: Positive = 1.0
    horizon_s: Positive = 30.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.capacity is not None and self.capacity > LARGEST_STATE:
            raise ValueError(f"capacity={self.capacity}: expected at most {LARGEST_STATE} events in a queue")

    @property
    def ramp_s(self) -> float:
        """Seconds until a new queue has all its containers."""
        return self.first_container_s + (self.max_servers - 1) * self.container_ramp_s

    @property
    def ahead_s(self) -> float:
        """Seconds ahead in which queues and late events are counted: some of them with all containers of a new queue,
        or no queue would be worth its seconds.
        """
        return self.first_container_s + max(self.horizon_s, 2 * (self.ramp_s - self.first_container_s))

    def containers(self, now: int, after_s: float) -> int:
        """Of a queue in service that has ``now`` of them; 0 before the first one."""
        return max(now, min(self.max_servers, now + floor(after_s / self.container_ramp_s + TIE)))

    def containers_of_new(self, after_s: float) -> int:
        """Of a queue that is asked for now."""
        if after_s < self.first_container_s:
            return 0
        return self.containers(1, after_s - self.first_container_s)


class Queue(NamedTuple):
    """A queue as it is now, or ``name`` "" for one that would be new. ``events``: in it, those in service included."""

    name: str
    events: int
    servers: int


class Bank(NamedTuple):
    """What a decision is about. ``asked``: queues that are on their way. ``held``: events in the main queue."""

    queues: Sequence[Queue]
    asked: int
    held: int
    capacity: int
    service_rate_per_s: float

    @property
    def held_s(self) -> float:
        """How long an event waits in the main queue now, until the queues have taken those before it."""
        served_per_s = self.service_rate_per_s * sum(q.servers for q in self.queues)
        return self.held / served_per_s if served_per_s else inf if self.held else 0.0

    @property
    def size(self) -> int:
        """Queues that there are or that are on their way."""
        return len(self.queues) + self.asked

    def with_queues(self, n: int) -> list[Queue]:
        """Its queues if there were ``n``: those with the fewest containers, then the youngest, go first."""
        if n >= len(self.queues):
            return [*self.queues, *(Queue("", 0, 0) for _ in range(n - len(self.queues)))]
        order = sorted(range(len(self.queues)), key=lambda i: (-self.queues[i].servers, i))
        return [self.queues[i] for i in sorted(order[:n])]


# --- probabilities, kept for rounded rates ---------------------------------------------------------------------------


def rounded_up(rate: float) -> int:
    """The exponent of the grid at or above a rate; a rate below 1e-3 counts as 1e-3."""
    return ceil(log(max(rate, 1e-3)) / log(GRID) - TIE)


@lru_cache(maxsize=MOST_KEPT)
def _over(arrivals: int, service: int, servers: int, capacity: int) -> Matrix:
    """One interval on, with arrivals and services of a container per interval as exponents of the grid."""
    return transition(GRID**arrivals, GRID**service, servers, capacity, 1.0)


class Service(NamedTuple):
    """What all queues of a bank have in common. ``rate``: services of a container per interval, as exponent of the
    grid.
    """

    rate: int
    capacity: int
    slo_s: float
    interval_s: float

    @classmethod
    def of(cls, bank: Bank, p: NewsvendorQueueParameters) -> "Service":
        """Of this bank's queues."""
        rate = rounded_up(bank.service_rate_per_s * p.decision_interval_s)
        return cls(rate, bank.capacity, p.slo_s, p.decision_interval_s)


@lru_cache(maxsize=MOST_KEPT)
def _late(servers: int, service: Service) -> Probabilities:
    return late_probabilities(GRID**service.rate / service.interval_s, servers, service.capacity, service.slo_s)


def equal_waits(events: Sequence[float], servers: Sequence[int], arriving: float, served: float) -> list[float]:
    """Parts of the arrivals of one interval, adding up to 1, after which all queues take equally long as far as that
    can be reached. ``served``: services of a container in that interval.
    """
    left = [i for i, s in enumerate(servers) if s > 0] or list(range(len(servers)))
    weights = [s or 1 for s in servers]
    while True:
        total = fsum(weights[i] for i in left)
        level = (arriving + fsum(events[i] - weights[i] * served for i in left)) / total
        parts = {i: weights[i] * (level + served) - events[i] for i in left}
        kept = [i for i in left if parts[i] > 0]
        if len(kept) == len(left) or not kept:
            break
        left = kept
    whole = fsum(max(0.0, part) for part in parts.values())
    if whole <= 0:
        whole = fsum(weights[i] for i in left)
        parts = {i: float(weights[i]) for i in left}
    return [max(0.0, parts.get(i, 0.0)) / whole for i in range(len(servers))]


class Steady(NamedTuple):
    """A queue with a constant load, per interval: arrivals, those of them that are in time, and events in it (mean)."""

    arriving: float
    in_time: float
    events: float


@lru_cache(maxsize=8 * MOST_KEPT)
def steady(arrivals: int, servers: int, service: Service) -> Steady:
    """With arrivals per interval as an exponent of the grid."""
    late = _late(servers, service)
    p = probabilities(GRID**arrivals, GRID**service.rate, servers, service.capacity)
    return Steady(GRID**arrivals, GRID**arrivals * float(p @ (1 - late)), float(p @ np.arange(len(p))))


@lru_cache(maxsize=MOST_KEPT)
def best_load(servers: int, service: Service) -> Steady:
    """The load of which most events are in time: more of it makes others late. No load without containers."""
    if servers == 0:
        return Steady(0.0, 0.0, 0.0)
    full = rounded_up(servers * GRID**service.rate)
    return max((steady(full + k, servers, service) for k in OFFERED), key=lambda each: each.in_time)


def least_late(events: Sequence[float], servers: Sequence[int], arriving: float, service: Service) -> list[float]:
    """Parts of the arrivals of one interval, adding up to 1. All queues take equally long; but if that would make more
    events late, the queue with the fewest containers, or then the most events, takes what is too much for the others.
    """
    queues, best = range(len(servers)), [best_load(each, service) for each in servers]
    last = min(queues, key=lambda i: (servers[i], -events[i], -i))
    others = [i for i in queues if i != last]
    taken = fsum(best[i].arriving for i in others)
    too_much = arriving - taken
    if not taken or too_much <= best[last].arriving:
        return equal_waits(events, servers, arriving, GRID**service.rate)
    full = arriving / sum(servers)
    equal = fsum(steady(rounded_up(full * each), each, service).in_time for each in servers)
    if equal >= fsum(best[i].in_time for i in others) + steady(rounded_up(too_much), servers[last], service).in_time:
        return equal_waits(events, servers, arriving, GRID**service.rate)
    # So many that each of the others holds as many events as with its best load, one interval on.
    rates = [max(0.0, b.arriving + b.events - e) for b, e in zip(best, events, strict=True)]
    rates[last] = max(0.0, arriving - fsum(rates[i] for i in others))
    total = fsum(rates)
    return [rate / total for rate in rates]


class Outlook(NamedTuple):
    """Arrivals per interval from now on, their standard deviation (the forecast's, not that of the arrivals), and what
    an event costs that is late.
    """

    bank: Bank
    arrivals: Sequence[float]
    deviation: float
    price_s: float
    service: Service
    p: NewsvendorQueueParameters

    def shares(self, events: Sequence[float], servers: Sequence[int], arriving: float) -> list[float]:
        """Parts of the arrivals of one interval. What the main queue holds is late anyway, and leaves it in order."""
        if self.bank.held:
            return equal_waits(events, servers, arriving, GRID**self.service.rate)
        return least_late(events, servers, arriving, self.service)

    def late(self, n: int) -> float:
        """Expected events that are rejected or late within the horizon."""
        more, fewer = (self._late(n, by) for by in (self.deviation, -self.deviation))
        return (more + fewer) / 2

    def _late(self, n: int, by: float) -> float:
        """If the main queue holds events, it keeps what the queues do not take, in order: those that arrive after them
        are late if that takes too long, and those that it still holds in the end make as many others late.
        """
        p, bank = self.p, self.bank
        interval_s, service = p.decision_interval_s, self.service.rate
        queues = bank.with_queues(n)
        states = [np.eye(bank.capacity + 1)[min(q.events, bank.capacity)] for q in queues]
        total = last = 0.0
        held = float(bank.held)
        for step, expected in enumerate(self.arrivals):
            after_s = step * interval_s
            servers = [p.containers(q.servers, after_s) if q.name else p.containers_of_new(after_s) for q in queues]
            arriving = max(0.0, expected + by)
            if not bank.held:
                last, _ = self._step(states, servers, arriving, service)
            else:
                # More than twice what a queue can take in an interval fills it as well.
                most = 2 * (bank.capacity * len(queues) + GRID**service * sum(servers))
                late, taken = self._step(states, servers, min(arriving + held, most), service)
                too_long = held > GRID**service * sum(servers) * p.slo_s / interval_s
                last = arriving if too_long else late * arriving / max(arriving + held, TIE)
                held = max(0.0, arriving + held - taken)
            total += last
        return total + last * max(0.0, p.ahead_s / interval_s - len(self.arrivals)) + held

    def _step(
        self, states: list[Probabilities], servers: Sequence[int], arriving: float, service: int
    ) -> tuple[float, float]:
        """One interval on, with new ``states``: events that come too late or find their queue full, and events that the
        queues take.
        """
        capacity = self.bank.capacity
        counts = np.arange(capacity + 1)
        shares = self.shares([float(state @ counts) for state in states], servers, arriving)
        too_late = taken = 0.0
        for i, share in enumerate(shares):
            rate = arriving * share
            following = states[i] @ _over(rounded_up(rate), service, servers[i], capacity)
            late = _late(servers[i], self.service)
            both = states[i] + following
            too_late += rate * float(both @ late) / 2
            served = GRID**service * float(both @ np.minimum(counts, servers[i])) / 2
            taken += served + float((following - states[i]) @ counts)
            states[i] = following
        return too_late, taken

    def queue_s(self, n: int) -> float:
        """Queue-seconds within the horizon, and what it costs to remove some."""
        return self.p.ahead_s * (n + REMOVAL * max(0, self.bank.size - n))

    def cost(self, n: int, late: float) -> float:
        """J(n) in queue-seconds."""
        return self.queue_s(n) + self.price_s * late

    def cheapest(self, most: int) -> tuple[int, dict[int, float]]:
        """The number of queues with the least cost, and the late events of those that were tried. From the number on
        whose queue-seconds alone cost more than the best, nothing can be better.
        """
        found: dict[int, float] = {}
        best, least = 0, float("inf")
        for n in range(self.p.min_replicas, max(most, self.p.min_replicas) + 1):
            if self.queue_s(n) >= least:
                break
            found[n] = self.late(n)
            if (cost := self.cost(n, found[n])) < least - TIE:
                best, least = n, cost
        return best, found


class NewsvendorQueue(BaseScaler[NewsvendorQueueParameters, NewsvendorQueueState]):
    """The least queue-seconds + price · events that are rejected or late."""

    name: ClassVar[str] = "newsvendor-queue"
    paper: ClassVar[str] = "own method: docs/newsvendor.md; loss function of Arrow, Harris, Marschak 1951"
    fleets: ClassVar[type[QueueObservation]] = QueueObservation

    def decide(
        self, observation: QueueObservation, state: NewsvendorQueueState
    ) -> tuple[Decision, NewsvendorQueueState]:
        """Learn from the readings, choose the number of queues, and split the arrivals."""
        p = self.parameters
        try:
            check_known(observation, "arrived")
            assert observation.arrived is not None
            forecast = followed(state.forecast, observation.time_s, observation.arrived, p.decision_interval_s)
            state = msgspec.structs.replace(state, forecast=forecast)
            bank = read(observation, p)
            state = counted(state, observation, bank, p)
            if forecast.level_per_s is None:
                raise CannotDecide("no rate yet: this is the first reading of the arrivals")
        except CannotDecide as reason:
            return hold(observation.fleet, str(reason)), msgspec.structs.replace(state, fewer=0)
        outlook = outlook_of(bank, state, p)
        most = p.bounded(max(bank.size, enough(outlook)))
        best, late = outlook.cheapest(most)
        now = p.bounded(bank.size)
        fewer = state.fewer + 1 if best < now else 0
        wanted = now if best < now and fewer <= PATIENCE * p.ramp_s / p.decision_interval_s else best
        routing = split(outlook, wanted, observation.pool)
        same = routing.keys() == observation.routing.keys() and all(
            abs(share - observation.routing[name]) <= TIE for name, share in routing.items()
        )
        change = wanted - bank.size
        action: Action = "up" if change > 0 else "down" if change < 0 else "none" if same else "reassign"
        why = terms(outlook, wanted, best, late, state, routing)
        return (
            Decision(
                action=action,
                targets={observation.fleet: wanted},
                routing=routing,
                pool=0,
                why={observation.fleet: {**why, "action": action}},
            ),
            msgspec.structs.replace(state, fewer=fewer),
        )


def followed(forecast: Forecast, time_s: float, arrived: int, interval_s: float) -> Forecast:
    """The forecast with one more reading. A count far from what was expected is a load that has jumped: it is the level
    from now on.
    """
    following = forecast.updated(time_s, arrived, interval_s)
    if forecast.level_per_s is None or len(following.readings) < 2:
        return following
    (before_s, before), (after_s, after) = following.readings[-2:]
    expected = forecast.rate_at(after_s - before_s) * (after_s - before_s)
    if abs(after - before - expected) <= JUMP * sqrt(max(1.0, expected)):
        return following
    return Forecast(following.readings, (after - before) / (after_s - before_s))


def read(observation: QueueObservation, p: NewsvendorQueueParameters) -> Bank:
    """The bank as it is now. Raises CannotDecide for an unknown reading, and where replicas are no queues."""
    reasons = all_reasons(observation.unknown)
    active = [q for q in observation.queues if not q.draining]
    if not active:
        raise CannotDecide(f"no queues known{reasons}")
    if [q.queue for q in active] == [observation.fleet]:
        raise CannotDecide("the replicas are containers of one queue: newsvendor-queue adds and removes whole queues")
    known = [q.capacity for q in active if q.capacity is not None]
    capacity = p.capacity or (max(known) if len(known) == len(active) else None)
    if capacity is None:
        raise CannotDecide("no bound K of the queues is known: --set newsvendor-queue.capacity=…")
    if capacity > LARGEST_STATE:
        raise CannotDecide(f"K = {capacity}: probabilities are computed for queues of {LARGEST_STATE} events at most")
    rate_per_s = p.service_rate_per_s or container_rate_per_s(observation)
    if not rate_per_s:
        raise CannotDecide(f"service rate of a container is unknown{reason_of(observation.unknown, 'queues')}")
    queues = [Queue(q.queue, _events(q, reasons), _known(q.servers, "containers", q, reasons)) for q in active]
    inside = fsum((q.depth or 0) + (q.in_flight or 0) for q in observation.queues)
    outside = 0 if observation.backlog is None or _blind(active) else round(observation.backlog - inside)
    held = outside if outside > len(active) else 0  # fewer are on their way, one to each queue
    asked = max(0, observation.replicas.current - len(active))
    return Bank(queues, asked, held, capacity, rate_per_s)


def _known(value: int | None, what: str, q: QueueStatus, reasons: str) -> int:
    if value is None:
        raise CannotDecide(f"{what} of queue {q.queue} are unknown{reasons}")
    return value


def _events(q: QueueStatus, reasons: str) -> int:
    """Events in a queue, those in service included. All its containers count as busy if that number is not reported."""
    in_flight = q.servers if q.in_flight is None else q.in_flight
    return _known(q.depth, "waiting events", q, reasons) + (in_flight or 0)


def _blind(queues: Sequence[QueueStatus]) -> bool:
    return any(q.in_flight is None for q in queues)


def counted(
    state: NewsvendorQueueState, observation: QueueObservation, bank: Bank, p: NewsvendorQueueParameters
) -> NewsvendorQueueState:
    """With the price of these counts: rejected events are counted, late ones expected from what an event finds now, in
    the main queue too.
    """
    rejected, completed = observation.rejected, observation.completed
    late = state.late
    price = state.price
    if price.value is None:
        price = price.beginning(FIRST_PRICE, 1 - p.slo_share)
    fresh = rejected is not None and completed is not None
    if fresh and state.rejected is not None and state.completed is not None:
        assert rejected is not None and completed is not None
        left_s = p.slo_s - bank.held_s
        found = [1.0] * len(bank.queues)
        if left_s > 0:
            service = Service.of(bank, p)._replace(slo_s=left_s)
            late_of = [_late(q.servers, service) for q in bank.queues]
            found = [float(each[min(q.events, len(each) - 2)]) for each, q in zip(late_of, bank.queues, strict=True)]
        weights = [max(1, q.servers) for q in bank.queues]
        share = fsum(w * f for w, f in zip(weights, found, strict=True)) / fsum(weights)
        late += max(0, rejected - state.rejected) + share * max(0, completed - state.completed)
    finished = None if rejected is None or completed is None else rejected + completed
    price = price.updated(finished, None if finished is None else round(late), p.slo_share, PRICE_GAIN)
    return msgspec.structs.replace(state, price=price, late=late, rejected=rejected, completed=completed)


def outlook_of(bank: Bank, state: NewsvendorQueueState, p: NewsvendorQueueParameters) -> Outlook:
    """Arrivals until a new queue has all its containers, or until the end if events wait in the main queue; and the
    price.
    """
    forecast, interval_s = state.forecast, p.decision_interval_s
    steps = max(1, min(ceil(p.ramp_s / interval_s) + 1, ceil(p.ahead_s / interval_s)))
    if bank.held:  # the last second does not stand for the others until the main queue is empty
        steps = ceil(p.ahead_s / interval_s)
    arrivals = [forecast.rate_at((step + 0.5) * interval_s) * interval_s for step in range(steps)]
    # Poisson arrivals are in the chain itself; here only what is beyond them, and the error of the level.
    spread = max(0.0, forecast.dispersion - 1) + max(1.0, forecast.dispersion) * LEVEL_GAIN / (2 - LEVEL_GAIN)
    assert state.price.value is not None
    price_s = p.price_s or state.price.value / (p.max_servers * bank.service_rate_per_s) / PRICE_UNIT_S
    deviation = sqrt(spread * forecast.rate_per_s * interval_s)
    return Outlook(bank, arrivals, deviation, price_s, Service.of(bank, p), p)


def enough(outlook: Outlook) -> int:
    """More queues than this are not tried: twice what the arrivals need once all containers are there, and two."""
    p, bank = outlook.p, outlook.bank
    most_per_s = (max(outlook.arrivals) + outlook.deviation) / p.decision_interval_s
    return ceil(2 * most_per_s / (p.max_servers * bank.service_rate_per_s)) + 2


def split(outlook: Outlook, wanted: int, pool: Sequence[str]) -> dict[str, float]:
    """Shares of the queues that stay, and of those that come from the pool."""
    p, bank = outlook.p, outlook.bank
    spares = iter(pool)
    named = [(q, q.name or next(spares, "")) for q in bank.with_queues(max(1, wanted - bank.asked))]
    queues = [(q, name) for q, name in named if name]
    servers = [q.servers if q.name else p.containers_of_new(0.0) for q, _ in queues]
    arriving = outlook.arrivals[0] + bank.held
    shares = outlook.shares([float(q.events) for q, _ in queues], servers, arriving)
    return {name: share for (_, name), share in zip(queues, shares, strict=True)}


def terms(
    outlook: Outlook,
    wanted: int,
    best: int,
    late: Mapping[int, float],
    state: NewsvendorQueueState,
    routing: Mapping[str, float],
) -> Mapping[str, Term]:
    """The arithmetic: the queues, and the trade of one fewer than the best number, that number, and one more."""
    p, bank = outlook.p, outlook.bank
    candidates = [n for n in (best - 1, best, best + 1) if p.bounded(n) == n]
    lates = [late[n] if n in late else outlook.late(n) for n in candidates]
    return {
        "rate_per_s": state.forecast.rate_per_s,
        "trend": state.forecast.trend,
        "dispersion": state.forecast.dispersion,
        "service_rate_per_s": bank.service_rate_per_s,
        "K": bank.capacity,
        "queues": [q.name for q in bank.queues],
        "events": [q.events for q in bank.queues],
        "S": [q.servers for q in bank.queues],
        "asked": bank.asked,
        "held": bank.held,
        "horizon_s": p.ahead_s,
        "price_s": outlook.price_s,
        "slo_share": p.slo_share,
        "slo_s": p.slo_s,
        "candidates": candidates,
        "queue_s": [outlook.queue_s(n) for n in candidates],
        "late": lates,
        "cost": [outlook.cost(n, each) for n, each in zip(candidates, lates, strict=True)],
        "chosen": candidates.index(best),
        "fewer_for": state.fewer,
        "shares": list(routing.values()),
        "replicas": bank.size,
        "wanted": wanted,
    }
