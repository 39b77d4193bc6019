"""What the scalers of a bank of queues have in common: reading an observation, and one cycle of Algorithm 1 on it.

Kathirvel and Parasuraman, "Elastic Multi-M/M/s/K", 2019; what the paper leaves open (spec 1.14) is decided here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec

from controller.queueing.mmsk import loss_probability
from controller.scalers.packing import TOLERANCE
from controller.scalers.parameters import require_not_negative, require_positive
from controller.scalers.queue_bank import (
    Cycle,
    Limits,
    Ratios,
    SubQueue,
    averages,
    by_current_p_k,
    queues_to_create,
    routing_shares,
    scaler_cycle,
    with_ratios,
)
from controller.scalers.stream import JITTER, CannotDecide
from penstock.contracts import Action, Decision, QueueObservation, QueueStatus, Term, hold

PKFrom = Literal["auto", "measured", "formula"]


class Counters(msgspec.Struct, frozen=True):
    """Events of one queue up to the last reading: offered to it, and rejected by it."""

    arrived: int
    rejected: int


class Reading(msgspec.Struct, frozen=True):
    """The reading that the next rates are differences to. Queues that left are kept as long as they may come back."""

    time_s: float
    arrived: int
    queues: dict[str, Counters]


class BankState(msgspec.Struct, frozen=True):
    """State of a scaler of a bank. ``removable`` and its rate after the halvings; the ratios in force, per queue.

    ``history``: P_K of the last cycles per queue, the latest last; for damped ratios only.
    """

    reading: Reading | None = None
    removable: str | None = None
    removable_rate_per_s: float = 0.0
    ratios: dict[str, float] = msgspec.field(default_factory=dict)
    history: dict[str, tuple[float, ...]] = msgspec.field(default_factory=dict)


class Tick(NamedTuple):
    """Where a decision starts: λ of the main queue, the queues in order of creation, where each P_K came from."""

    main_rate_per_s: float
    queues: tuple[SubQueue, ...]
    p_k_from: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class MultiqueueParameters:
    """Constants of Algorithms 1 and 3 as printed (maxPk, minPk, minLambda, maxS, minQueues), in the literal numbers of
    the experiment with one second as its unit of time (Q2). The period is not printed (Q17).

    P_K ``auto``: the measured share of rejected events for a queue that has ever rejected one, otherwise M/M/s/K with
    the measured rate (the broker may hold events instead). ``service_rate_per_s`` (μ of a container) and ``capacity``
    (K) None: as observed. ``max_queues`` None: no limit.
    """

    max_p_k: float = 0.7
    min_p_k: float = 0.4
    min_arrival_rate_per_s: float = 100.0
    max_servers: int = 10
    min_queues: int = 2
    p_k_from: PKFrom = "auto"
    service_rate_per_s: float | None = None
    capacity: int | None = None
    max_queues: int | None = None
    decision_interval_s: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.min_p_k <= self.max_p_k <= 1:
            raise ValueError(f"max_p_k={self.max_p_k:g}, min_p_k={self.min_p_k:g}: expected 0 ≤ min_p_k ≤ max_p_k ≤ 1")
        require_not_negative(min_arrival_rate_per_s=self.min_arrival_rate_per_s, min_queues=self.min_queues)
        require_positive(decision_interval_s=self.decision_interval_s, max_servers=self.max_servers)
        if self.service_rate_per_s is not None:
            require_positive(service_rate_per_s=self.service_rate_per_s)
        if self.capacity is not None:
            require_positive(capacity=self.capacity)
        if self.max_queues is not None:
            require_positive(max_queues=self.max_queues)

    def limits(self) -> Limits:
        """Those of Algorithm 1."""
        return Limits(self.max_p_k, self.min_p_k, self.min_arrival_rate_per_s, self.max_servers)


def updated(last: Reading | None, observation: QueueObservation, interval_s: float) -> Reading | None:
    """The reading to keep: the last one if the new one is incomplete or comes within half an interval."""
    if last is not None and 0 <= observation.time_s - last.time_s < interval_s / 2:
        return last
    if observation.arrived is None or not observation.queues or any(q.arrived is None for q in observation.queues):
        return last
    known = {**({} if last is None else last.queues), **{q.queue: _counters(q) for q in observation.queues}}
    may_come = {*observation.pool, *(q.queue for q in observation.queues)}
    return Reading(
        observation.time_s, observation.arrived, {name: each for name, each in known.items() if name in may_come}
    )


def read(p: MultiqueueParameters, observation: QueueObservation, state: BankState) -> Tick:
    """The start of a decision. Raises CannotDecide with the reason if something is unknown.

    λ of a queue is the share of the measured main rate that the routing in force gives it; of the removable queue, the
    rate after its halvings. Queues that drain are no part of the bank.
    """
    active = [q for q in observation.queues if not q.draining]
    if not active:
        raise CannotDecide(f"no queues known{_reasons(observation)}")
    seconds, main_rate = _main_rate(observation, state.reading, p.decision_interval_s)
    assert state.reading is not None
    queues, sources = [], []
    for q in active:
        if q.servers is None:
            raise CannotDecide(f"containers of queue {q.queue} are unknown{_reasons(observation)}")
        offered = _offered(q, state.reading)
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
    return Tick(main_rate, tuple(queues), tuple(sources))


def _main_rate(observation: QueueObservation, last: Reading | None, interval_s: float) -> tuple[float, float]:
    """(seconds since the last reading, arrivals per second at the main queue)."""
    if observation.arrived is None:
        raise CannotDecide(f"arrivals at the main queue are unknown{_reasons(observation)}")
    if last is None or observation.time_s < last.time_s:
        raise CannotDecide("no rate yet: this is the first reading of the counters")
    elapsed = observation.time_s - last.time_s
    if elapsed < interval_s / 2:
        raise CannotDecide(f"no rate yet: {elapsed:.3g} s since the last reading, decision interval {interval_s:g} s")
    whole = round(elapsed / interval_s) * interval_s
    seconds = whole if abs(elapsed - whole) <= JITTER * interval_s else elapsed
    if observation.arrived < last.arrived:
        raise CannotDecide(f"arrivals at the main queue fell from {last.arrived} to {observation.arrived}")
    return seconds, (observation.arrived - last.arrived) / seconds


def _offered(q: QueueStatus, last: Reading) -> Counters:
    """Events offered to a queue and rejected by it since the last reading. One never seen before had none then."""
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
            raise CannotDecide(f"rejections at queue {q.queue} are unknown{_reasons(observation)}")
        return (min(1.0, offered.rejected / offered.arrived) if offered.arrived else 0.0), "measured"
    if capacity is None:
        raise CannotDecide(f"P_K of queue {q.queue} cannot be computed: no bound K of it is known")
    assert q.servers is not None
    if q.servers == 0:
        return float(rate_per_s > 0), "formula"  # Q6
    service_rate = p.service_rate_per_s or q.service_rate_per_s or container_rate_per_s(observation)
    if service_rate is None:
        raise CannotDecide(f"service rate of queue {q.queue} is unknown{_reasons(observation)}")
    return loss_probability(rate_per_s, service_rate, q.servers, capacity), "formula"


def container_rate_per_s(observation: QueueObservation) -> float | None:
    """Mean service rate of a container, of the queues where it is known. The fleet's own is that of a whole queue."""
    known = [q.service_rate_per_s for q in observation.queues if q.service_rate_per_s is not None]
    return fsum(known) / len(known) if known else None


def _counters(q: QueueStatus) -> Counters:
    return Counters(q.arrived or 0, q.rejected or 0)


def _reasons(observation: QueueObservation) -> str:
    said = "; ".join(f"{field}: {reason}" for field, reason in observation.unknown.items())
    return f" ({said})" if said else ""


class BankScaler:
    """One cycle of Algorithm 1 on what was observed; subclasses name their parameters and generate the ratios."""

    fleets: ClassVar[type[QueueObservation]] = QueueObservation
    State: ClassVar[type[BankState]] = BankState
    parameters: Any

    @property
    def period_s(self) -> float:
        """The decision interval."""
        interval_s: float = self.parameters.decision_interval_s
        return interval_s

    def start(self, seed: int) -> BankState:  # noqa: ARG002 - nothing is drawn
        """No reading yet."""
        return BankState()

    def remembered(self, queues: Sequence[SubQueue], state: BankState) -> dict[str, tuple[float, ...]]:  # noqa: ARG002
        """History of P_K per queue, this cycle included. None is kept unless the ratios need one."""
        return {}

    def settled_p_k(self, history: Mapping[str, tuple[float, ...]]) -> float | None:  # noqa: ARG002
        """avgPk over several cycles, which has to be below minPk as well; None: this cycle's is enough, as printed."""
        return None

    def ratios(self, history: Mapping[str, tuple[float, ...]]) -> Ratios:  # noqa: ARG002
        """How ratios are generated."""
        return by_current_p_k

    def decide(self, observation: QueueObservation, state: BankState) -> tuple[Decision, BankState]:
        """Add a queue, halve the load of one, remove it, or only share out anew."""
        p = self.parameters
        reading = updated(state.reading, observation, p.decision_interval_s)
        try:
            tick = read(p, observation, state)
        except CannotDecide as reason:
            return hold(observation.fleet, str(reason)), msgspec.structs.replace(state, reading=reading)
        history = self.remembered(tick.queues, state)
        ratios = self.ratios(history)
        pool, kept_back = _usable_pool(p, observation, len(tick.queues))
        settled = self.settled_p_k(history)
        cycle = scaler_cycle(tick.queues, pool, p.limits(), ratios=ratios, settled_p_k=settled)
        queues = cycle.queues
        if any(q.ratio is None for q in queues):  # the ratios in force are of another bank: the first cycle
            queues = with_ratios(queues, ratios)
        routing = routing_shares(tick.main_rate_per_s, queues)
        removable = next((q for q in queues if q.removable), None)
        after = BankState(
            reading=reading,
            removable=removable.queue if removable else None,
            removable_rate_per_s=removable.arrival_rate_per_s if removable else 0.0,
            ratios={q.queue: q.ratio for q in queues if q.ratio is not None},
            history=history,
        )
        done = _done(p, observation, cycle, routing)
        why = _why(p, observation, tick, settled, cycle, after) | kept_back | {"action": done}
        change = {"scale_out": 1, "scale_in": -1}.get(cycle.action, 0)
        return Decision(
            action=done,
            targets={observation.fleet: max(len(tick.queues), observation.replicas.current) + change},
            routing=routing,
            pool=p.min_queues,
            why={observation.fleet: why},
        ), after


def _usable_pool(
    p: MultiqueueParameters, observation: QueueObservation, n: int
) -> tuple[tuple[str, ...], dict[str, Term]]:
    """The pool as far as Algorithm 1 may take from it now, and why not, if not."""
    if p.max_queues is not None and n >= p.max_queues:
        return (), {"kept_back": f"at most {p.max_queues} queues"}
    if observation.replicas.current > n:
        return (), {"kept_back": f"{observation.replicas.current - n} more asked for, not there yet"}
    return observation.pool, {}


def _done(p: MultiqueueParameters, observation: QueueObservation, cycle: Cycle, routing: Mapping[str, float]) -> Action:
    """The decision's word for it. Shares that change, or a pool that is short of queues, are to be carried out, too."""
    if cycle.action == "scale_out":
        return "up"
    if cycle.action == "scale_in":
        return "down"
    in_force = observation.routing
    same = routing.keys() == in_force.keys() and all(abs(routing[q] - in_force[q]) <= TOLERANCE for q in routing)
    return "none" if same and len(observation.pool) >= p.min_queues else "reassign"


def _why(
    p: MultiqueueParameters,
    observation: QueueObservation,
    tick: Tick,
    settled: float | None,
    cycle: Cycle,
    after: BankState,
) -> dict[str, Term]:
    avg_p_k, avg_servers = averages(tick.queues)
    return {
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
        "spare_queues_to_create": queues_to_create(len(observation.pool) - (cycle.action == "scale_out"), p.min_queues),
    }
