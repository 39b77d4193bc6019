"""Is it the system or the testbed: broker, sender, controller, Spark and the machine's processes.

Kafka exports nothing itself; what its clients see of it stands here.
"""

from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.panels import (
    BYTES,
    CORES,
    EVENTS,
    EVENTS_PER_S,
    GREEN,
    NUMBER,
    RED,
    SECONDS,
    Query,
    lines,
    make_board,
    states,
)
from grafana.promql import RUN, WINDOW, newest, per_second, quantile
from penstock import metrics

RUN_OR_NONE = 'run=~"$run|"'
"""Of a run's processes and of services that serve all runs."""


def of_run(metric: str) -> str:
    """A counter's present value."""
    return newest(metric, "run", where=RUN)


def board() -> Dashboard:
    """If something here is red or grows, a run's figures are not the scaler's doing."""
    return make_board(
        "health",
        "broker, Spark and testbed",
        "Whether a run's figures are the scaler's doing: the broker as its clients see it, the sender, the "
        "controller's ticks, Spark, and every process.",
        (
            "Broker and sender",
            (
                lines(
                    "Sent and acknowledged",
                    EVENTS_PER_S,
                    "The two lie on each other while the broker takes what it is sent.",
                    Query(per_second(metrics.EVENTS_SENT, "run", where=RUN), "sent"),
                    Query(per_second(metrics.EVENTS_ACKNOWLEDGED, "run", where=RUN), "acknowledged"),
                    Query(per_second(metrics.EVENTS_SEND_FAILED, "run", where=RUN), "failed"),
                ),
                lines(
                    "Not yet acknowledged",
                    EVENTS,
                    "Events that were sent and wait for the broker's word. A slope is a broker that is away.",
                    Query(
                        f"{of_run(metrics.EVENTS_SENT)} - {of_run(metrics.EVENTS_ACKNOWLEDGED)} "
                        f"- {of_run(metrics.EVENTS_SEND_FAILED)}",
                        "waiting",
                    ),
                ),
                lines(
                    "Send delay",
                    SECONDS,
                    "From the time at which an event was meant to be sent to its being handed over. Above a tenth of "
                    "the SLO the run is DEGRADED: the sender itself is late.",
                    Query(quantile(0.5, metrics.SEND_DELAY, "run", where=RUN), "p50"),
                    Query(quantile(0.99, metrics.SEND_DELAY, "run", where=RUN), "p99"),
                ),
            ),
        ),
        (
            "Controller",
            (
                lines(
                    "Ticks",
                    NUMBER,
                    "Ticks per second, done and skipped. A skipped tick is never made up for; 0 done is no controller.",
                    Query(per_second(metrics.TICKS, "fleet", "outcome"), "{{fleet}} {{outcome}}"),
                ),
                lines(
                    "Time of a tick",
                    SECONDS,
                    "Observe, decide and act together; p99 within the histogram's buckets. It must stay well below the "
                    "time between two ticks.",
                    Query(quantile(0.5, metrics.TICK_DURATION, "fleet"), "{{fleet}} p50"),
                    Query(quantile(0.99, metrics.TICK_DURATION, "fleet"), "{{fleet}} p99"),
                ),
                lines(
                    "Tick phase",
                    SECONDS,
                    "How far after its grid point the newest tick began. A level line is right; jitter moves the "
                    "scalers' rates, because they count what arrived between two ticks.",
                    Query(newest(metrics.TICK_PHASE, "fleet"), "{{fleet}}"),
                ),
                lines(
                    "Failed observations",
                    NUMBER,
                    "Ticks that could not read what arrived, so far. Each step is a moment in which scalers held.",
                    Query(newest(metrics.OBSERVATION_FAILURES, "fleet"), "{{fleet}}"),
                    steps=True,
                ),
            ),
        ),
        (
            "Spark",
            (
                lines(
                    "Delay of the live figures",
                    SECONDS,
                    "From the end of a second to its latencies being out. If it grows, Spark does not keep up; the "
                    "figures stay right and come late.",
                    Query(newest(metrics.STAGE_PUBLISH_DELAY, "stage", where=RUN), "{{stage}}"),
                ),
                lines(
                    "Results that Spark read",
                    EVENTS_PER_S,
                    "Completed events in the newest complete second. It must follow the fleet's completions.",
                    Query(newest(metrics.STAGE_EVENTS, "stage", where=RUN), "{{stage}}"),
                ),
            ),
        ),
        (
            "Processes",
            (
                states(
                    "Up",
                    "Red while a process that has announced itself does not answer Prometheus.",
                    Query(newest("up", "process", where=RUN_OR_NONE), "{{process}}"),
                    (0, "down", RED),
                    (1, "up", GREEN),
                ),
                lines(
                    "CPU",
                    CORES,
                    "Cores that each process uses. Their sum near the machine's cores means that processes wait for "
                    "each other and latencies are the machine's.",
                    Query(
                        f"sum by (process) (rate(process_cpu_seconds_total{{{RUN_OR_NONE}}}[{WINDOW}]))", "{{process}}"
                    ),
                ),
                lines(
                    "Memory",
                    BYTES,
                    "Resident memory. A line that only rises is a leak.",
                    Query(newest("process_resident_memory_bytes", "process", where=RUN_OR_NONE), "{{process}}"),
                ),
                lines(
                    "Time of a scrape",
                    SECONDS,
                    "How long a process takes to tell its metrics; at 1 s the scrape is given up.",
                    Query(newest("scrape_duration_seconds", "process", where=RUN_OR_NONE), "{{process}}"),
                ),
            ),
        ),
    )
