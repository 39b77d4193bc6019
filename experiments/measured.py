"""Measures of finished runs of any experiment, for the live columns of the papers' READMEs.

``penstock paper any measured runs/*`` prints one row for each scaler under equal conditions: means over the
repetitions with their range. Folders of comparisons are skipped; a run that is not finished is an error. Times are
those of the run: at another speed they are that much shorter than the experiment's.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from experiments.paper import Cells, PaperTable, Request, spread
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData
from report.analysis.summary import RunSummary
from report.groups import Group, group_runs


def finished_runs(folders: Sequence[Path]) -> Iterator[RunSummary]:
    """Summaries of those that are runs. PenstockError for one that is not finished."""
    for folder in folders:
        directory = RunDirectory(folder)
        if directory.spec_file.is_file():
            yield summary_of(RunData(directory))


def verdicts(runs: Iterable[RunSummary]) -> str:
    """How many runs have each verdict."""
    return ", ".join(f"{number} {verdict}" for verdict, number in Counter(run.verdict for run in runs).items())


def row(group: Group) -> Cells:
    """A row of the table."""
    runs = group.summaries

    def text(measure: Callable[[RunSummary], float | None], digits: int, scale: float = 1.0) -> str:
        values = (measure(run) for run in runs)
        return spread([None if value is None else scale * value for value in values], digits)

    def counts(*measures: Callable[[RunSummary], int]) -> str:
        return " / ".join(text(measure, int(len(set(map(measure, runs))) > 1)) for measure in measures)

    return {
        "experiment": group.first.experiment,
        "scaler": group.label,
        "runs": str(len(runs)),
        "verdicts": verdicts(runs),
        "taken by the host, %": text(lambda run: run.cpu_stolen, 1, 100),
        "SLO share": text(lambda run: run.slo_share, 2, 100) + " %",
        "replica-minutes": text(lambda run: run.replica_minutes, 2),
        "added / removed": counts(lambda run: run.scale.replicas_added, lambda run: run.scale.replicas_removed),
        "up / down actions": counts(lambda run: run.scale.up_actions, lambda run: run.scale.down_actions),
        "reassignments": text(lambda run: run.scale.reassignments, 0),
        "rebalances": text(lambda run: run.rebalances, 0),
        "rejected": text(lambda run: run.conservation.rejected / max(1, run.acknowledged_events), 2, 100) + " %",
        "mean s": text(lambda run: run.latency.mean_s, 3),
        "p50 s": text(lambda run: run.latency.p50_s, 3),
        "p95 s": text(lambda run: run.latency.p95_s, 3),
        "p99 s": text(lambda run: run.latency.p99_s, 3),
        "longest s": text(lambda run: run.latency.max_s, 2),
        "service, mean ms": text(lambda run: run.service.mean_s, 2, 1000),
        "tick phase p50 / p99 s": f"{text(lambda run: run.tick_phase_p50_s, 3)} / "
        + text(lambda run: run.tick_phase_p99_s, 3),
    }


def rows(request: Request) -> Iterator[Cells]:
    """A row for each scaler under equal conditions. PenstockError if none of the folders is a finished run."""
    runs = list(finished_runs(request.runs))
    if not runs:
        raise PenstockError("no finished run among these folders: give run directories, such as runs/*")
    for experiment in dict.fromkeys(run.experiment for run in runs):
        yield from map(row, group_runs([run for run in runs if run.experiment == experiment]))


TABLE: Final = PaperTable("measured", "Measures of finished runs", rows, source="recorded")
