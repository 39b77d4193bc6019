"""Create and delete the topics and consumer groups of a run."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.adapters.kafka import client_settings, reason
from penstock.errors import PenstockError

TIMEOUT_S = 10.0
POLL_S = 0.02
BROKERS_OWN = -1
"""Replication factor: the cluster's default."""
CONFIG = {"message.timestamp.type": "LogAppendTime", "retention.bytes": "-1", "retention.ms": "-1"}
"""Records carry the broker's time, and stay until the run deletes its topics: results that a broker's own limits remove
would be counted as lost.
"""


def admin_client(bootstrap: str) -> AdminClient:
    """A client that logs nothing while the broker is away and reconnects soon after it is back."""
    return AdminClient(client_settings(bootstrap))


def create_topics(
    admin: AdminClient, partitions_of: dict[str, int], check: Callable[[], object] = lambda: None
) -> None:
    """Create topics of a run; returns when all are there. ``check`` is called while it waits; what it raises ends the
    wait.
    """
    topics = [
        NewTopic(name, num_partitions=partitions, replication_factor=BROKERS_OWN, config=CONFIG)
        for name, partitions in partitions_of.items()
    ]
    for name, future in admin.create_topics(topics, operation_timeout=TIMEOUT_S).items():
        try:
            _await(future, check)
        except KafkaException as error:
            raise PenstockError(f"topic {name}: {reason(error)}") from None
        except TimeoutError:
            raise PenstockError(f"topic {name}: Kafka has not answered within {TIMEOUT_S:g} s") from None


def _await(future: Future[Any], check: Callable[[], object]) -> None:
    """Wait for its outcome. Raises TimeoutError after ``TIMEOUT_S``."""
    until_s = time.monotonic() + TIMEOUT_S
    while not future.done():
        check()
        if time.monotonic() > until_s:
            raise TimeoutError
        time.sleep(POLL_S)
    future.result()


def delete_topics(admin: AdminClient, names: Sequence[str]) -> None:
    """Delete topics; missing ones, or a broker that is away, are ignored."""
    for future in admin.delete_topics(list(names), operation_timeout=TIMEOUT_S).values():
        with suppress(KafkaException, TimeoutError):
            future.result(timeout=TIMEOUT_S)


def delete_group(admin: AdminClient, group: str) -> None:
    """Delete a consumer group; a missing one, or a broker that is away, is ignored."""
    with suppress(KafkaException, TimeoutError):
        admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
