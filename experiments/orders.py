"""Which of two scalers one run can be expected to rank first: twenty seeds of every ranking of ``fidelity.csv``.

Both scalers serve the same events with each seed. ``penstock paper fidelity orders --out FOLDER`` simulates them under
the conditions of the live runs and writes what ``fidelity_orders.csv`` keeps.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import numpy as np

from experiments.amesos.figures import BY_PIPELINE
from experiments.amesos.live import MEASURES, Figures
from experiments.binpack.live import COMPARED, LIVE, LiveRun, twin
from experiments.elastic_faas import tables as elastic_faas
from experiments.experiment import Options
from experiments.multiqueue import tables as multiqueue
from experiments.paper import TWENTY, Cells, Request
from experiments.processes import Remembered
from experiments.ranking import EQUAL, compare
from experiments.run_result import simulate
from producers.workloads.azure import Pipeline

Measured = Mapping[str, float | None]
"""A run's measures by their names in ``fidelity.csv``."""
Of = Callable[[int], Measured]
"""The run of a seed."""

# --- runs of each paper ----------------------------------------------------------------------------------------------

SLICE: Final[Mapping[str, Any]] = {"from_s": 300.0, "seconds": 150.0, "initial_replicas": 2}
SLOWED: Final[Mapping[str, Any]] = {"from_s": 330.0, "seconds": 40.0, "initial_replicas": 1, "speed": 0.267}
AMESOS: Final[Mapping[str, tuple[Pipeline, float, Mapping[str, Any]]]] = {
    "Document, at most 40 requests/s, seconds 0–480": ("document", 0.0017, {"workload": {"scale": "0.267"}}),
    "AES, seconds 0–480": ("synthetic", 0.0029, {}),
    "Matrix, seconds 0–480": ("matrix", 0.0027, {}),
    "Document, seconds 330–370 slowed to 150 s, one replica of each function at the start": (
        "document", 0.00048, SLOWED,
    ),
    "AES, seconds 300–450": ("synthetic", 0.0017, SLICE),
    "Matrix, seconds 300–450": ("matrix", 0.0019, SLICE),
}  # fmt: skip
"""Pipeline, time that a call adds, and options of each case."""
AMESOS_SCALERS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "amesos": ("amesos", {}),
    "rps at 0.7 μ": ("rps", {"rho": "0.7"}),
    "dwp": ("dwp", {}),
    "lass": ("lass", {}),
}


@Remembered
def amesos(case: str, scaler: str, seed: int) -> Measured:
    """A run of a pipeline."""
    pipeline, call_s, options = AMESOS[case]
    name, parameters = AMESOS_SCALERS[scaler]
    experiment = BY_PIPELINE[pipeline]
    settings, system = {name: dict(parameters)}, {"call_s": str(call_s)}
    played = simulate(experiment, name, Options(world="sim", seed=seed, settings=settings, system=system, **options))
    _, response_s = played.responses()
    found = Figures(
        requests=len(response_s),
        missed=int((response_s > experiment.slo_s).sum()),
        peak_queue=float(played.waiting(np.arange(played.duration_s + 1)).max()),
        replica_s=60 * played.replica_minutes(),
        **dict(zip(("p50_s", "p95_s", "p99_s"), np.percentile(response_s, (50, 95, 99)).tolist(), strict=True)),
    )
    return {measure.title + (", ms" if measure.unit else ""): measure.of(found) for measure in MEASURES}


@Remembered
def elastic(scaler: str, seed: int) -> Measured:
    """A run of the story of Elastic-FaaS."""
    name, parameters = elastic_faas.CASES[scaler]
    found = elastic_faas.outcome(elastic_faas.run_experiment(name, seed, **parameters), name, scaler)
    return {title: found[field] for title, field in ELASTIC.items()}


ELASTIC: Final = {
    "shed": "shed", "last shed, s": "last_shed_s", "share within the SLO": "slo_share",
    "mean latency, s": "mean_latency_s", "30 containers, s": "thirty_containers_s",
    "container-minutes": "container_minutes",
}  # fmt: skip


@Remembered
def queues(experiment: str, scaler: str, seed: int) -> Measured:
    """A run of the story of Elastic Multi-M/M/s/K."""
    found = multiqueue.outcome(multiqueue.run_experiment(experiment, scaler, seed), scaler)
    return {title: found[field] for title, field in MULTIQUEUE.items()}


MULTIQUEUE: Final = {
    "lost": "lost_share", "lost in the second half": "late_lost_share", "mean latency, s": "mean_latency_s",
    "container-minutes": "container_minutes",
}  # fmt: skip


def consumer_group(run: LiveRun, seed: int) -> Measured:
    """A simulation of a live run of bin-pack."""
    assert run.service_ms is not None
    measures = twin(run.conditions, run.service_ms, seed)
    return {shown.title: shown.of(measures) for shown in COMPARED[:-1]}


def cases() -> Iterator[tuple[str, str, Mapping[str, Of]]]:
    """Paper, case, and how the runs of each scaler are made; of the cases with several scalers."""
    for case in AMESOS:
        yield "amesos", case, {scaler: _of(amesos, case, scaler) for scaler in AMESOS_SCALERS}
    yield "elastic-faas", "the story, speed 0.5", {scaler: _of(elastic, scaler) for scaler in elastic_faas.CASES}
    for experiment in ("multiqueue", "multiqueue-printed"):
        yield (
            "multiqueue",
            f"the story, {experiment}",
            {scaler: _of(queues, experiment, scaler) for scaler in multiqueue.SCALERS},
        )
    groups: dict[str, dict[str, Of]] = {}
    for run in LIVE:
        if run.service_ms is not None:
            groups.setdefault(run.conditions.label, {}).setdefault(run.conditions.scaler, _of(consumer_group, run))
    for case, runs in groups.items():
        if len(runs) > 1:
            yield "binpack", case, runs


def _of(function: Callable[..., Measured], *first: Any) -> Of:
    return lambda seed: function(*first, seed)


# --- orders ----------------------------------------------------------------------------------------------------------


def order_rows(request: Request, seeds: Sequence[int] = TWENTY) -> Iterator[Cells]:
    """Of each two scalers in each measure of each case: in how many runs the first is lower, and the second, by more
    than the share ``EQUAL``.
    """
    for paper, case, runs in request.each(list(cases()), lambda each: f"{each[0]}, {each[1]}"):
        found = {scaler: [run(seed) for seed in seeds] for scaler, run in runs.items()}
        measures = next(iter(found.values()))[0]
        for measure in measures:
            for (first, ours), (second, theirs) in combinations(found.items(), 2):
                both = [(a[measure], b[measure]) for a, b in zip(ours, theirs, strict=True)]
                signs = [compare(a, b, EQUAL) for a, b in both if a is not None and b is not None]
                yield {
                    "paper": paper,
                    "case": case,
                    "measure": measure,
                    "first": first,
                    "second": second,
                    "seeds": len(both),
                    "first lower": signs.count(-1),
                    "second lower": signs.count(1),
                }
