"""What RabbitMQ has of a run, for tests: the management API's statistics, up to a second old."""

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.adapters.amqp import Management, connection_name, prefix


class QueueCounts(msgspec.Struct, frozen=True):
    """One queue. ``published`` (rejected ones excluded), ``delivered`` and ``acknowledged`` are cumulative."""

    queue: str
    ready: int
    unacknowledged: int
    consumers: int
    published: int = 0
    delivered: int = 0
    acknowledged: int = 0
    redelivered: int = 0


class RunObjects(msgspec.Struct, frozen=True):
    """Names of a run's objects at the broker; connections by their links' names."""

    queues: tuple[str, ...]
    exchanges: tuple[str, ...]
    policies: tuple[str, ...]
    connections: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.queues) + len(self.exchanges) + len(self.policies) + len(self.connections)


class BrokerView(Management):
    """The management API with what only tests ask it."""

    def bounds(self, run: str) -> dict[str, int]:
        """max-length of the run's bounded queues."""
        return {
            policy["name"]: int(policy["definition"]["max-length"])
            for policy in self._ask("GET", "/api/policies/%2F").json()
            if policy["name"].startswith(prefix(run)) and "max-length" in policy["definition"]
        }

    def queues(self, run: str) -> dict[str, QueueCounts]:
        """Every queue of the run, by name."""
        columns = "name,messages_ready,messages_unacknowledged,consumers,message_stats"
        found = self._ask("GET", f"/api/queues/%2F?disable_stats=false&columns={columns}").json()
        return {queue["name"]: _counts(queue) for queue in found if queue["name"].startswith(prefix(run))}

    def objects(self, run: str) -> RunObjects:
        """All objects of a run."""

        def named(path: str, field: str, begins: str) -> tuple[str, ...]:
            names = (str(one.get(field) or "") for one in self._ask("GET", f"{path}?columns={field}").json())
            return tuple(sorted(name for name in names if name.startswith(begins)))

        return RunObjects(
            queues=named("/api/queues/%2F", "name", prefix(run)),
            exchanges=named("/api/exchanges/%2F", "name", prefix(run)),
            policies=named("/api/policies/%2F", "name", prefix(run)),
            connections=named("/api/connections", "user_provided_name", connection_name(run, "")),
        )


def _counts(queue: Mapping[str, Any]) -> QueueCounts:
    counters = queue.get("message_stats") or {}
    return QueueCounts(
        queue=queue["name"],
        ready=int(queue.get("messages_ready") or 0),
        unacknowledged=int(queue.get("messages_unacknowledged") or 0),
        consumers=int(queue.get("consumers") or 0),
        published=int(counters.get("publish") or 0),
        delivered=int(counters.get("deliver_get") or 0),
        acknowledged=int(counters.get("ack") or 0),
        redelivered=int(counters.get("redeliver") or 0),
    )
