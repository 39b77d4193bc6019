"""M/M/s/K in the steady state, live: ``penstock paper multiqueue steady --world local``.

Poisson arrivals pass through the forwarder to one sub-queue with s containers; what finds it full is dropped. The seven
measures of the paper's tables come from batch means: ``BATCHES`` batches of equal length after a warm-up, half-widths
of 95 % intervals.

Near full load the states of such a queue are correlated over seconds, so that an interval of 5 % takes hours of events
(P_K at K = 50, λ = 100: 5.7 hours; L: 22 minutes). But a live run and its simulation have the same arrivals and service
times, event by event. So the simulation of the same run is a control variate whose mean is known by the formula:
"controlled" is live - simulated + formula, batch by batch. The remainder is the effect of the machine on the queue,
within a much smaller interval. Near full load that is not little: a message is acknowledged some milliseconds after its
service, and occupies a place until then. At a quarter of the rates it is a quarter of that
(``--set points=near-full --speed 0.25 --seconds 360``).

Runs are kept: the same command makes the missing ones, or shows the table of finished ones again.
"""

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
import numpy as np
from rich.console import Console

from experiments.compare import ComparisonRequest, run_comparisons
from experiments.experiment import Experiment, Options
from experiments.multiqueue.experiments import CAPACITY, MOST_CONTAINERS, mmsk_experiment
from experiments.multiqueue.tables import (
    HEADINGS,
    REPLICATIONS,
    WARM_UP_S,
    Estimate,
    Row,
    by_formula,
    estimate,
    measures_of,
)
from experiments.paper import TWENTY, Cells, PaperTable, Request, Settings
from experiments.run_result import outcomes
from experiments.worlds import world_name
from penstock.rundir import RunDirectory
from penstock.settings import Folders
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData
from simulator.queue_measures import QueueMeasures, measure

BATCHES: Final = REPLICATIONS
SCALER: Final = "single-queue"
CLAIMED: Final = ("P_K", "L", "W")
CLAIMED_DEVIATION, CLAIMED_HALF = 0.10, 0.05
"""Of each of these from the formula, and of the half-width of its interval, relative to the formula."""


class Point(NamedTuple):
    """Arrivals per second, K and s."""

    rate_per_s: int
    capacity: int = CAPACITY
    servers: int = MOST_CONTAINERS

    def __str__(self) -> str:
        return f"K = {self.capacity}, λ = {self.rate_per_s}, s = {self.servers}"


NEAR_FULL, OVERLOAD = (Point(80, 15), Point(100)), (Point(120),)
POINTS: Final = {
    "check": (*NEAR_FULL, *OVERLOAD),
    "near-full": NEAR_FULL,
    "overload": OVERLOAD,
    "table-1": tuple(Point(200, servers=s) for s in range(1, MOST_CONTAINERS + 1)),
    "table-2": tuple(Point(100, servers=s) for s in range(1, MOST_CONTAINERS + 1)),
}


class MultiqueueSettings(Settings, frozen=True, kw_only=True):
    """``penstock paper multiqueue``; tables 1 and 2 and Figure 3 are drawn from fixed seeds."""

    seeds: Annotated[tuple[int, ...], msgspec.Meta(description="Of the story.")] = TWENTY
    world: Annotated[str, msgspec.Meta(description="steady: sim, or local on RabbitMQ.")] = "sim"
    points: Annotated[
        Literal["check", "near-full", "overload", "table-1", "table-2"],
        msgspec.Meta(description=f"steady: {', '.join(POINTS)}."),
    ] = "check"
    seconds: Annotated[float, msgspec.Meta(ge=20, description="steady: length of a run after the warm-up.")] = 300.0
    speed: Annotated[float, msgspec.Meta(description="steady: rates times this.")] = 1.0
    seed: Annotated[int, msgspec.Meta(description="steady: of arrivals and service times.")] = 1


def experiment(point: Point, seconds: float) -> Experiment:
    """One queue whose function has all its containers after a second, and ``seconds`` after the warm-up."""
    system = {"capacity": point.capacity, "max_containers": point.servers, "ramp_step": point.servers}
    return dataclasses.replace(
        mmsk_experiment(point.rate_per_s, WARM_UP_S + seconds, pool_initial=0, **system),
        name=f"mmsk-{point.capacity}-{point.servers}-{point.rate_per_s}",
        title=f"M/M/s/K: {point}",
        max_replicas=1,
    )


def batches(run: RunDirectory, seconds: float) -> list[QueueMeasures]:
    """The measures of each batch of the ``seconds`` after the warm-up of a run of either world."""
    found = outcomes(RunData(run))
    edges_s = WARM_UP_S + np.linspace(0.0, seconds, BATCHES + 1)
    return [measure(found, float(from_s), float(until_s)) for from_s, until_s in pairwise(edges_s)]


class Steady(NamedTuple):
    """One point: by the formula, simulated, measured and, live, controlled; in the order of ``HEADINGS``."""

    point: Point
    verdict: str
    exact: Row
    simulated: Estimate
    measured: Estimate
    controlled: Estimate | None


def steady(point: Point, seconds: float, run: RunDirectory, twin: RunDirectory) -> Steady:
    """``twin`` is the simulation of the same run, or the run itself."""
    measured, simulated = (measures_of(batches(one, seconds)) for one in (run, twin))
    exact = by_formula(point.rate_per_s, point.servers, point.capacity)
    controlled = None if run.path == twin.path else estimate(measured - simulated + np.asarray(exact))
    verdict = summary_of(RunData(run)).verdict
    return Steady(point, verdict, exact, estimate(simulated), estimate(measured), controlled)


def cells(one: Steady) -> Cells:
    """Formula / simulated, live: formula / simulated / live / controlled, each ± half of a 95 % interval."""
    estimates = (one.measured,) if one.controlled is None else (one.simulated, one.measured, one.controlled)
    measures = {
        heading: " / ".join((f"{exact:.4g}", *(f"{each.mean[k]:.4g} ± {each.half[k]:.2g}" for each in estimates)))
        for k, (heading, exact) in enumerate(zip(HEADINGS, one.exact, strict=True))
    }
    point = {"K": one.point.capacity, "λ": one.point.rate_per_s, "s": one.point.servers}
    return {**point, **measures, "verdict": one.verdict}


def conclusion(one: Steady) -> str:
    """The distance of a point from the formula, its uncertainty, and whether both are as claimed."""
    best = one.controlled or one.measured
    shown = [HEADINGS.index(heading) for heading in CLAIMED]
    deviation, far = max(((best.mean[k] / one.exact[k] - 1, HEADINGS[k]) for k in shown), key=lambda each: abs(each[0]))
    half, wide = max((best.half[k] / one.exact[k], HEADINGS[k]) for k in shown)
    holds = abs(deviation) <= CLAIMED_DEVIATION and half <= CLAIMED_HALF
    return (
        f"{one.point}: farthest from the formula {far}, {deviation:+.1%}; widest interval {wide}, "
        f"± {half:.1%} (claimed: {CLAIMED_DEVIATION:.0%} and ± {CLAIMED_HALF:.0%}, "
        f"{'holds' if holds else 'DOES NOT HOLD'})"
    )


def runs_of(
    points: Sequence[Point], seconds: float, options: Options, folder: Path, console: Console
) -> list[RunDirectory]:
    """A finished run of each point; missing ones are made."""
    requests = [ComparisonRequest(experiment(point, seconds), (SCALER,)) for point in points]
    return [run for one in run_comparisons(console, requests, options, folder, resume=True) for run in one.runs()]


def measure_points(points: Sequence[Point], seconds: float, options: Options, console: Console) -> list[Steady]:
    """Each point in the options' world and, with the same events, in virtual time."""
    folder = Folders().runs.absolute()
    both = (options, dataclasses.replace(options, world="sim"))
    runs, twins = (runs_of(points, seconds, world, folder, console) for world in both)
    return [steady(point, seconds, run, twin) for point, run, twin in zip(points, runs, twins, strict=True)]


def rows(request: Request) -> list[Steady]:
    """Every point of the settings."""
    settings = request.settings
    options = Options(world=world_name(settings.world), speed=settings.speed, seed=settings.seed, analytics=False)
    return measure_points(POINTS[settings.points], settings.seconds, options, request.console)


TABLE: Final = PaperTable(
    "steady",
    "Steady state: formula / simulated, or formula / simulated / live / controlled; ± half of a 95 % interval",
    rows,
    cells=cells,
    note=lambda found: "\n\n".join(map(conclusion, found)),
    source="run",
)
