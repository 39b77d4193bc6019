"""A queue fleet: bounded queues behind a main queue, each with the containers of a function."""

from grafana.panels import EVENTS, EVENTS_PER_S, NUMBER, REPLICAS, SHARE, lines, make_board
from grafana.promql import ARRIVALS_AND_COMPLETIONS, Query, newest, per_second, ratio, replicas
from penstock import metrics

BOARD = make_board(
    "queues",
    "queue fleets",
    "A main queue that feeds sub-queues, each with a function of its own; the fleet's replicas are the sub-queues.",
    {
        "Fleet": [
            lines(
                "Arrivals, completions and capacity",
                EVENTS_PER_S,
                *ARRIVALS_AND_COMPLETIONS,
                Query(f"{newest(metrics.FLEET_SERVICE_RATE, 'fleet')} * {replicas('joined')}", "{{fleet}} capacity"),
            ).description(
                "Arrivals at the main queue against what the containers get done. Capacity is the measured rate of a "
                "queue's containers times the queues that joined."
            ),
            lines(
                "Queues in use and in the pool", REPLICAS, newest(metrics.REPLICAS, "fleet", "phase"), steps=True
            ).description(
                "Joined queues take events, pooled ones are ready to. With an empty pool the next one has to be "
                "provisioned first."
            ),
            lines("Waiting in all", EVENTS, newest(metrics.FLEET_BACKLOG, "fleet")).description(
                "Main queue and sub-queues together. It grows without bound only where capacity is below arrivals."
            ),
            lines(
                "Share refused by queue",
                SHARE,
                ratio(per_second(metrics.QUEUE_REJECTED, "queue"), per_second(metrics.QUEUE_ARRIVED, "queue")),
            ).description(
                "Of the events offered to a queue within the window, those that found it full: the measured P_K, which "
                "the scaler keeps below its bound."
            ),
        ],
        "Queues": [
            lines("Depth by queue", EVENTS, newest(metrics.QUEUE_DEPTH, "queue")).description(
                "Events that wait in each sub-queue. At its capacity less its containers it is full and refuses."
            ),
            lines("Containers by queue", NUMBER, newest(metrics.QUEUE_SERVERS, "queue"), steps=True).description(
                "The provider adds them one ramp step at a time; a new queue is weak until its ramp is done."
            ),
            lines(
                "Utilisation by queue",
                SHARE,
                ratio(newest(metrics.QUEUE_IN_FLIGHT, "queue"), newest(metrics.QUEUE_SERVERS, "queue")),
            ).description(
                "Busy containers of those there are. Queues far apart mean that the routing does not fit them."
            ),
            lines("Routing by queue", SHARE, newest(metrics.QUEUE_ROUTING, "queue"), steps=True).description(
                "The share of arrivals that each queue is given; the shares add up to 100 %."
            ),
        ],
    },
)
