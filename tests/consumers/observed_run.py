"""A private run whose results, commits and balances a test can read."""

from collections.abc import Sequence

from confluent_kafka import TopicPartition

from consumers.private_run import PrivateRun, private_spec
from penstock.adapters.kafka import make_consumer
from penstock.adapters.redis import redis_client
from penstock.records import Result
from penstock.runspec import WorkerSpec
from penstock.settings import Endpoints
from penstock.systems import StreamSystem, System

LOOK_S = 5.0


class ObservedRun(PrivateRun):
    """``controller``: base URL of the test's plan service; without one the group is assigned by range."""

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        purpose: str,
        partitions: int = 1,
        worker: WorkerSpec | None = None,
        system: System | None = None,
    ) -> None:
        spec = private_spec(purpose, worker or WorkerSpec(), partitions=partitions, system=system or StreamSystem())
        super().__init__(endpoints, spec)
        self.controller = ""
        self.commands: dict[str, Sequence[str]] = {}
        """What runs in place of a worker."""

    def environment(self) -> dict[str, str]:
        rabbitmq = self.endpoints.rabbitmq.get_secret_value()
        return {**super().environment(), "PENSTOCK_CONTROLLER": self.controller, "PENSTOCK_RABBITMQ": rabbitmq}

    def worker_command(self, replica: str) -> Sequence[str]:
        return self.commands.get(replica) or super().worker_command(replica)

    def collect(self, wanted: int, timeout_s: float) -> list[Result]:
        """Results until ``wanted`` distinct ids have come or none comes for ``timeout_s``."""
        found: list[Result] = []
        ids: set[int | None] = set()
        for result in self.results(timeout_s):
            found.append(result)
            ids.add(result.id)
            if len(ids) >= wanted:
                break
        return found

    def committed(self) -> dict[int, int | None]:
        """The group's committed offset by partition, None where there is no commit."""
        sources = [TopicPartition(self.spec.events_topic, partition) for partition in range(self.spec.partitions)]
        reader = make_consumer(self.endpoints.require("kafka"), self.spec.group)
        try:
            found = reader.committed(sources, timeout=LOOK_S)
        finally:
            reader.close()
        return {source.partition: source.offset if source.offset >= 0 else None for source in found}

    def balance_cents(self, account: str) -> int:
        """Balance of an account in the run's ledger."""
        return balance_cents(self.endpoints.require("redis"), self.spec.ledger_key, account)


def balance_cents(url: str, ledger_key: str, account: str) -> int:
    """Balance of an account; every account starts at 0 and payments lower it."""
    client = redis_client(url, timeout_s=2.0)
    try:
        return int(client.hget(f"{ledger_key}:balances", account) or 0)
    finally:
        client.close()
