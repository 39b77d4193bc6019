"""A pipeline of functions with a deadline: where laxity is lost."""

from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.panels import EVENTS, EVENTS_PER_S, REPLICAS, SECONDS, SHARE, Query, lines, make_board
from grafana.promql import FLEET, current_replicas, newest, per_second
from penstock import metrics
from penstock.metrics import (
    FLEET_ARRIVED,
    FLEET_BACKLOG,
    FLEET_COMPLETED,
    FLEET_SERVICE_RATE,
    FUNCTION_BUSY,
    FUNCTION_LAXITY,
    PIPELINE_FINISHED,
    PIPELINE_MISSED,
)


def board() -> Dashboard:
    """The pipeline, then function by function; each function is a fleet."""
    missed = f"{per_second(PIPELINE_MISSED, 'fleet')} / ({per_second(PIPELINE_FINISHED, 'fleet')} > 0)"
    return make_board(
        "functions",
        "pipelines of functions",
        "A pipeline of functions with a deadline; each function is a fleet of its own.",
        (
            "Pipeline",
            (
                lines(
                    "Deadlines missed",
                    SHARE,
                    "Of the requests that left the pipeline within the window, those that did after their deadline.",
                    Query(missed, "{{fleet}}"),
                ),
                lines(
                    "Lowest laxity by function",
                    SECONDS,
                    "Time to deadline less what is left to do, the worst of the newest samples and the one that a "
                    "tenth lie below. Below 0 a deadline is lost already; the function whose line falls first is the "
                    "one to scale.",
                    Query(newest(FUNCTION_LAXITY, "fleet", where=f'{FLEET}, quantile="0"'), "{{fleet}} worst"),
                    Query(newest(FUNCTION_LAXITY, "fleet", where=f'{FLEET}, quantile="0.1"'), "{{fleet}} worst tenth"),
                ),
                lines(
                    "Median laxity by function",
                    SECONDS,
                    "It falls from function to function along the pipeline; a step between two of them is waiting.",
                    Query(newest(FUNCTION_LAXITY, "fleet", where=f'{FLEET}, quantile="0.5"'), "{{fleet}}"),
                ),
            ),
        ),
        (
            "Functions",
            (
                lines(
                    "Replicas by function",
                    REPLICAS,
                    "Those that exist or were asked for; one request a replica at a time.",
                    Query(current_replicas(), "{{fleet}}"),
                    steps=True,
                ),
                lines(
                    "Replicas wanted by function",
                    REPLICAS,
                    "What each scaler last asked for, shadows too. Compare with the replicas there are.",
                    Query(newest(metrics.REPLICAS_DESIRED, "fleet", "scaler"), "{{fleet}} {{scaler}}"),
                    steps=True,
                ),
                lines(
                    "Waiting by function",
                    EVENTS,
                    "Requests without a free replica. The pipeline's total is drawn under the fleet's own name.",
                    Query(newest(FLEET_BACKLOG, "fleet"), "{{fleet}}"),
                ),
                lines(
                    "Busy replicas by function",
                    REPLICAS,
                    "Processing time per second: how many replicas were busy on average. Near the replicas there are, "
                    "the function is full.",
                    Query(per_second(FUNCTION_BUSY, "fleet"), "{{fleet}}"),
                ),
                lines(
                    "Arrivals and completions by function",
                    EVENTS_PER_S,
                    "Completions of one function are arrivals of the next; the first that stays behind is the "
                    "bottleneck.",
                    Query(per_second(FLEET_ARRIVED, "fleet"), "{{fleet}} arrive"),
                    Query(per_second(FLEET_COMPLETED, "fleet"), "{{fleet}} complete"),
                ),
                lines(
                    "Service rate of a replica",
                    EVENTS_PER_S,
                    "Measured on completed requests, as the scalers read it.",
                    Query(newest(FLEET_SERVICE_RATE, "fleet"), "{{fleet}}"),
                ),
            ),
        ),
    )
