"""What the scalers of a pub/sub network have in common: the network as observed, when to reschedule, what to change.

Nguyen and Nahrstedt, "Elastic pub/sub", sections III and VI; the order of one rescheduling, its triggers and the
estimators are ours, since the paper has none. Inside, rates are per minute as in the paper.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from controller.queueing.gim import gim
from controller.queueing.network import Job, Network, NetworkMeasures, Topic, measure
from controller.scalers.allocation import Consumers
from controller.scalers.parameters import require_not_negative, require_positive
from controller.scalers.single_fleet import PartDecision, Window, merged, resize_part
from controller.scalers.stream import CannotDecide
from penstock.contracts import Decision, JobStatus, NetworkObservation, Term, TopicStatus, hold

MINUTE_S = 60.0


@dataclass(frozen=True)
class NetworkParameters:
    """When to reschedule: the measured response time is above ``response_limit_s``, or ``timer_s`` have passed since
    the last time (None: no timer; without one nothing is ever scaled down). For ``stabilisation_s`` after that the
    response time triggers nothing: what is measured then is partly of the allocation before. ``stepwise``: every
    decision is one iteration, one consumer more than now, as in the experiments that measure after each iteration.

    ``service_rates_per_s`` and ``service_scvs`` per topic go before what the monitor measured; the paper knows them
    beforehand. Arrival rates that the monitor does not give are of the last ``window_s``.
    """

    response_limit_s: float = 60.0
    timer_s: float | None = 300.0
    stabilisation_s: float = 0.0
    stepwise: bool = False
    decision_interval_s: float = 30.0
    window_s: float = 600.0
    service_rates_per_s: Mapping[str, float] = field(default_factory=dict)
    service_scvs: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_positive(
            response_limit_s=self.response_limit_s,
            decision_interval_s=self.decision_interval_s,
            window_s=self.window_s,
            **{f"service_rates_per_s.{topic}": rate for topic, rate in self.service_rates_per_s.items()},
        )
        require_not_negative(
            stabilisation_s=self.stabilisation_s,
            **{f"service_scvs.{topic}": scv for topic, scv in self.service_scvs.items()},
        )
        if self.timer_s is not None:
            require_positive(timer_s=self.timer_s)


class ServiceMoments(msgspec.Struct, frozen=True):
    """The last known service rate of a topic and scv of its service time."""

    rate_per_s: float | None = None
    scv: float | None = None


class NetworkState(msgspec.Struct, frozen=True):
    """``since_s``: the last rescheduling, the first observation before one; ``rescheduled_s``: the last rescheduling,
    None before one. ``draws`` counts what was drawn by lot.
    """

    seed: int = 0
    draws: int = 0
    since_s: float | None = None
    rescheduled_s: float | None = None
    arrivals: dict[str, Window] = msgspec.field(default_factory=dict)
    service: dict[str, ServiceMoments] = msgspec.field(default_factory=dict)


class Allocated(NamedTuple):
    """An answer: consumers per topic, the arithmetic that led to it, and how many draws it took."""

    consumers: Consumers
    why: dict[str, Term]
    draws: int = 0


P = TypeVar("P", bound=NetworkParameters)


class NetworkScaler(ABC, Generic[P]):
    """Reschedules all topics of a network at once when there is a reason to."""

    fleets: ClassVar[type[NetworkObservation]] = NetworkObservation
    Parameters: ClassVar[type[Any]]
    State: ClassVar[type[NetworkState]] = NetworkState

    def __init__(self, parameters: P) -> None:
        self.parameters = parameters

    @property
    def period_s(self) -> float:
        """The decision interval."""
        return self.parameters.decision_interval_s

    def start(self, seed: int) -> NetworkState:
        """Nothing is known yet; ``seed`` is for the scaler that draws lots."""
        return NetworkState(seed=seed)

    @abstractmethod
    def reschedule(self, observation: NetworkObservation, state: NetworkState) -> Allocated:
        """A new allocation from one consumer each on. Raises CannotDecide for what is unknown."""

    @abstractmethod
    def step(self, observation: NetworkObservation, state: NetworkState, now: Consumers) -> Allocated:
        """One iteration from the current allocation; the same allocation where no further one is due."""

    def decide(self, observation: NetworkObservation, state: NetworkState) -> tuple[Decision, NetworkState]:
        """See whether there is a reason to reschedule, and set the consumers of all topics."""
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
    """What triggers a rescheduling, None if nothing does. Raises CannotDecide if that cannot be told."""
    response_s = observation.response_time_s
    above = response_s is not None and response_s > p.response_limit_s
    if above and _passed(state.rescheduled_s, observation.time_s, p.stabilisation_s):
        return "response time above the limit"
    if p.timer_s is not None and state.since_s is not None and _passed(state.since_s, observation.time_s, p.timer_s):
        return "timer"
    if response_s is None:
        raise CannotDecide(f"response time is unknown{_said(observation.unknown, 'response_time_s')}")
    if above:
        raise CannotDecide("stabilisation interval")
    return None


def _passed(since_s: float | None, now_s: float, interval_s: float) -> bool:
    """Whether an interval is over, or has never begun. A tick that is early by a rounding error is on time."""
    return since_s is None or now_s - since_s >= interval_s - 1e-6


def remember(observation: NetworkObservation, state: NetworkState, p: NetworkParameters) -> NetworkState:
    """The state with what this observation tells of arrivals and service times."""
    arrivals, service = dict(state.arrivals), dict(state.service)
    for job in observation.jobs:
        arrivals[job.job] = arrivals.get(job.job, Window()).add(observation.time_s, job.arrived, p.window_s)
    for topic in observation.topics:
        last = service.get(topic.fleet, ServiceMoments())
        service[topic.fleet] = ServiceMoments(
            topic.service_rate_per_s or last.rate_per_s,
            topic.service_scv if topic.service_scv is not None else last.scv,
        )
    since_s = observation.time_s if state.since_s is None else state.since_s
    return msgspec.structs.replace(state, since_s=since_s, arrivals=arrivals, service=service)


def network_per_minute(observation: NetworkObservation, state: NetworkState, p: NetworkParameters) -> Network:
    """The network as it is known now, rates per minute. Raises CannotDecide with the first value that is missing."""
    try:
        return Network(
            topics=tuple(_topic(topic, state, p) for topic in observation.topics),
            jobs=tuple(_job(job, state, p) for job in observation.jobs),
        )
    except ValueError as error:
        raise CannotDecide(f"not a network: {error}") from None


def _topic(topic: TopicStatus, state: NetworkState, p: NetworkParameters) -> Topic:
    known = state.service.get(topic.fleet, ServiceMoments())
    rate_per_s = p.service_rates_per_s.get(topic.fleet, known.rate_per_s)
    scv = p.service_scvs.get(topic.fleet, known.scv)
    if rate_per_s is None:
        raise CannotDecide(
            f"service rate of topic {topic.fleet} is unknown{_said(topic.unknown, 'service_rate_per_s')}"
        )
    if scv is None:
        raise CannotDecide(
            f"scv of the service time of topic {topic.fleet} is unknown{_said(topic.unknown, 'service_scv')}"
        )
    return Topic(name=topic.fleet, service_rate=rate_per_s * MINUTE_S, service_scv=scv)


def _job(job: JobStatus, state: NetworkState, p: NetworkParameters) -> Job:
    rate_per_s = job.arrival_rate_per_s
    if rate_per_s is None:
        rate_per_s = state.arrivals.get(job.job, Window()).rate_per_s(p.window_s)
    if rate_per_s is None:
        raise CannotDecide(f"arrival rate of job {job.job} is unknown")
    scv = job.arrival_scv
    if scv is None and rate_per_s == 0:
        scv = 1.0  # of no arrivals: it has no weight in any sum
    if scv is None:
        raise CannotDecide(f"scv of the interarrival time of job {job.job} is unknown")
    return Job(name=job.job, route=job.route, arrival_rate=rate_per_s * MINUTE_S, arrival_scv=scv)


def allocate(observation: NetworkObservation, allocated: Allocated, why: Mapping[str, Term]) -> Decision:
    """The decision that replaces the current numbers of consumers by the new ones, all at once."""
    topics = list(zip(observation.topics, allocated.consumers, strict=True))
    parts: dict[str, PartDecision] = {
        topic.fleet: resize_part(topic, m, {"consumers": topic.replicas.current, "m": m}) for topic, m in topics
    }
    decision = merged(parts)
    network: dict[str, Term] = {**why, **allocated.why, "m": list(allocated.consumers), "action": decision.action}
    return msgspec.structs.replace(decision, why={observation.fleet: network, **decision.why})


def terms(network: Network, measured: NetworkMeasures) -> dict[str, Term]:
    """What the model says of an allocation, in the paper's symbols and its order; rates per minute, R in seconds."""
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
    """The allocations one by one: R of each, and what each step compared of all topics to choose the one it took.

    That is ``delta_L``, the gain L_j(m_j) - L_j(m_j + 1) at the arrival scvs of that step (P8), or, as long as a topic
    is overloaded, ``rho`` of those that are, 0 of the others (P7).
    """
    measured = [measure(network, m) for m in path]
    compared: list[Term] = []
    candidates: list[Term] = []
    for m, at in zip(path[:-1], measured[:-1], strict=True):
        parts, now = at.decomposition, [topic.in_system for topic in at.topics]
        if inf in now:
            compared.append("rho")
            candidates.append([rho if l_j == inf else 0.0 for rho, l_j in zip(parts.utilisation, now, strict=True)])
            continue
        after = (
            gim(rate, scv, topic.service_rate, topic.service_scv, m_j + 1).in_system
            for topic, m_j, rate, scv in zip(network.topics, m, parts.arrival_rate, parts.arrival_scv, strict=True)
        )
        compared.append("delta_L")
        candidates.append(
            [topic.value * (l_j - l_more) for topic, l_j, l_more in zip(network.topics, now, after, strict=True)]
        )
    why: dict[str, Term] = {
        "path": [list(m) for m in path],
        "R_after_each_s": [finite(at.response_time * MINUTE_S) for at in measured],
    }
    return why | {"compared": compared, "candidates": candidates} if candidates else why


def finite(value: float) -> float | str:
    """A number that survives JSON; infinity as the word."""
    return "inf" if value == inf else value


def _said(unknown: Mapping[str, str], name: str) -> str:
    return f" ({unknown[name]})" if name in unknown else ""
