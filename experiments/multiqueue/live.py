"""What finished runs came to, in the columns of the tables: ``python -m experiments.multiqueue.live runs/*``.

The same lines reckon it that reckon the simulated values of ``experiments.multiqueue.tables``. With ``--figure-3`` the
runs are replications of the figure: queues that are fed equally from the beginning on and whose functions start with
nothing, as ``experiments/timetable.py:Timetable`` makes them.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from experiments.multiqueue.experiments import EXPERIMENTS
from experiments.multiqueue.tables import (
    HEADINGS,
    LAST_TIME,
    REPLICATIONS,
    Outcome,
    containers_at,
    estimate,
    measures_of,
    outcome,
    timeline,
)
from experiments.played import finished, outcomes, played
from experiments.program import run_program
from experiments.tables import markdown
from experiments.timetable import Timetable
from penstock.rundir import RunDirectory
from simulator.queue_measures import measure

SHOWN_S: Final = 36
"""How many seconds of a time line are printed."""
MAIN: Final = "main"


def stories(runs: Sequence[RunDirectory]) -> Iterator[str]:
    """A table of what each run came to, and the time line of each whose scaler reckons with P_K."""
    shown = [(run.spec(), played(run)) for run in runs if run.spec().scaler.name != Timetable.name]
    rows = (
        (
            spec.experiment,
            spec.world,
            f"{spec.speed:g}",
            str(spec.seed),
            *(text if isinstance(text, str) else f"{text:.4g}" for text in outcome(one, spec.scaler.name)),
        )
        for spec, one in shown
    )
    yield markdown(("experiment", "world", "speed", "seed", *Outcome._fields), rows)
    for spec, one in shown:
        if spec.scaler.name.startswith("multiqueue"):
            lines = [line for line in timeline(one, spec.scaler.name) if float(line[0]) <= SHOWN_S]
            yield f"{spec.run}:\n"
            yield markdown(("second", "containers", "shares", "P_K", "cycle"), lines)


def figure_3(runs: Sequence[RunDirectory]) -> Iterator[str]:
    """The measures of the first queue in each unit of time, means over the runs ± half of a 95 % interval."""
    for label, queues in (("single", 1), ("multi", 2)):
        tables = [
            outcomes(run)
            for run in runs
            if run.spec().scaler.name == Timetable.name and run.spec().scaler.parameters["replicas"] == queues
        ]
        rows = []
        for unit in range(LAST_TIME if len(tables) > 1 else 0):
            values = measures_of(
                [
                    measure(table, unit, unit + 1, next(queue for queue in table.queues if queue != MAIN))
                    for table in tables
                ]
            )
            means = estimate(values)
            cells = (f"{mean:.4g} ± {half:.2g}" for mean, half in zip(means.mean, means.half, strict=True))
            rows.append((label, str(unit + 1), str(containers_at(unit + 1)), *cells))
        yield f"{label}: {len(tables)} of {REPLICATIONS} runs\n"
        yield markdown(("queue", "time", "s", *HEADINGS), rows)


def main(
    folders: Annotated[list[Path], typer.Argument(help="Run directories.")],
    figure: Annotated[bool, typer.Option("--figure-3", help="Figures 3a to 3f instead, of 20 replications.")] = False,
) -> None:
    """Print the tables' columns for finished runs."""
    runs = finished(folders, {experiment.name for experiment in EXPERIMENTS})
    for text in figure_3(runs) if figure else stories(runs):
        typer.echo(text)


if __name__ == "__main__":
    run_program(main, "python -m experiments.multiqueue.live runs/*")
