"""The monitor of a live bank of queues, with the meaning that the simulated one gives to each figure.

What waits is read from the broker at the instant of the tick; what was taken from the main queue, and where it went,
from the forwarder's report (40 ms old at most); containers, what they serve and how fast from the apps' reports.

In the main queue or beyond it, every event is somewhere: what has arrived and is neither there nor lost is completed.
The forwarder counts arrivals. Where functions pull there is none: what the apps have completed, half a second ago, and
what is in the queue or in their hands has arrived.
"""

from typing import Any, Final

from controller.fleets.apps.monitor import AppMonitor
from controller.fleets.queue.actuator import QueueFleetView, SubQueueView
from controller.fleets.queue.routing import ForwarderReport, QueueFlow
from controller.fleets.queue.routing_store import RoutingBoard
from penstock.adapters.amqp import main_queue, sub_queue
from penstock.adapters.redis import REDIS_AWAY
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import QueueObservation, QueueStatus
from penstock.errors import PenstockError
from penstock.runspec import RunSpec
from penstock.systems import QueueSystem

STALE_S: Final = 2.0
"""A forwarder that has said nothing for this long is away."""
UNCOUNTED: Final = "the broker does not count what a full main queue refuses"
NUMBERS: Final = ("arrived", "completed", "backlog", "in_flight", "service_rate_per_s", "queues", "rejected")
NO_FLOW: Final = QueueFlow()


class QueueMonitor(AppMonitor[QueueFleetView, QueueObservation]):
    """See ``AppMonitor``. Service rates are over all that was served so far: of one container in each queue's status,
    of one replica (a queue with the containers that it has on average) for the fleet.
    """

    def __init__(self, spec: RunSpec, *, board: RoutingBoard, **sources: Any) -> None:
        super().__init__(spec, **sources)
        assert isinstance(spec.system, QueueSystem)
        self._system, self._board = spec.system, board
        self._pulls = self._system.forwarding == "pull"
        self._arrived = self._completed = 0

    def _forwarder(self) -> ForwarderReport:
        """Its report. Where functions pull there is no forwarder, and nothing to report."""
        if self._pulls:
            return ForwarderReport(0)
        try:
            report = self._board.forwarder()
        except REDIS_AWAY as error:
            raise PenstockError(f"Redis is away: {error}") from None
        if report is None:
            raise PenstockError("the forwarder has not reported yet")
        age_s = self._clock.now() - report.at_ns / NANOS_PER_SECOND
        if age_s > STALE_S:
            raise PenstockError(f"the forwarder has not reported for {age_s:.1f} s")
        return report

    def _seen(self, time_s: float, view: QueueFleetView) -> QueueObservation:
        forwarder, run = self._forwarder(), self._spec.run
        main, names = main_queue(run), () if self._pulls else [function.name for function in view.functions]
        found = self._depths.read([main, *(sub_queue(run, name) for name in names)])
        if main not in found:
            raise PenstockError(f"RabbitMQ has no queue {main}")
        main_ready, ready = found[main], {name: found.get(sub_queue(run, name), 0) for name in names}
        queues = tuple(
            self._status(function, forwarder.queues.get(function.name, NO_FLOW), ready.get(function.name, 0))
            for function in view.functions
        )
        in_flight = view.total.busy
        in_system = main_ready + forwarder.unacked + sum(ready.values()) + in_flight
        rejected = forwarder.nowhere + sum(flow.rejected for flow in forwarder.queues.values())
        counted = (
            view.total.completed + in_system if self._pulls else forwarder.settled + forwarder.unacked + main_ready
        )
        # What is summed up is not of one instant: what has arrived stays so, and what is completed.
        arrived = self._arrived = max(self._arrived, counted)
        completed = self._completed = max(self._completed, arrived - rejected - in_system)
        uncounted = self._system.main_capacity is not None
        return QueueObservation(
            time_s=time_s,
            fleet=self._spec.fleet,
            replicas=view.counts,
            arrived=arrived,
            completed=completed,
            backlog=max(0, arrived - completed - rejected),
            in_flight=in_flight,
            service_rate_per_s=self._replica_rate(view),
            queues=queues,
            pool=view.pool,
            routing=view.routing,
            rejected=None if uncounted else rejected,
            unknown={"rejected": UNCOUNTED} if uncounted else {},
        )

    def _status(self, function: SubQueueView, flow: QueueFlow, ready: int) -> QueueStatus:
        app = function.app
        return QueueStatus(
            queue=function.name,
            arrived=app.completed + app.busy if self._pulls else flow.entered + flow.rejected,
            completed=app.completed,
            rejected=flow.rejected,
            depth=ready,
            in_flight=app.busy,
            servers=app.containers,
            capacity=None if self._pulls else self._system.capacity,
            service_rate_per_s=app.service_rate_per_s,
            draining=function.draining,
            offered=None if self._pulls else flow.offered,
            refused=None if self._pulls else flow.refused,
        )

    def _replica_rate(self, view: QueueFleetView) -> float | None:
        rate = view.total.service_rate_per_s
        if rate is None or self._system.scaled == "containers":
            return rate
        fed = [function.app.containers for function in view.functions if not function.draining]
        return rate * sum(fed) / len(fed) if sum(fed) else None

    def _unseen(self, time_s: float, view: QueueFleetView, reason: str) -> QueueObservation:
        return QueueObservation(
            time_s=time_s,
            fleet=self._spec.fleet,
            replicas=view.counts,
            pool=view.pool,
            routing=view.routing,
            unknown=dict.fromkeys(NUMBERS, reason),
        )
