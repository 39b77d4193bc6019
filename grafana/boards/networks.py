"""A pub/sub network: jobs that visit topics, each topic with its consumers."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.panels import EVENTS, EVENTS_PER_S, NUMBER, REPLICAS, SECONDS, Query, lines, make_board
from grafana.promql import current_replicas, newest, per_second
from penstock.metrics import (
    FLEET_ARRIVED,
    FLEET_BACKLOG,
    FLEET_COMPLETED,
    FLEET_IN_FLIGHT,
    FLEET_SERVICE_RATE,
    JOB_ARRIVAL_RATE,
    JOB_ARRIVAL_SCV,
    NETWORK_RESPONSE,
    TOPIC_SERVICE_SCV,
)


def board() -> Dashboard:
    """Jobs, then topics; each topic is a fleet."""
    return make_board(
        "networks",
        "pub/sub networks",
        "An open network of topics that jobs visit along their routes; each topic is a fleet of consumers.",
        (
            "Jobs",
            (
                lines(
                    "Response time",
                    SECONDS,
                    "Mean over the jobs that finished within the monitor's window, first topic to last. The scalers "
                    "keep it below their limit.",
                    Query(newest(NETWORK_RESPONSE, "fleet"), "{{fleet}}"),
                ),
                lines(
                    "Arrival rate by job type",
                    EVENTS_PER_S,
                    "Measured within the window. With the routes it gives the load of each topic.",
                    Query(newest(JOB_ARRIVAL_RATE, "job"), "job {{job}}"),
                ),
                lines(
                    "Variability of arrivals by job type",
                    NUMBER,
                    "Squared coefficient of variation of the interarrival time: 0 is a clock, 1 is Poisson, above 1 "
                    "comes in bursts and waits longer at the same load.",
                    Query(newest(JOB_ARRIVAL_SCV, "job"), "job {{job}}"),
                ),
            ),
        ),
        (
            "Topics",
            (
                lines(
                    "Consumers by topic",
                    REPLICAS,
                    "Those that exist or were asked for.",
                    Query(current_replicas(), "{{fleet}}"),
                    steps=True,
                ),
                lines(
                    "Waiting and in service by topic",
                    EVENTS,
                    "A topic whose waiting line grows needs consumers first. The network's totals are drawn under the "
                    "fleet's own name.",
                    Query(newest(FLEET_BACKLOG, "fleet"), "{{fleet}} waiting"),
                    Query(newest(FLEET_IN_FLIGHT, "fleet"), "{{fleet}} in service"),
                ),
                lines(
                    "Arrivals and completions by topic",
                    EVENTS_PER_S,
                    "A job that visits a topic twice counts twice.",
                    Query(per_second(FLEET_ARRIVED, "fleet"), "{{fleet}} arrive"),
                    Query(per_second(FLEET_COMPLETED, "fleet"), "{{fleet}} complete"),
                ),
                lines(
                    "Service rate of a consumer",
                    EVENTS_PER_S,
                    "Measured within the window, as the scalers read it.",
                    Query(newest(FLEET_SERVICE_RATE, "fleet"), "{{fleet}}"),
                ),
                lines(
                    "Variability of service by topic",
                    NUMBER,
                    "Squared coefficient of variation of the service time; with that of the arrivals it makes the "
                    "waiting time.",
                    Query(newest(TOPIC_SERVICE_SCV, "fleet"), "{{fleet}}"),
                ),
            ),
        ),
    )
