"""Two runs in one picture, moved so that both begin at one point: scaler against scaler."""

from grafana.panels import (
    EVENTS,
    EVENTS_PER_S,
    NUMBER,
    OF_RUN,
    REPLICAS,
    SECONDS,
    SHARE,
    Chosen,
    lines,
    make_board,
    names,
)
from grafana.promql import (
    ARRIVALS_AND_COMPLETIONS,
    CURRENT_REPLICAS,
    PAID_REPLICAS,
    RANGE,
    RUN,
    Query,
    beside,
    newest,
    percentiles,
    ratio,
)
from penstock import metrics

RETENTION = "2h"
"""How far back the local Prometheus knows runs."""

OTHERS = f'max by (run) (last_over_time({metrics.RUN_START}{{run!="$run"}}[{RETENTION}]))'

p99 = percentiles(metrics.STAGE_LATENCY, "stage", where=RUN, percents=(99,))[0]
kept = ratio(newest(metrics.STAGE_SLO_MET, "stage", where=RUN), newest(metrics.STAGE_RESULTS, "stage", where=RUN))
paid = Query(f"sum_over_time(({PAID_REPLICAS})[{RANGE}:1s]) / 60", "{{fleet}}")
of_run = newest(metrics.RUN_INFO, "experiment", "scaler", where=RUN).named("{{experiment}}: {{scaler}}")
slo = newest(metrics.SLO, "run", where=RUN).named("SLO")


def began(run: str) -> str:
    """When a run did, also one that is over."""
    return f'max(last_over_time({metrics.RUN_START}{{run="{run}"}}[{RETENTION}]))'


def both(query: Query) -> tuple[Query, Query]:
    """Of the run, and of the one beside it."""
    return query, beside(query)


BOARD = make_board(
    "two-runs",
    "two runs",
    "A run and another one beside it, which is moved so that both begin at the same point. Choose a time range that "
    "holds Run and does not end before the other one began, which may have been up to two hours ago.",
    {
        "Runs": [
            names("What runs", *both(of_run)).description(
                "Experiment and acting scaler of both. Other experiments can be compared too, but mean little."
            ),
        ],
        "Service": [
            lines("Latency p99", SECONDS, *both(p99), slo).description(
                "Of the events that Spark read within the newest seconds, from intended send time. The SLO is that of "
                "Run."
            ),
            lines("Within the SLO, so far", SHARE, *both(kept)).description(
                "Share of all events with a result up to then that kept the SLO. The last values are the reports'."
            ),
        ],
        "Cost": [
            lines("Replicas", REPLICAS, *both(CURRENT_REPLICAS), steps=True).description(
                "Those that exist or are requested, without those that drain."
            ),
            lines("Replica-minutes, so far", NUMBER, *both(paid)).description(
                "What each fleet has cost up to then within the length of the time range: each replica from request "
                "until it is gone."
            ),
        ],
        "Load": [
            lines("Arrivals", EVENTS_PER_S, *both(ARRIVALS_AND_COMPLETIONS[0])).description(
                "Of one experiment and seed they lie on each other, but for the moment of each tick."
            ),
            lines("Lag", EVENTS, *both(newest(metrics.FLEET_BACKLOG, "fleet"))).description(
                "Events that wait, as the scalers of both saw it."
            ),
        ],
    },
    more=(
        Chosen("previous", f"topk(1, {OTHERS})", OF_RUN),
        Chosen("beside", f"sort_desc({OTHERS})", OF_RUN, "Beside (All: the newest other)", "$previous"),
        Chosen("shift", f"1000 * round({began('$run')} - {began('$beside')}) + 1 or vector(1)", r"/ (-?\d+)/"),
    ),
    fleets=f'{metrics.TICKS}{{run=~"$run|$beside"}}',
)
