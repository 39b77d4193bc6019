"""The data of AMESoS' figures 4 to 12, simulated; ``penstock paper amesos`` lists the tables.

Figure 4 shows the rates, the others deadline misses, queue lengths and replicas over time for each pipeline and scaler.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import product
from typing import Annotated, Final, NamedTuple

import msgspec
import numpy as np

from controller.scalers.amesos import Thresholds
from experiments.amesos.experiments import COLD_START_S, EXPERIMENTS, PIPELINES
from experiments.experiment import Options
from experiments.paper import Cells, PaperTable, Request, Settings, half_width, printed_values
from experiments.run_result import simulate as run_in_memory
from penstock.distributions import Floats
from penstock.systems import ServiceDistribution
from producers.workloads.azure import KNOT_S, KNOTS_PER_S, Pipeline

SCALERS: Final = ("amesos", "rps", "dwp", "lass")
BY_PIPELINE: Final = dict(zip(PIPELINES, EXPERIMENTS, strict=True))

CLAIMS: Final = printed_values(__file__)
"""What the paper says of AMESoS, by measure, scaler that it is compared with, and pipeline. It prints no absolute
numbers.
"""


class Run(NamedTuple):
    """One run: its measures and its series at whole seconds."""

    pipeline: Pipeline
    scaler: str
    seed: int
    requests: int
    missed: int
    mean_waiting: float
    peak_waiting: float
    replica_minutes: float
    scale_actions: int
    series: tuple[Floats, Floats, Floats]


class AmesosSettings(Settings, frozen=True, kw_only=True):
    """``penstock paper amesos``. ``thresholds``: assignment of AMESoS' thresholds to the pipelines (reading A9)."""

    from_s: Annotated[float, msgspec.Meta(ge=0, description="First second of the workload.")] = 0.0
    seconds: Annotated[float, msgspec.Meta(gt=0, description="Length of each run.")] = 480.0
    cold_start_s: Annotated[float, msgspec.Meta(ge=0, description="Until a new replica serves.")] = COLD_START_S
    law: Annotated[ServiceDistribution, msgspec.Meta(description="Service times: deterministic, exponential.")] = (
        "deterministic"
    )
    thresholds: Annotated[Thresholds, msgspec.Meta(description="AMESoS: coherent, or as printed.")] = "coherent"
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)


@cache
def simulate(pipeline: Pipeline, scaler: str, seed: int, settings: AmesosSettings) -> Run:
    """One pipeline under one scaler; tables share the run."""
    system = PIPELINES[pipeline]
    functions = tuple(msgspec.structs.replace(each, service_law=settings.law) for each in system.functions)
    experiment = dataclasses.replace(
        BY_PIPELINE[pipeline], system=msgspec.structs.replace(system, functions=functions), common={}
    )
    options = Options(
        world="sim",
        seed=seed,
        from_s=settings.from_s,
        seconds=settings.seconds,
        system={"cold_start_s": str(settings.cold_start_s)},
        settings={"amesos": {"thresholds": settings.thresholds}},
        initial_replicas=1,
    )
    played = run_in_memory(experiment, scaler, options)
    times_s = np.arange(played.duration_s + 1)
    _, response_s = played.responses()
    waiting = played.waiting(times_s)
    return Run(
        pipeline=pipeline,
        scaler=scaler,
        seed=seed,
        requests=len(response_s),
        missed=int(np.count_nonzero(response_s > system.deadline_s + 1e-9)),
        mean_waiting=float(waiting.mean()),
        peak_waiting=float(waiting.max()),
        replica_minutes=played.replica_minutes(),
        scale_actions=sum(tick.accepted is not None for tick in played.ticks),
        series=(played.missed(times_s, system.deadline_s), waiting, played.replicas(times_s)),
    )


# --- tables ----------------------------------------------------------------------------------------------------------

MEASURES: Final = ("requests", "missed", "mean_waiting", "peak_waiting", "replica_minutes", "scale_actions")


def rates() -> Iterator[Cells]:
    """Figure 4: the knots of the three rate curves."""
    for knot, at_knot in enumerate(zip(*(KNOTS_PER_S[pipeline] for pipeline in PIPELINES), strict=True)):
        curves = {f"{name}_per_s": float(rate) for name, rate in zip(PIPELINES, at_knot, strict=True)}
        yield {"time_s": knot * KNOT_S, **curves}


def repeated(request: Request) -> Iterator[tuple[Cells, list[Run]]]:
    """The runs of every pipeline under every scaler, one for each seed."""
    for pipeline, scaler in request.each(product(PIPELINES, SCALERS), ", ".join):
        runs = [simulate(pipeline, scaler, seed, request.settings) for seed in request.settings.seeds]
        yield {"pipeline": pipeline, "scaler": scaler}, runs


def series(request: Request) -> Iterator[Cells]:
    """Means over the seeds at each second."""
    for case, runs in repeated(request):
        means = [np.mean([run.series[i] for run in runs], axis=0) for i in range(3)]
        for second, values in enumerate(zip(*means, strict=True)):
            shown = (round(float(value), 3) for value in values)
            yield {**case, "time_s": second, **dict(zip(("missed", "waiting", "replicas"), shown, strict=True))}


def summaries(request: Request) -> Iterator[Cells]:
    """Means over the seeds of each pipeline and scaler; ``missed_half``: half of the share's 95 % interval."""
    for case, runs in repeated(request):
        shares = [run.missed / run.requests for run in runs]
        means = {name: float(np.mean([getattr(run, name) for run in runs])) for name in MEASURES}
        yield {
            **case,
            "requests": means.pop("requests"),
            "missed": means.pop("missed"),
            "missed_share": float(np.mean(shares)),
            "missed_half": float(half_width(shares)),
            **means,
        }


def claims(rows: Iterable[Cells]) -> Iterator[Cells]:
    """AMESoS against the others, and what the paper says."""
    fields = {"misses": "missed", "peak queue": "peak_waiting", "replica-minutes": "replica_minutes"}
    found = {(row["pipeline"], row["scaler"]): row for row in rows}
    for measure, rival, pipeline, printed in map(dict.values, CLAIMS):
        obtained = change(*(found[pipeline, scaler][fields[measure]] for scaler in ("amesos", rival)))
        yield {
            "measure": measure,
            "AMESoS against": rival,
            "pipeline": pipeline,
            "obtained": obtained,
            "printed": printed,
        }


def change(ours: float, theirs: float) -> str:
    """``ours`` against ``theirs`` in words."""
    if theirs == 0:
        return "both none" if ours == 0 else f"{round(ours, 1):g} against none"
    percent = 100 * (ours / theirs - 1)
    return f"{abs(percent):.0f} % {'more' if percent > 0 else 'fewer'}"


def run_cells(run: Run) -> Cells:
    """A run without its series."""
    return {name: value for name, value in run._asdict().items() if name != "series"}


TABLES: Final = (
    PaperTable("figure4", "Figure 4: rates", lambda _: rates()),
    PaperTable(
        "figures5-12",
        "Figures 5 to 12: misses so far, waiting requests and replicas, means over the seeds",
        series,
        shown=lambda row: row["time_s"] % 60 == 0,
    ),
    PaperTable(
        "runs",
        "Figures 5 to 12: every run",
        lambda request: (run for _, runs in repeated(request) for run in runs),
        cells=run_cells,
    ),
    PaperTable("summary", "Figures 5 to 12: means over the seeds", summaries),
    PaperTable("claims", "AMESoS compared", lambda request: claims(summaries(request))),
)
