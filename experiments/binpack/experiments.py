"""Experiments of the bin-pack paper (Ezzeddine, Baude, Huet, CLOSER 2024), with what it printed.

Fixed beforehand: bursts at the start of each second (the authors' producer), the controller's tick 0.10 s after them
and a hold of strictly more than 10 s after a scale action (readings B13, B17; Algorithm 2's cost depends on both).
"""

from experiments.experiment import Experiment
from penstock.runspec import WorkerSpec

PAPER = "Ezzeddine, Baude, Huet: CLOSER 2024, doi 10.5220/0012630100003711"

PAPER_WORKER = WorkerSpec(service_time_s=0.005, heartbeat_s=0.5, session_timeout_s=3.0)
FIDELITY = {"hold_s": 10.0, "f_up": 0.9, "f_down": 0.4, "rebalance_time_s": 0.05, "decision_interval_s": 1.0}
SHADOWS = ("binpack", "binpack-tail", "least-loaded", "linear", "overprovision")
SKEW_9 = (0.25, 0.25, *(0.5 / 7,) * 7)

EXPERIMENTS = (
    Experiment(
        name="binpack-workload-1",
        title="Workload 1: ten minutes, peak 349 events/s, 5 partitions",
        paper=PAPER,
        workload="binpack-workload-1",
        seconds=600,
        worker=PAPER_WORKER,
        common=FIDELITY,
        shadows=SHADOWS,
        printed={
            "binpack-tail": {"slo_share": 0.974, "replica_minutes": 30.21, "ups": 6, "downs": 6},
            "linear": {"slo_share": 0.947, "replica_minutes": 25.5, "ups": 6, "downs": 6},
            "optimal": {"slo_share": 1.0, "replica_minutes": 32.7, "ups": 6, "downs": 6},
            "overprovision": {"slo_share": 1.0, "replica_minutes": 50, "ups": 0, "downs": 0},
        },
    ),
    Experiment(
        name="binpack-workload-1-skewed",
        title="Workload 1 with half of the rate on two of 9 partitions",
        paper=PAPER,
        workload="binpack-workload-1",
        seconds=600,
        partitions=9,
        partition_weights=SKEW_9,
        max_replicas=9,
        worker=PAPER_WORKER,
        common=FIDELITY,
        shadows=SHADOWS,
        printed={
            "binpack-tail": {"slo_share": 0.989, "replica_minutes": 29.8},
            "linear": {"slo_share": 0.847, "replica_minutes": 25.5},
        },
    ),
    Experiment(
        name="binpack-nyc",
        title="NYC taxi, January 2013, 40 times as fast: two hours, peak 364 events/s, 5 partitions",
        paper=PAPER,
        workload="nyc-taxi",
        seconds=7207,
        worker=PAPER_WORKER,
        common=FIDELITY,
        shadows=SHADOWS,
        printed={
            "binpack-tail": {"slo_share": 0.989, "replica_minutes": 402.9, "ups": 20, "downs": 16},
            "linear": {"slo_share": 0.954, "replica_minutes": 325.7, "ups": 23, "downs": 20},
            "optimal": {"slo_share": 1.0, "replica_minutes": 414.11, "ups": 20, "downs": 16},
            "overprovision": {"slo_share": 1.0, "replica_minutes": 600, "ups": 0, "downs": 0},
        },
    ),
    Experiment(
        name="binpack-nyc-skewed",
        title="NYC taxi with half of the rate on two of 9 partitions",
        paper=PAPER,
        workload="nyc-taxi",
        seconds=7207,
        partitions=9,
        partition_weights=SKEW_9,
        max_replicas=9,
        worker=PAPER_WORKER,
        common=FIDELITY,
        shadows=SHADOWS,
        printed={
            "binpack-tail": {"slo_share": 0.9908, "replica_minutes": 392.15},
            "linear": {"slo_share": 0.859, "replica_minutes": 329.7},
        },
    ),
)
