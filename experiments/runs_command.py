"""``penstock runs``: the directories of finished and unfinished runs."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.answers import print_json
from penstock.completion import RUN_FILES
from penstock.durations import duration_option
from penstock.errors import PenstockError
from penstock.run_argument import run_argument

if TYPE_CHECKING:
    from report.analysis.summary import RunSummary

CONDITIONS = {"conditions.slo_share": "wanted_slo_share", "conditions.faults": "planned_faults"}
"""Names in ``diff`` of the conditions that a measure of another meaning has the name of."""

OF_A_FOLDER = (*RUN_FILES, "request.json")
"""One of these files makes a folder a run, a comparison, or an advice."""

runs = typer.Typer(
    no_args_is_help=True,
    help="List, open, delete and compare run directories.\n\nThey are in the folder PENSTOCK_RUNS (default: runs).",
)


RunPath = Annotated[Path, run_argument()]


def register_runs(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(runs, name="runs", epilog="Example: penstock runs list")


@runs.command("list", epilog="Example: penstock runs list --json")
def list_runs(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the runs in the folder PENSTOCK_RUNS (default: runs), the newest first."""
    from rich.console import Console
    from rich.table import Table

    from report.wording import share

    rows = [_row(path) for path in _folders()]
    if as_json:
        print_json(rows)
        return
    table = Table("run", "verdict", "within SLO", "MB", box=None, pad_edge=False)
    for row in rows:
        table.add_row(row["run"], row["verdict"] or row["note"], share(row["slo_share"]), f"{row['bytes'] / 1e6:.1f}")
    Console(soft_wrap=True).print(table)


@runs.command("open", epilog="Example: penstock runs open runs/20260101T120000Z-binpack-workload-1-linear")
def open_report(
    run: Annotated[Path | None, run_argument(show_default="a page that lists all")] = None,
) -> None:
    """Open a report in the browser, or write index.html over all runs and open it."""
    page = _write_index() if run is None else _of_penstock(run) / "report.html"
    if not page.is_file():
        raise PenstockError(f"{run}: no report.html; `penstock report {run}` writes it")
    _launch(page)


@runs.command("delete", epilog="Example: penstock runs delete --older-than 7d")
def delete(
    directories: Annotated[list[Path] | None, run_argument(help="Run directories, or names.", metavar="RUN...")] = None,
    older_than: Annotated[
        float | None, duration_option(help="Every run that was last written so long ago.", show_default=False)
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete runs."""
    if bool(directories) == (older_than is not None):
        raise PenstockError("name run directories, or say --older-than 7d")
    wanted = [_of_penstock(path) for path in directories or ()]
    if older_than is not None:
        wanted = [path for path in _folders() if time.time() - _written_s(path) >= older_than]
    if not wanted:
        typer.echo("nothing to delete")
        return
    size = sum(map(_bytes, wanted)) / 1e6
    for path in wanted:
        typer.echo(path)
    if not yes:
        typer.confirm(f"delete {len(wanted)} directories, {size:.1f} MB?", abort=True)
    for path in wanted:
        shutil.rmtree(path)
    typer.echo(f"deleted {len(wanted)} directories, {size:.1f} MB")


@runs.command("diff", epilog="Example: penstock runs diff runs/<one> runs/<other>")
def diff(
    first: RunPath,
    second: RunPath,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    in_browser: Annotated[bool, typer.Option("--open", help="Write a page with both runs and open it.")] = False,
) -> None:
    """Show what differs between two runs: conditions and measures."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if in_browser:
        _launch(_write_both(first, second))
        return
    one, other = (_flat(_summary(path)) for path in (first, second))
    changed = {
        name: (one.get(name), other.get(name))
        for name in dict.fromkeys((*one, *other))
        if name != "run" and one.get(name) != other.get(name)
    }
    if as_json:
        print_json(changed)
        return
    table = Table("what differs", escape(first.name), escape(second.name), box=None, pad_edge=False)
    for name, values in changed.items():
        table.add_row(escape(name), *(escape(_short(value)) for value in values))
    Console(soft_wrap=True).print(table if changed else "nothing differs")


def _launch(page: Path) -> None:
    typer.launch(str(page.absolute()))
    typer.echo(page)


def _write_index() -> Path:
    """A page beside the runs, with a link to each report."""
    from penstock.rundir import check_runs_folder
    from penstock.settings import Folders
    from report.page import write_index

    page = Folders().runs.absolute() / "index.html"
    check_runs_folder(page.parent)
    found = _folders()
    links = [f"{path.name}/report.html" if (path / "report.html").is_file() else "" for path in found]
    write_index([{**_row(path), "link": link} for path, link in zip(found, links, strict=True)], page)
    return page


def _write_both(first: Path, second: Path) -> Path:
    """A report of two runs, beside the first one's directory."""
    from experiments.catalogue import EXPERIMENTS
    from penstock.rundir import RunDirectory
    from report.analysis.run_data import RunData
    from report.page import write_report

    runs = [RunData(RunDirectory.open(path)) for path in (first, second)]
    page = first.absolute().parent / f"{first.name}-beside-{second.name}.html"
    write_report(runs, page, EXPERIMENTS, apart=True)
    return page


def _folders() -> list[Path]:
    from penstock.settings import Folders

    found = {path.parent for path in Folders().runs.absolute().glob("*/*.json") if path.name in OF_A_FOLDER}
    return sorted(found, reverse=True)


def _of_penstock(path: Path) -> Path:
    """PenstockError for a folder that Penstock did not make."""
    if not any((path / name).is_file() for name in OF_A_FOLDER):
        raise PenstockError(f"{path}: not a run directory (none of {', '.join(OF_A_FOLDER)} in it)")
    return path


def _row(path: Path) -> dict[str, Any]:
    """Of a run that is not finished, and of an advice: no verdict, and a note."""
    import msgspec

    from report.gate import Gate

    try:
        found = msgspec.json.decode((path / "verdict.json").read_bytes(), type=Gate).runs
    except (FileNotFoundError, msgspec.DecodeError):
        found = ()
    shares = [run["slo_share"] for run in found if run["slo_share"] is not None]
    note = "" if found else "unfinished"
    if (path / "advice.json").is_file():
        best = json.loads((path / "advice.json").read_bytes())["best"]
        note, shares = "advice", [best["rest_share"]] if best else []
    return {
        "run": path.name,
        "verdict": ", ".join(dict.fromkeys(run["verdict"] for run in found)),
        "note": note,
        "slo_share": min(shares, default=None),
        "bytes": _bytes(path),
    }


def _bytes(path: Path) -> int:
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())


def _written_s(path: Path) -> float:
    return max(each.stat().st_mtime for each in (path, *path.iterdir()))


def _summary(path: Path) -> "RunSummary":
    from penstock.rundir import RunDirectory
    from report.analysis.measurement import summary_of
    from report.analysis.run_data import RunData

    return summary_of(RunData(RunDirectory.open(path)))


def _flat(summary: "RunSummary") -> dict[str, Any]:
    import msgspec

    return dict(_leaves("", msgspec.to_builtins(summary)))


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _leaves(f"{prefix}.{name}" if prefix else name, each)
    else:
        yield CONDITIONS.get(prefix, prefix.removeprefix("conditions.")), value


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)
