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
    as_target,
    lines,
    make_board,
    name,
    number,
    options,
    states,
)
from grafana.promql import (
    ARRIVALS_AND_COMPLETIONS,
    CURRENT_REPLICAS,
    PAID_REPLICAS,
    RANGE,
    RUN,
    Query,
    last_within_range,
    newest,
    per_second,
    percentiles,
    ratio,
)
from penstock import metrics

latencies = percentiles(metrics.STAGE_LATENCY, "stage", where=RUN, percents=(50, 95, 99))
kept = ratio(newest(metrics.STAGE_SLO_MET, "stage", where=RUN), newest(metrics.STAGE_RESULTS, "stage", where=RUN))
kept_lately = ratio(
    per_second(metrics.STAGE_SLO_MET, "stage", where=RUN), per_second(metrics.STAGE_RESULTS, "stage", where=RUN)
)
firing = f'ALERTS{{{RUN}, alertstate="firing"}}'
wanted = newest(metrics.REPLICAS_DESIRED, "fleet", "scaler", where=RUN)
slo = newest(metrics.SLO, "fleet").named("SLO")

started, length = (newest(metric, "run", where=RUN) for metric in (metrics.RUN_START, metrics.RUN_DURATION))
elapsed_s = f"(time() - {last_within_range(started)})"
p99, slo_s = last_within_range(latencies[-1]), last_within_range(newest(metrics.SLO, where=RUN))
kept_p99 = Query(f"{p99} <= on () group_left () {slo_s}", "{{stage}}")
late_p99 = Query(f"{p99} > on () group_left () {slo_s}", "{{stage}} above the SLO")

AGAINST_THE_VERDICT = {
    "sender late": f"histogram_quantile(0.99, sum by (le) ({metrics.SEND_DELAY}_bucket{{{RUN}}}))"
    f" > bool (0.1 * {newest(metrics.SLO, where=RUN)})",
    "cores busy": f'avg_over_time((sum({metrics.MACHINE_CPU}{{{RUN}, use=~"busy|niced"}}) > bool 0.9)[{RANGE}:1s])'
    " > bool 0.1",
    "cores taken": f'avg_over_time(max({metrics.MACHINE_CPU}{{{RUN}, use="stolen"}})[{RANGE}:1s]) > bool 0.1',
    "ticks missed": f'sum({metrics.TICKS}{{{RUN}, outcome="skipped"}}) / sum({metrics.TICKS}{{{RUN}}}) > bool 0.01',
    "ticks off": f"quantile_over_time(0.99, max({metrics.TICK_PHASE_ERROR}{{{RUN}}})[{RANGE}:1s]) > bool 0.02",
}
"""Rules of ``report/analysis/verdict.py`` that a running run can break already, by name: 1 while broken."""


def labelled(rule: str) -> str:
    """Its query, with its name as label."""
    return f'label_replace({AGAINST_THE_VERDICT[rule]}, "rule", "{rule}", "", "")'


BOARD = make_board(
    "overview",
    "overview",
    "Whether a run keeps its SLO, at how many replicas, and where events wait if it does not.",
    {
        "Run": [
            name(
                "What runs",
                newest(metrics.RUN_INFO, "experiment", "scaler", "world", where=RUN).named(
                    "{{experiment}}: {{scaler}}, {{world}}"
                ),
                width=9,
            ).description("Experiment, acting scaler and world of the run; shadows are on the board of scalers."),
            number(
                "Progress",
                SHARE,
                Query(f"clamp({elapsed_s} / {last_within_range(length)}, 0, 1)", "done"),
                at_end=True,
            ).description("Share of the schedule that has been sent by now; at 100 % the last results are awaited."),
            number(
                "Time left",
                "dthms",
                Query(f"clamp_min({last_within_range(length)} - {elapsed_s}, 0)", "left"),
                at_end=True,
            ).description("Until the end of the schedule, in hours, minutes and seconds; 0 when it has been sent."),
            name(
                "Verdict",
                newest(metrics.RUN_VERDICT, "verdict", "reasons", where=RUN).named("{{verdict}} {{reasons}}"),
                (None, GREEN),
                (1, YELLOW),
                (2, RED),
                width=9,
                none="not judged yet",
            ).description(
                "The report's, with every reason, as soon as the run has been analysed. The rules that a run can break "
                "before its end are in the panel of that name."
            ),
        ],
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
            number("p99", SECONDS, kept_p99, (None, GREEN), at_end=True)
            .with_target(as_target(late_p99, 1).instant())
            .override_by_regexp("/above the SLO$/", options({"color": {"mode": "fixed", "fixedColor": RED}}))
            .description(
                "Of the events that Spark read within the newest seconds, 99 % took at most this long from the "
                "time at which they were meant to be sent. Green up to the SLO, red above it."
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
                Query(f"sum_over_time(({PAID_REPLICAS})[{RANGE}:1s]) / 60", "{{fleet}}"),
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
            lines(
                "Start-up time of replicas", SECONDS, newest(metrics.REPLICA_START_UP, "fleet", where=RUN), steps=True
            ).description(
                "From the request of a replica to its joining, of the one that joined last in each fleet. So long a "
                "decision to scale up has no effect."
            ),
            lines("Unknown fields", NUMBER, newest(metrics.UNKNOWN_FIELDS, "fleet"), steps=True).description(
                "Fields of the newest observation that could not be read. Above 0 scalers hold: nothing scales."
            ),
            states(
                "Against the verdict so far",
                Query(" or ".join(map(labelled, AGAINST_THE_VERDICT)), "{{rule}}"),
                (0, "kept", GREEN),
                (1, "DEGRADED", YELLOW),
            ).description(
                "Yellow where the run would be DEGRADED if it ended now: send delay, busy or stolen cores, ticks that "
                "were missed or off their phase. The report checks more, and percentiles exactly."
            ),
            states(
                "Firing alerts",
                Query(f"max by (alertname) ({firing}) or on () vector(0)", "{{alertname}}"),
                (0, "none", GREEN),
                (1, "fires", RED),
            ).description("By name, over time. Each rule's description says what to look at first."),
        ],
    },
    fleets=f"{metrics.TICKS}{{{RUN}}}",  # the whole alone: parts are on the board of their kind
)
