"""Kafka through confluent-kafka: clients with shared settings, reading a topic to its end, errors as text.

Consumers made here are assigned by hand and never join a group.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from penstock.adapters.kafka_security import ClientSecurity, librdkafka_settings
from penstock.errors import PenstockError

__all__ = (
    "OFFSET_BEGINNING", "OFFSET_END", "TIMESTAMP_LOG_APPEND_TIME", "BrokerAwayError", "Consumer", "KafkaError",
    "KafkaException", "Message", "Producer", "TopicPartition", "assign_from_start", "broker_errors", "make_consumer",
    "make_producer", "partitions_of", "read_topic", "reason", "topics_of", "values",
)  # fmt: skip

UNDERSCORED: Final = ("error_cb", "log_level", "on_commit")
"""Settings of the client library whose names have no dots."""
READ_AT_ONCE: Final = 10_000
LOOK_STEP_S: Final = 1.0
"""The client library retries a login that was refused; what it says of it is read in between."""


class BrokerAwayError(PenstockError):
    """Kafka does not answer, or refuses."""


def make_consumer(bootstrap: str, group: str, log: logging.Logger | None = None, **settings: Any) -> Consumer:
    """A consumer that commits under ``group`` on request only. ``settings`` with underscores in place of dots; ``log``
    for the client library's own log.
    """
    common = {
        **librdkafka_settings(bootstrap),
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    return Consumer({**common, **_dotted(settings)}, **({} if log is None else {"logger": log}))


def make_producer(bootstrap: str, **settings: Any) -> Producer:
    """A producer. ``settings`` with underscores in place of dots."""
    return Producer({**librdkafka_settings(bootstrap), **_dotted(settings)})


def _dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {name if name in UNDERSCORED else name.replace("_", "."): value for name, value in settings.items()}


def reason(error: KafkaException | KafkaError) -> str:
    """The text of an error of the client library."""
    cause = error.args[0] if isinstance(error, KafkaException) and error.args else error
    return str(cause.str()) if isinstance(cause, KafkaError) else str(cause)


@contextmanager
def broker_errors(broker: str = "Kafka", remedy: str = "") -> Iterator[None]:
    """Raise BrokerAwayError for the client library's exceptions. ``remedy``: end of the message."""
    try:
        yield
    except KafkaException as error:
        raise BrokerAwayError(f"{broker} does not answer ({reason(error)}){remedy}") from None


def topics_of(bootstrap: str, timeout_s: float) -> dict[str, int]:
    """Topics that the client may see, with their numbers of partitions. BrokerAwayError after ``timeout_s``; at once if
    TLS or the login fails, with the reason.
    """
    security, said = ClientSecurity(), list[str]()
    consumer = make_consumer(
        bootstrap, "penstock-look", log_level=0, error_cb=lambda error: said.append(security.explain(error.str()))
    )
    deadline_s = time.monotonic() + timeout_s
    try:
        while True:
            try:
                # All topics: a request for one by name can create it.
                found = consumer.list_topics(timeout=min(LOOK_STEP_S, timeout_s)).topics
                return {name: len(each.partitions) for name, each in found.items()}
            except KafkaException as error:
                away = error
            try:
                consumer.poll(0)  # delivers what the client library has to say
            except KafkaException as error:
                said.append(security.explain(reason(error)))
            if explained := next(filter(None, said), ""):
                raise BrokerAwayError(f"Kafka at {bootstrap}: {explained}")
            if time.monotonic() >= deadline_s:
                listener = "" if security.sasl else f", and is {security.protocol} what its listener expects"
                raise BrokerAwayError(
                    f"Kafka at {bootstrap} does not answer ({reason(away)}): "
                    f"is --kafka HOST:PORT right, is it up{listener}?"
                )
    finally:
        consumer.close()


def partitions_of(client: Consumer | Producer, topic: str, timeout_s: float) -> list[int]:
    """Partitions of a topic, empty for an unknown one."""
    return list(client.list_topics(topic, timeout=timeout_s).topics[topic].partitions)


def assign_from_start(consumer: Consumer, topic: str, partitions: Iterable[int]) -> None:
    """Have a consumer read partitions of a topic from their beginning."""
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])


def values(messages: Sequence[Message]) -> Iterator[bytes]:
    """The values of those messages that are records; the client library recovers from the others by itself."""
    return (message.value() or b"" for message in messages if message.error() is None)


def read_topic(bootstrap: str, topic: str, timeout_s: float) -> Iterator[bytes]:
    """Every record of a topic up to its end. PenstockError if nothing comes for ``timeout_s`` before that."""
    consumer = make_consumer(bootstrap, f"{topic}.collect", enable_partition_eof=True)
    try:
        with broker_errors():
            unfinished = set(partitions_of(consumer, topic, timeout_s))
        assign_from_start(consumer, topic, unfinished)
        received_s = time.monotonic()
        while unfinished:
            messages = consumer.consume(READ_AT_ONCE, timeout=0.1)  # waits that long for as many
            if messages:
                received_s = time.monotonic()
            elif time.monotonic() - received_s > timeout_s:
                raise PenstockError(f"topic {topic}: nothing more came for {timeout_s:g} s before its end")
            yield from values(messages)
            for error, partition in ((message.error(), message.partition()) for message in messages):
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(partition or 0)
                elif error is not None and error.fatal():
                    raise PenstockError(f"topic {topic}: {error.str()}")
    finally:
        consumer.close()
