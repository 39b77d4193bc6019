"""Kafka through confluent-kafka: clients with shared settings, reading a topic to its end, errors as text.

Consumers made here are assigned by hand and never join a group.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

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
    "KafkaException", "Message", "Producer", "Stall", "TopicPartition", "assign_from_start", "broker_errors",
    "client_settings", "make_consumer", "make_producer", "partitions_of", "read_topic", "reason", "topics_of", "values",
)  # fmt: skip

T = TypeVar("T")

QUIET: Final = {"log_level": 2}
"""Critical messages only: the client library writes to standard error, a line for each attempt to connect. Callers get
its errors as exceptions.
"""
RECONNECT: Final = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500}
"""With the default, up to 10 s, a client uses a broker late that is back."""

UNDERSCORED: Final = ("error_cb", "log_level", "on_commit")
"""Settings of the client library whose names have no dots."""
READ_AT_ONCE: Final = 10_000
STALLED_S: Final = 20.0
"""Without an answer for so long, a client may have lost its broker for good."""
PROBE_TIMEOUT_S: Final = 2.0
LOOK_STEP_S: Final = 1.0
"""Between two requests for metadata: what the client library says of a refused login is read then, and the caller can
stop waiting.
"""


class BrokerAwayError(PenstockError):
    """Kafka does not answer, or refuses."""


class Stall:
    """Tells a client that has lost its broker for good from a broker that is away: a new client has an answer.

    A broker that stops or starts may answer that the cluster has no brokers. librdkafka (2.10 to 2.16) then forgets the
    one that it knows, and sometimes never connects again (its issue 5301). Only a new client helps.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._since_s = self._probed_s = time.monotonic()
        self._lost_since_s: float | None = None

    def over(self) -> None:
        """The client has an answer, or waits for none."""
        self._since_s = time.monotonic()

    def is_lost(self) -> bool:
        """Whether the client has had no answer for ``STALLED_S`` and a new client had one. Returns at once: a thread
        asks the broker, once in ``STALLED_S`` at most.
        """
        since_s, now_s = self._since_s, time.monotonic()
        if self._lost_since_s == since_s:
            self.over()
            return True
        if now_s - max(since_s, self._probed_s) >= STALLED_S:
            self._probed_s = now_s
            threading.Thread(target=self._probe, args=(since_s,), daemon=True).start()
        return False

    def _probe(self, since_s: float) -> None:
        with suppress(BrokerAwayError):
            topics_of(self._bootstrap, PROBE_TIMEOUT_S)
            self._lost_since_s = since_s


def make_consumer(bootstrap: str, group: str, log: logging.Logger | None = None, **settings: Any) -> Consumer:
    """A consumer that commits under ``group`` on request only. ``settings`` with underscores in place of dots; ``log``
    for the client library's own log, which comes with the records that are read.
    """
    common = {
        **client_settings(bootstrap),
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    if log is None:
        return Consumer({**common, **_dotted(settings)})
    del common["log_level"]
    return Consumer({**common, **_dotted(settings)}, logger=log)


def make_producer(bootstrap: str, **settings: Any) -> Producer:
    """A producer. ``settings`` with underscores in place of dots."""
    return Producer({**client_settings(bootstrap), **_dotted(settings)})


def client_settings(bootstrap: str) -> dict[str, Any]:
    """Settings that all clients have: address, security, no log of their own, short waits before they reconnect."""
    return {**librdkafka_settings(bootstrap), **QUIET, **RECONNECT}


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
        bootstrap, "penstock-look", error_cb=lambda error: said.append(security.explain(error.str()))
    )

    def explain() -> None:
        try:
            consumer.poll(0)  # delivers what the client library has to say
        except KafkaException as error:
            said.append(security.explain(reason(error)))
        if explained := next(filter(None, said), ""):
            raise BrokerAwayError(f"Kafka at {bootstrap}: {explained}")

    try:
        # All topics: a request for one by name can create it.
        found = _ask_again(lambda step_s: consumer.list_topics(timeout=step_s).topics, timeout_s, explain)
        return {name: len(each.partitions) for name, each in found.items()}
    except KafkaException as error:
        listener = "" if security.sasl else f", and is {security.protocol} what its listener expects"
        raise BrokerAwayError(
            f"Kafka at {bootstrap} does not answer ({reason(error)}): is --kafka HOST:PORT right, is it up{listener}?"
        ) from None
    finally:
        consumer.close()


def _ask_again(ask: Callable[[float], T], timeout_s: float, between: Callable[[], object]) -> T:
    """The answer of ``ask``, which gets the seconds that it may take. It is repeated for ``timeout_s``, and ``between``
    is called after each failure; then the last KafkaException is raised.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return ask(min(LOOK_STEP_S, timeout_s))
        except KafkaException:
            between()
            if time.monotonic() >= deadline_s:
                raise


def partitions_of(client: Consumer | Producer, topic: str, timeout_s: float) -> list[int]:
    """Partitions of a topic, empty for an unknown one."""
    return list(client.list_topics(topic, timeout=timeout_s).topics[topic].partitions)


def assign_from_start(consumer: Consumer, topic: str, partitions: Iterable[int]) -> None:
    """Have a consumer read partitions of a topic from their beginning."""
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])


def values(messages: Sequence[Message]) -> Iterator[bytes]:
    """The values of those messages that are records; the client library recovers from the others by itself."""
    return (message.value() or b"" for message in messages if message.error() is None)


def read_topic(
    bootstrap: str, topic: str, timeout_s: float, check: Callable[[], object] = lambda: None
) -> Iterator[bytes]:
    """Every record of a topic up to its end. PenstockError if nothing comes for ``timeout_s`` before that. ``check`` is
    called several times a second while nothing comes; what it raises ends the reading.
    """
    consumer = make_consumer(bootstrap, f"{topic}.collect", enable_partition_eof=True)
    try:
        with broker_errors():
            unfinished = set(_ask_again(lambda step_s: partitions_of(consumer, topic, step_s), timeout_s, check))
        if not unfinished:
            raise PenstockError(f"topic {topic}: the broker does not have it")
        assign_from_start(consumer, topic, unfinished)
        received_s = time.monotonic()
        while unfinished:
            messages = consumer.consume(READ_AT_ONCE, timeout=0.1)  # waits that long for as many
            if any(message.error() is None for message in messages):
                received_s = time.monotonic()
            else:
                check()
            yield from values(messages)
            for error, partition in ((message.error(), message.partition()) for message in messages):
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    unfinished.discard(partition or 0)
                elif error is not None and error.fatal():
                    raise PenstockError(f"topic {topic}: {error.str()}")
            if unfinished and time.monotonic() - received_s > timeout_s:
                raise PenstockError(f"topic {topic}: nothing more came for {timeout_s:g} s before its end")
    finally:
        consumer.close()
