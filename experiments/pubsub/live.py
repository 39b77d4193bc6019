"""What finished runs came to, beside figures 5 to 8: ``python -m experiments.pubsub.live runs/*``.

Times are in the paper's seconds, whatever the run's speed. Responses are of all jobs of a run, of those that came in
its second half (where the allocation has settled, figures 6 and 7), and of each type (figure 5); the share beyond the
limit that triggers a rescheduling are the affected requests of figure 8.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from controller.journal import TickRecord
from controller.scalers.allocation import Consumers
from experiments.analysis.measurement import summary_of
from experiments.played import finished, played
from experiments.program import run_program
from experiments.pubsub.experiments import EXPERIMENTS, ROUTES
from experiments.pubsub.figures import text
from experiments.tables import markdown
from penstock.laws import Floats
from penstock.rundir import RunDirectory
from penstock.schedule import Schedule


class Line(NamedTuple):
    """One run. ``reschedules``: at what second, to how many consumers of each topic."""

    experiment: str
    scaler: str
    world: str
    speed: str
    seed: str
    requests: str
    reschedules: str
    mean_s: str
    second_half_s: str
    by_type_s: str
    beyond_limit: str
    verdict: str


def allocations(ticks: Iterable[TickRecord]) -> Iterator[tuple[float, Consumers]]:
    """The allocations that were decided on, each with the second of its tick."""
    for tick in ticks:
        decision = tick.decisions.get(tick.acting)
        why = {} if decision is None else decision.why.get(tick.observation.fleet, {})
        if isinstance(m := why.get("m"), list):
            yield tick.time_s, tuple(int(consumers) for consumers in m)


def line(run: RunDirectory) -> Line:
    """A line of the table."""
    spec, one = run.spec(), played(run)
    table = one.results
    response_s = table.finished_s - table.intended_s
    kinds = Schedule.read(run.schedule_file).partition[table.id]

    def mean(chosen: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None) -> str:
        values: Floats = response_s if chosen is None else response_s[chosen]
        return f"{values.mean():.1f}" if len(values) else "–"

    return Line(
        experiment=spec.experiment,
        scaler=spec.scaler.name,
        world=spec.world,
        speed=f"{spec.speed:g}",
        seed=str(spec.seed),
        requests=str(len(table)),
        reschedules="; ".join(_changes(allocations(one.ticks))),
        mean_s=mean(),
        second_half_s=mean(table.intended_s >= one.duration_s / 2),
        by_type_s=", ".join(mean(kinds == kind) for kind in range(len(ROUTES))),
        beyond_limit=f"{np.mean(response_s > spec.slo_s * spec.speed):.1%}",
        verdict=summary_of(run).verdict,
    )


def _changes(decided: Iterable[tuple[float, Consumers]]) -> Iterator[str]:
    """As text, without those that left everything as it was."""
    before: Consumers = ()
    for time_s, consumers in decided:
        if consumers != before:
            yield f"{time_s:g}: {text(consumers)}"
        before = consumers


def main(folders: Annotated[list[Path], typer.Argument(help="Run directories.")]) -> None:
    """Print what finished runs of the pub/sub experiments came to."""
    runs = finished(folders, {experiment.name for experiment in EXPERIMENTS})
    typer.echo(markdown((name.replace("_", " ") for name in Line._fields), map(line, runs)))


if __name__ == "__main__":
    run_program(main, "python -m experiments.pubsub.live runs/*")
