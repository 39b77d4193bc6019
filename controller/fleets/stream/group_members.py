"""Members of a consumer group and partitions of its topic, as their broker reports them.

For fleets whose members do not report themselves: consumers that another component starts (a ScaledObject's pods, a
user's own processes) report to no plan service.
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

import msgspec
from kafka.admin import KafkaAdminClient
from kafka.errors import AuthorizationError, GroupAuthorizationFailedError, GroupIdNotFoundError, KafkaError, for_code

from penstock.adapters.kafka import topics_of
from penstock.adapters.kafka_security import ClientSecurity, kafka_python_settings
from penstock.errors import PenstockError
from penstock.log_once import LogOnce

log = logging.getLogger(__name__)

LOOK_S = 10.0
REQUEST_S = 2.0
INTERVAL_S = 1.0

REBALANCING = ("PreparingRebalance", "CompletingRebalance")
"""States in which members that left and those that joined in their place are both listed."""


UNKNOWN_GROUP = GroupIdNotFoundError.__name__
"""The only refusal that says a group has no member. The broker gives each refusal the state "Dead", also those of a
coordinator that loads its groups after an outage.
"""


class Member(msgspec.Struct, frozen=True):
    """One member. ``client_id``: chosen by its program; ``partitions``: of the reader's topic."""

    member_id: str
    client_id: str
    partitions: tuple[int, ...] = ()


class AdminClient(KafkaAdminClient):  # type: ignore[misc]
    """kafka-python's, which leaves a thread and three descriptors behind where it finds no broker; this ends them."""

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except KafkaError:
            self._closed = False  # set by a client that has connected only; ``close`` asks for it
            self.close()
            raise


class GroupReader:
    """Reads the members of ``group``, their partitions of ``topic``, and how many partitions that has: ``read`` and
    ``count`` once, ``start`` every second in a thread, so that no caller waits for an absent broker.

    Uses kafka-python's admin client: librdkafka's ends the process when an absent broker returns
    (docs/decisions/0004; seen with this request, too). It does not support groups of the KIP-848 protocol.
    """

    def __init__(self, *, bootstrap: str, topic: str, group: str) -> None:
        self._bootstrap, self._topic, self._group = bootstrap, topic, group
        self._admin: Any = None
        self.members: tuple[Member, ...] | None = None
        """The last reading; None before the first."""
        self.partitions: int | None = None
        """The last count; None before the first."""
        self._trouble = LogOnce(log, f"members of group {group} are unknown: %s")
        self._topic_trouble = LogOnce(log, f"partitions of topic {topic} are unknown: %s")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"members of {group}", daemon=True)

    @property
    def trouble(self) -> str:
        """Why the last reading failed; empty if it did not."""
        return self._topic_trouble.trouble or self._trouble.trouble

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
        """The members now, in order of their ids; None while the broker does not answer or the group rebalances."""
        described = self._ask(lambda admin: admin.describe_groups([self._group])[self._group], self._trouble)
        if described is None:
            return None
        refusal = described["error"] or ""
        if refusal and (UNKNOWN_GROUP not in refusal or "not a classic group" in refusal):
            denied = GroupAuthorizationFailedError.__name__ in refusal
            self._trouble.note(self._refusal(GroupAuthorizationFailedError) if denied else refusal)
            self._close()  # the client remembers a coordinator that is none any more
            return None
        self._trouble.clear()
        if described["group_state"] in REBALANCING:
            return None
        members = (Member(each["member_id"], each["client_id"], self._held(each)) for each in described["members"])
        return tuple(sorted(members, key=lambda member: member.member_id))

    def count(self) -> int | None:
        """Partitions of the topic now; None while the broker does not answer, or where there is no such topic."""
        described = self._ask(lambda admin: admin.describe_topics([self._topic])[0], self._topic_trouble)
        if described is None:
            return None
        if described["error_code"]:
            self._topic_trouble.note(self._refusal(for_code(described["error_code"])))
            return None
        self._topic_trouble.clear()
        return len(described["partitions"])

    def _ask(self, request: Callable[[Any], Any], trouble: LogOnce) -> Any:
        """The answer of the admin client; None, and a note of the trouble, where there is none."""
        try:
            if self._admin is None:
                self._admin = self._connected()
            return request(self._admin)
        except AuthorizationError as error:
            trouble.note(self._refusal(type(error)))
        except (KafkaError, OSError) as error:
            trouble.note(f"{type(error).__name__}: {error}")
        except PenstockError as error:
            trouble.note(error)
        self._close()
        return None

    def _refusal(self, error: type[Exception]) -> str:
        if not issubclass(error, AuthorizationError):
            return f"{error.__name__} at {self._bootstrap}"
        needed = f"DESCRIBE on topic {self._topic} and group {self._group}"
        return f"Kafka at {self._bootstrap}: {ClientSecurity().user or 'the client'} needs {needed} ({error.__name__})"

    def _connected(self) -> AdminClient:
        if not ClientSecurity().plain:
            # kafka-python leaves a socket behind for each failed handshake, and has no reason for it.
            topics_of(self._bootstrap, REQUEST_S)
        return AdminClient(
            **kafka_python_settings(self._bootstrap),
            client_id=f"{self._group}-observer",
            request_timeout_ms=round(REQUEST_S * 1000),
            bootstrap_timeout_ms=round(REQUEST_S * 1000),
        )

    def _held(self, described: dict[str, Any]) -> tuple[int, ...]:
        """Partitions of the topic."""
        topics = (described["member_assignment"] or {}).get("assigned_partitions", ())
        return tuple(sorted(number for each in topics if each["topic"] == self._topic for number in each["partitions"]))

    def _run(self) -> None:
        while True:
            if (members := self.read()) is not None:
                self.members = members
            if self._admin is not None and (partitions := self.count()) is not None:
                self.partitions = partitions
            if self._stopping.wait(INTERVAL_S):
                return

    def _close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None


def count_partitions(bootstrap: str, topic: str, timeout_s: float = LOOK_S) -> int:
    """Partitions of a topic. PenstockError where it has no such topic, BrokerAwayError where it does not answer."""
    topics = topics_of(bootstrap, timeout_s)
    if topic not in topics:
        own = sorted(name for name in topics if not name.startswith("__"))
        there = f"it has {', '.join(own[:5])}{', …' if len(own) > 5 else ''}" if own else "it has no topic yet"
        if user := ClientSecurity().user:
            there = f"user {user!r} may see {', '.join(own[:5]) or 'none'}; it needs the right to DESCRIBE it"
        raise PenstockError(f"topic {topic!r}: Kafka at {bootstrap} has none of that name; {there}")
    return topics[topic]
