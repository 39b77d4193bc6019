"""A run on a bank of RabbitMQ queues, or on one queue with many containers."""

from collections.abc import Callable, Mapping

from infra.local.runs.outcomes import OutcomesRun
from penstock.amqp import Management
from penstock.runspec import FaultKind
from penstock.systems import QueueSystem
from penstock.topics import create_topics, delete_topics


class RabbitRun(OutcomesRun):
    """Events go through RabbitMQ, results through Kafka. The controller makes queues; here they are cleared."""

    needs = (*OutcomesRun.needs, "rabbitmq")

    @property
    def broker(self) -> str:
        """What stop-broker stops."""
        return "rabbitmq"

    def make_channels(self) -> None:
        """The topic of results."""
        create_topics(self.admin, {self.spec.results_topic: 1})

    def clear_channels(self) -> None:
        """Queues, policies and the topic of results."""
        delete_topics(self.admin, [self.spec.results_topic])
        management = Management(self.endpoints.require("rabbitmq_management"))
        try:
            management.delete_run(self.spec.run)
        finally:
            management.close()


class QueueRun(RabbitRun):
    """With the forwarder of Algorithm 2, where functions do not pull by themselves; the controller looks after it."""

    parts = (*RabbitRun.parts, "forwarder")

    def actions(self) -> Mapping[FaultKind, Callable[[float], str]]:
        """The forwarder can be killed, too."""
        pushes = isinstance(self.spec.system, QueueSystem) and self.spec.system.forwarding == "push"
        return {**super().actions(), **({"kill-forwarder": lambda _: self.kill("forwarder")} if pushes else {})}
