"""The experiment of Elastic-FaaS (Kathirvel, Parasuraman, IJITEE 8(10), 2019), with one second as its time unit.

Fixed beforehand; the paper prints none of these numbers (F13): a container handles one event per unit on average
(exponential, as in the same authors' other paper: equal times would let all containers end at the same instants); the
rate rises from 1 to 30 events per unit over 28 units and stays (``ramp.csv``); all functions take their events from one
queue, in which 300 may wait (what comes then is shed); a function has one container at first and one more every 2
units, 30 at most. L = PPT = 10 units, c = 1, SPc = 10 events. MNSP is 10 in the formula, since Table 1 wants three
functions for 30 containers. Live, with a time unit of 2 s: ``--speed 0.5``.
"""

from pathlib import Path

from experiments.experiment import Experiment
from penstock.runspec import WorkerSpec
from penstock.systems import QueueSystem

PAPER = "Kathirvel, Parasuraman: Elastic-FaaS, IJITEE 8(10), August 2019"

FUNCTIONS = QueueSystem(
    service_rate_per_s=1.0,
    forwarding="pull",
    capacity=None,
    main_capacity=300,
    max_containers=30,
    ramp_s=2.0,
    provision_s=10.0,
    pool_initial=0,
    when_removed="destroy",
)

EXPERIMENTS = (
    Experiment(
        name="elastic-faas",
        title="From 1 to 30 events a second in 28 s, functions that grow by a container every 2 s",
        paper=PAPER,
        workload=f"trace:path={Path(__file__).with_name('ramp.csv')}",
        seconds=120,
        arrivals="poisson",
        partitions=1,
        slo_s=10.0,
        system=FUNCTIONS,
        # Service times are the system's own.
        worker=WorkerSpec(service_time_s=0.0),
        tick_phase_s=0.0,
        max_replicas=10,
        common={
            "containers_per_iteration": 1.0,
            "max_containers": 10,
            "latency_s": 10.0,
            "provision_s": 10.0,
            "service_rate_per_s": 1.0,
        },
    ),
)
