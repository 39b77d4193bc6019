"""Who is in a consumer group, as its broker tells: for fleets whose members nobody else counts.

Consumers that somebody else starts (a ScaledObject's pods, a user's own processes) report to no plan service. The
group's description has each member with its partitions, in the classic protocol and in KIP-848's.
"""

import logging
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaException
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from penstock.errors import PenstockError

log = logging.getLogger(__name__)

LOOK_S = 10.0
REQUEST_S = 2.0
INTERVAL_S = 1.0


class BrokerAwayError(PenstockError):
    """Kafka does not answer."""


class Member(msgspec.Struct, frozen=True):
    """One member. ``client_id`` is what its program calls itself; ``partitions`` are those of the topic asked for."""

    member_id: str
    client_id: str
    partitions: tuple[int, ...] = ()


class GroupReader:
    """Reads who is in ``group`` and which partitions of ``topic`` each member holds: ``read`` asks once, ``start`` has
    a thread ask every second, so that whoever wants to know does not wait for a broker that is away.

    It is kafka-python's admin client that asks: librdkafka's ends the whole process when a broker comes back that was
    away (docs/decisions/0004; seen with this request too). A group of KIP-848's protocol is no group to it.
    """

    def __init__(self, *, bootstrap: str, topic: str, group: str) -> None:
        self._bootstrap, self._topic, self._group = bootstrap, topic, group
        self._admin: Any = None
        self._members: tuple[Member, ...] | None = None
        self._trouble = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"members of {group}", daemon=True)

    def start(self) -> None:
        """Begin to ask every second."""
        self._thread.start()

    def stop(self) -> None:
        """End that, and close the connection."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._close()

    @property
    def members(self) -> tuple[Member, ...] | None:
        """What the broker said last; None before it ever did."""
        return self._members

    def read(self) -> tuple[Member, ...] | None:
        """The members now, in order of their ids; None while the broker does not say."""
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
            self._say(f"{type(error).__name__}: {error}")
            self._close()
            return None
        refusal = described["error"] or ""
        if refusal and (described["group_state"] != "Dead" or "not a classic group" in refusal):
            self._say(refusal)
            return None
        self._say("")
        members = (Member(each["member_id"], each["client_id"], self._held(each)) for each in described["members"])
        return tuple(sorted(members, key=lambda member: member.member_id))

    def _held(self, described: dict[str, Any]) -> tuple[int, ...]:
        """Partitions of the topic; none while the group rebalances."""
        assignment = described["member_assignment"] or {}
        return tuple(
            sorted(
                partition
                for each in assignment["assigned_partitions"]
                if each["topic"] == self._topic
                for partition in each["partitions"]
            )
            if assignment
            else ()
        )

    def _run(self) -> None:
        while True:
            members = self.read()
            if members is not None:
                self._members = members
            if self._stopping.wait(INTERVAL_S):
                return

    def _say(self, trouble: str) -> None:
        """Once each time that it is another one."""
        if trouble and trouble != self._trouble:
            log.warning("who is in group %s is not known: %s", self._group, trouble)
        self._trouble = trouble

    def _close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None


def count_partitions(bootstrap: str, topic: str, timeout_s: float = LOOK_S) -> int:
    """Partitions of a topic. PenstockError where it has no such topic, BrokerAwayError where it does not answer."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "penstock-look", "log_level": 0})
    try:
        # All of them, for asking for one by its name can create it.
        topics = consumer.list_topics(timeout=timeout_s).topics
    except KafkaException as error:
        raise BrokerAwayError(
            f"Kafka at {bootstrap} does not answer ({error.args[0].str()}): is --kafka HOST:PORT right, and is it up?"
        ) from None
    finally:
        consumer.close()
    if topic not in topics:
        raise PenstockError(f"topic {topic!r}: Kafka at {bootstrap} has none of that name; {_there(sorted(topics))}")
    return len(topics[topic].partitions)


def _there(names: Sequence[str]) -> str:
    own = [name for name in names if not name.startswith("__")]
    return f"it has {', '.join(own[:5])}{', …' if len(own) > 5 else ''}" if own else "it has no topic yet"
