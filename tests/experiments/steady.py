"""The experiment that tests of several rooms play."""

from experiments.experiment import Experiment

STEADY = Experiment(
    name="steady",
    title="A constant rate, for tests",
    paper="none",
    workload="constant:rate_per_s=60,duration_s=60",
    seconds=60,
    arrivals="uniform",
    common={"hold_s": 3.0},
    max_replicas=3,
)
