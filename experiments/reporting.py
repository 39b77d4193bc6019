"""Reports, verdicts and the table of finished runs, as ``run``, ``compare``, ``replay`` and ``report`` end with."""

from pathlib import Path

import msgspec
import typer
from rich.console import Console

from experiments.catalogue import EXPERIMENTS
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from report import comparison_table, write_report
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData
from report.gate import gate


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
        if run.manifest is None or run.manifest.files is None:
            notes.print(f"no checksums: {run.name} is unfinished or of an older Penstock; its files are not verified")
    for page, shown in ({run.directory.report_file: [run] for run in data} | {out: data}).items():
        found = gate([summary_of(run) for run in shown], fail_under)
        RunDirectory(page.parent).write(page.with_name("verdict.json"), found)
        write_report(shown, page, EXPERIMENTS)
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    else:
        console.print(comparison_table([summary_of(run) for run in data]))
        assumed = dict.fromkeys(run.spec.assumptions for run in data)
        for line in filter(None, (*assumed, f"report: {out}", told)):
            console.print(line, soft_wrap=True, highlight=False, markup=False)
    for failure in found.failures:
        notes.print(failure, markup=False)
    if found.exit_code:
        raise typer.Exit(found.exit_code)
