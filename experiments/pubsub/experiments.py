"""Experiments of elastic pub/sub (Nguyen, Nahrstedt, extended version): three job types on four topics.

The paper's rates are per minute; here they are per second, as everywhere. Interarrival and service times are
gamma-distributed with the printed squared coefficients of variation. Every experiment begins with one consumer of each
topic. Fixed beforehand, since the paper has no values: the monitor's window, 10 minutes; a rescheduling when the
measured mean response time is above the limit, looked at every 30 s. In ``pubsub``, where all scalers meet, it is
looked at every five minutes, and not again before the window has nothing of the allocation before: Random draws anew
each time.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.experiment import Experiment
from penstock.runspec import WorkerSpec
from penstock.systems import JobSpec, NetworkSystem, TopicSpec

PAPER = "Nguyen, Nahrstedt: Elastic pub/sub, extended version"

MINUTE_S = 60.0

TOPICS = (
    TopicSpec(topic="A", service_rate_per_s=4.2 / MINUTE_S, service_scv=0.33),
    TopicSpec(topic="B", service_rate_per_s=3.7 / MINUTE_S, service_scv=0.5),
    TopicSpec(topic="C", service_rate_per_s=6.7 / MINUTE_S, service_scv=0.4),
    TopicSpec(topic="D", service_rate_per_s=5.1 / MINUTE_S, service_scv=0.5),
)
"""Figure 3a: unpack, metadata, image, classify and predict."""

KNOWN: Mapping[str, Any] = {
    "service_rates_per_s": {topic.topic: topic.service_rate_per_s for topic in TOPICS},
    "service_scvs": {topic.topic: topic.service_scv for topic in TOPICS},
}
"""What the paper's scheduler knows beforehand; the arrivals it has to estimate."""

ROUTES = (("1", ("A", "B", "D"), 0.33), ("2", ("A", "D", "D"), 0.5), ("3", ("C", "D"), 0.25))
"""Figure 3b, reading P1: job, route, scv of the interarrival times."""

LOW_PER_MIN, MIDDLE_PER_MIN, HIGH_PER_MIN = (0.5, 1.0, 0.5), (2.0, 2.5, 2.0), (3.0, 3.5, 3.0)

BUDGET = 5
"""M, consumers beyond one of each topic; MinCost needs as many at the high rates."""

LIMIT_S = 50.0
"""T of experiment E."""

WINDOW_S = 600.0
"""The monitor's sliding window."""

DYNAMIC_CHANGE_S = 1800.0
DYNAMIC_S = 3320.0
"""Experiment F has 300 requests, the first fifth at the low rates. Read as one change for all job types: 60 requests at
2 a minute take 30 minutes, 240 at 9.5 a minute 25.3 more. (A change for each type at its own 20th request would leave
the high rates together for less than three minutes.)"""


def network(rates_per_min: Sequence[float], then_per_min: Sequence[float] | None = None) -> NetworkSystem:
    """The network at these rates, and at others from ``DYNAMIC_CHANGE_S`` on."""
    then: Sequence[float | None] = then_per_min or [None] * len(rates_per_min)
    return NetworkSystem(
        topics=TOPICS,
        jobs=tuple(
            JobSpec(
                job=job,
                route=route,
                arrival_rate_per_s=rate / MINUTE_S,
                arrival_scv=scv,
                phases=() if after is None else ((DYNAMIC_CHANGE_S, after / MINUTE_S),),
            )
            for (job, route, scv), rate, after in zip(ROUTES, rates_per_min, then, strict=True)
        ),
        start_up_s=0.0,
        window_s=WINDOW_S,
    )


def _experiment(
    name: str, title: str, seconds: float, system: NetworkSystem, limit_s: float, **tuning: float
) -> Experiment:
    return Experiment(
        name=name,
        title=title,
        paper=PAPER,
        workload="jobs",
        seconds=seconds,
        partitions=len(ROUTES),
        slo_s=limit_s,
        system=system,
        pipeline="pubsub",
        # Service times are the topics' own.
        worker=WorkerSpec(service_time_s=0.0),
        tick_phase_s=0.0,
        max_replicas=20,
        common={"budget": BUDGET, "response_limit_s": limit_s, "timer_s": None, **KNOWN},
        tuning={"Nguyen, Nahrstedt": tuning},
    )


EXPERIMENTS = (
    _experiment(
        "pubsub",
        "Rates 3.0, 3.5, 3.0 a minute: five more consumers (MinTime, Random), or a mean response of 50 s (MinCost)",
        3600.0,
        network(HIGH_PER_MIN),
        LIMIT_S,
        decision_interval_s=300.0,
        stabilisation_s=WINDOW_S,
    ),
    _experiment(
        "pubsub-growing",
        "Experiment C, one of its rates: 1.0 a minute of each type, one consumer each (nothing passes the limit)",
        7200.0,
        network((1.0, 1.0, 1.0)),
        600.0,
    ),
    _experiment(
        "pubsub-mintime",
        "Experiment D: rates 2.0, 2.5, 2.0 a minute, five more consumers",
        3600.0,
        network(MIDDLE_PER_MIN),
        60.0,
    ),
    _experiment(
        "pubsub-mincost",
        "Experiment E: rates 3.0, 3.5, 3.0 a minute, mean response of 50 s at most",
        3600.0,
        network(HIGH_PER_MIN),
        LIMIT_S,
    ),
    _experiment(
        "pubsub-dynamic",
        "Experiment F: rates 0.5, 1.0, 0.5 a minute, after 30 minutes 3.0, 3.5, 3.0",
        DYNAMIC_S,
        network(LOW_PER_MIN, HIGH_PER_MIN),
        100.0,
    ),
)
