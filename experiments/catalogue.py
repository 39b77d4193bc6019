"""All experiments by name, collected from the papers' folders."""

from experiments.amesos.experiments import EXPERIMENTS as AMESOS
from experiments.binpack.experiments import EXPERIMENTS as BINPACK
from experiments.elastic_faas.experiments import EXPERIMENTS as ELASTIC_FAAS
from experiments.experiment import Experiment
from experiments.multiqueue.experiments import EXPERIMENTS as MULTIQUEUE
from experiments.pubsub.experiments import EXPERIMENTS as PUBSUB
from penstock.parameters import unknown

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (*BINPACK, *MULTIQUEUE, *ELASTIC_FAAS, *AMESOS, *PUBSUB)
}


def find_experiment(name: str) -> Experiment:
    """The experiment of that name. Raises PenstockError with the nearest names."""
    if name not in EXPERIMENTS:
        raise unknown("experiment", name, EXPERIMENTS, "see `penstock experiments`")
    return EXPERIMENTS[name]
