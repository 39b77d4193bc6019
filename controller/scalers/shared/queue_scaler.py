"""The base class of scalers of a queue fleet: one cycle of Algorithm 1 of Elastic Multi-M/M/s/K.

Kathirvel and Parasuraman, "Elastic Multi-M/M/s/K", 2019, with the choices that the paper leaves open.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple, TypeVar

import msgspec

from controller.queueing.mmsk import loss_probability
from controller.queueing.pool import queues_to_create
from controller.queueing.rounding import TOLERANCE
from controller.scalers.shared.base import BaseScaler, CannotDecide, all_reasons, seconds_since
from controller.scalers.shared.multiqueue_algorithms import (
    Cycle,
    Limits,
    Ratios,
    SubQueue,
    averages,
    by_current_p_k,
    routing_shares,
    scaler_cycle,
    with_ratios,
)
from controller.scalers.shared.parameters import Count, CountOrZero, Positive
from penstock.contracts import Action, Decision, QueueObservation, QueueStatus, Term, hold


class Counters(msgspec.Struct, frozen=True):
    """Events of one queue up to the last reading: offered to it, and rejected by it."""

    arrived: int
    rejected: int


class QueueCounters(msgspec.Struct, frozen=True):
    """The reading from which the next rates are counted. Removed queues are kept while they may come back."""

    time_s: float
    arrived: int
    queues: dict[str, Counters]


class QueueState(msgspec.Struct, frozen=True):
    """The last reading, the removable queue and its rate after the halvings, and the ratios in force, per queue.

    ``history``: P_K of the last cycles per queue, the latest last; for damped ratios only.
    """

    reading: QueueCounters | None = None
    removable: str | None = None
    removable_rate_per_s: float = 0.0
    ratios: dict[str, float] = msgspec.field(default_factory=dict)
    history: dict[str, tuple[float, ...]] = msgspec.field(default_factory=dict)


class QueueTick(NamedTuple):
    """The input of a decision: λ of the main queue, the queues in order of creation, the origin of each P_K."""

    main_rate_per_s: float
    queues: tuple[SubQueue, ...]
    p_k_from: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class MultiqueueParameters(Limits):
    """Constants of Algorithms 1 and 3; the period is ours (Q17).

    P_K ``auto``: the measured share of rejected events if a queue ever rejected one, otherwise M/M/s/K with the
    measured rate. ``service_rate_per_s`` (μ of a container) and ``capacity`` (K) None: as observed. ``max_queues``
    None: no limit.
    """

    min_queues: CountOrZero = 2
    p_k_from: Literal["auto", "measured", "formula"] = "auto"
    service_rate_per_s: Positive | None = None
    capacity: Count | None = None
    max_queues: Count | None = None


def updated(last: QueueCounters | None, observation: QueueObservation, interval_s: float) -> QueueCounters | None:
    """The new reading; the last one if the new one is incomplete or comes within half an interval."""
    if last is not None and 0 <= observation.time_s - last.time_s < interval_s / 2:
        return last
    if observation.arrived is None or not observation.queues or any(q.arrived is None for q in observation.queues):
        return last
    known = {**({} if last is None else last.queues), **{q.queue: _counters(q) for q in observation.queues}}
    may_come = {*observation.pool, *(q.queue for q in observation.queues)}
    return QueueCounters(
        observation.time_s, observation.arrived, {name: each for name, each in known.items() if name in may_come}
    )


def read(p: MultiqueueParameters, observation: QueueObservation, state: QueueState) -> QueueTick:
    """The input of a decision. Raises CannotDecide for an unknown value. Queues that drain are left out.

    λ of a queue is the share of the measured main rate that the routing in force gives it; of the removable queue, the
    rate after its halvings.
    """
    reasons = all_reasons(observation.unknown)
    active = [q for q in observation.queues if not q.draining]
    if not active:
        raise CannotDecide(f"no queues known{reasons}")
    if observation.arrived is None:
        raise CannotDecide(f"arrivals at the main queue are unknown{reasons}")
    last = state.reading
    seconds = seconds_since(last.time_s if last else None, observation.time_s, p.decision_interval_s, "counters")
    assert last is not None
    if observation.arrived < last.arrived:
        raise CannotDecide(f"arrivals at the main queue fell from {last.arrived} to {observation.arrived}")
    main_rate = (observation.arrived - last.arrived) / seconds
    queues, sources = [], []
    for q in active:
        if q.servers is None:
            raise CannotDecide(f"containers of queue {q.queue} are unknown{reasons}")
        offered = _offered(q, last)
        rate = main_rate * observation.routing[q.queue] if q.queue in observation.routing else offered.arrived / seconds
        p_k, source = _p_k(p, observation, q, offered, rate)
        removable = q.queue == state.removable
        queues.append(
            SubQueue(
                queue=q.queue,
                p_k=p_k,
                servers=q.servers,
                arrival_rate_per_s=state.removable_rate_per_s if removable else rate,
                removable=removable,
                ratio=state.ratios.get(q.queue),
            )
        )
        sources.append(source)
    return QueueTick(main_rate, tuple(queues), tuple(sources))


def _offered(q: QueueStatus, last: QueueCounters) -> Counters:
    """Events offered to a queue and rejected by it since the last reading; a new queue had none then."""
    if q.arrived is None:
        raise CannotDecide(f"arrivals at queue {q.queue} are unknown")
    before, now = last.queues.get(q.queue, Counters(0, 0)), _counters(q)
    if now.arrived < before.arrived or now.rejected < before.rejected:
        raise CannotDecide(f"the counters of queue {q.queue} fell (was it made anew?)")
    return Counters(now.arrived - before.arrived, now.rejected - before.rejected)


def _p_k(
    p: MultiqueueParameters, observation: QueueObservation, q: QueueStatus, offered: Counters, rate_per_s: float
) -> tuple[float, str]:
    """(P_K of a queue in this cycle, "measured" or "formula")."""
    capacity = p.capacity or q.capacity
    if p.p_k_from == "measured" or (p.p_k_from == "auto" and (q.rejected or 0) > 0):
        if q.rejected is None:
            raise CannotDecide(f"rejections at queue {q.queue} are unknown{all_reasons(observation.unknown)}")
        return (min(1.0, offered.rejected / offered.arrived) if offered.arrived else 0.0), "measured"
    if capacity is None:
        raise CannotDecide(f"P_K of queue {q.queue} cannot be computed: no bound K of it is known")
    assert q.servers is not None
    if q.servers == 0:
        return float(rate_per_s > 0), "formula"  # Q6
    service_rate = p.service_rate_per_s or q.service_rate_per_s or container_rate_per_s(observation)
    if service_rate is None:
        raise CannotDecide(f"service rate of queue {q.queue} is unknown{all_reasons(observation.unknown)}")
    return loss_probability(rate_per_s, service_rate, q.servers, capacity), "formula"


def container_rate_per_s(observation: QueueObservation) -> float | None:
    """Mean service rate of a container over the queues where it is known (the fleet's own rate is of a whole queue)."""
    known = [q.service_rate_per_s for q in observation.queues if q.service_rate_per_s is not None]
    return fsum(known) / len(known) if known else None


def _counters(q: QueueStatus) -> Counters:
    return Counters(q.arrived or 0, q.rejected or 0)


P = TypeVar("P", bound=MultiqueueParameters)


class Damping(NamedTuple):
    """How the ratios are generated, P_K of the last cycles per queue if that takes them, and avgPk over those cycles,
    which has to be below minPk as well; None: that of this cycle is enough.
    """

    ratios: Ratios = by_current_p_k
    history: Mapping[str, tuple[float, ...]] = MappingProxyType({})
    settled_p_k: float | None = None


class QueueScaler(BaseScaler[P, QueueState]):
    """One cycle of Algorithm 1 on an observation; a subclass may generate the ratios in another way."""

    fleets: ClassVar[type[QueueObservation]] = QueueObservation

    def damping(self, queues: Sequence[SubQueue], state: QueueState) -> Damping:  # noqa: ARG002
        """None, as printed."""
        return Damping()

    def decide(self, observation: QueueObservation, state: QueueState) -> tuple[Decision, QueueState]:
        """Add a queue, halve the load of one, remove it, or only generate the ratios again."""
        p = self.parameters
        reading = updated(state.reading, observation, p.decision_interval_s)
        try:
            tick = read(p, observation, state)
        except CannotDecide as reason:
            return hold(observation.fleet, str(reason)), msgspec.structs.replace(state, reading=reading)
        ratios, history, settled = self.damping(tick.queues, state)
        n, replicas = len(tick.queues), observation.replicas.current
        pool, kept_back = observation.pool, dict[str, Term]()
        if p.max_queues is not None and n >= p.max_queues:
            pool, kept_back = (), {"kept_back": f"at most {p.max_queues} queues"}
        elif replicas > n:
            pool, kept_back = (), {"kept_back": f"{replicas - n} more asked for, not there yet"}
        cycle = scaler_cycle(tick.queues, pool, p, ratios=ratios, settled_p_k=settled)
        queues = cycle.queues
        if any(q.ratio is None for q in queues):  # the first cycle
            queues = with_ratios(queues, ratios)
        routing = routing_shares(tick.main_rate_per_s, queues)
        removable = next((q for q in queues if q.removable), None)
        after = QueueState(
            reading=reading,
            removable=removable.queue if removable else None,
            removable_rate_per_s=removable.arrival_rate_per_s if removable else 0.0,
            ratios={q.queue: q.ratio for q in queues if q.ratio is not None},
            history=dict(history),
        )
        done = _done(p, observation, cycle, routing)
        change = {"scale_out": 1, "scale_in": -1}.get(cycle.action, 0)
        avg_p_k, avg_servers = averages(tick.queues)
        why: dict[str, Term] = {
            "lambda_main": tick.main_rate_per_s,
            "queues": [q.queue for q in tick.queues],
            "lambda": [q.arrival_rate_per_s for q in tick.queues],
            "S": [q.servers for q in tick.queues],
            "P_K": [q.p_k for q in tick.queues],
            "P_K_from": list(tick.p_k_from),
            "avg_P_K": avg_p_k,
            **({} if settled is None else {"settled_P_K": settled}),
            "max_P_K": p.max_p_k,
            "min_P_K": p.min_p_k,
            "avg_S": avg_servers,
            "max_S": p.max_servers,
            "pool": list(observation.pool),
            "cycle": cycle.action,
            "moved": cycle.moved,
            "removable": after.removable if cycle.action != "scale_in" else cycle.moved,
            "removable_lambda": after.removable_rate_per_s if after.removable else None,
            "ratios": list(after.ratios.values()),
            "spare_queues_to_create": queues_to_create(len(observation.pool) - (change == 1), p.min_queues),
            **kept_back,
            "action": done,
        }
        return Decision(
            action=done,
            targets={observation.fleet: max(n, replicas) + change},
            routing=routing,
            pool=p.min_queues,
            why={observation.fleet: why},
        ), after


def _done(p: MultiqueueParameters, observation: QueueObservation, cycle: Cycle, routing: Mapping[str, float]) -> Action:
    """The action of the decision. Changed shares, or a pool with too few queues, make it a reassignment."""
    if cycle.action in ("scale_out", "scale_in"):
        return "up" if cycle.action == "scale_out" else "down"
    in_force = observation.routing
    same = routing.keys() == in_force.keys() and all(abs(routing[q] - in_force[q]) <= TOLERANCE for q in routing)
    return "none" if same and len(observation.pool) >= p.min_queues else "reassign"
