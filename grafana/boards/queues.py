"""A bank of bounded queues behind a main queue, each with the containers of a function."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.panels import EVENTS, EVENTS_PER_S, NUMBER, REPLICAS, SHARE, Query, lines, make_board
from grafana.promql import newest, per_second
from penstock import metrics
from penstock.metrics import (
    FLEET_ARRIVED,
    FLEET_BACKLOG,
    FLEET_COMPLETED,
    FLEET_SERVICE_RATE,
    QUEUE_ARRIVED,
    QUEUE_DEPTH,
    QUEUE_IN_FLIGHT,
    QUEUE_REJECTED,
    QUEUE_ROUTING,
    QUEUE_SERVERS,
)


def board() -> Dashboard:
    """The bank, then each queue."""
    refused = per_second(QUEUE_REJECTED, "queue")
    return make_board(
        "queues",
        "banks of queues",
        "A main queue that feeds sub-queues, each with a function of its own; the fleet's replicas are the sub-queues.",
        (
            "Bank",
            (
                lines(
                    "Arrivals, completions and capacity",
                    EVENTS_PER_S,
                    "Arrivals at the main queue against what the containers get done. Capacity is the measured rate "
                    "of all containers together.",
                    Query(per_second(FLEET_ARRIVED, "fleet"), "{{fleet}} arrive"),
                    Query(per_second(FLEET_COMPLETED, "fleet"), "{{fleet}} complete"),
                    Query(newest(FLEET_SERVICE_RATE, "fleet"), "{{fleet}} capacity"),
                ),
                lines(
                    "Queues in use and in the pool",
                    REPLICAS,
                    "Joined queues take events, pooled ones are ready to. With an empty pool the next one has to be "
                    "provisioned first.",
                    Query(newest(metrics.REPLICAS, "fleet", "phase"), "{{fleet}} {{phase}}"),
                    steps=True,
                ),
                lines(
                    "Waiting in all",
                    EVENTS,
                    "Main queue and sub-queues together. It grows without bound only where capacity is below arrivals.",
                    Query(newest(FLEET_BACKLOG, "fleet"), "{{fleet}}"),
                ),
                lines(
                    "Share refused by queue",
                    SHARE,
                    "Of the events offered to a queue within the window, those that found it full: the measured P_K, "
                    "which the scaler keeps below its bound.",
                    Query(f"{refused} / ({per_second(QUEUE_ARRIVED, 'queue')} > 0)", "{{queue}}"),
                ),
            ),
        ),
        (
            "Queues",
            (
                lines(
                    "Depth by queue",
                    EVENTS,
                    "Events that wait in each sub-queue. At its capacity less its containers it is full and refuses.",
                    Query(newest(QUEUE_DEPTH, "queue"), "{{queue}}"),
                ),
                lines(
                    "Containers by queue",
                    NUMBER,
                    "The provider adds them one ramp step at a time; a new queue is weak until its ramp is done.",
                    Query(newest(QUEUE_SERVERS, "queue"), "{{queue}}"),
                    steps=True,
                ),
                lines(
                    "Utilisation by queue",
                    SHARE,
                    "Busy containers of those there are. Queues far apart mean that the routing does not fit them.",
                    Query(f"{newest(QUEUE_IN_FLIGHT, 'queue')} / ({newest(QUEUE_SERVERS, 'queue')} > 0)", "{{queue}}"),
                ),
                lines(
                    "Routing by queue",
                    SHARE,
                    "The share of arrivals that each queue is given; the shares add up to 100 %.",
                    Query(newest(QUEUE_ROUTING, "queue"), "{{queue}}"),
                    steps=True,
                ),
            ),
        ),
    )
