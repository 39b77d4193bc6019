"""newsvendor for pub/sub networks: consumers beyond the least number against jobs that come too late.

A job is late if its services and waits along its route take longer than the limit; two moments of each give the
probability, at each topic as a function of the wait there. A task that waits may be served by a consumer that has to be
there anyway, for nothing; one more consumer serves it at once and costs its service time; and each second of waiting
makes the job late with a higher probability, at the price λ. docs/newsvendor.md explains the method.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import ceil, expm1, fsum, inf, sqrt
from typing import ClassVar, Final, NamedTuple

import msgspec

from controller.queueing.network import Job, Network, NetworkTopic
from controller.scalers.shared.base import BaseScaler, CannotDecide, check_known, reason_of, resize
from controller.scalers.shared.beliefs import typical
from controller.scalers.shared.network_scaler import ServiceMoments, remembered
from controller.scalers.shared.newsvendor import Forecast, Price, at_least, gamma_above, normal_below
from controller.scalers.shared.parameters import BoundedParameters, NotNegative, OpenShare, Positive
from controller.scalers.shared.single_fleet import merged
from penstock.contracts import Decision, NetworkObservation, Term, TopicStatus, hold

PRICE_UNIT: Final = 0.2
"""λ is the price of ``Price`` divided by this, times the mean service time of a job along its route."""
FIRST_PRICE: Final = 0.024
PRICE_GAIN: Final = 0.02
WAIT_MEMORY: Final = 10.0
"""Routes, in mean service times, over which the waits of a topic are averaged."""
TAIL: Final = 1e-3
"""Arrivals less probable than this are left out."""
NODES: Final = 200
"""Waits up to the limit at which a late probability is computed, where it is not needed exactly."""
MOST_ARRIVALS: Final = 500
MOST_ONE_BY_ONE: Final = 500
"""Waiting tasks, the oldest, of which each is evaluated; and so many more than may start before the next decision. The
others, in a long queue, are so in at most ``MOST_GROUPS`` groups.
"""
MOST_GROUPS: Final = 100
MOST_KEPT: Final = 256
MOST_ADDED: Final = 50
"""Consumers that one decision adds at most."""
MOST_LATE: Final = 0.5
"""Late probability of a job up to which it may wait for consumers that perhaps cannot do all the work: a queue of jobs
that are late anyway would stay, and make the next ones late.
"""
LEAST_GAIN: Final = 1e-3
"""Consumer-seconds per second by which a number has to be better than the present one."""


class NewsvendorNetworkState(msgspec.Struct, frozen=True):
    """What is learned. ``start_ups_s``: those last observed, of all topics. ``forecasts`` by job. By topic:
    ``service``, ``waiting`` (mean number of tasks that wait) and ``tasks`` (arrived tasks, as readings at which there
    were more than before, back to the oldest one that waits). ``unused``: job types of which none had come yet.
    """

    price: Price = Price()
    start_ups_s: tuple[float, ...] = ()
    forecasts: dict[str, Forecast] = msgspec.field(default_factory=dict)
    service: dict[str, ServiceMoments] = msgspec.field(default_factory=dict)
    waiting: dict[str, float] = msgspec.field(default_factory=dict)
    tasks: dict[str, tuple[tuple[float, int], ...]] = msgspec.field(default_factory=dict)
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NewsvendorNetworkParameters(BoundedParameters):
    """``slo_share`` of the jobs is to leave the network within ``slo_s``. ``price_s`` fixes λ in consumer-seconds per
    late job; None: it is found from the share. ``start_up_s``: from the request of a consumer until it serves; it
    counts until start-ups are measured. ``service_rates_per_s`` and ``service_scvs`` per topic replace measured values.
    """

    least_replicas: ClassVar[int] = 0
    decision_interval_s: Positive = 2.0

    slo_s: Positive = 60.0
    slo_share: OpenShare = 0.99
    start_up_s: NotNegative = 0.0
    price_s: Positive | None = None
    service_rates_per_s: Mapping[str, Positive] = field(default_factory=dict)
    service_scvs: Mapping[str, NotNegative] = field(default_factory=dict)


class Time(NamedTuple):
    """Mean and variance of a time, in s and s²."""

    mean: float
    variance: float


class Visit(NamedTuple):
    """A step of a job's route at a topic: its share of the tasks there, and the job's time without the wait there."""

    share: float
    other: Time


class Trade(NamedTuple):
    """What a number of consumers costs until the next decision, in consumer-seconds, and its late jobs."""

    consumers: int
    idle_s: float
    work_s: float
    change_s: float
    late: float
    cost: float


class Outlook(NamedTuple):
    """One topic: who serves and waits there now, and what may arrive until the next decision.

    By task, those that wait first: ``exists``, the probability that there is one (or of a group in a long queue, how
    many there are), ``position``, how many are before it, and late probabilities: if it starts
    ``now`` (or when it arrives), after a start-up (``new``), or at the next decision (``last``), when it has
    waited for ``waits_s``. ``late_after``: late probability by wait.
    ``rate_per_s``: of all arrivals there, in the long run; ``arrivals``: expected ones until the next decision;
    ``ages_s``: waits so far; ``at_once``: late probability of a job that does not wait here.
    ``start_up_s``: of a consumer. ``keeps_up``: probability that the least number of consumers can do all the work in
    the long run, where the arrivals so far are more than that; else 1. ``extra_s``: consumer-seconds that a task costs
    if a consumer beyond the least number serves it. ``renewed_s``, by task: what it costs if it waits until the next
    decision and then gets a further consumer, its late probability until then left out.
    """

    status: TopicStatus
    service_s: float
    rate_per_s: float
    mean_wait_s: float
    arrivals: float
    ages_s: Sequence[float]
    at_once: float
    exists: Sequence[float]
    position: Sequence[int]
    now: Sequence[float]
    new: Sequence[float]
    last: Sequence[float]
    waits_s: Sequence[float]
    late_after: "LateProbability"
    price_s: float
    start_up_s: float
    keeps_up: float
    extra_s: float
    renewed_s: Sequence[float]
    parameters: NewsvendorNetworkParameters

    @property
    def busy(self) -> int:
        """Consumers that serve and are to stay."""
        return max(0, (self.status.in_flight or 0) - self.status.replicas.draining)

    @property
    def waiting(self) -> int:
        """Tasks that wait."""
        return len(self.ages_s)

    @property
    def ending_s(self) -> float:
        """Idle time of a further consumer from its last service to the decision that removes it, a part of
        ``extra_s``. Where some consumers always stay, they take over from it.
        """
        return 0.0 if self.parameters.min_replicas else self.parameters.decision_interval_s / 2

    def trade(self, consumers: int) -> Trade:
        """The parts of J(m). Those that start go first, then idle ones."""
        status = self.status
        kept, more = min(consumers, status.replicas.joined), consumers - status.replicas.current
        busy = min(kept, self.busy)
        idle, added = kept - busy, max(0, consumers - kept)
        late, work_s = self.served(busy, idle, added)
        idle_s = self.idle_s(busy, idle, added)
        change_s = self.start_up_s * max(0, more)
        return Trade(consumers, idle_s, work_s, change_s, late, idle_s + work_s + change_s + self.price_s * late)

    def served(self, busy: int, idle: int, added: int) -> tuple[float, float]:
        """Expected late jobs if all tasks start by the next decision, and what their work and later waits cost in s.

        The first tasks start at once, the next after a start-up, others if a service ends before the next decision.
        ``later_s`` is of a task that waits then.
        """
        p, count, extra_s = self.parameters, len(self.exists), self.extra_s
        at_once, soon = min(idle, count), min(idle + added, count)
        ends = busy * p.decision_interval_s / self.service_s
        beyond = 1 - min(1.0, p.min_replicas / busy) if busy else 0.0
        late = fsum(self.exists[k] * self.now[k] for k in range(at_once))
        late += fsum(self.exists[k] * self.new[k] for k in range(at_once, soon))
        work_s = extra_s * fsum(self.exists[max(0, p.min_replicas - busy) : soon])
        then_s = self.later_s(soon, busy + idle + added)
        first_ones = at_least(ends, ends, min(count - soon, ceil(ends) + MOST_ONE_BY_ONE))
        for k, later_s in zip(range(soon, count), then_s, strict=True):
            turn = self.position[k] - soon
            freed = first_ones[turn] if turn < len(first_ones) else 0.0
            late += self.exists[k] * (self.last[k] - freed * (self.last[k] - self.now[k]) / 2)
            work_s += self.exists[k] * (freed * beyond * (extra_s - self.ending_s) + (1 - freed) * later_s)
        return late, work_s

    def later_s(self, first: int, consumers: int) -> list[float]:
        """By task from ``first`` on: what it costs in s if it still waits at the next decision, its late probability
        until then left out.

        The least of three: a further consumer and its start-up; its turn at the ``consumers`` of this number, who stay
        for it, or without any at the one that the first task gets; its turn at those that have to be there. If these
        cannot do all the work, another task needs a further consumer instead. A later start makes late jobs. Had the
        start-up to be paid only if it is now, a decision would always leave it to the next one.
        """
        least, price_s, late_after = self.parameters.min_replicas, self.price_s, self.late_after
        turns_of = [position - first + 1 for position in self.position[first:]]
        waiting = list(zip(turns_of, self.waits_s[first:], self.last[first:], strict=True))
        costs = self.renewed_s[first:]
        if self.start_up_s + self.ending_s:  # else a further consumer is never dearer than a turn
            turn_s = self.service_s / max(1, consumers)
            first_one, after_s = (0, 0.0) if consumers else (1, self.start_up_s)
            turns = [
                self.extra_s
                - self.ending_s
                + price_s * (late_after.near(wait_s + after_s + (turn - first_one) * turn_s) - last)
                if turn > first_one
                else inf
                for turn, wait_s, last in waiting
            ]
            costs = list(map(min, costs, turns))
        if least and self.keeps_up > TAIL:
            turn_s, displaced_s = self.service_s / least, (1 - self.keeps_up) * self.extra_s
            late_then = [late_after(wait_s + turn * turn_s) for turn, wait_s, _ in waiting]
            turns = [
                displaced_s + price_s * (late - last) if not displaced_s or late < MOST_LATE else inf
                for late, (_, _, last) in zip(late_then, waiting, strict=True)
            ]
            costs = list(map(min, costs, turns))
        return list(costs)

    def idle_s(self, busy: int, idle: int, added: int) -> float:
        """Expected idle time of consumers beyond the least number, until the next decision; of those that are added,
        for as long after their start-up.
        """
        interval_s = self.parameters.decision_interval_s
        later_s = self.start_up_s + interval_s / 2
        more = self.idle(busy, idle + added, later_s) - self.idle(busy, idle, later_s) if added else 0.0
        return interval_s * (self.idle(busy, idle, interval_s / 2) + more)

    def idle(self, busy: int, idle: int, after_s: float) -> float:
        """Expected idle consumers beyond the least number after a time: those that find no task now, and those whose
        service ends, less the tasks that arrive.
        """
        p = self.parameters
        beyond = max(0, busy + idle - p.min_replicas)
        ends, come = busy * after_s / self.service_s, self.arrivals * after_s / p.decision_interval_s
        return mean_between(idle - self.waiting, ends, come, beyond)


def mean_between(spare: int, ends: float, come: float, beyond: int) -> float:
    """E[min((spare + E − A)⁺, beyond)] of two Poisson counts: services that end and tasks that arrive."""
    most = farthest(ends, come)
    surely = max(0, min(beyond, spare - most))
    if min(beyond, spare + most) <= surely:
        return surely
    probabilities = difference(ends, come)
    return surely + fsum(probabilities[k - spare + most] for k in range(surely + 1, min(beyond, spare + most) + 1))


def farthest(first: float, second: float) -> int:
    """Beyond this two Poisson counts do not differ."""
    return ceil(max(first, second) + 5 * sqrt(max(first, second))) + 1


@lru_cache(maxsize=MOST_KEPT)
def difference(first: float, second: float) -> tuple[float, ...]:
    """P(X − Y ≥ k) of two Poisson counts, from k = −most to most; beyond these it is 1 and 0."""
    most = farthest(first, second)
    above = (*(1.0,) * (most + 1), *at_least(first, first, most), *(0.0,) * most)
    by = (1.0, *at_least(second, second, most), 0.0)
    parts = [by[k] - by[k + 1] for k in range(most + 1)]
    return tuple(fsum(parts[y] * above[most + k + y] for y in range(most + 1)) for k in range(-most, most + 1))


class NewsvendorNetwork(BaseScaler[NewsvendorNetworkParameters, NewsvendorNetworkState]):
    """For each topic, the least idle time + work beyond the least consumers + price · expected late jobs."""

    name: ClassVar[str] = "newsvendor-network"
    paper: ClassVar[str] = "own method: docs/newsvendor.md; loss function of Arrow, Harris, Marschak 1951"
    fleets: ClassVar[type[NetworkObservation]] = NetworkObservation

    def decide(
        self, observation: NetworkObservation, state: NewsvendorNetworkState
    ) -> tuple[Decision, NewsvendorNetworkState]:
        """Learn from the readings, and decide about all topics."""
        p = self.parameters
        state = msgspec.structs.replace(
            state,
            price=updated_price(state.price, observation, p),
            service=remembered(observation, state.service),
            start_ups_s=tuple(s for topic in observation.topics for s in topic.start_ups_s) or state.start_ups_s,
        )
        unused = tuple(job.job for job in observation.jobs if job.arrived == 0)
        before, state = state.unused, msgspec.structs.replace(state, unused=unused)
        try:
            seen, idle = parted(observation, state, before, p)
            if idle and not seen.topics:
                return merged(idle), state
            network = known_network(seen, state, p)
            state = learned(seen, state, network, p)
            forecasts = known_rates(seen, state)
        except CannotDecide as reason:
            return hold(observation.fleet, str(reason)), state
        assert state.price.value is not None
        start_up_s = typical(p.start_up_s, state.start_ups_s)
        delay = 1 + start_up_s / p.decision_interval_s
        price_s = p.price_s or state.price.value / PRICE_UNIT * mean_route_s(network) * delay
        decisions = dict(idle)
        for outlook in outlooks(seen, state, network, forecasts, price_s, start_up_s, p):
            trades, chosen = best_trades(outlook)
            why = terms(outlook, trades, chosen)
            decisions[outlook.status.fleet] = resize(outlook.status, trades[chosen].consumers, why)
        decision = merged(decisions)
        contract = contract_terms(network, forecasts, price_s, start_up_s, p)
        contract["action"] = decision.action
        terms_by_fleet = {observation.fleet: contract, **decision.why}
        return msgspec.structs.replace(decision, why=terms_by_fleet), state


def contract_terms(
    network: Network,
    forecasts: Sequence[Forecast],
    price_s: float,
    start_up_s: float,
    p: NewsvendorNetworkParameters,
) -> dict[str, Term]:
    """The contract, and the share of the jobs that is late though none waits: no number of consumers can do better."""
    total = fsum(forecast.rate_per_s for forecast in forecasts)
    least = fsum(
        (forecast.rate_per_s / total if total else 1 / len(forecasts))
        * gamma_above(*service_time(network, route), p.slo_s)
        for forecast, route in zip(forecasts, network.routes(), strict=True)
    )
    terms: dict[str, Term] = {
        "jobs": [job.name for job in network.jobs],
        "rates_per_s": [forecast.rate_per_s for forecast in forecasts],
        "dispersions": [forecast.dispersion for forecast in forecasts],
        "slo_s": p.slo_s,
        "slo_share": p.slo_share,
        "price_s": price_s,
        "start_up_s": start_up_s,
        "late_without_waits": least,
    }
    if least > 1 - p.slo_share:
        terms["infeasible"] = "more jobs than the contract allows are late though none waits"
    return terms


def service_time(network: Network, route: Sequence[int]) -> Time:
    """Of all services of a job."""
    topics = [network.topics[j] for j in route]
    return Time(fsum(1 / t.service_rate for t in topics), fsum(t.service_scv / t.service_rate**2 for t in topics))


def updated_price(price: Price, observation: NetworkObservation, p: NewsvendorNetworkParameters) -> Price:
    """With the counts of jobs that left the network."""
    if price.value is None:
        price = price.beginning(FIRST_PRICE, 1 - p.slo_share)
    return price.updated(observation.completed, observation.late, p.slo_share, PRICE_GAIN)


def parted(
    observation: NetworkObservation,
    state: NewsvendorNetworkState,
    unused: Sequence[str],
    p: NewsvendorNetworkParameters,
) -> tuple[NetworkObservation, dict[str, Decision]]:
    """What needs an outlook, and decisions for the other topics: where no task has been and only those job types lead
    that have not come, at this reading and the last one (``unused``). The least number needs no service rate.
    """
    known = {name for name, last in state.service.items() if last.rate_per_s is not None} | p.service_rates_per_s.keys()
    jobs = tuple(
        job for job in observation.jobs if job.arrived != 0 or job.job not in unused or known.issuperset(job.route)
    )
    needed = {name for job in jobs for name in job.route} | (known if jobs else set())
    idle = {
        topic.fleet: resize(topic, p.bounded(0), {"reason": "no job has come yet", "wanted": p.bounded(0)})
        for topic in observation.topics
        if topic.fleet not in needed and topic.backlog == 0 and topic.in_flight == 0
    }
    topics = tuple(topic for topic in observation.topics if topic.fleet not in idle)
    return msgspec.structs.replace(observation, topics=topics, jobs=jobs), idle


def known_network(
    observation: NetworkObservation, state: NewsvendorNetworkState, p: NewsvendorNetworkParameters
) -> Network:
    """Topics and routes, rates per second, without arrival rates. Raises CannotDecide for an unknown value."""
    if not observation.topics:
        raise CannotDecide("no topic is known that could be scaled")
    topics = []
    for topic in observation.topics:
        check_known(topic, "backlog", "in_flight", "arrived")
        last = state.service.get(topic.fleet, ServiceMoments())
        rate, scv = p.service_rates_per_s.get(topic.fleet, last.rate_per_s), p.service_scvs.get(topic.fleet, last.scv)
        if rate is None:
            reason = reason_of(topic.unknown, "service_rate_per_s")
            raise CannotDecide(f"service rate of topic {topic.fleet} is unknown{reason}")
        topics.append(NetworkTopic(name=topic.fleet, service_rate=rate, service_scv=1.0 if scv is None else scv))
    for job in observation.jobs:
        if job.arrived is None:
            raise CannotDecide(f"arrivals of job {job.job} are unknown")
    try:
        jobs = tuple(Job(name=job.job, route=job.route, arrival_rate=0.0) for job in observation.jobs)
        return Network(topics=tuple(topics), jobs=jobs)
    except ValueError as error:
        raise CannotDecide(f"not a network: {error}") from None


def mean_route_s(network: Network) -> float:
    """Service time of a job along its route, the mean over the job types."""
    routes = network.routes()
    return fsum(1 / network.topics[j].service_rate for route in routes for j in route) / len(routes)


def learned(
    observation: NetworkObservation, state: NewsvendorNetworkState, network: Network, p: NewsvendorNetworkParameters
) -> NewsvendorNetworkState:
    """With this observation's arrivals and waiting tasks. A forecast takes a reading once in the time of a route, so
    that there are some arrivals between two of them.
    """
    time_s, route_s = observation.time_s, mean_route_s(network)
    forecasts, waiting, tasks = dict(state.forecasts), dict(state.waiting), dict(state.tasks)
    for job in observation.jobs:
        forecast = forecasts.get(job.job, Forecast())
        assert job.arrived is not None
        due = not forecast.readings or not 0 <= time_s - forecast.readings[-1][0] < route_s
        if due or forecast.level_per_s is None:
            forecasts[job.job] = forecast.updated(time_s, job.arrived, route_s)
    gain = min(1.0, p.decision_interval_s / (WAIT_MEMORY * route_s))
    for topic in observation.topics:
        assert topic.backlog is not None and topic.arrived is not None
        before = waiting.get(topic.fleet, 0.0)
        waiting[topic.fleet] = before + gain * (topic.backlog - before)
        tasks[topic.fleet] = readings_of(tasks.get(topic.fleet, ()), time_s, topic.arrived, topic.backlog)
    return msgspec.structs.replace(state, forecasts=forecasts, waiting=waiting, tasks=tasks)


def known_rates(observation: NetworkObservation, state: NewsvendorNetworkState) -> list[Forecast]:
    """The forecast of each job type. Raises CannotDecide before there is a rate."""
    forecasts = [state.forecasts[job.job] for job in observation.jobs]
    if any(forecast.level_per_s is None for forecast in forecasts):
        raise CannotDecide("no rate yet: this is the first reading of the arrivals")
    return forecasts


def outlooks(
    observation: NetworkObservation,
    state: NewsvendorNetworkState,
    network: Network,
    forecasts: Sequence[Forecast],
    price_s: float,
    start_up_s: float,
    p: NewsvendorNetworkParameters,
) -> list[Outlook]:
    """All topics, in the network's order. A job's waits at its other topics are those of the last jobs, exponential,
    but each at most its part of the time that the services leave: a queue that is too long elsewhere has to be served
    there, and is no reason to give a job up here.
    """
    routes = network.routes()
    rates, rate_variances = [0.0] * len(network.topics), [0.0] * len(network.topics)
    every_s = mean_route_s(network)
    for route, forecast in zip(routes, forecasts, strict=True):
        for j in route:
            rates[j] += forecast.rate_per_s
            rate_variances[j] += route.count(j) * forecast.level_variance(every_s)
    services_s = [1 / topic.service_rate for topic in network.topics]
    waits_s = [
        state.waiting[topic.fleet] / rate if rate else 0.0
        for topic, rate in zip(observation.topics, rates, strict=True)
    ]
    finish = [
        finished(topic.in_flight or 0, rates[j], services_s[j], p.decision_interval_s)
        for j, topic in enumerate(observation.topics)
    ]
    mean, variance = [0.0] * len(rates), [0.0] * len(rates)
    visits: list[list[Visit]] = [[] for _ in rates]
    for route, forecast in zip(routes, forecasts, strict=True):
        served = service_time(network, route)
        most_s = max(0.0, p.slo_s - served.mean) / len(route)
        waits = [min(waits_s[j], most_s) for j in route]
        count = forecast.rate_at(p.decision_interval_s / 2) * p.decision_interval_s
        mean[route[0]] += count
        variance[route[0]] += max(1.0, forecast.dispersion) * count
        for k, j in enumerate(route):
            share = forecast.rate_per_s / rates[j] if rates[j] else 1.0
            others = [*waits[:k], *waits[k + 1 :]]
            other = Time(served.mean + fsum(others), served.variance + fsum(wait_s**2 for wait_s in others))
            visits[j].append(Visit(share, other))
            if k:
                before = route[k - 1]
                part = forecast.rate_per_s / rates[before] * finish[before] if rates[before] else 0.0
                mean[j] += part
                variance[j] += part
    return [
        outlook_of(
            topic,
            ages_s(state.tasks[topic.fleet], observation.time_s, topic.backlog or 0),
            services_s[j],
            (rates[j], rate_variances[j]),
            waits_s[j],
            (mean[j], variance[j]),
            visits[j],
            price_s,
            start_up_s,
            p,
        )
        for j, topic in enumerate(observation.topics)
    ]


def finished(in_flight: int, rate_per_s: float, service_s: float, within_s: float) -> float:
    """Tasks of a topic that are served within a time: of those in service, and of those that still arrive."""
    part = -expm1(-within_s / service_s)
    return in_flight * part + rate_per_s * max(0.0, within_s - part * service_s)


class LateProbability:
    """Of a job at a topic, by its wait there in s. Values are kept."""

    def __init__(self, visits: Sequence[Visit], limit_s: float) -> None:
        self._visits, self._limit_s = visits, limit_s
        self._total = fsum(visit.share for visit in visits)
        self._known: dict[float, float] = {}
        self._step_s = limit_s / NODES

    def __call__(self, wait_s: float) -> float:
        """Exactly; 0 where no job comes."""
        found = self._known.get(wait_s)
        if found is None:
            left_s = self._limit_s - wait_s
            found = self._known[wait_s] = fsum(
                v.share / self._total * gamma_above(v.other.mean, v.other.variance, left_s) for v in self._visits
            )
        return found

    def near(self, wait_s: float) -> float:
        """Between the values at two of ``NODES``, for the many waits of which each is asked for once."""
        node, part = divmod(wait_s / self._step_s, 1.0)
        before = self(node * self._step_s)
        return before + part * (self((node + 1) * self._step_s) - before)


def readings_of(
    before: Sequence[tuple[float, int]], time_s: float, arrived: int, waiting: int
) -> tuple[tuple[float, int], ...]:
    """With one more reading, without those of tasks that no longer wait. A count or a time that fell is of a topic that
    was started anew.
    """
    if before and (time_s < before[-1][0] or arrived < before[-1][1]):
        before = ()
    kept = [each for each in before if each[1] > arrived - waiting] if waiting else list(before[-1:])
    if not kept or arrived > kept[-1][1]:
        kept.append((time_s, arrived))
    return tuple(kept)


def ages_s(readings: Sequence[tuple[float, int]], time_s: float, waiting: int) -> list[float]:
    """How long each of the tasks that wait has waited at this topic, the oldest first: at least, since it may have come
    before the reading that had it first.
    """
    ages, i = list[float](), 0
    newest = readings[-1][1]
    for number in range(newest - waiting + 1, newest + 1):
        while readings[i][1] < number:
            i += 1
        ages.append(time_s - readings[i][0])
    return ages


def grouped(waiting: int, may_start: int) -> list[tuple[int, int]]:
    """Position and number of the waiting tasks that are evaluated as one: each alone, but for the end of a long queue,
    where it is the middle of a group. ``may_start``: tasks that may start before the next decision.
    """
    alone = min(waiting, may_start + MOST_ONE_BY_ONE)
    size = max(1, ceil((waiting - alone) / MOST_GROUPS))
    groups = [(first, min(size, waiting - first)) for first in range(alone, waiting, size)]
    return [*((k, 1) for k in range(alone)), *((first + number // 2, number) for first, number in groups)]


def outlook_of(
    status: TopicStatus,
    ages: Sequence[float],
    service_s: float,
    rate: tuple[float, float],
    mean_wait_s: float,
    arrivals: tuple[float, float],
    visits: Sequence[Visit],
    price_s: float,
    start_up_s: float,
    p: NewsvendorNetworkParameters,
) -> Outlook:
    """Late probabilities of the tasks that wait, and of those that may arrive. ``rate`` (of the long run, per s) and
    ``arrivals``: mean and variance.
    """
    (rate_per_s, rate_variance), (mean, variance) = rate, arrivals
    most = min(MOST_ARRIVALS, ceil(mean + 6 * sqrt(variance)) + 2)
    probable = [each for each in at_least(mean, variance, most) if each >= TAIL]
    late = LateProbability(visits, p.slo_s)
    ends = (status.in_flight or 0) * p.decision_interval_s / service_s
    groups = grouped(len(ages), max(status.replicas.current + MOST_ADDED, p.min_replicas) + ceil(ends))
    some = [ages[position] for position, _ in groups]
    come_s = [p.decision_interval_s * k / (max(mean, k) + 1) for k in range(1, len(probable) + 1)]
    at_once = late(0.0)
    now = [*(late(age_s) for age_s in some), *(at_once for _ in come_s)]
    new = now
    if start_up_s:
        new = [*(late(a + start_up_s) for a in some), *(late(max(0.0, start_up_s - c)) for c in come_s)]
    waits_s = [*(a + p.decision_interval_s for a in some), *(p.decision_interval_s - c for c in come_s)]
    last = [late(wait_s) for wait_s in waits_s]
    exists = [*(float(number) for _, number in groups), *probable]
    positions = [*(position for position, _ in groups), *range(len(ages), len(ages) + len(probable))]
    enough_per_s = p.min_replicas / service_s
    keeps_up = 1.0 if rate_per_s < enough_per_s else normal_below(enough_per_s, rate_per_s, rate_variance)
    extra_s = extra_work_s(rate_per_s * service_s, service_s, p)
    renewed_s = [
        extra_s + start_up_s + price_s * (late(wait_s + start_up_s) - before)
        for wait_s, before in zip(waits_s, last, strict=True)
    ]
    return Outlook(
        status,
        service_s,
        rate_per_s,
        mean_wait_s,
        mean,
        ages,
        at_once,
        exists,
        positions,
        now,
        new,
        last,
        waits_s,
        late,
        price_s,
        start_up_s,
        keeps_up,
        extra_s,
        renewed_s,
        p,
    )


def extra_work_s(load: float, service_s: float, p: NewsvendorNetworkParameters) -> float:
    """Consumer-seconds that a task costs if a consumer beyond the least number serves it. One that has to be there
    would serve it for nothing later if it is idle then, which is so with the probability of fewer tasks in the topic
    than the least number of consumers. If none has to be there, the consumer is idle in the end, too.
    """
    if not p.min_replicas:
        return service_s + p.decision_interval_s / 2
    return service_s * (1 - at_least(load, load, p.min_replicas)[-1])


def best_trades(outlook: Outlook) -> tuple[list[Trade], int]:
    """The trades of one consumer fewer, of the number with the least cost, and of one more, and which is the least. The
    present number if none is cheaper. A consumer that serves leaves only if a task waits for one that stays.
    """
    p, current = outlook.parameters, outlook.status.replicas.current
    most = p.bounded(max(current, min(outlook.busy + len(outlook.exists), current + MOST_ADDED)))
    least = p.bounded(min(current, outlook.busy - outlook.waiting))
    trades = {consumers: outlook.trade(consumers) for consumers in range(least, most + 1)}
    present = trades[p.bounded(current)]
    best = min(trades.values(), key=lambda trade: trade.cost)
    if best.cost > present.cost - LEAST_GAIN * p.decision_interval_s:
        best = present
    m = best.consumers
    shown = [trades.get(each) or outlook.trade(each) for each in (m - 1, m, m + 1) if p.bounded(each) == each]
    return shown, [each.consumers for each in shown].index(m)


def terms(outlook: Outlook, trades: Sequence[Trade], chosen: int) -> Mapping[str, Term]:
    """The arithmetic: the topic, and the trade of one consumer fewer, the chosen number, and one more."""
    status = outlook.status
    return {
        "rate_per_s": outlook.rate_per_s,
        "service_s": outlook.service_s,
        "mean_wait_s": outlook.mean_wait_s,
        "in_service": status.in_flight,
        "waiting": outlook.waiting,
        **({"oldest_s": outlook.ages_s[0]} if outlook.ages_s else {}),
        "arrivals": outlook.arrivals,
        "late_at_once": outlook.at_once,
        "keeps_up": outlook.keeps_up,
        "extra_s": outlook.extra_s,
        "price_s": outlook.price_s,
        "consumers": status.replicas.current,
        "candidates": [each.consumers for each in trades],
        "idle_s": [each.idle_s for each in trades],
        "work_s": [each.work_s for each in trades],
        "change_s": [each.change_s for each in trades],
        "late": [each.late for each in trades],
        "cost": [each.cost for each in trades],
        "chosen": chosen,
        "wanted": trades[chosen].consumers,
    }
