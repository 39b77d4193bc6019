"""A pipeline of functions with a deadline: where laxity is lost."""

from grafana.panels import EVENTS, EVENTS_PER_S, REPLICAS, SECONDS, SHARE, lines, make_board
from grafana.promql import ARRIVALS_AND_COMPLETIONS, CURRENT_REPLICAS, FLEET, newest, per_second, ratio
from penstock import metrics

BOARD = make_board(
    "functions",
    "pipelines of functions",
    "A pipeline of functions with a deadline; each function is a fleet of its own.",
    {
        "Pipeline": [
            lines(
                "Deadlines missed",
                SHARE,
                ratio(per_second(metrics.PIPELINE_MISSED, "fleet"), per_second(metrics.PIPELINE_FINISHED, "fleet")),
            ).description(
                "Of the requests that left the pipeline within the window, those that did after their deadline."
            ),
            lines(
                "Lowest laxity by function",
                SECONDS,
                newest(metrics.FUNCTION_LAXITY, "fleet", where=f'{FLEET}, quantile="0"', name="worst"),
                newest(metrics.FUNCTION_LAXITY, "fleet", where=f'{FLEET}, quantile="0.1"', name="worst tenth"),
                limit=0,
            ).description(
                "Time to deadline less what is left to do, the worst of the newest samples and the one that a tenth "
                "lie below. Below 0 a deadline is lost already; the function whose line falls first is the one to "
                "scale."
            ),
            lines(
                "Median laxity by function",
                SECONDS,
                newest(metrics.FUNCTION_LAXITY, "fleet", where=f'{FLEET}, quantile="0.5"'),
            ).description(
                "It falls from function to function along the pipeline; a step between two of them is waiting."
            ),
        ],
        "Functions": [
            lines("Replicas by function", REPLICAS, CURRENT_REPLICAS, steps=True).description(
                "Those that exist or were asked for; one request a replica at a time."
            ),
            lines(
                "Replicas wanted by function", REPLICAS, newest(metrics.REPLICAS_DESIRED, "fleet", "scaler"), steps=True
            ).description("What each scaler last asked for, shadows too. Compare with the replicas there are."),
            lines("Waiting by function", EVENTS, newest(metrics.FLEET_BACKLOG, "fleet")).description(
                "Requests without a free replica. The pipeline's total is drawn under the fleet's own name."
            ),
            lines("Busy replicas by function", REPLICAS, per_second(metrics.FUNCTION_BUSY, "fleet")).description(
                "Processing time per second: how many replicas were busy on average. Near the replicas there are, the "
                "function is full."
            ),
            lines("Arrivals and completions by function", EVENTS_PER_S, *ARRIVALS_AND_COMPLETIONS).description(
                "Completions of one function are arrivals of the next; the first that stays behind is the bottleneck."
            ),
            lines("Service rate of a replica", EVENTS_PER_S, newest(metrics.FLEET_SERVICE_RATE, "fleet")).description(
                "Measured on completed requests, as the scalers read it."
            ),
        ],
    },
)
