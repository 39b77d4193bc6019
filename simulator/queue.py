"""A main queue, bounded sub-queues and the functions behind them, in virtual time.

Kathirvel and Parasuraman's two systems (Elastic Multi-M/M/s/K 2019, Elastic-FaaS 2019), and any queue with a number of
consumers. Each event's times are exact: ``simulator.queue_kernel`` serves events, ``simulator.queue_world`` brings
containers and queues as the replica set of the live fleet decides.

The forwarder hands an event over when it arrives, to a queue that is drawn by the routing's shares: a Poisson stream
that is split by independent draws gives Poisson streams, for which the papers' M/M/s/K formulas hold, while round robin
would smooth the arrivals of each queue and lose fewer events than they say.
"""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from controller.fleets.queue.replica_set import QueueReplica
from penstock.contracts import QueueObservation, QueueStatus
from simulator.engine import EventTable
from simulator.queue_kernel import MAIN_REJECTED, NEXT_ARRIVAL, PENDING
from simulator.queue_world import SimulatedQueueFleet

MAIN_NAME = "main"


class QueueEngine(SimulatedQueueFleet):
    """Engine of a run whose system is a QueueSystem (see ``simulator.engine.Engine``); also its monitor and actuator.

    Service rates are over everything served so far: of one container in each queue's status, of one replica (a queue
    with the containers that it has on average) for the fleet.
    """

    @property
    def monitor(self) -> Self:
        """Observes the fleet."""
        return self

    @property
    def actuator(self) -> Self:
        """Takes decisions."""
        return self

    def left(self) -> int:
        """Events that have no outcome yet."""
        return len(self.state.events) - int(self.state.queues["completed"].sum()) - self._rejected()

    def results(self) -> EventTable:
        """One row for each event that was served or rejected, by id."""
        state = self.state
        rows = np.flatnonzero(state.events["outcome"] != PENDING)
        return EventTable(
            id=rows.astype(np.int64),
            intended_s=state.events["arrival_s"][rows],
            sent_s=state.events["sent_s"][rows],
            received_s=state.events["received_s"][rows],
            started_s=state.events["started_s"][rows],
            finished_s=state.events["finished_s"][rows],
            worker=state.events["worker"][rows],
            queue=state.events["queue"][rows],
            outcome=state.events["outcome"][rows],
            stage=np.zeros(len(rows), dtype=np.int32),
            attempt=state.events["attempt"][rows].astype(np.int32),
            workers=tuple(self.workers),
            queues=(MAIN_NAME, *self.queues),
            stages=(self.spec.pipeline,),
        )

    def observe(self) -> QueueObservation:
        """Main queue, sub-queues and pool as they are now."""
        known, unknown = self._counted(), {}
        if reason := self._blindness():
            known, unknown = {}, dict.fromkeys(known, reason)
        return QueueObservation(
            time_s=self.now_s,
            fleet=self.spec.fleet,
            replicas=self.replica_set.counts(),
            pool=tuple(self.replica_set.pool),
            routing=dict(self.shares),
            unknown=unknown,
            **known,
        )

    def _counted(self) -> dict[str, Any]:
        """What a monitor that sees can count."""
        queues = tuple(self._status(function) for function in self.replica_set.in_service())
        arrived, rejected = int(self.state.counts[NEXT_ARRIVAL]), self._rejected()
        completed = int(self.state.queues["completed"].sum())
        return {
            "arrived": arrived,
            "completed": completed,
            "backlog": arrived - completed - rejected,
            "in_flight": int(self.state.queues["in_service"].sum()),
            "service_rate_per_s": self._replica_rate(queues),
            "queues": queues,
            "rejected": rejected,
        }

    def _status(self, function: QueueReplica) -> QueueStatus:
        records, number = self.state.queues, self.queues[function.name]
        completed = int(records["completed"][number])
        return QueueStatus(
            queue=function.name,
            arrived=int(records["arrived"][number]),
            completed=completed,
            rejected=int(records["rejected"][number]),
            depth=int(records["waiting"][number]),
            in_flight=int(records["in_service"][number]),
            servers=function.servers,
            capacity=None if self.system.forwarding == "pull" else self.system.capacity,
            service_rate_per_s=_rate(completed, float(records["busy_s"][number])),
            draining=function.phase == "draining",
        )

    def _replica_rate(self, queues: Sequence[QueueStatus]) -> float | None:
        records = self.state.queues
        rate = _rate(int(records["completed"].sum()), float(records["busy_s"].sum()))
        if rate is None or self.replica_set.scales_containers:
            return rate
        fed = [queue.servers or 0 for queue in queues if not queue.draining]
        return rate * sum(fed) / len(fed) if sum(fed) else None

    def _rejected(self) -> int:
        """Events lost at the main queue and at sub-queues."""
        return int(self.state.counts[MAIN_REJECTED] + self.state.queues["rejected"].sum())

    def _blindness(self) -> str:
        if self.broker_is_away():
            return "the broker is stopped"
        return "the monitor is blind" if self.now_s < self.blind_until_s else ""


make_engine = QueueEngine


def _rate(completed: int, busy_s: float) -> float | None:
    """Events per second of service time; None before the first."""
    return completed / busy_s if busy_s > 0 else None
