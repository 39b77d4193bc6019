"""Experiments of Elastic Multi-M/M/s/K (Kathirvel, Parasuraman, 2019), with one second as its unit of time.

Fixed beforehand: λ, μ, K and containers in the paper's literal numbers (reading Q2), Poisson arrivals, exponential
service, events lost where the routing sent them (as in its tables), one container more per second up to ten. With the
printed maxPk = .7 and minPk = .4 Algorithm 1 never goes from Table 1 to Table 2: P_K is .5 when all ten containers are
there. The story of the tables therefore runs with maxPk = .45 and minPk = .01; the printed constants run
at λ = 400, where they do act. Two more: a load for four queues, and one that falls.
"""

import dataclasses

import msgspec

from experiments.experiment import Experiment
from penstock.runspec import WorkerSpec
from penstock.systems import QueueSystem

PAPER = "Kathirvel, Parasuraman: Elastic Multi-M/M/s/K, manuscript of 30 December 2019"

SERVICE_RATE_PER_S = 10.0
CAPACITY = 50
MOST_CONTAINERS = 10

BANK = QueueSystem(
    service_rate_per_s=SERVICE_RATE_PER_S,
    capacity=CAPACITY,
    when_full="drop",
    max_containers=MOST_CONTAINERS,
    ramp_s=1.0,
    pool_initial=2,
)
"""A container at once and one more every second: s = min(time, 10), where the paper's time 1 is our first second."""

STORY = {"max_p_k": 0.45, "min_p_k": 0.01}
PRINTED = {"max_p_k": 0.7, "min_p_k": 0.4}


def _experiment(name: str, title: str, workload: str, limits: dict[str, float], max_replicas: int = 6) -> Experiment:
    return Experiment(
        name=name,
        title=title,
        paper=PAPER,
        workload=f"{workload},duration_s=120",
        seconds=120,
        arrivals="poisson",
        partitions=1,
        slo_s=0.5,
        system=BANK,
        # Service times are the system's own.
        worker=WorkerSpec(service_time_s=0.0),
        tick_phase_s=0.0,
        max_replicas=max_replicas,
        common={
            **limits,
            "min_arrival_rate_per_s": 100.0,
            "service_rate_per_s": SERVICE_RATE_PER_S,
            "max_servers": MOST_CONTAINERS,
            "capacity": CAPACITY,
        },
    )


EXPERIMENTS = (
    _experiment(
        "multiqueue",
        "200 events/s, from one queue (Table 1) to two (Table 2): maxPk .45, minPk .01",
        "poisson:rate_per_s=200",
        STORY,
    ),
    _experiment(
        "multiqueue-printed",
        "400 events/s with the printed maxPk .7 and minPk .4",
        "poisson:rate_per_s=400",
        PRINTED,
    ),
    _experiment(
        "multiqueue-more",
        "400 events/s, a load for four queues of up to ten: maxPk .45, minPk .01",
        "poisson:rate_per_s=400",
        STORY,
        max_replicas=10,
    ),
    _experiment(
        "multiqueue-falling",
        "200 events/s, after a minute 40: maxPk .45, minPk .01",
        "step:before_per_s=200,after_per_s=40,at_s=60",
        STORY,
    ),
)


CONTAINERS = dataclasses.replace(
    EXPERIMENTS[0],
    name="multiqueue-containers",
    title="One queue of 80 events/s, a minute on and 30 s off; its containers follow the load, down to none",
    workload="on-off:on_per_s=80,on_s=60,off_s=30,duration_s=180",
    seconds=180,
    system=msgspec.structs.replace(BANK, scaled="containers"),
    max_replicas=MOST_CONTAINERS,
    common={"max_containers": MOST_CONTAINERS, "min_containers": 0, "ramp_s": 1.0, "idle_s": 2.0},
)
"""Figure 2a and scenario 1, for ``provider-ramp``. Not in the catalogue: no scaler of the paper acts in it."""


def mmsk_experiment(rate_per_s: float, seconds: float, **system: object) -> Experiment:
    """The queue of the tables at a constant rate, with changes of its system."""
    return dataclasses.replace(
        EXPERIMENTS[0],
        workload=f"poisson:rate_per_s={rate_per_s:g},duration_s={seconds:g}",
        seconds=seconds,
        system=msgspec.structs.replace(BANK, **system),
        max_replicas=100,
    )
