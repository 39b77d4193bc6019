"""Members of a consumer group, as its broker reports them: for fleets whose members do not report themselves.

Consumers that another component starts (a ScaledObject's pods, a user's own processes) report to no plan service.
"""

import logging
import threading
from typing import Any

import msgspec
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from penstock.adapters.kafka import broker_errors, make_consumer
from penstock.errors import PenstockError
from penstock.log_once import LogOnce

log = logging.getLogger(__name__)

LOOK_S = 10.0
REQUEST_S = 2.0
INTERVAL_S = 1.0


class Member(msgspec.Struct, frozen=True):
    """One member. ``client_id``: chosen by its program; ``partitions``: of the reader's topic."""

    member_id: str
    client_id: str
    partitions: tuple[int, ...] = ()


class GroupReader:
    """Reads the members of ``group`` and their partitions of ``topic``: ``read`` once, ``start`` every second in a
    thread, so that no caller waits for an absent broker.

    Uses kafka-python's admin client: librdkafka's ends the process when an absent broker returns
    (docs/decisions/0004; seen with this request, too). It does not support groups of the KIP-848 protocol.
    """

    def __init__(self, *, bootstrap: str, topic: str, group: str) -> None:
        self._bootstrap, self._topic, self._group = bootstrap, topic, group
        self._admin: Any = None
        self.members: tuple[Member, ...] | None = None
        """The last reading; None before the first."""
        self._trouble = LogOnce(log, f"members of group {group} are unknown: %s")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"members of {group}", daemon=True)

    def start(self) -> None:
        """Begin to read every second."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the connection."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._close()

    def read(self) -> tuple[Member, ...] | None:
        """The members now, in order of their ids; None while the broker does not answer."""
        try:
            if self._admin is None:
                self._admin = KafkaAdminClient(
                    bootstrap_servers=self._bootstrap,
                    client_id=f"{self._group}-observer",
                    request_timeout_ms=round(REQUEST_S * 1000),
                    bootstrap_timeout_ms=round(REQUEST_S * 1000),
                )
            described = self._admin.describe_groups([self._group])[self._group]
        except (KafkaError, OSError) as error:
            self._trouble.note(f"{type(error).__name__}: {error}")
            self._close()
            return None
        refusal = described["error"] or ""
        if refusal and (described["group_state"] != "Dead" or "not a classic group" in refusal):
            self._trouble.note(refusal)
            return None
        self._trouble.note("")
        members = (Member(each["member_id"], each["client_id"], self._held(each)) for each in described["members"])
        return tuple(sorted(members, key=lambda member: member.member_id))

    def _held(self, described: dict[str, Any]) -> tuple[int, ...]:
        """Partitions of the topic; none while the group rebalances."""
        topics = (described["member_assignment"] or {}).get("assigned_partitions", ())
        return tuple(sorted(number for each in topics if each["topic"] == self._topic for number in each["partitions"]))

    def _run(self) -> None:
        while True:
            if (members := self.read()) is not None:
                self.members = members
            if self._stopping.wait(INTERVAL_S):
                return

    def _close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None


def count_partitions(bootstrap: str, topic: str, timeout_s: float = LOOK_S) -> int:
    """Partitions of a topic. PenstockError where it has no such topic, BrokerAwayError where it does not answer."""
    consumer = make_consumer(bootstrap, "penstock-look", log_level=0)
    try:
        with broker_errors(f"Kafka at {bootstrap}", ": is --kafka HOST:PORT right, and is it up?"):
            # All topics: a request for one by name can create it.
            topics = consumer.list_topics(timeout=timeout_s).topics
    finally:
        consumer.close()
    if topic not in topics:
        own = sorted(name for name in topics if not name.startswith("__"))
        there = f"it has {', '.join(own[:5])}{', …' if len(own) > 5 else ''}" if own else "it has no topic yet"
        raise PenstockError(f"topic {topic!r}: Kafka at {bootstrap} has none of that name; {there}")
    return len(topics[topic].partitions)
