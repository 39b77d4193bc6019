"""The base class of scalers of a pub/sub network: observed network, reason to reschedule, new allocation.

Nguyen and Nahrstedt, "Elastic pub/sub", sections III and VI. Triggers and estimators are ours: the paper has none.
Rates inside are per minute, as in the paper.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, NamedTuple, TypeVar

import msgspec

from controller.queueing.network import Job, Network, NetworkMeasures, NetworkTopic, measure
from controller.queueing.rounding import finite
from controller.scalers.shared.allocation import Consumers, compare_topics
from controller.scalers.shared.base import TOLERANCE_S, BaseScaler, CannotDecide, reason_of, resize
from controller.scalers.shared.parameters import NotNegative, Parameters, Positive
from controller.scalers.shared.single_fleet import Window, merged
from penstock.contracts import Decision, JobStatus, NetworkObservation, Term, TopicStatus, hold

MINUTE_S = 60.0


@dataclass(frozen=True)
class NetworkParameters(Parameters):
    """Reschedule when the measured response time is above ``response_limit_s``, but not within ``stabilisation_s``
    (its window still has jobs of the earlier allocation), and every ``timer_s`` (None: no timer, no scale-down).
    ``stepwise``: every decision is one iteration, as in the experiments that measure after each.

    ``service_rates_per_s`` and ``service_scvs`` per topic replace measured values. ``window_s`` is for arrival rates
    that the monitor does not give.
    """

    response_limit_s: Positive = 60.0
    timer_s: Positive | None = 300.0
    stabilisation_s: NotNegative = 0.0
    stepwise: bool = False
    decision_interval_s: Positive = 30.0
    window_s: Positive = 600.0
    service_rates_per_s: Mapping[str, Positive] = field(default_factory=dict)
    service_scvs: Mapping[str, NotNegative] = field(default_factory=dict)


class ServiceMoments(msgspec.Struct, frozen=True):
    """The last known service rate of a topic and scv of its service time."""

    rate_per_s: float | None = None
    scv: float | None = None


class NetworkState(msgspec.Struct, frozen=True):
    """``rescheduled_s``: the last rescheduling; ``since_s``: that, or the first observation."""

    seed: int = 0
    draws: int = 0
    since_s: float | None = None
    rescheduled_s: float | None = None
    arrivals: dict[str, Window] = msgspec.field(default_factory=dict)
    service: dict[str, ServiceMoments] = msgspec.field(default_factory=dict)


class Allocated(NamedTuple):
    """Consumers per topic, the arithmetic that led to them, and the number of draws it took."""

    consumers: Consumers
    why: dict[str, Term]
    draws: int = 0


P = TypeVar("P", bound=NetworkParameters)


class NetworkScaler(ABC, BaseScaler[P, NetworkState]):
    """Reschedules all topics of a network at once when there is a reason to."""

    fleets: ClassVar[type[NetworkObservation]] = NetworkObservation

    def start(self, seed: int) -> NetworkState:
        """Nothing is known yet; ``seed`` is of the random draws."""
        return NetworkState(seed=seed)

    def network(self, observation: NetworkObservation, state: NetworkState) -> Network:
        """The network as known now, rates per minute. Raises CannotDecide with the first value that is missing."""
        p = self.parameters
        try:
            return Network(
                topics=tuple(_topic(topic, state, p) for topic in observation.topics),
                jobs=tuple(_job(job, state, p) for job in observation.jobs),
            )
        except ValueError as error:
            raise CannotDecide(f"not a network: {error}") from None

    @abstractmethod
    def reschedule(self, observation: NetworkObservation, state: NetworkState) -> Allocated:
        """A new allocation from one consumer each on. Raises CannotDecide for an unknown value."""

    @abstractmethod
    def step(self, observation: NetworkObservation, state: NetworkState, now: Consumers) -> Allocated:
        """One iteration from the current allocation; the same allocation where no further one is due."""

    def decide(self, observation: NetworkObservation, state: NetworkState) -> tuple[Decision, NetworkState]:
        """Set the consumers of all topics if there is a reason to reschedule."""
        p = self.parameters
        seen = remember(observation, state, p)
        if not observation.topics:
            return hold(observation.fleet, "no topic is known that could be scaled"), seen
        now = tuple(max(1, topic.replicas.current) for topic in observation.topics)
        why: dict[str, Term] = {"response_time_s": observation.response_time_s, "response_limit_s": p.response_limit_s}
        try:
            if p.stepwise:
                why["trigger"] = "every decision is one iteration"
                allocated = self.step(observation, seen, now)
            else:
                trigger = reason_to_reschedule(observation, seen, p)
                if trigger is None:
                    why |= {"trigger": None, "action": "none"}
                    return Decision(action="none", why={observation.fleet: why}), seen
                why["trigger"] = trigger
                allocated = self.reschedule(observation, seen)
        except CannotDecide as reason:
            return hold(observation.fleet, str(reason), **why), seen
        decision, now_s = allocate(observation, allocated, why), observation.time_s
        return decision, msgspec.structs.replace(
            seen, since_s=now_s, rescheduled_s=now_s, draws=seen.draws + allocated.draws
        )


def reason_to_reschedule(observation: NetworkObservation, state: NetworkState, p: NetworkParameters) -> str | None:
    """What triggers a rescheduling, None if nothing does. Raises CannotDecide if that is unknown."""
    response_s = observation.response_time_s
    above = response_s is not None and response_s > p.response_limit_s
    if above and _passed(state.rescheduled_s, observation.time_s, p.stabilisation_s):
        return "response time above the limit"
    if p.timer_s is not None and state.since_s is not None and _passed(state.since_s, observation.time_s, p.timer_s):
        return "timer"
    if response_s is None:
        raise CannotDecide(f"response time is unknown{reason_of(observation.unknown, 'response_time_s')}")
    if above:
        raise CannotDecide("stabilisation interval")
    return None


def _passed(since_s: float | None, now_s: float, interval_s: float) -> bool:
    """Whether an interval is over, or has never begun."""
    return since_s is None or now_s - since_s >= interval_s - TOLERANCE_S


def remember(observation: NetworkObservation, state: NetworkState, p: NetworkParameters) -> NetworkState:
    """The state with this observation's arrivals and service times."""
    arrivals = dict(state.arrivals)
    for job in observation.jobs:
        arrivals[job.job] = arrivals.get(job.job, Window()).add(observation.time_s, job.arrived, p.window_s)
    since_s = observation.time_s if state.since_s is None else state.since_s
    service = remembered(observation, state.service)
    return msgspec.structs.replace(state, since_s=since_s, arrivals=arrivals, service=service)


def remembered(observation: NetworkObservation, before: Mapping[str, ServiceMoments]) -> dict[str, ServiceMoments]:
    """The last known service times by topic, with those of this observation."""
    service = dict(before)
    for topic in observation.topics:
        last = service.get(topic.fleet, ServiceMoments())
        service[topic.fleet] = ServiceMoments(
            topic.service_rate_per_s or last.rate_per_s,
            topic.service_scv if topic.service_scv is not None else last.scv,
        )
    return service


def _topic(topic: TopicStatus, state: NetworkState, p: NetworkParameters) -> NetworkTopic:
    last, said = state.service.get(topic.fleet, ServiceMoments()), topic.unknown
    rate_per_s = p.service_rates_per_s.get(topic.fleet, last.rate_per_s)
    scv = p.service_scvs.get(topic.fleet, last.scv)
    return NetworkTopic(
        name=topic.fleet,
        service_rate=MINUTE_S * _known(rate_per_s, f"service rate of topic {topic.fleet}", said, "service_rate_per_s"),
        service_scv=_known(scv, f"scv of the service time of topic {topic.fleet}", said, "service_scv"),
    )


def _job(job: JobStatus, state: NetworkState, p: NetworkParameters) -> Job:
    rate_per_s = job.arrival_rate_per_s
    if rate_per_s is None:
        rate_per_s = state.arrivals.get(job.job, Window()).rate_per_s(p.window_s)
    rate_per_s = _known(rate_per_s, f"arrival rate of job {job.job}")
    scv = 1.0 if job.arrival_scv is None and rate_per_s == 0 else job.arrival_scv  # without arrivals it has no weight
    scv = _known(scv, f"scv of the interarrival time of job {job.job}")
    return Job(name=job.job, route=job.route, arrival_rate=rate_per_s * MINUTE_S, arrival_scv=scv)


def _known(value: float | None, what: str, unknown: Mapping[str, str] = MappingProxyType({}), field: str = "") -> float:
    if value is None:
        raise CannotDecide(f"{what} is unknown{reason_of(unknown, field)}")
    return value


def allocate(observation: NetworkObservation, allocated: Allocated, why: Mapping[str, Term]) -> Decision:
    """The decision that replaces the current numbers of consumers by the new ones, all at once."""
    topics = list(zip(observation.topics, allocated.consumers, strict=True))
    decision = merged(
        {topic.fleet: resize(topic, m, {"consumers": topic.replicas.current, "m": m}) for topic, m in topics}
    )
    network: dict[str, Term] = {**why, **allocated.why, "m": list(allocated.consumers), "action": decision.action}
    return msgspec.structs.replace(decision, why={observation.fleet: network, **decision.why})


def terms(network: Network, measured: NetworkMeasures) -> dict[str, Term]:
    """The model's measures of an allocation, in the paper's symbols and order; rates per minute, R in seconds."""
    parts = measured.decomposition
    return {
        "topics": [topic.name for topic in network.topics],
        "lambda_per_min": [job.arrival_rate for job in network.jobs],
        "ca2": [job.arrival_scv for job in network.jobs],
        "mu_per_min": [topic.service_rate for topic in network.topics],
        "cs2": [topic.service_scv for topic in network.topics],
        "lambda_j_per_min": list(parts.arrival_rate),
        "ca2_j": list(parts.arrival_scv),
        "rho_j": list(parts.utilisation),
        "L_j": [finite(topic.in_system) for topic in measured.topics],
        "WIP": finite(measured.work_in_progress),
        "R_s": finite(measured.response_time * MINUTE_S),
    }


def steps(network: Network, path: Sequence[Consumers]) -> dict[str, Term]:
    """The allocations one by one: R of each, and the values by which each step chose its topic."""
    measured = [measure(network, m) for m in path]
    compared = [compare_topics(network, m, at.decomposition) for m, at in zip(path[:-1], measured[:-1], strict=True)]
    why: dict[str, Term] = {
        "path": [list(m) for m in path],
        "R_after_each_s": [finite(at.response_time * MINUTE_S) for at in measured],
    }
    if compared:
        why |= {"compared": [by for by, _ in compared], "candidates": [values for _, values in compared]}
    return why
