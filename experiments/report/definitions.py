"""Each measure of the report in a sentence."""

DEFINITIONS = {
    "latency": (
        "From the moment at which the schedule wanted the event to be sent to the end of its service, so that a late "
        "sender or a full queue cannot hide. The earliest terminal result counts."
    ),
    "within SLO": (
        "Share of acknowledged events whose latency was at most the SLO. Lost and failed events are misses."
    ),
    "p50, p95, p99": (
        "Nearest-rank percentiles over all completed events of the run, from raw results; never an average of "
        "percentiles. Figures per second that Spark computed are upper bounds of log buckets 1 % wide."
    ),
    "send delay": "From the intended moment of sending to the moment at which the sender handed the event over.",
    "queueing": "From sending to the start of the service: the way through the broker and the wait in its partition.",
    "service": "From the start of the service to its end.",
    "lag": "Events of a partition behind the last one that its consumer committed.",
    "replica-minutes": "Sum over all replicas of the time from requested to gone, within the duration of the schedule.",
    "ups, downs": "Decisions to scale that were carried out; in brackets the replicas that they added or removed.",
    "rebalances": "How often the consumer group handed out its partitions again after the start of the run.",
    "cost": "Replica time at the given price per replica-hour, in the currency of that price.",
    "tick phase": (
        "When the controller looked at the system, counted from each whole second of the run. It matters when arrivals "
        "come in bursts."
    ),
    "verdict": (
        "VALID: nothing but the scaler shaped the figures. DEGRADED: measured, but read the reasons first. INVALID: "
        "events do not add up or the load was not what the schedule says; do not use the figures."
    ),
}
