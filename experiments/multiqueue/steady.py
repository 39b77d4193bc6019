"""M/M/s/K in the steady state, live: ``python -m experiments.multiqueue.steady --world local``.

Poisson arrivals go through the forwarder straight to one sub-queue with s containers; what finds it full is dropped.
P_K, L and W are measured by batch means: ``BATCHES`` batches of equal length after a warm-up, half-widths of 95 %
intervals.

Near full load the states of such a queue hang together for seconds, so that an interval of 5 % takes hours of events
(P_K at K = 50, λ = 100: 5.7 hours; L: 22 minutes). But a live run and its simulation have the same arrivals
and the same service times, event by event. So the simulation of the same run serves as a control variate whose mean is
known, by the formula: "controlled" is live - simulated + formula, batch by batch. What is left in it is what the
machine does to the queue, within an interval that is much smaller. Near full load that is not little: a message that
was served is acknowledged some milliseconds later, and occupies a place for so long. At a quarter of the rates it is a
quarter of that (``--points near-full --speed 0.25 --seconds 360``).

Runs are kept: the same command goes on with what is missing, or shows the table of what is there again.
"""

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec
import numpy as np
import typer
from rich.console import Console

from experiments.analysis.measurement import summary_of
from experiments.compare import Request, play
from experiments.experiment import Experiment, Options
from experiments.multiqueue.experiments import BANK, CAPACITY, EXPERIMENTS, MOST_CONTAINERS
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
from experiments.played import outcomes
from experiments.program import run_program
from experiments.tables import markdown
from experiments.worlds import world_name
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.settings import Folders
from simulator.queue_measures import QueueMeasures, measure

BATCHES: Final = REPLICATIONS
SCALER: Final = "single-queue"
SHOWN: Final = ("P_K", "L", "W")
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


def experiment(point: Point, seconds: float) -> Experiment:
    """One queue whose function has all its containers after a second, and ``seconds`` after the warm-up."""
    length_s = WARM_UP_S + seconds
    return dataclasses.replace(
        EXPERIMENTS[0],
        name=f"mmsk-{point.capacity}-{point.servers}-{point.rate_per_s}",
        title=f"M/M/s/K: {point}",
        workload=f"poisson:rate_per_s={point.rate_per_s},duration_s={length_s:g}",
        seconds=length_s,
        system=msgspec.structs.replace(
            BANK,
            capacity=point.capacity,
            max_containers=point.servers,
            ramp_step=point.servers,
            pool_initial=0,
        ),
        max_replicas=1,
    )


def batches(run: RunDirectory, seconds: float) -> list[QueueMeasures]:
    """The measures of each batch of the ``seconds`` after the warm-up of a run of either world."""
    found = outcomes(run)
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
    return Steady(
        point=point,
        verdict=summary_of(run).verdict,
        exact=exact,
        simulated=estimate(simulated),
        measured=estimate(measured),
        controlled=None if run.path == twin.path else estimate(measured - simulated + np.asarray(exact)),
    )


def row(one: Steady) -> tuple[str, ...]:
    """A line of the table."""

    def cell(heading: str) -> str:
        k = HEADINGS.index(heading)
        estimates = (one.measured,) if one.controlled is None else (one.simulated, one.measured, one.controlled)
        shown = (f"{each.mean[k]:.4g} ± {each.half[k]:.2g}" for each in estimates)
        return " / ".join((f"{one.exact[k]:.4g}", *shown))

    point = one.point
    return str(point.capacity), str(point.rate_per_s), str(point.servers), *map(cell, SHOWN), one.verdict


def conclusion(one: Steady) -> str:
    """How far the point is from the formula, how well that is known, and whether that is as claimed."""
    best = one.controlled or one.measured
    deviations, halves = {}, {}
    for heading in SHOWN:
        k = HEADINGS.index(heading)
        deviations[heading] = best.mean[k] / one.exact[k] - 1
        halves[heading] = best.half[k] / one.exact[k]
    far, wide = max(deviations, key=lambda name: abs(deviations[name])), max(halves, key=lambda name: halves[name])
    holds = abs(deviations[far]) <= CLAIMED_DEVIATION and halves[wide] <= CLAIMED_HALF
    return (
        f"{one.point}: farthest from the formula {far}, {deviations[far]:+.1%}; widest interval {wide}, "
        f"± {halves[wide]:.1%} (claimed: {CLAIMED_DEVIATION:.0%} and ± {CLAIMED_HALF:.0%}, "
        f"{'holds' if holds else 'DOES NOT HOLD'})"
    )


def runs_of(
    points: Sequence[Point], seconds: float, options: Options, folder: Path, console: Console
) -> list[RunDirectory]:
    """A finished run of each point; what is not there yet is played."""
    requests = [Request(experiment(point, seconds), (SCALER,)) for point in points]
    return [run for one in play(console, requests, options, folder, resume=True) for run in one.runs()]


def simulations(
    points: Sequence[Point], seconds: float, options: Options, folder: Path, console: Console
) -> list[RunDirectory]:
    """The same in virtual time, with the same events."""
    return runs_of(points, seconds, dataclasses.replace(options, world="sim"), folder, console)


def measure_points(points: Sequence[Point], seconds: float, options: Options, console: Console) -> list[Steady]:
    """Each point in the options' world and in virtual time."""
    folder = Folders().runs.absolute()
    runs = runs_of(points, seconds, options, folder, console)
    twins = simulations(points, seconds, options, folder, console)
    return [steady(point, seconds, run, twin) for point, run, twin in zip(points, runs, twins, strict=True)]


def main(
    world: Annotated[str, typer.Option("--world", help="sim: virtual time; local: on RabbitMQ.")] = "sim",
    points: Annotated[str, typer.Option(help=f"Which: {', '.join(POINTS)}.")] = "check",
    seconds: Annotated[float, typer.Option(min=20.0, help="Length of each run after the warm-up.")] = 300.0,
    speed: Annotated[float, typer.Option(help="Rates times this, durations divided by it.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of arrivals and service times.")] = 1,
) -> None:
    """Print formula / simulated / measured / controlled for each point."""
    if points not in POINTS:
        raise PenstockError(f"--points {points}: choose one of {', '.join(POINTS)}")
    options = Options(world=world_name(world), speed=speed, seed=seed, analytics=False)
    found = measure_points(POINTS[points], seconds, options, Console(stderr=True))
    how = "simulated" if options.world == "sim" else "simulated, live, controlled"
    typer.echo(f"formula / {how}, each ± half of a 95 % interval; world {world}, speed {speed:g}, {seconds:g} s each\n")
    typer.echo(markdown(("K", "λ", "s", *SHOWN, "verdict"), map(row, found)))
    for one in found:
        typer.echo(conclusion(one))


if __name__ == "__main__":
    run_program(main, "python -m experiments.multiqueue.steady --world local")
