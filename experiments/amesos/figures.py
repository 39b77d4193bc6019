"""The data of AMESoS' figures 4 to 12, simulated; ``penstock paper amesos`` lists the tables.

Figure 4 shows the rates, the others deadline misses, queue lengths and replicas over time for each pipeline and scaler.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import product
from typing import Annotated, Final, NamedTuple

import msgspec
import numpy as np

from controller.queueing.holt import Grid, grid_search
from controller.scalers.amesos import Thresholds
from controller.scalers.shared.amesos_epoch import EpochParameters
from experiments.amesos.experiments import COLD_START_S, EXPERIMENTS, PIPELINES
from experiments.experiment import Options
from experiments.paper import TWENTY, Cells, PaperTable, Request, Settings, median_range, printed_values
from experiments.processes import Remembered
from experiments.run_result import simulate as run_in_memory
from experiments.run_result import simulation
from penstock.clock import NANOS_PER_SECOND
from penstock.distributions import Floats
from penstock.systems import ServiceDistribution
from producers.workloads.azure import KNOT_S, KNOTS_PER_S, Pipeline

SCALERS: Final = ("amesos", "rps", "dwp", "lass")
VARIANTS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    **{scaler: (scaler, {}) for scaler in SCALERS},
    "rps at 0.9 μ": ("rps", {"rho": "0.9"}),
    "rps at 0.7 μ": ("rps", {"rho": "0.7"}),
    "lass-as-coded": ("lass-as-coded", {}),
    "amesos, literal percentile": ("amesos", {"direction": "literal"}),
    "amesos, sampled α and γ": ("amesos", {}),
}
"""The paper's scalers, and others by their difference: RPS whose target is below saturation (A18), LaSS as its authors'
code computes it, the 90th percentile in ascending order (A5), smoothing by the least error on a sample (H4).
"""
BY_PIPELINE: Final = dict(zip(PIPELINES, EXPERIMENTS, strict=True))
SAMPLE_SEED: Final = 1001
"""Of the arrivals whose rates give α and γ; no run has it."""
TENTHS: Final = tuple(tenth / 10 for tenth in range(11))
LONG_QUEUE: Final = 10
"""Requests; how long so many wait is a measure of how fast a queue is cleared."""

CLAIMS: Final = printed_values(__file__)
"""What the paper says of AMESoS, by measure, scaler that it is compared with, and pipeline. It prints no absolute
numbers. Each value comes from one of ``SENTENCES``.
"""
SENTENCES: Final = {row["sentence"]: row for row in printed_values(__file__, "sentences.csv")}
"""The sentences of section 6.3 in our own words, by name."""


class FunctionSeries(NamedTuple):
    """A function's first scale-up, and its queue and replicas at whole seconds."""

    first_up_s: float | None
    waiting: Floats
    replicas: Floats


class Run(NamedTuple):
    """One run: its measures and its series at whole seconds. ``queued_s``: seconds at which ``LONG_QUEUE`` requests
    wait.
    """

    pipeline: Pipeline
    scaler: str
    seed: int
    requests: int
    missed: int
    mean_waiting: float
    peak_waiting: float
    queued_s: int
    replica_minutes: float
    scale_actions: int
    series: tuple[Floats, Floats, Floats]
    functions: Mapping[str, FunctionSeries]


class AmesosSettings(Settings, frozen=True, kw_only=True):
    """``penstock paper amesos``. ``thresholds``: assignment of AMESoS' thresholds to the pipelines (reading A9)."""

    from_s: Annotated[float, msgspec.Meta(ge=0, description="First second of the workload.")] = 0.0
    seconds: Annotated[float, msgspec.Meta(gt=0, description="Length of each run.")] = 480.0
    cold_start_s: Annotated[float, msgspec.Meta(ge=0, description="Until a new replica serves.")] = COLD_START_S
    law: Annotated[ServiceDistribution, msgspec.Meta(description="Service times: deterministic, exponential.")] = (
        "deterministic"
    )
    thresholds: Annotated[Thresholds, msgspec.Meta(description="AMESoS: coherent, or as printed.")] = "coherent"
    seeds: tuple[int, ...] = TWENTY


@cache
def smoothing(pipeline: Pipeline) -> Grid:
    """α and γ of the least mean square error on the rates of a sample's epochs, in steps of a tenth."""
    sample = simulation(BY_PIPELINE[pipeline], "amesos", Options(world="sim", seed=SAMPLE_SEED))
    epoch_s = EpochParameters.decision_interval_s
    edges_s = np.arange(0, sample.spec.duration_s + epoch_s, epoch_s)
    arrived, _ = np.histogram(sample.schedule.intended_offset_ns / NANOS_PER_SECOND, edges_s)
    return grid_search((arrived / epoch_s).tolist(), TENTHS, TENTHS)


def _options(pipeline: Pipeline, variant: str, seed: int, settings: AmesosSettings) -> Options:
    scaler, own = VARIANTS[variant]
    if scaler == "amesos":
        own = {**own, "thresholds": settings.thresholds}
    if "sampled" in variant:
        found = smoothing(pipeline)
        own = {**own, "alpha": f"{found.alpha:g}", "gamma": f"{found.gamma:g}"}
    return Options(
        world="sim",
        seed=seed,
        from_s=settings.from_s,
        seconds=settings.seconds,
        system={"cold_start_s": str(settings.cold_start_s)},
        settings={scaler: dict(own)},
        initial_replicas=1,
    )


@Remembered
def simulate(pipeline: Pipeline, variant: str, seed: int, settings: AmesosSettings) -> Run:
    """One pipeline under one of ``VARIANTS``; tables share the run."""
    system = PIPELINES[pipeline]
    functions = tuple(msgspec.structs.replace(each, service_law=settings.law) for each in system.functions)
    experiment = dataclasses.replace(
        BY_PIPELINE[pipeline], system=msgspec.structs.replace(system, functions=functions), common={}
    )
    played = run_in_memory(experiment, VARIANTS[variant][0], _options(pipeline, variant, seed, settings))
    times_s = np.arange(played.duration_s + 1)
    _, response_s = played.responses()
    waiting = played.waiting(times_s)
    ups_ns: dict[str, int] = {}
    for event in played.events:
        if event.phase == "requested" and event.at_ns > 0:
            ups_ns.setdefault(event.fleet, event.at_ns)
    return Run(
        pipeline=pipeline,
        scaler=variant,
        seed=seed,
        requests=len(response_s),
        missed=int(np.count_nonzero(response_s > system.deadline_s + 1e-9)),
        mean_waiting=float(waiting.mean()),
        peak_waiting=float(waiting.max()),
        queued_s=int(np.count_nonzero(waiting >= LONG_QUEUE)),
        replica_minutes=played.replica_minutes(),
        scale_actions=sum(tick.accepted is not None for tick in played.ticks),
        series=(played.missed(times_s, system.deadline_s), waiting, played.replicas(times_s)),
        functions={
            name: FunctionSeries(
                ups_ns[name] / NANOS_PER_SECOND if name in ups_ns else None,
                played.waiting(times_s, name),
                played.replicas(times_s, name),
            )
            for name in (function.name for function in functions)
        },
    )


# --- tables ----------------------------------------------------------------------------------------------------------

MEASURES: Final = {
    "missed": 0, "mean_waiting": 1, "peak_waiting": 0, "queued_s": 0, "replica_minutes": 1, "scale_actions": 0,
}  # fmt: skip
"""With the digits of their medians."""


def rates() -> Iterator[Cells]:
    """Figure 4: the knots of the three rate curves."""
    for knot, at_knot in enumerate(zip(*(KNOTS_PER_S[pipeline] for pipeline in PIPELINES), strict=True)):
        curves = {f"{name}_per_s": float(rate) for name, rate in zip(PIPELINES, at_knot, strict=True)}
        yield {"time_s": knot * KNOT_S, **curves}


def repeated(request: Request, variants: Iterable[str] = SCALERS) -> Iterator[tuple[Cells, list[Run]]]:
    """The runs of every pipeline under every scaler, one for each seed."""
    for pipeline, scaler in request.each(product(PIPELINES, variants), ", ".join):
        runs = simulate.each((pipeline, scaler, seed, request.settings) for seed in request.settings.seeds)
        yield {"pipeline": pipeline, "scaler": scaler}, runs


def _seconds(case: Cells, titles: Iterable[str], *means: Floats) -> Iterator[Cells]:
    for second, values in enumerate(zip(*means, strict=True)):
        shown = (round(float(value), 3) for value in values)
        yield {**case, "time_s": second, **dict(zip(titles, shown, strict=True))}


def series(request: Request) -> Iterator[Cells]:
    """Means over the seeds at each second."""
    for case, runs in repeated(request):
        means = [np.mean([run.series[i] for run in runs], axis=0) for i in range(3)]
        yield from _seconds(case, ("missed", "waiting", "replicas"), *means)


def function_series(request: Request) -> Iterator[Cells]:
    """Queue and replicas of each function at each second, means over the seeds."""
    for case, runs in repeated(request):
        for name in runs[0].functions:
            both = ([getattr(run.functions[name], of) for run in runs] for of in ("waiting", "replicas"))
            means = (np.mean(some, axis=0) for some in both)
            yield from _seconds({**case, "function": name}, ("waiting", "replicas"), *means)


def functions(request: Request) -> Iterator[Cells]:
    """Of each function, medians and ranges over the seeds: its first scale-up, and its longest queue and when."""
    for case, runs in repeated(request):
        for name in runs[0].functions:
            some = [run.functions[name] for run in runs]
            yield {
                **case,
                "function": name,
                "first scale-up, s": median_range([each.first_up_s for each in some], 1),
                "longest queue": median_range([float(each.waiting.max()) for each in some], 0),
                "at s": median_range([float(each.waiting.argmax()) for each in some], 0),
            }


def first_ups(request: Request) -> Iterator[Cells]:
    """When a pipeline's first and last function are scaled up for the first time, and the time between."""
    for case, runs in repeated(request):
        ups_s = [[each.first_up_s for each in run.functions.values() if each.first_up_s is not None] for run in runs]
        ups_s = [some for some in ups_s if some]
        yield {
            **case,
            "first function, s": median_range([min(some) for some in ups_s], 1),
            "last function, s": median_range([max(some) for some in ups_s], 1),
            "between, s": median_range([max(some) - min(some) for some in ups_s], 1),
        }


def summaries(request: Request) -> Iterator[Cells]:
    """Medians and ranges over the seeds of each pipeline and scaler."""
    for case, runs in repeated(request, VARIANTS):
        yield {
            **case,
            "missed, %": median_range([100 * run.missed / run.requests for run in runs], 2),
            **{name: median_range([getattr(run, name) for run in runs], digits) for name, digits in MEASURES.items()},
        }


def claims(request: Request) -> Iterator[Cells]:
    """AMESoS against the others by medians over the seeds, and what the paper says."""
    fields = {"misses": "missed", "peak queue": "peak_waiting", "replica-minutes": "replica_minutes"}
    found = {(case["pipeline"], case["scaler"]): runs for case, runs in repeated(request, VARIANTS)}
    for measure, scaler, pipeline, printed, sentence in map(dict.values, CLAIMS):
        for rival, (name, _) in VARIANTS.items():
            if name == scaler:
                both = [[getattr(run, fields[measure]) for run in found[pipeline, each]] for each in ("amesos", rival)]
                yield {
                    "measure": measure,
                    "AMESoS against": rival,
                    "pipeline": pipeline,
                    "section": SENTENCES[sentence]["section"],
                    "printed": printed,
                    "obtained": change(*map(float, map(np.median, both))),
                    **dict(zip(("AMESoS", "other"), (median_range(values, 0) for values in both), strict=True)),
                }


def change(ours: float, theirs: float) -> str:
    """``ours`` against ``theirs`` in words."""
    if theirs == 0:
        return "both none" if ours == 0 else f"{round(ours, 1):g} against none"
    percent = 100 * (ours / theirs - 1)
    return f"{abs(percent):.0f} % {'more' if percent > 0 else 'fewer'}"


def run_cells(run: Run) -> Cells:
    """A run without its series."""
    return {name: value for name, value in run._asdict().items() if name not in ("series", "functions")}


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
        lambda request: (run for _, runs in repeated(request, VARIANTS) for run in runs),
        cells=run_cells,
    ),
    PaperTable(
        "figures5-10",
        "Figures 5 to 10: waiting requests and replicas of each function, means over the seeds",
        function_series,
        shown=lambda row: row["time_s"] % 120 == 0,
    ),
    PaperTable("functions", "Figures 5 to 10: first scale-up and longest queue of each function", functions),
    PaperTable("first-ups", "Figures 5 to 7: first scale-ups of the first and the last function", first_ups),
    PaperTable("summary", f"Figures 5 to 12: medians; queued_s: seconds with {LONG_QUEUE} waiting", summaries),
    PaperTable("claims", "AMESoS compared, by medians", claims),
)
