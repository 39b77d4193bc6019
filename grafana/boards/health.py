"""Is it the system or the testbed: broker, sender, controller, Spark and the machine's processes.

Kafka exports nothing itself; what its clients see of it stands here.
"""

from grafana.panels import (
    BYTES,
    CORES,
    EVENTS,
    EVENTS_PER_S,
    GREEN,
    NUMBER,
    RED,
    SECONDS,
    SHARE,
    lines,
    make_board,
    states,
)
from grafana.promql import RUN, Query, newest, per_second, percentiles, ratio
from penstock import metrics

RUN_OR_NONE = 'run=~"$run|"'
"""Of a run's processes and of services that serve all runs."""


def short(query: Query) -> Query:
    """By process, whose name need not repeat the run's."""
    return query._replace(expr=f'label_replace({query}, "process", "$1", "process", "$run-(.+)")')


sent, acknowledged, failed = (
    newest(metric, "run", where=RUN)
    for metric in (metrics.EVENTS_SENT, metrics.EVENTS_ACKNOWLEDGED, metrics.EVENTS_SEND_FAILED)
)
BOARD = make_board(
    "health",
    "broker, Spark and testbed",
    "Whether a run's figures are the scaler's doing: the broker as its clients see it, the sender, the controller's "
    "ticks, Spark, and every process.",
    {
        "Broker and sender": [
            lines(
                "Sent and acknowledged",
                EVENTS_PER_S,
                per_second(metrics.EVENTS_SENT, "run", where=RUN, name="sent"),
                per_second(metrics.EVENTS_ACKNOWLEDGED, "run", where=RUN, name="acknowledged"),
                per_second(metrics.EVENTS_SEND_FAILED, "run", where=RUN, name="failed"),
            ).description("The two lie on each other while the broker takes what it is sent."),
            lines("Not yet acknowledged", EVENTS, Query(f"{sent} - {acknowledged} - {failed}", "waiting")).description(
                "Events that were sent and wait for the broker's confirmation. A slope is a broker that is away."
            ),
            lines(
                "Send delay",
                SECONDS,
                *percentiles(metrics.SEND_DELAY, "run", where=RUN),
                Query(f"0.1 * {newest(metrics.SLO, 'run', where=RUN)}", "limit"),
            ).description(
                "From the time at which an event was meant to be sent to its being handed over. Above a tenth of the "
                "SLO the run is DEGRADED: the sender itself is late."
            ),
        ],
        "Controller": [
            lines("Ticks", "suffix:ticks/s", per_second(metrics.TICKS, "fleet", "outcome")).description(
                "Ticks per second, done and skipped. A skipped tick is never made up for; 0 done is no controller."
            ),
            lines(
                "Time of a tick",
                SECONDS,
                ratio(
                    per_second(f"{metrics.TICK_DURATION}_sum", "fleet"),
                    per_second(f"{metrics.TICK_DURATION}_count", "fleet"),
                    most=None,
                ),
            ).description(
                "Observe, decide and act together: the mean of the newest ticks. It must stay well below the time "
                "between two ticks."
            ),
            lines("Tick phase", SECONDS, newest(metrics.TICK_PHASE, "fleet")).description(
                "How far after its grid point the newest tick began. A level line is right; jitter moves the scalers' "
                "rates, because they count what arrived between two ticks."
            ),
            lines("Ticks off their phase", SECONDS, newest(metrics.TICK_PHASE_ERROR, "fleet"), limit=0.02).description(
                "Distance of each tick to the phase that the run has set. With more than 20 ms at the p99 the run is "
                "DEGRADED."
            ),
            lines("Failed observations", NUMBER, newest(metrics.OBSERVATION_FAILURES, "fleet"), steps=True).description(
                "Ticks that could not read what arrived, so far. Each step is a moment in which scalers held."
            ),
        ],
        "Spark": [
            lines(
                "Delay of the live figures", SECONDS, newest(metrics.STAGE_PUBLISH_DELAY, "stage", where=RUN)
            ).description(
                "From the end of a second to its latencies being out. If it grows, Spark does not keep up; the figures "
                "stay right and come late."
            ),
            lines(
                "Results that Spark read", EVENTS_PER_S, per_second(metrics.STAGE_RESULTS, "stage", where=RUN)
            ).description("Of completed, failed and refused events. It must follow the fleet's completions."),
        ],
        "Machine": [
            lines(
                "CPU of the machine",
                SHARE,
                newest(metrics.MACHINE_CPU, "run", "use", where=RUN),
                Query(f"0.9 + 0 * {newest(metrics.MACHINE_CPU, 'run', where=RUN)}", "limit"),
            ).description(
                "Share of all cores: busy (with Kafka, RabbitMQ, Spark's JVM and functions), niced (at a lower "
                "priority) and stolen by the machine's own host. A run whose cores stay above the limit is DEGRADED."
            ),
            lines("Free memory", BYTES, newest(metrics.MACHINE_MEMORY, "run", where=RUN, name="free")).description(
                "Memory of the machine that processes can still have. Near 0 the machine swaps, and no time is right."
            ),
        ],
        "Processes": [
            states(
                "Up", short(newest("up", "process", where=RUN_OR_NONE)), (0, "down", RED), (1, "up", GREEN)
            ).description(
                "Red while a process that has announced itself does not answer Prometheus. An orderly end is red for "
                "a few seconds, until Prometheus has noticed it."
            ),
            lines(
                "CPU", CORES, short(per_second("process_cpu_seconds_total", "process", where=RUN_OR_NONE))
            ).description(
                "Cores that each process uses by its own metrics. Kafka, Redis, RabbitMQ, HAProxy, Spark's JVM and "
                "replicas of functions have none: they are among the programs below."
            ),
            lines("CPU by program", CORES, per_second(metrics.PROGRAM_CPU, "program", where=RUN)).description(
                "Cores that each program of the local world uses with all its descendants: services, sender, "
                "controller, Spark with its JVM, replicas; those of functions are the gateway's. Empty on a cluster."
            ),
            lines(
                "Memory", BYTES, short(newest("process_resident_memory_bytes", "process", where=RUN_OR_NONE))
            ).description("Resident memory. A line that only rises is a leak."),
            lines(
                "Time of a scrape", SECONDS, short(newest("scrape_duration_seconds", "process", where=RUN_OR_NONE))
            ).description("Duration of a scrape of a process; it times out at 1 s."),
        ],
    },
)
