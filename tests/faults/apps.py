"""What queue and network have in common: function apps on RabbitMQ."""

from collections.abc import Sequence

from penstock.contracts import FleetObservation
from penstock.records import event_decoder
from tests.faults.fault import Fault
from tests.faults.kernel import Violation
from tests.faults.rabbit_broker import Depths, Link, Management, Message, RabbitBroker
from tests.faults.world import RUN, World


class AppWorld(World):
    """A message is acknowledged once its event has its result, or is in the next queue."""

    sends_to = "rabbitmq"

    def __init__(self, seed: int, faults: Sequence[Fault] | None = None, *, traced: bool = False) -> None:
        super().__init__(seed, faults, traced=traced)
        self.rabbit = RabbitBroker(self.kernel, self.network)
        self.rabbit.acknowledged = self._acknowledged

    def _place(self) -> None:
        super()._place()
        Link.broker = Management.broker = Depths.broker = self.rabbit

    def inject(self, fault: Fault) -> None:
        super().inject(fault)
        if fault.kind == "away" and fault.target == "rabbitmq":
            self.rabbit.restart()

    def foreign(self, what: str) -> None:
        process = self.victim(self.random.choice(("app", "forwarder")))
        if what == "forget":  # Redis was flushed; bookings are another matter
            keys = ("containers", "apps", "routing", "forwarder")
            self.redis.delete(*(f"penstock:{RUN}:{key}" for key in keys))
        elif process is not None and what == "kill":
            process.kill()
        elif process is not None and what == "stop":
            self.manager.stop(process.name)
        elif process is not None:
            self.manager.remove(process.name)

    # --- checks ------------------------------------------------------------------------------------------------------

    def _acknowledged(self, queue: str, message: Message) -> None:
        """No event is lost."""
        number = event_decoder.decode(message.body).id
        if number not in self.results and not self._is_elsewhere(number):
            self.kernel.violate(f"event {number} of {queue} is acknowledged and is nowhere")

    def _is_elsewhere(self, number: int) -> bool:
        """Whether a queue has the event, waiting or unacknowledged."""
        mine = b'"id":%d,' % number
        held = [message for c in self.rabbit.connections for _, _, message in c.unacked.values()]
        waiting = [message for queue in self.rabbit.queues.values() for message in queue.ready]
        return any(message.body.startswith(b"{" + mine) for message in (*held, *waiting))

    def check_arrivals(self, observation: FleetObservation) -> None:
        """Of several readings at several instants: redeliveries count twice."""

    def check_conservation(self) -> None:
        """Ledger and balances have each completed event once."""
        key = self.spec.ledger_key
        done = {n for n, results in self.results.items() if any(each.outcome == "completed" for each in results)}
        booked = set(map(int, self.redis.hashes.get(key, {})))
        if booked != done:
            raise Violation(f"booked and completed differ by {sorted(booked ^ done)}")
        balance: dict[str, int] = {}
        for number in sorted(booked):
            balance[f"a{number % 7}"] = balance.get(f"a{number % 7}", 0) - (100 + number)
        found = {name: int(value) for name, value in self.redis.hashes.get(f"{key}:balances", {}).items()}
        if found != balance:
            raise Violation(f"balances {found} are not {balance}")

    def unsettled_queues(self) -> str:
        """Whether something still waits."""
        for name, queue in self.rabbit.queues.items():
            if queue.ready or queue.unacked:
                return f"{name} has {len(queue.ready)} waiting and {queue.unacked} unacknowledged"
        return ""

    def left_behind(self) -> str:
        alive = [connection for connection in self.rabbit.connections if connection.alive]
        return f"{len(alive)} connections to RabbitMQ are left" if alive else ""
