"""Real worker processes on either broker, for tests that claim the same of both."""

import time
from typing import Protocol

import numpy as np

from controller.fleets.stream.assignment import AssignmentPlanner
from controller.fleets.stream.plan_service import PlanService
from penstock.contracts import Groups
from penstock.measures import Conservation, conservation
from penstock.plan import range_groups
from penstock.records import Result
from penstock.runspec import WorkerSpec
from penstock.settings import Endpoints
from penstock.systems import QueueSystem
from tests.consumers.observed_run import ObservedRun
from tests.consumers.private_queue_run import PrivateQueueRun
from tests.support.eventually import eventually

PATIENCE_S = 60.0


def balance(run: ObservedRun, sent: list[int], results: list[Result]) -> Conservation:
    by_outcome = {
        outcome: np.array([r.id for r in results if r.outcome == outcome and r.id is not None], dtype=np.int64)
        for outcome in ("completed", "failed")
    }
    return conservation(
        scheduled=len(sent),
        acknowledged=np.array(sent, dtype=np.int64),
        booked=np.array(run.ledger.booked_ids(), dtype=np.int64),
        results=by_outcome,
        result_rows=len(results),
    )


class Rig(Protocol):
    """Workers of one private run. A replica's name begins the names of all workers in its results."""

    @property
    def run(self) -> ObservedRun:
        """The run that they work for."""
        ...

    def start(self, *replicas: str) -> None:
        """Start replicas, and return when all take events."""
        ...

    def close(self) -> None:
        """Stop them and leave nothing."""
        ...


class Fleet:
    """Kafka: a consumer group that follows the plans of a plan service."""

    def __init__(self, endpoints: Endpoints, partitions: int, worker: WorkerSpec | None) -> None:
        self.run = ObservedRun(endpoints, purpose="test", partitions=partitions, worker=worker).__enter__()
        board = AssignmentPlanner(join_timeout_s=10, directed=self.run.spec.worker.directed_rebalance)
        self.service = PlanService(
            board, group=self.run.spec.group, fleet=self.run.spec.fleet, url="http://127.0.0.1:0"
        )
        self.service.start()
        self.run.controller = self.service.url

    def launch(self, *replicas: str) -> None:
        """Start replicas, without a plan for them."""
        for replica in replicas:
            self.run.start(replica)

    def start(self, *replicas: str) -> None:
        self.launch(*replicas)
        groups = range_groups(range(self.run.spec.partitions), len(replicas))
        self.plan(groups, *replicas)
        self.until(dict(zip(replicas, groups, strict=True)))

    def plan(self, groups: Groups, *members: str) -> None:
        self.service.propose(groups, members, time.monotonic())

    def until(self, held: dict[str, tuple[int, ...]]) -> None:
        eventually(
            lambda: self.service.snapshot().assigned() == held,
            lambda: f"{self.service.snapshot().assigned()}, wanted {held}",
        )

    def close(self) -> None:
        self.service.stop()
        self.run.__exit__(None, None, None)


class Apps:
    """RabbitMQ: function apps on the main queue."""

    def __init__(self, endpoints: Endpoints, containers: int, service_s: float) -> None:
        system = QueueSystem(service_rate_per_s=1 / service_s, service_law="deterministic")
        self.run = PrivateQueueRun(endpoints, purpose="test", system=system, containers=containers).__enter__()

    def start(self, *replicas: str) -> None:
        for replica in replicas:
            self.run.start(replica)
        started_ns = time.time_ns()

        def all_there() -> bool:
            reports = self.run.board.reports()
            return all(
                replica in reports
                and reports[replica].containers == self.run.containers
                and reports[replica].at_ns > started_ns
                for replica in replicas
            )

        eventually(all_there, lambda: "\n".join(self.run.log(replica) for replica in replicas))

    def close(self) -> None:
        self.run.__exit__(None, None, None)
