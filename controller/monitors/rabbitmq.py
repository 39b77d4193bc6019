"""The monitor of a live bank of queues, with the meaning that the simulated one gives to each figure.

What waits is read from the broker at the instant of the tick; what was taken from the main queue, and where it went,
from the forwarder's report (40 ms old at most); containers, what they serve and how fast from the apps' reports.

In the main queue or beyond it, every event is somewhere: what has arrived and is neither there nor lost is completed.
The forwarder counts arrivals. Where functions pull there is none: what the apps have completed, half a second ago, and
what is in the queue or in their hands has arrived.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from controller.actuators.bank import BankView, FunctionView
from controller.monitors.depths import Depths
from controller.monitors.kafka import BLINDED
from controller.routing import ForwarderReport, QueueFlow
from controller.routing_board import RoutingBoard
from penstock.amqp import main_queue, sub_queue
from penstock.apps import AWAY
from penstock.clock import NANOS_PER_SECOND, Clock
from penstock.contracts import QueueObservation, QueueStatus
from penstock.runspec import RunSpec
from penstock.systems import QueueSystem

STALE_S: Final = 2.0
"""A forwarder that has said nothing for this long is away."""
UNCOUNTED: Final = "the broker does not count what a full main queue refuses"
NUMBERS: Final = ("arrived", "completed", "backlog", "in_flight", "service_rate_per_s", "queues", "rejected")
NO_FLOW: Final = QueueFlow()


class Bank(Protocol):
    """The actuator, as far as the monitor asks it."""

    def view(self) -> BankView:
        """What it knows."""
        ...


class BankMonitor:
    """Monitor port on the bank of ``spec``. Service rates are over all that was served so far: of one container in each
    queue's status, of one replica (a queue with the containers that it has on average) for the fleet.

    While ``blind()`` is true nothing is read and everything is unknown (the fault ``blind-monitor``).
    """

    def __init__(
        self,
        spec: RunSpec,
        *,
        clock: Clock,
        origin_s: float,
        bank: Bank,
        board: RoutingBoard,
        depths: Depths,
        blind: Callable[[], bool] = lambda: False,
    ) -> None:
        assert isinstance(spec.system, QueueSystem)
        self._spec, self._system = spec, spec.system
        self._clock, self._origin_s = clock, origin_s
        self._bank, self._board, self._depths, self._blind = bank, board, depths, blind
        self._pulls = self._system.forwarding == "pull"
        self._arrived = self._completed = 0

    def observe(self) -> QueueObservation:
        """What main queue, sub-queues and pool look like now. A source that is away leaves None, and its reason."""
        time_s = self._clock.now() - self._origin_s
        view = self._bank.view()
        if self._blind():
            return self._unseen(time_s, view, BLINDED)
        if view.away:
            return self._unseen(time_s, view, f"Redis is away: {view.away}")
        forwarder, reason = self._forwarder()
        run = self._spec.run
        sub_queues = (
            {} if self._pulls else {function.name: sub_queue(run, function.name) for function in view.functions}
        )
        reading = self._depths.read([main_queue(run), *sub_queues.values()])
        if reason or reading.away:
            return self._unseen(time_s, view, reason or reading.away)
        if main_queue(run) not in reading.ready:
            return self._unseen(time_s, view, f"RabbitMQ has no queue {main_queue(run)}")
        ready = {name: reading.ready[queue] for name, queue in sub_queues.items() if queue in reading.ready}
        return self._seen(time_s, view, forwarder, reading.ready[main_queue(run)], ready)

    def _forwarder(self) -> tuple[ForwarderReport, str]:
        """Its report, or why there is none. Where functions pull there is no forwarder, and nothing to report."""
        nothing = ForwarderReport(0)
        if self._pulls:
            return nothing, ""
        try:
            report = self._board.forwarder()
        except AWAY as error:
            return nothing, f"Redis is away: {error}"
        if report is None:
            return nothing, "the forwarder has not reported yet"
        age_s = self._clock.now() - report.at_ns / NANOS_PER_SECOND
        return report, f"the forwarder has not reported for {age_s:.1f} s" if age_s > STALE_S else ""

    def _seen(
        self, time_s: float, view: BankView, forwarder: ForwarderReport, main_ready: int, ready: Mapping[str, int]
    ) -> QueueObservation:
        queues = tuple(
            self._status(function, forwarder.queues.get(function.name, NO_FLOW), ready.get(function.name, 0))
            for function in view.functions
        )
        in_flight = view.total.busy
        in_system = main_ready + forwarder.in_hand + sum(ready.values()) + in_flight
        rejected = forwarder.nowhere + sum(flow.rejected for flow in forwarder.queues.values())
        counted = (
            view.total.completed + in_system if self._pulls else forwarder.settled + forwarder.in_hand + main_ready
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

    def _status(self, function: FunctionView, flow: QueueFlow, ready: int) -> QueueStatus:
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

    def _replica_rate(self, view: BankView) -> float | None:
        rate = view.total.service_rate_per_s
        if rate is None or self._system.scaled == "containers":
            return rate
        fed = [function.app.containers for function in view.functions if not function.draining]
        return rate * sum(fed) / len(fed) if sum(fed) else None

    def _unseen(self, time_s: float, view: BankView, reason: str) -> QueueObservation:
        return QueueObservation(
            time_s=time_s,
            fleet=self._spec.fleet,
            replicas=view.counts,
            pool=view.pool,
            routing=view.routing,
            unknown=dict.fromkeys(NUMBERS, reason),
        )
