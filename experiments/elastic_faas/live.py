"""What finished runs came to, in the columns of the tables: ``python -m experiments.elastic_faas.live runs/*``.

The same lines reckon it that reckon the simulated values of ``experiments.elastic_faas.tables``. The time line of a run
of ``experiments/timetable.py:Timetable`` is Table 1.
"""

from pathlib import Path
from typing import Annotated

import typer

from experiments.analysis.measurement import summary_of
from experiments.elastic_faas.experiments import EXPERIMENTS
from experiments.elastic_faas.tables import SHOWN_S, Moment, Outcome, moments, outcome, shown
from experiments.played import finished, played
from experiments.program import run_program
from experiments.report.groups import group_runs
from experiments.tables import markdown


def main(folders: Annotated[list[Path], typer.Argument(help="Run directories.")]) -> None:
    """Print the tables' columns and the time lines of finished runs."""
    runs = finished(folders, {experiment.name for experiment in EXPERIMENTS})
    labels = {run.name: "" for run in runs}
    for group in group_runs([summary_of(run) for run in runs]):
        labels |= {summary.run: group.label for summary in group.summaries}
    specs = [(run.spec(), played(run)) for run in runs]
    rows = (
        (spec.world, f"{spec.speed:g}", str(spec.seed), *outcome(one, spec.scaler.name, labels[spec.run]))
        for spec, one in specs
    )
    typer.echo(markdown(("world", "speed", "seed", *Outcome._fields), shown(rows)))
    for spec, one in specs:
        typer.echo(f"{spec.run}: {labels[spec.run]}\n")
        every_other = (moment for moment in moments(one) if moment.time_s <= SHOWN_S)
        typer.echo(markdown(Moment._fields, shown(every_other)))


if __name__ == "__main__":
    run_program(main, "python -m experiments.elastic_faas.live runs/*")
