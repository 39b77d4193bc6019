"""RabbitMQ by its own exporter: the whole broker, for it does not tell runs apart."""

from typing import Final

from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.panels import BYTES, EVENTS, EVENTS_PER_S, GREEN, NUMBER, RED, Query, lines, make_board, states
from grafana.promql import newest, per_second

BROKER: Final = 'process="rabbitmq"'
"""As it announces itself to Prometheus."""


def rate(what: str) -> str:
    """Of messages that the broker took or gave, over all protocols and queues."""
    return per_second(f"rabbitmq_global_messages_{what}_total", "process", where=BROKER)


def level(what: str, legend: str) -> Query:
    """A gauge of the broker."""
    return Query(newest(f"rabbitmq_{what}", "process", where=BROKER), legend)


def board() -> Dashboard:
    """Messages, then what the broker needs."""
    return make_board(
        "rabbitmq",
        "RabbitMQ",
        "The broker of banks of queues and pub/sub networks as it sees itself, over all runs together. A run's own "
        "queues are on the board of its kind of fleet.",
        (
            "Messages",
            (
                lines(
                    "In all queues",
                    EVENTS,
                    "Ready ones wait for a consumer, unacknowledged ones are with one. As many unacknowledged ones as "
                    "containers means that all are busy.",
                    level("queue_messages_ready", "ready"),
                    level("queue_messages_unacked", "unacknowledged"),
                ),
                lines(
                    "Taken and given",
                    EVENTS_PER_S,
                    "Received and not confirmed ones found a full queue and went back to their publisher. With a "
                    "forwarder every event is received and delivered twice.",
                    Query(rate("received"), "received"),
                    Query(rate("confirmed"), "confirmed"),
                    Query(rate("delivered"), "delivered"),
                    Query(rate("acknowledged"), "acknowledged"),
                ),
            ),
        ),
        (
            "Broker",
            (
                lines(
                    "Clients and queues",
                    NUMBER,
                    "What still exists after a run is over has leaked.",
                    level("connections", "connections"),
                    level("channels", "channels"),
                    level("consumers", "consumers"),
                    level("queues", "queues"),
                    steps=True,
                ),
                lines(
                    "Memory",
                    BYTES,
                    "Above the limit it stops taking messages from every publisher, and send delay grows.",
                    level("process_resident_memory_bytes", "in use"),
                    level("resident_memory_limit_bytes", "limit"),
                ),
                states(
                    "Memory alarm",
                    "Red while publishers are blocked because memory is above the limit.",
                    level("alarms_memory_used_watermark", "memory"),
                    (0, "takes messages", GREEN),
                    (1, "blocks publishers", RED),
                ),
                lines(
                    "Free disk",
                    BYTES,
                    "Below the limit it stops taking messages, as it does for memory.",
                    level("disk_space_available_bytes", "free"),
                    level("disk_space_available_limit_bytes", "limit"),
                ),
            ),
        ),
    )
