"""A Kafka consumer group: where the lag lies, who holds which share of it, what rebalances cost."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.panels import EVENTS, EVENTS_PER_S, NUMBER, SECONDS, SHARE, Query, lines, make_board
from grafana.promql import RUN, WINDOW, newest, per_second, quantile
from penstock import metrics


def board() -> Dashboard:
    """By partition, by replica, then the group."""
    return make_board(
        "streams",
        "consumer groups",
        "A Kafka consumer group by partition and by replica, and its rebalances.",
        (
            "Partitions",
            (
                lines(
                    "Lag by partition",
                    EVENTS,
                    "Events not yet consumed. One line above the others is a partition that is too hot for the replica "
                    "that holds it: more replicas do not help it, another assignment may.",
                    Query(newest(metrics.LAG, "fleet", "partition"), "{{fleet}} {{partition}}"),
                ),
                lines(
                    "Arrival rate by partition",
                    EVENTS_PER_S,
                    "Measured from end offsets, as the scalers read it. What a packing has to fit into bins.",
                    Query(newest(metrics.ARRIVAL_RATE, "fleet", "partition"), "{{fleet}} {{partition}}"),
                ),
            ),
        ),
        (
            "Replicas",
            (
                lines(
                    "Throughput by replica",
                    EVENTS_PER_S,
                    "A replica at its service rate is full; one at 0 has no partition or waits for an assignment.",
                    Query(per_second(metrics.EVENTS_PROCESSED, "replica"), "{{replica}}"),
                ),
                lines(
                    "Utilisation by replica",
                    SHARE,
                    "Share of the time in which a replica serves events (ρ). At 100 % its lag can only grow.",
                    Query(per_second(f"{metrics.SERVICE_TIME}_sum", "replica"), "{{replica}}"),
                ),
                lines(
                    "Partitions held by replica",
                    NUMBER,
                    "How the plan was carried out. The sum is the topic's number of partitions except within a "
                    "rebalance.",
                    Query(newest(metrics.ASSIGNED_PARTITIONS, "replica"), "{{replica}}"),
                    steps=True,
                ),
                lines(
                    "Service time",
                    SECONDS,
                    "Of all replicas, within the buckets of the workers' histogram. It must stay where `penstock "
                    "calibrate` found it, or scalers reckon with a service rate that is not there.",
                    Query(quantile(0.5, metrics.SERVICE_TIME, "fleet"), "{{fleet}} p50"),
                    Query(quantile(0.99, metrics.SERVICE_TIME, "fleet"), "{{fleet}} p99"),
                ),
            ),
        ),
        (
            "Group",
            (
                lines(
                    "Rebalances",
                    NUMBER,
                    "Assignments that members received within the window. Each stops consumption for a moment.",
                    Query(
                        f"sum by (fleet) (increase({metrics.REBALANCES}{{{RUN}}}[{WINDOW}]))",
                        "{{fleet}}",
                    ),
                ),
                lines(
                    "Plan epoch",
                    NUMBER,
                    "Grows by one with each plan. A mark without a step soon after is a plan that replicas have not "
                    "joined yet.",
                    Query(newest(metrics.PLAN_EPOCH, "fleet"), "{{fleet}}"),
                    steps=True,
                ),
                lines(
                    "Assigned by range",
                    NUMBER,
                    "Times that a leader had no valid plan and assigned by range instead. Anything but 0 after the "
                    "start means that the plan service was not reached.",
                    Query(f"sum by (fleet) ({newest(metrics.RANGE_FALLBACKS, 'fleet', 'replica')})", "{{fleet}}"),
                    steps=True,
                ),
            ),
        ),
    )
