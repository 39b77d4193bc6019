"""Experiments of AMESoS (Tsenos, Peri, Kalogeraki, DEBS 2022): three pipelines of functions, each with its deadline.

Fixed beforehand: rates are ours (the figure's axes cannot be read), Poisson arrivals in each second; functions of a
pipeline take equal times (reading A10), along a way through the matrix pipeline they add up to Table 1's execution
time; a container starts in one second; one replica of each function at the start; no cap but 100 replicas a function.
Laxity thresholds are in the assignment that is coherent (reading A9).
"""

from collections.abc import Mapping

from controller.scalers.amesos import THRESHOLDS_S
from experiments.experiment import Experiment
from penstock.runspec import WorkerSpec
from penstock.systems import FunctionSpec, FunctionSystem
from producers.workloads.azure import Pipeline

COLD_START_S = 1.0


def _chain(service_time_s: float, *names: str, after: tuple[str, ...] = ()) -> tuple[FunctionSpec, ...]:
    """Functions one after the other."""
    before = (after, *((name,) for name in names))
    return tuple(
        FunctionSpec(name=name, service_time_s=service_time_s, after=previous)
        for name, previous in zip(names, before, strict=False)
    )


DOCUMENT = FunctionSystem(
    functions=_chain(0.0125, "sha256", "qrcode", "pdf", "store"), deadline_s=0.5, cold_start_s=COLD_START_S
)
"""Table 1: four functions, 50 ms, deadline 500 ms."""

SYNTHETIC = FunctionSystem(
    functions=_chain(0.7 / 3, "encrypt", "decrypt", "verify"), deadline_s=1.5, cold_start_s=COLD_START_S
)
"""Table 1: three functions (AES), 700 ms, deadline 1500 ms."""

MATRIX = FunctionSystem(
    functions=(
        *_chain(0.325, "split", "left-multiply", "left-reduce"),
        *_chain(0.325, "right-multiply", "right-reduce", after=("split",)),
        *_chain(0.325, "merge", after=("left-reduce", "right-reduce")),
    ),
    deadline_s=3.5,
    cold_start_s=COLD_START_S,
)
"""Table 1: six functions, two branches and a merge, 1300 ms from the first to the last, deadline 3500 ms."""

PIPELINES: Mapping[Pipeline, FunctionSystem] = {"document": DOCUMENT, "synthetic": SYNTHETIC, "matrix": MATRIX}


def _experiment(name: str, pipeline: Pipeline, title: str) -> Experiment:
    system = PIPELINES[pipeline]
    return Experiment(
        name=name,
        title=title,
        paper="Tsenos, Peri, Kalogeraki: DEBS 2022, doi 10.1145/3524860.3539642",
        workload=f"amesos:pipeline={pipeline}",
        seconds=480,
        arrivals="poisson",
        partitions=1,
        slo_s=system.deadline_s,
        system=system,
        pipeline=pipeline,
        # Service times are the functions' own.
        worker=WorkerSpec(service_time_s=0.0),
        tick_phase_s=0.0,
        max_replicas=100,
        # Given and not left to the pipeline's name, so that ``--speed`` is applied to it.
        common={"threshold_s": THRESHOLDS_S["coherent"][pipeline]},
    )


EXPERIMENTS = (
    _experiment(
        "amesos-document",
        "document",
        "Document creation: four functions of 12.5 ms, deadline 500 ms, up to 150 requests/s",
    ),
    _experiment(
        "amesos-aes",  # for what it does
        "synthetic",
        "Synthetic (AES): three functions of 233 ms, deadline 1500 ms, up to 25 requests/s",
    ),
    _experiment(
        "amesos-matrix",
        "matrix",
        "Matrix multiplications: six functions of 325 ms, two branches, deadline 3500 ms, up to 25 requests/s",
    ),
)
