"""A Kafka consumer group: where the lag lies, who holds which share of it, what rebalances cost."""

from grafana.panels import EVENTS, EVENTS_PER_S, NUMBER, SECONDS, SHARE, changes, lines, make_board
from grafana.promql import FLEET, RUN, Query, increase, newest, per_second, percentiles
from penstock import metrics

NOT_NEWSVENDOR = "newsvendor does not act in this run"
"""In place of its beliefs."""


def _believed(term: str, name: str) -> Query:
    """A term of the acting scaler's newest decision."""
    return newest(metrics.SCALER_TERM, "fleet", where=f'{FLEET}, term="{term}"', name=name)


BOARD = make_board(
    "streams",
    "consumer groups",
    "A Kafka consumer group by partition and by replica, and its rebalances.",
    {
        "Partitions": [
            lines("Lag by partition", EVENTS, newest(metrics.LAG, "fleet", "partition")).description(
                "Events not yet consumed. One line above the others is a partition that is too hot for the replica "
                "that holds it: more replicas do not help it, another assignment may."
            ),
            lines(
                "Arrival rate by partition", EVENTS_PER_S, newest(metrics.ARRIVAL_RATE, "fleet", "partition")
            ).description("Measured from end offsets, as the scalers read it. What a packing has to fit into bins."),
        ],
        "Replicas": [
            lines("Throughput by replica", EVENTS_PER_S, per_second(metrics.EVENTS_PROCESSED, "replica")).description(
                "A replica at its service rate is full; one at 0 has no partition or waits for an assignment."
            ),
            lines(
                "Utilisation by replica", SHARE, per_second(f"{metrics.SERVICE_TIME}_sum", "replica"), limit=1
            ).description("Share of the time in which a replica serves events (ρ). At 100 % its lag can only grow."),
            lines(
                "Partitions held by replica", NUMBER, newest(metrics.ASSIGNED_PARTITIONS, "replica"), steps=True
            ).description(
                "How the plan was carried out. The sum is the topic's number of partitions except within a rebalance."
            ),
            lines("Service time", SECONDS, *percentiles(metrics.SERVICE_TIME, "fleet")).description(
                "Of all replicas, within the buckets of the workers' histogram. It must stay where `penstock "
                "calibrate` found it, or scalers reckon with a service rate that is not there."
            ),
        ],
        "Beliefs of newsvendor": [
            lines("Service rate", EVENTS_PER_S, _believed("service_rate_per_s", "μ"))
            .no_value(NOT_NEWSVENDOR)
            .description(
                "What the acting scaler decides with: as configured, then the median of what was measured while busy."
            ),
            lines(
                "Start-up and rebalance",
                SECONDS,
                _believed("start_up_s", "start-up"),
                _believed("rebalance_time_s", "rebalance"),
                steps=True,
            )
            .no_value(NOT_NEWSVENDOR)
            .description(
                "Medians of the last replicas that joined and of the last rebalances. A step at the start is a wrong "
                "setting that was corrected."
            ),
            lines("Burstiness and hazard", SHARE, _believed("burstiness", "β"), _believed("jumps", "jumps/s"))
            .no_value(NOT_NEWSVENDOR)
            .description(
                "Burstiness β is 1 if all events of a second come at once, 0 if they come evenly. Jumps: how often the "
                "load exceeds what was forecast by a third of its peak."
            ),
            lines("Price of a late event", SECONDS, _believed("price_s", "λ"))
            .no_value(NOT_NEWSVENDOR)
            .description(
                "Replica-seconds. It rises while more events are late than the contract allows; at 5 it can rise no "
                "more."
            ),
        ],
        "Group": [
            changes("Assignments received", increase(metrics.REBALANCES, "fleet", where=RUN)).description(
                "By members, since the point before: a rebalance gives one to each and stops consumption for a moment."
            ),
            lines("Plan epoch", NUMBER, newest(metrics.PLAN_EPOCH, "fleet"), steps=True).description(
                "Grows by one with each plan. A mark without a step soon after is a plan that replicas have not joined "
                "yet."
            ),
            changes("Assigned by range", increase(metrics.RANGE_FALLBACKS, "fleet")).description(
                "Times that a leader had no valid plan and assigned by range instead. A bar after the start "
                "means that the plan service was not reached."
            ),
        ],
    },
)
