"""Experiments of the bin-pack paper (Ezzeddine, Baude, Huet, CLOSER 2024), with what it printed.

Fixed beforehand: bursts at the start of each second (the authors' producer), the controller's tick 0.10 s after them
and a hold of strictly more than 10 s after a scale action (readings B13, B17; Algorithm 2's cost depends on both).
"""

from dataclasses import replace
from typing import Any, Final

from experiments.experiment import Experiment
from experiments.paper import printed_values
from penstock.runspec import WorkerSpec

TUNING = {"Ezzeddine, Baude, Huet": {"hold_s": 10.0, "f_up": 0.9, "f_down": 0.4, "decision_interval_s": 1.0}}
"""Of the paper's own scalers; every other one keeps its own defaults."""
PRINTED: Final = printed_values(__file__)
"""Tables 2 and 3 and the runs with skew; section 5 on workload 1 by ``rebalance_time_s`` (t_r; the text also has
85.6 %); section 5.2, and Tables 2 and 3 for 3 s, by ``heartbeat_s``.
"""


def printed(
    experiment: str, rebalance_time_s: float | None = None, heartbeat_s: float | None = None
) -> dict[str, dict[str, Any]]:
    """What the paper printed of an experiment, by scaler and measure."""
    changes = {"rebalance_time_s": rebalance_time_s, "heartbeat_s": heartbeat_s}
    return {
        row["scaler"]: {name: value for name, value in row.items() if name not in ("experiment", "scaler", *changes)}
        for row in PRINTED
        if row["experiment"] == experiment and all(row.get(name) == value for name, value in changes.items())
    }


WORKLOAD_1 = Experiment(
    name="binpack-workload-1",
    title="Workload 1: ten minutes, peak 349 events/s, 5 partitions",
    paper="Ezzeddine, Baude, Huet: CLOSER 2024, doi 10.5220/0012630100003711",
    workload="binpack-workload-1",
    seconds=600,
    worker=WorkerSpec(service_time_s=0.005, heartbeat_s=0.5, session_timeout_s=3.0),
    tuning=TUNING,
    shadows=("binpack", "binpack-tail", "least-loaded", "linear", "overprovision"),
    printed=printed("binpack-workload-1"),
)
NYC = replace(
    WORKLOAD_1,
    name="binpack-nyc",
    title="NYC taxi, January 2013, 40 times as fast: two hours, peak 364 events/s, 5 partitions",
    workload="nyc-taxi",
    seconds=7207,
    printed=printed("binpack-nyc"),
)


def _skewed(experiment: Experiment, title: str) -> Experiment:
    """With half of the rate on two of 9 partitions."""
    name, weights = f"{experiment.name}-skewed", (0.25, 0.25, *(0.5 / 7,) * 7)
    return replace(
        experiment,
        name=name,
        title=f"{title} with half of the rate on two of 9 partitions",
        partitions=9,
        partition_weights=weights,
        max_replicas=9,
        printed=printed(name),
    )


EXPERIMENTS = (WORKLOAD_1, _skewed(WORKLOAD_1, "Workload 1"), NYC, _skewed(NYC, "NYC taxi"))
