"""Is the SLO kept, at how many replicas, and if not, where do events wait?"""

from grafana.panels import (
    EVENTS,
    EVENTS_PER_S,
    GREEN,
    NUMBER,
    RED,
    REPLICAS,
    SECONDS,
    SHARE,
    YELLOW,
    lines,
    make_board,
    number,
    states,
)
from grafana.promql import (
    ARRIVALS_AND_COMPLETIONS,
    CURRENT_REPLICAS,
    RUN,
    Query,
    newest,
    per_second,
    percentiles,
    ratio,
    replicas,
)
from penstock import metrics

latencies = percentiles(metrics.STAGE_LATENCY, "stage", where=RUN, percents=(50, 95, 99))
kept = ratio(*(newest(metric, "stage", where=RUN) for metric in (metrics.STAGE_SLO_MET, metrics.STAGE_RESULTS)))
kept_lately = ratio(
    *(per_second(metric, "stage", where=RUN) for metric in (metrics.STAGE_SLO_MET, metrics.STAGE_RESULTS))
)
firing = f'ALERTS{{{RUN}, alertstate="firing"}}'
wanted = newest(metrics.REPLICAS_DESIRED, "fleet", "scaler", where=RUN)
slo = newest(metrics.SLO, "fleet").named("SLO")

BOARD = make_board(
    "overview",
    "overview",
    "Whether a run keeps its SLO, at how many replicas, and where events wait if it does not.",
    {
        "At a glance": [
            number(
                "Within the SLO, whole run",
                SHARE,
                kept,
                (None, RED),
                (0.9, YELLOW),
                (0.95, GREEN),
            ).description(
                "Share of all events with a result so far that kept the SLO; failed and refused ones did not. When "
                "every event has a result it is the figure of the run's report; 95 % and more is green."
            ),
            number("p99", SECONDS, latencies[-1]).description(
                "Of the events that Spark read within the newest seconds, 99 % took at most this long from the "
                "time at which they were meant to be sent. Compare it with the SLO."
            ),
            number("SLO", SECONDS, slo).description(
                "The latency that the run is to keep, from intended send time to the result."
            ),
            number("Replicas", REPLICAS, CURRENT_REPLICAS).description(
                "Replicas that exist or are requested at the newest tick, without those that drain."
            ),
            number("Lag, newest tick", EVENTS, newest(metrics.FLEET_BACKLOG, "fleet")).description(
                "Events that have arrived and have not been completed. What matters is whether it grows."
            ),
            number(
                "Replica-minutes",
                NUMBER,
                Query(
                    f"sum_over_time(({replicas('requested|started|joined|draining')})[$__range:1s]) / 60", "{{fleet}}"
                ),
                at_end=True,
            )
            .decimals(1)
            .description(
                "What the fleet has cost within the time range: each replica from its request until it is gone. The "
                "report counts until the schedule ends; the last replicas are drained after that."
            ),
            number(
                "Newest tick",
                "suffix:s ago",
                Query(f"time() - max(max_over_time(timestamp({metrics.TICKS}{{{RUN}}})[$__range:1s]))", "ago"),
                (None, GREEN),
                (10, YELLOW),
                at_end=True,
            )
            .decimals(0)
            .description(
                "Seconds since the controller was last heard of. Yellow: the run is over, or it has no controller."
            ),
            number(
                "Alerts",
                NUMBER,
                Query(f"count({firing}) or vector(0)", "firing"),
                (None, GREEN),
                (1, RED),
            ).description("Alert rules that fire for this run now; 0 is green. The panel of their names says which."),
        ],
        "Load and latency": [
            lines("Arrivals and completions", EVENTS_PER_S, *ARRIVALS_AND_COMPLETIONS).description(
                "Where completions run below arrivals, lag grows by the difference."
            ),
            lines(
                "Latency",
                SECONDS,
                *latencies,
                slo,
            ).description(
                "Percentiles of the events that Spark read within the newest seconds, from intended send "
                "time; the SLO is the level to stay under. A "
                "rising p50 means that all events wait, a rising p99 alone that few do."
            ),
            lines(
                "Within the SLO",
                SHARE,
                kept_lately.named("{{stage}} newest seconds"),
                kept.named("{{stage}} whole run"),
            ).description(
                "Share of the events with a result in the newest seconds that kept the SLO, and of the whole run "
                "so far. Dips right after a mark are the price of a rebalance."
            ),
            lines("Lag", EVENTS, newest(metrics.FLEET_BACKLOG, "fleet")).description(
                "Events that wait, as the scalers saw it at each tick. Bursts make a saw; a slope is overload."
            ),
        ],
        "Replicas": [
            lines(
                "Replicas, wanted and allowed",
                REPLICAS,
                CURRENT_REPLICAS,
                Query(f"sum by (scaler) ({wanted})", "wanted by {{scaler}}"),
                newest(metrics.REPLICAS_MAX, "fleet", name="at most"),
                steps=True,
            ).description(
                "Where what the acting scaler wants lies above what there is, replicas are starting; where it lies "
                "above the cap, the fleet is as large as it may be."
            ),
            lines(
                "Replicas by phase",
                REPLICAS,
                Query(f"{newest(metrics.REPLICAS, 'fleet', 'phase')} > 0", "{{phase}}"),
                steps=True,
            ).description(
                "Requested and started ones cost and do not serve yet; draining ones still serve and will go."
            ),
            lines("Unknown fields", NUMBER, newest(metrics.UNKNOWN_FIELDS, "fleet"), steps=True).description(
                "Fields of the newest observation that could not be read. Above 0 scalers hold: nothing scales."
            ),
            states(
                "Firing alerts",
                Query(f"max by (alertname) ({firing}) or on () vector(0)", "{{alertname}}"),
                (0, "none", GREEN),
                (1, "fires", RED),
            ).description("By name, over time. Each rule's description says what to look at first."),
        ],
    },
    fleets=metrics.TICKS,  # the whole alone: parts are on the board of their kind
)
