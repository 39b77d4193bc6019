"""A main queue, a bank of bounded sub-queues and the functions behind them, in virtual time.

Kathirvel and Parasuraman's two systems (Elastic Multi-M/M/s/K 2019, Elastic-FaaS 2019), and any queue with a number of
consumers. Each event's times are exact: the arithmetic is in ``simulator.queue_kernel``, what happens seldom in
``simulator.queue_fleet``.

Readings. The forwarder hands an event over when it arrives, to a queue that is drawn by the routing's shares: a
Poisson stream that is split by independent draws gives Poisson streams, for which the papers' M/M/s/K formulas hold,
while a fixed turn would smooth what each queue sees and lose fewer events than they say. Containers of a function
come with time, from the moment at which its queue was taken into service (``controller.provider``); one that is wanted
no more is fed no more, and leaves when it is empty. Algorithm 3 creates one queue a run of its loop, if those that are
ready or on the way are fewer than wanted.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from controller.routing import check_decision
from penstock.contracts import Accepted, Decision, Phase, QueueObservation, QueueStatus, ReplicaCounts, ReplicaEvent
from penstock.runspec import Fault, RunSpec
from penstock.schedule import Schedule
from simulator.engine import EventTable
from simulator.queue_fleet import Queue, QueueFleet
from simulator.queue_kernel import MAIN_REJECTED, NEXT_ARRIVAL, PENDING, Bank

MAIN_NAME = "main"


class QueueBank:
    """Engine of a run whose system is a QueueSystem. Queues and containers are named as ``QueueFleet`` says."""

    def __init__(self, spec: RunSpec, schedule: Schedule) -> None:
        self._fleet = QueueFleet(spec, schedule)
        self.monitor = QueueBankMonitor(self._fleet)
        self.actuator = QueueBankActuator(self._fleet)

    def advance(self, until_s: float) -> None:
        """Everything up to ``until_s``. At one instant services end first, then containers and queues come, then
        events arrive.
        """
        self._fleet.advance(until_s)

    def inject(self, fault: Fault) -> None:
        """A container dies and its event is served again; all of them stand still; the broker is away; nothing can be
        read. PenstockError for other kinds.
        """
        self._fleet.inject(fault)

    def left(self) -> int:
        """Events that have no outcome yet."""
        bank = self._fleet.bank
        return len(bank.events) - int(bank.queues["completed"].sum()) - _rejected(bank)

    def results(self) -> EventTable:
        """One row for each event that was served or rejected, by id."""
        bank = self._fleet.bank
        rows = np.flatnonzero(bank.events["outcome"] != PENDING)
        return EventTable(
            id=rows.astype(np.int64),
            intended_s=bank.events["arrival_s"][rows],
            sent_s=bank.events["sent_s"][rows],
            received_s=bank.events["received_s"][rows],
            started_s=bank.events["started_s"][rows],
            finished_s=bank.events["finished_s"][rows],
            worker=bank.events["worker"][rows],
            queue=bank.events["queue"][rows],
            outcome=bank.events["outcome"][rows],
            stage=np.zeros(len(rows), dtype=np.int32),
            attempt=bank.events["attempt"][rows].astype(np.int32),
            workers=tuple(container.name for container in self._fleet.containers),
            queues=(MAIN_NAME, *(queue.name for queue in self._fleet.by_number)),
            stages=(self._fleet.spec.pipeline,),
        )


class QueueBankMonitor:
    """Monitor port of a bank of queues. Service rates are over all that was served so far: of one container in each
    queue's status, of one replica (a queue with the containers that it has on average) for the fleet.
    """

    def __init__(self, queue_fleet: QueueFleet) -> None:
        self._fleet = queue_fleet

    def observe(self) -> QueueObservation:
        """What main queue, sub-queues and pool look like now."""
        queue_fleet = self._fleet
        counts = ReplicaCounts.count(queue_fleet.replica_phases().values())
        reason = self._blindness()
        if reason:
            fields = ("arrived", "completed", "backlog", "in_flight", "service_rate_per_s", "queues", "rejected")
            return QueueObservation(
                time_s=queue_fleet.now_s,
                fleet=queue_fleet.spec.fleet,
                replicas=counts,
                pool=tuple(queue.name for queue in queue_fleet.pool),
                routing=queue_fleet.current_routing(),
                unknown=dict.fromkeys(fields, reason),
            )
        bank = queue_fleet.bank
        queues = tuple(self._status(queue) for queue in queue_fleet.queues if queue.phase in ("joined", "draining"))
        arrived = int(bank.counts[NEXT_ARRIVAL])
        completed = int(bank.queues["completed"].sum())
        rejected = _rejected(bank)
        return QueueObservation(
            time_s=queue_fleet.now_s,
            fleet=queue_fleet.spec.fleet,
            replicas=counts,
            arrived=arrived,
            completed=completed,
            backlog=arrived - completed - rejected,
            in_flight=int(bank.queues["in_service"].sum()),
            service_rate_per_s=self._replica_rate(queues),
            queues=queues,
            pool=tuple(queue.name for queue in queue_fleet.pool),
            routing=queue_fleet.current_routing(),
            rejected=rejected,
        )

    def _status(self, queue: Queue) -> QueueStatus:
        bank, at = self._fleet.bank, queue.number
        servers = sum(container.phase in ("joined", "draining") for container in queue.containers)
        return QueueStatus(
            queue=queue.name,
            arrived=int(bank.queues["arrived"][at]),
            completed=int(bank.queues["completed"][at]),
            rejected=int(bank.queues["rejected"][at]),
            depth=int(bank.queues["waiting"][at]),
            in_flight=int(bank.queues["in_service"][at]),
            servers=servers,
            capacity=None if self._fleet.system.forwarding == "pull" else self._fleet.system.capacity,
            service_rate_per_s=_rate(int(bank.queues["completed"][at]), float(bank.queues["busy_s"][at])),
            draining=queue.phase == "draining",
        )

    def _replica_rate(self, queues: Sequence[QueueStatus]) -> float | None:
        records = self._fleet.bank.queues
        rate = _rate(int(records["completed"].sum()), float(records["busy_s"].sum()))
        if rate is None or self._fleet.scales_containers:
            return rate
        fed = [queue.servers or 0 for queue in queues if not queue.draining]
        return rate * sum(fed) / len(fed) if sum(fed) else None

    def _blindness(self) -> str:
        if self._fleet.broker_is_away():
            return "the broker is stopped"
        return "the monitor is blind" if self._fleet.now_s < self._fleet.blind_until_s else ""


class QueueBankActuator:
    """Actuator port of a bank of queues."""

    def __init__(self, queue_fleet: QueueFleet) -> None:
        self._fleet = queue_fleet

    def apply(self, decision: Decision) -> Accepted:
        """Number of replicas, routing and size of the pool, as far as the decision names them. Raises ValueError for
        shares that are none, and for fleets that this run does not have.
        """
        queue_fleet = self._fleet
        fleet = queue_fleet.spec.fleet
        if decision.action in ("hold", "none"):
            return Accepted({fleet: queue_fleet.replicas()})
        check_decision(decision, fleet)
        cap = queue_fleet.spec.max_replicas
        wanted = decision.targets.get(fleet, queue_fleet.replicas())
        target = max(0, min(wanted, cap))
        clamped = {} if target == wanted else {fleet: f"{wanted} → {target}: cap {cap}"}
        if decision.pool is not None:
            queue_fleet.want_in_pool(decision.pool)
        if decision.routing is not None:
            queue_fleet.routing = dict(decision.routing)
        queue_fleet.resize(target, decision.routing)
        if decision.routing is not None and not queue_fleet.scales_containers:
            there = queue_fleet.replica_phases()
            clamped |= {name: "no such queue" for name in decision.routing if name not in there}
        return Accepted({fleet: target}, clamped)

    def events(self) -> Sequence[ReplicaEvent]:
        """Everything that happened to replicas, and to containers of functions, since the last call, in order."""
        return self._fleet.happened()

    def replicas(self) -> Mapping[str, Phase]:
        """The replicas that exist, each with its phase."""
        return self._fleet.replica_phases()


def make_engine(spec: RunSpec, schedule: Schedule) -> QueueBank:
    """The engine of a run whose system is a QueueSystem. Raises ValueError for a system that cannot be."""
    return QueueBank(spec, schedule)


def _rejected(bank: Bank) -> int:
    """Events lost at the main queue and at sub-queues."""
    return int(bank.counts[MAIN_REJECTED] + bank.queues["rejected"].sum())


def _rate(completed: int, busy_s: float) -> float | None:
    """Events per second of service time; None before the first."""
    return completed / busy_s if busy_s > 0 else None
