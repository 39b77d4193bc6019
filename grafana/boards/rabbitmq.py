"""RabbitMQ by its own exporter, which does not distinguish runs."""

from typing import Final

from grafana.panels import BYTES, EVENTS, EVENTS_PER_S, GREEN, NUMBER, RED, lines, make_board, states
from grafana.promql import Query, newest, per_second

BROKER: Final = 'process="rabbitmq"'
"""As it announces itself to Prometheus."""


def rate(what: str) -> Query:
    """Of messages that the broker took or gave, over all protocols and queues."""
    return per_second(f"rabbitmq_global_messages_{what}_total", "process", where=BROKER).named(what)


def level(what: str, legend: str) -> Query:
    """A gauge of the broker."""
    return newest(f"rabbitmq_{what}", "process", where=BROKER).named(legend)


BOARD = make_board(
    "rabbitmq",
    "RabbitMQ",
    "The metrics of the broker of queue fleets and pub/sub networks, over all runs. A run's own queues are on the "
    "board of its kind of fleet.",
    {
        "Messages": [
            lines(
                "In all queues",
                EVENTS,
                level("queue_messages_ready", "ready"),
                level("queue_messages_unacked", "unacknowledged"),
            ).description(
                "Ready ones wait for a consumer, unacknowledged ones are with one. As many unacknowledged ones as "
                "containers means that all are busy."
            ),
            lines(
                "Taken and given",
                EVENTS_PER_S,
                *(rate(what) for what in ("received", "confirmed", "delivered", "acknowledged")),
            ).description(
                "Received and not confirmed ones found a full queue and went back to their publisher. With a forwarder "
                "every event is received and delivered twice."
            ),
        ],
        "Broker": [
            lines(
                "Clients and queues",
                NUMBER,
                *(level(what, what) for what in ("connections", "channels", "consumers", "queues")),
                steps=True,
            ).description("What still exists after a run is over has leaked."),
            lines("Memory", BYTES, level("process_resident_memory_bytes", "in use")).description(
                "Above its limit it stops taking messages from every publisher, and send delay grows. The limit is far "
                "above what a run needs, and not drawn: the alarm tells when it is reached."
            ),
            states(
                "Memory alarm",
                level("alarms_memory_used_watermark", "memory"),
                (0, "takes messages", GREEN),
                (1, "blocks publishers", RED),
            ).description("Red while publishers are blocked because memory is above the limit."),
            lines(
                "Free disk",
                BYTES,
                level("disk_space_available_bytes", "free"),
                level("disk_space_available_limit_bytes", "limit"),
            ).description("Below the limit it stops taking messages, as it does for memory."),
        ],
    },
    of_runs=False,
)
