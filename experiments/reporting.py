"""Reports, verdicts and the table of finished runs, as ``run``, ``compare``, ``replay`` and ``report`` end with."""

from pathlib import Path

import typer
from rich.console import Console

from experiments.bound import least_of_run
from experiments.catalogue import EXPERIMENTS
from penstock import compiled
from penstock.answers import print_json
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData
from report.gate import gate
from report.groups import group_runs
from report.page import write_report
from report.tables import headline
from report.terminal import comparison_table
from report.wording import SPACE

MOST_SEEDS = 5
"""Whose bounds are computed for a report; each takes about a second."""


def write_reports(
    runs: list[RunDirectory],
    out: Path,
    fail_under: float | None,
    *,
    as_json: bool = False,
    quiet: bool = False,
    told: str = "",
) -> None:
    """Write reports and verdicts, of each run and of all; print the table, and ``told`` below it, or the verdict as
    JSON. Exits with a code if a run is INVALID or missed ``fail_under``.
    """
    if not runs:
        raise PenstockError(f"{out.parent}: no finished run in it; run it again with --resume")
    data = [RunData(directory) for directory in runs]
    console, notes = Console(quiet=quiet), Console(stderr=True, soft_wrap=True, highlight=False)
    for run in data:
        if run.manifest is not None and run.manifest.files is None:
            notes.print(f"no checksums: {run.name} is of an older Penstock; its files are not verified")
    for page, shown in ({run.directory.report_file: [run] for run in data} | {out: data}).items():
        found = gate([summary_of(run) for run in shown], fail_under)
        RunDirectory(page.parent).write(page.with_name("verdict.json"), found)
        write_report(shown, page, EXPERIMENTS, _bound_minutes(data) if shown is data or len(data) == 1 else None)
    if as_json:
        print_json(found)
    else:
        summaries = [summary_of(run) for run in data]
        console.print(comparison_table(summaries))
        answer = headline(group_runs(summaries), data[0].spec.slo_share).replace(SPACE, " ")
        assumed = dict.fromkeys(run.spec.assumptions for run in data)
        for line in filter(None, (answer, *assumed, f"report: {out}", told)):
            console.print(line, soft_wrap=True, highlight=False, markup=False)
    for failure in found.failures:
        notes.print(failure, markup=False)
    if found.exit_code:
        raise typer.Exit(found.exit_code)


def _bound_minutes(runs: list[RunData]) -> float | None:
    """Least replica-minutes that keep the wanted share on the schedules of these runs, mean over their seeds; None
    where no bound is known, or the runs differ in what it depends on. Interpreted code would take minutes.
    """
    if not compiled.COMPILED:
        return None
    by_seed = {run.spec.seed: run for run in runs}
    kinds = {repr(_bound_facts(run.spec)) for run in runs}
    if len(kinds) > 1 or len(by_seed) > MOST_SEEDS or any(run.spec.faults for run in runs):
        return None
    try:
        found = [least_of_run(run.spec, run.schedule()) for run in by_seed.values()]
    except PenstockError:
        return None
    return sum(found) / len(found)


def _bound_facts(spec: RunSpec) -> tuple[object, ...]:
    return spec.workload, spec.duration_s, spec.system, spec.worker, spec.slo_s, spec.slo_share, spec.tick_phase_s
