"""Experiments of AMESoS (Tsenos, Peri, Kalogeraki, DEBS 2022): three pipelines of functions, each with its deadline.

Fixed beforehand: rates are ours (the figure's axes cannot be read), Poisson arrivals in each second; functions of a
pipeline take equal times (reading A10), along a way through the matrix pipeline they add up to Table 1's execution
time; a container starts in one second; one replica of each function at the start; no cap but 100 replicas a function.
Laxity thresholds are in the assignment that is coherent (reading A9).
"""

from collections.abc import Mapping

from controller.scalers.amesos import THRESHOLDS_S
from experiments.experiment import Experiment
from penstock.contracts import FunctionObservation
from penstock.runspec import WorkerSpec
from penstock.systems import FunctionSpec, FunctionSystem
from producers.workloads.azure import Pipeline

PAPER = "Tsenos, Peri, Kalogeraki: DEBS 2022, doi 10.1145/3524860.3539642"

COLD_START_S = 1.0

DOCUMENT = FunctionSystem(
    functions=(
        FunctionSpec(name="sha256", service_time_s=0.0125),
        FunctionSpec(name="qrcode", service_time_s=0.0125, after=("sha256",)),
        FunctionSpec(name="pdf", service_time_s=0.0125, after=("qrcode",)),
        FunctionSpec(name="store", service_time_s=0.0125, after=("pdf",)),
    ),
    deadline_s=0.5,
    cold_start_s=COLD_START_S,
)
"""Table 1: four functions, 50 ms, deadline 500 ms."""

SYNTHETIC = FunctionSystem(
    functions=(
        FunctionSpec(name="encrypt", service_time_s=0.7 / 3),
        FunctionSpec(name="decrypt", service_time_s=0.7 / 3, after=("encrypt",)),
        FunctionSpec(name="verify", service_time_s=0.7 / 3, after=("decrypt",)),
    ),
    deadline_s=1.5,
    cold_start_s=COLD_START_S,
)
"""Table 1: three functions (AES), 700 ms, deadline 1500 ms."""

MATRIX = FunctionSystem(
    functions=(
        FunctionSpec(name="split", service_time_s=0.325),
        FunctionSpec(name="left-multiply", service_time_s=0.325, after=("split",)),
        FunctionSpec(name="left-reduce", service_time_s=0.325, after=("left-multiply",)),
        FunctionSpec(name="right-multiply", service_time_s=0.325, after=("split",)),
        FunctionSpec(name="right-reduce", service_time_s=0.325, after=("right-multiply",)),
        FunctionSpec(name="merge", service_time_s=0.325, after=("left-reduce", "right-reduce")),
    ),
    deadline_s=3.5,
    cold_start_s=COLD_START_S,
)
"""Table 1: six functions, two branches and a merge, 1300 ms from the first to the last, deadline 3500 ms."""

PIPELINES: Mapping[Pipeline, FunctionSystem] = {"document": DOCUMENT, "synthetic": SYNTHETIC, "matrix": MATRIX}

NAMES: Mapping[Pipeline, str] = {
    "document": "amesos-document",
    "synthetic": "amesos-aes",  # for what it does
    "matrix": "amesos-matrix",
}

TITLES: Mapping[Pipeline, str] = {
    "document": "Document creation: four functions of 12.5 ms, deadline 500 ms, up to 150 requests/s",
    "synthetic": "Synthetic (AES): three functions of 233 ms, deadline 1500 ms, up to 25 requests/s",
    "matrix": "Matrix multiplications: six functions of 325 ms, two branches, deadline 3500 ms, up to 25 requests/s",
}


def _experiment(pipeline: Pipeline) -> Experiment:
    system = PIPELINES[pipeline]
    return Experiment(
        name=NAMES[pipeline],
        title=TITLES[pipeline],
        paper=PAPER,
        workload=f"amesos:pipeline={pipeline}",
        seconds=480,
        arrivals="poisson",
        partitions=1,
        slo_s=system.deadline_s,
        fleets=FunctionObservation,
        system=system,
        pipeline=pipeline,
        # Service times are the functions' own.
        worker=WorkerSpec(service_time_s=0.0),
        tick_phase_s=0.0,
        max_replicas=100,
        # Given and not left to the pipeline's name, so that ``--speed`` is applied to it.
        common={"threshold_s": THRESHOLDS_S["coherent"][pipeline]},
    )


EXPERIMENTS = tuple(_experiment(pipeline) for pipeline in PIPELINES)
