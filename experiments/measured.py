"""What finished runs measured, as the live columns of the papers' READMEs have it.

``python -m experiments.measured runs/*`` prints one row for each scaler under equal conditions: means over the
repetitions, with the range where it shows. Comparisons' folders are passed over; runs that are not finished are named.
Times are those of the run: at another speed they are that much shorter than the experiment's.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from experiments.analysis.measurement import summary_of
from experiments.analysis.summary import Summary
from experiments.program import run_program
from experiments.report.groups import Group, group_runs
from experiments.tables import markdown, spread
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory

HEADINGS: Final = (
    "experiment", "scaler", "runs", "verdicts", "SLO share", "replica-minutes", "added / removed", "up / down actions",
    "reassignments", "rebalances", "rejected", "mean s",
    "p50 s", "p95 s", "p99 s", "longest s", "service, mean ms", "tick phase p50 / p99 s",
)  # fmt: skip


def finished_runs(folders: Sequence[Path]) -> Iterator[Summary]:
    """Summaries of those that are runs. PenstockError for one that is not finished."""
    for folder in folders:
        directory = RunDirectory(folder)
        if directory.spec_file.is_file():
            yield summary_of(directory)


def row(group: Group) -> list[str]:
    """A line of the table."""
    runs = group.summaries

    def counts(first: Callable[[Summary], int], second: Callable[[Summary], int], digits: int = 1) -> str:
        def one(measure: Callable[[Summary], int]) -> str:
            values = [float(measure(run)) for run in runs]
            return spread(values, 0 if len(set(values)) == 1 else digits)

        return f"{one(first)} / {one(second)}"

    verdicts = [run.verdict for run in runs]
    return [
        group.first.experiment,
        group.label,
        str(len(runs)),
        ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts)),
        spread([100 * run.slo_share if run.slo_share is not None else None for run in runs], 2) + " %",
        spread([run.replica_minutes for run in runs], 2),
        counts(lambda run: run.scale.replicas_added, lambda run: run.scale.replicas_removed),
        counts(lambda run: run.scale.up_actions, lambda run: run.scale.down_actions),
        spread([run.scale.reassignments for run in runs], 0),
        spread([run.rebalances for run in runs], 0),
        spread([100 * run.conservation.rejected / max(1, run.acknowledged_events) for run in runs], 2) + " %",
        spread([run.latency.mean_s for run in runs], 3),
        spread([run.latency.p50_s for run in runs], 3),
        spread([run.latency.p95_s for run in runs], 3),
        spread([run.latency.p99_s for run in runs], 3),
        spread([run.latency.max_s for run in runs], 2),
        spread([1000 * run.service.mean_s if run.service.mean_s is not None else None for run in runs], 2),
        f"{spread([run.tick_phase_p50_s for run in runs], 3)} / {spread([run.tick_phase_p99_s for run in runs], 3)}",
    ]


def main(folders: Annotated[list[Path], typer.Argument(help="Run directories.")]) -> None:
    """Print what finished runs measured, a row for each scaler under equal conditions."""
    runs = list(finished_runs(folders))
    experiments = list(dict.fromkeys(run.experiment for run in runs))
    rows = [
        row(group)
        for experiment in experiments
        for group in group_runs([run for run in runs if run.experiment == experiment])
    ]
    if not rows:
        raise PenstockError("no finished run among these folders: give run directories, such as runs/*")
    typer.echo(markdown(HEADINGS, rows))


if __name__ == "__main__":
    run_program(main, "python -m experiments.measured runs/*")
