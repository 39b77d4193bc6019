"""All experiments by name, collected from the papers' folders."""

from experiments.binpack.experiments import EXPERIMENTS as BINPACK
from experiments.experiment import Experiment
from penstock.registry import unknown

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in (*BINPACK,)}


def find_experiment(name: str) -> Experiment:
    """The experiment of that name. Raises PenstockError with the nearest names."""
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS, "see `penstock experiments`")
    return EXPERIMENTS[name]
