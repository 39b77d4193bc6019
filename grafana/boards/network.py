"""A pub/sub network: jobs that visit topics, each topic with its consumers."""

from grafana.panels import EVENTS, EVENTS_PER_S, NUMBER, REPLICAS, SECONDS, lines, make_board
from grafana.promql import ARRIVALS_AND_COMPLETIONS, CURRENT_REPLICAS, newest
from penstock import metrics

BOARD = make_board(
    "networks",
    "pub/sub networks",
    "An open network of topics that jobs visit along their routes; each topic is a fleet of consumers.",
    {
        "Jobs": [
            lines("Response time", SECONDS, newest(metrics.NETWORK_RESPONSE, "fleet")).description(
                "Mean over the jobs that finished within the monitor's window, first topic to last. The scalers keep "
                "it below their limit."
            ),
            lines(
                "Arrival rate by job type", EVENTS_PER_S, newest(metrics.JOB_ARRIVAL_RATE, "job").named("job {{job}}")
            ).description("Measured within the window. With the routes it gives the load of each topic."),
            lines(
                "Variability of arrivals by job type",
                NUMBER,
                newest(metrics.JOB_ARRIVAL_SCV, "job").named("job {{job}}"),
            ).description(
                "Squared coefficient of variation of the interarrival time: 0 is a clock, 1 is Poisson, above 1 comes "
                "in bursts and waits longer at the same load."
            ),
        ],
        "Topics": [
            lines("Consumers by topic", REPLICAS, CURRENT_REPLICAS, steps=True).description(
                "Those that exist or were asked for."
            ),
            lines(
                "Waiting and in service by topic",
                EVENTS,
                newest(metrics.FLEET_BACKLOG, "fleet", name="waiting"),
                newest(metrics.FLEET_IN_FLIGHT, "fleet", name="in service"),
            ).description(
                "A topic whose waiting line grows needs consumers first. The network's totals are drawn under the "
                "fleet's own name."
            ),
            lines("Arrivals and completions by topic", EVENTS_PER_S, *ARRIVALS_AND_COMPLETIONS).description(
                "A job that visits a topic twice counts twice."
            ),
            lines("Service rate of a consumer", EVENTS_PER_S, newest(metrics.FLEET_SERVICE_RATE, "fleet")).description(
                "Measured within the window, as the scalers read it."
            ),
            lines("Variability of service by topic", NUMBER, newest(metrics.TOPIC_SERVICE_SCV, "fleet")).description(
                "Squared coefficient of variation of the service time; with that of the arrivals it makes the waiting "
                "time."
            ),
        ],
    },
)
