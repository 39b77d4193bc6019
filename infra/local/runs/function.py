"""A run on a pipeline of functions: requests through Kafka, the pipeline manager in front of the gateway."""

from collections.abc import Callable, Mapping

from infra.local.runs.outcomes import OutcomesRun
from penstock.runspec import FaultKind
from penstock.topics import create_topics

READY_FILE = "dataflow-ready"


class FunctionRun(OutcomesRun):
    """The gateway is a service, like a broker: it keeps the functions, which the controller deploys and removes."""

    needs = (*OutcomesRun.needs, "gateway")
    parts = (*OutcomesRun.parts, "dataflow")
    controller_options = ("--stop-replicas",)

    def make_channels(self) -> None:
        """Requests and results."""
        create_topics(self.admin, {self.spec.events_topic: self.spec.partitions, self.spec.results_topic: 1})

    def add_parts(self) -> None:
        """The pipeline manager."""
        self.add("dataflow", "functions.dataflow", respawn=True, grace_s=20)
        self.await_file("dataflow", self.directory.path / READY_FILE)

    def actions(self) -> Mapping[FaultKind, Callable[[float], str]]:
        """Replicas are processes of the gateway's, not of the supervisor."""
        others = {kind: action for kind, action in super().actions().items() if "-worker" not in kind}
        return {**others, "kill-dataflow": lambda _: self.kill("dataflow")}
