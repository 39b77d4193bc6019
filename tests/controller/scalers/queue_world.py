"""A bank of queues that does at once what it is told; each function gets one container more every cycle."""

from typing import Any

from controller.scalers.shared.queue_scaler import QueueScaler
from penstock.contracts import Decision, QueueObservation, QueueStatus, ReplicaCounts

FLEET = "bank"


class Bank:
    """Rates are exact: fractions of events are kept until they make a whole one. P_K comes from the formula.

    ``rejects``: count as rejected what exceeds the servers' rate, instead of holding it.
    """

    def __init__(self, scaler: QueueScaler[Any], pool: tuple[str, ...] = ("p1", "p2", "p3"), *, rejects: bool = False):
        self.scaler, self.state = scaler, scaler.start(1)
        self.pool = list(pool)
        self.routing = {"q1": 1.0}
        self.age = {"q1": 0}
        self.arrived = {"q1": 0.0}
        self.rejected = {"q1": 0.0}
        self.rejects = rejects
        self.main = 0.0
        self.time_s = 0.0

    def rates(self, rate_per_s: float) -> dict[str, float]:
        """What each queue gets of that rate now."""
        return {queue: share * rate_per_s for queue, share in self.routing.items()}

    def observe(self, rate_per_s: float) -> QueueObservation:
        """One second later, with that rate."""
        self.time_s += 1
        self.main += rate_per_s
        for queue, rate in self.rates(rate_per_s).items():
            self.age[queue] = self.age.get(queue, 0) + 1
            self.arrived[queue] = self.arrived.get(queue, 0) + rate
            lost = max(0.0, rate - 10 * self.servers(queue)) if self.rejects else 0.0
            self.rejected[queue] = self.rejected.get(queue, 0) + lost
        return QueueObservation(
            time_s=self.time_s,
            fleet=FLEET,
            replicas=ReplicaCounts(joined=len(self.routing), pooled=len(self.pool)),
            arrived=round(self.main),
            queues=tuple(
                QueueStatus(
                    queue=queue,
                    arrived=round(self.arrived[queue]),
                    rejected=round(self.rejected[queue]) if self.rejects else None,
                    servers=self.servers(queue),
                    capacity=50,
                    service_rate_per_s=10.0,
                )
                for queue in self.routing
            ),
            pool=tuple(self.pool),
            routing=dict(self.routing),
        )

    def servers(self, queue: str) -> int:
        """Containers of a queue's function: one more every cycle, ten at most."""
        return min(10, self.age[queue])

    def tick(self, rate_per_s: float) -> Decision:
        """One cycle at that arrival rate."""
        decision, self.state = self.scaler.decide(self.observe(rate_per_s), self.state)
        if decision.routing is not None:
            for queue in decision.routing.keys() - self.routing.keys():
                self.pool.remove(queue)
                self.age[queue] = 0
            self.pool += [queue for queue in self.routing if queue not in decision.routing]
            self.routing = dict(decision.routing)
        return decision

    def cycles(self, rate_per_s: float, number: int) -> list[object]:
        """What Algorithm 1 did in so many cycles."""
        return [self.tick(rate_per_s).why[FLEET].get("cycle") for _ in range(number)]
