"""``penstock paper``: the tables and figures of the papers, printed beside what is obtained here."""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.durations import duration_option
from penstock.errors import PenstockError
from penstock.parameters import unknown

if TYPE_CHECKING:
    from rich.console import Console

    from experiments.paper import Paper, Request

EPILOG = "Example: penstock paper binpack table2 --seeds 1-20 --out figures/binpack"
FORMATS = ("table", "markdown", "json")
FOLDED = ("title", "tables", "\ndefault", "\nmeaning")
"""Columns whose texts may be folded."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("paper", epilog=EPILOG)(paper)


def paper(
    name: Annotated[
        str, typer.Argument(help="A paper, or `all` papers; without one, list them.", show_default=False)
    ] = "",
    selection: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TABLE]... [RUN]...",
            help="Tables, or `all` that are simulated; without one, list the tables. Then run directories, for tables "
            "of recorded runs.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds of the runs: 1-20, or 20 for the same.", show_default="the paper's")
    ] = None,
    from_s: Annotated[
        float | None, duration_option("--from", help="First second of the workload.", show_default="the paper's")
    ] = None,
    seconds: Annotated[float | None, duration_option(help="Length of each run.", show_default="the paper's")] = None,
    world: Annotated[
        str | None, typer.Option(help="For tables that make runs: sim, local or kubernetes.", show_default="sim")
    ] = None,
    speed: Annotated[
        float | None, typer.Option(help="Rates times this, durations divided by it.", show_default="the paper's")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="setting=value of the paper; may be repeated. `penstock paper NAME` lists them."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for tables as CSV, figures as SVG and a page of both, index.html.")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option("--format", help=", ".join(FORMATS), show_default="table on a terminal, else markdown"),
    ] = None,
) -> None:
    """Print a paper's tables and figures beside ours. Printed, by formula, simulated, and from recorded runs."""
    from rich.console import Console

    from experiments.papers import OF_PAPERS, PAPERS

    console = Console(highlight=False)
    form = form or ("table" if console.is_terminal else "markdown")
    if form not in FORMATS:
        raise PenstockError(f"--format {form}: choose {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    if not name:
        rows = [(each.name, each.title, ", ".join(table.name for table in each.tables)) for each in PAPERS.values()]
        _print_table(console, ("paper", "title", "tables"), rows)
        return
    if name not in (*PAPERS, "all"):
        raise unknown("paper", name, PAPERS, f"choose one of {', '.join(PAPERS)}, all")
    given: dict[str, Any] = {"from_s": from_s, "seconds": seconds, "world": world, "speed": speed, "seeds": seeds}
    given = {setting: value for setting, value in given.items() if value is not None} | _assignments(settings or ())
    if "seeds" in given:
        given["seeds"] = _seeds(given["seeds"])
    if name == "all":
        for each in OF_PAPERS:
            _make(_request(each, ["all"], each.set(given)), each, console, form, out and out / each.name)
        return
    chosen = PAPERS[name]
    values = chosen.set(given)
    if not selection:
        _list_tables(console, chosen)
        return
    _make(_request(chosen, selection, values), chosen, console, form, out)


def _request(paper: "Paper", selection: list[str], settings: Any) -> "Request":
    """Leading names select tables, paths after them are run directories."""
    from experiments.paper import Request

    tables = [text for text in selection if paper.is_table(text)]
    runs = [Path(text) for text in selection if not paper.is_table(text)]
    for path in runs:
        if not path.exists():
            paper.select([str(path)])  # PenstockError with near names
    selected = paper.select(tables)
    recorded = [table.name for table in selected if table.source == "recorded"]
    if recorded and not runs:
        raise PenstockError(
            f"{recorded[0]}: needs run directories, as in penstock paper {paper.name} {tables[0]} runs/*"
        )
    if runs and not recorded:
        raise PenstockError(f"{runs[0]}: none of these tables is made from run directories; leave them out")
    return Request(settings=settings, tables=selected, runs=runs)


def _make(request: "Request", paper: "Paper", console: "Console", form: str, out: Path | None) -> None:
    import dataclasses

    import msgspec

    from experiments.paper import Rendering
    from experiments.paper_page import write_page

    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PenstockError(f"--out {out}: cannot be made ({error.strerror}); give a folder") from None
    found, made = [], []
    values = {name: getattr(request.settings, name) for name in request.settings.__struct_fields__}
    conditions = ", ".join(f"{name} {_text(name, value)}" for name, value in values.items())
    if form == "markdown":
        typer.echo(f"# {paper.title}\n" + (f"\n{paper.name}: {conditions}\n" if conditions else ""))
    elif conditions and form == "table":
        console.print(f"{paper.name}: {conditions}", markup=False)
    for table in request.tables:
        with _progress(request.console, table.name) as tell:
            rendering = Rendering(table, list(table.rows(dataclasses.replace(request, progress=tell))))
        made.append(rendering)
        if out is not None:
            rendering.write(out)
        if form == "json":
            found.append(rendering.as_data())
        elif form == "table":
            rendering.print(console)
        else:
            typer.echo(rendering.markdown())
    if form == "json":
        encoded = msgspec.json.encode({"paper": paper.name, "settings": values, "tables": found})
        typer.echo(msgspec.json.format(encoded, indent=2).decode())
    if out is not None:
        page = write_page(paper, made, out, conditions)
        request.console.print(f"tables, pictures and page: {page}", markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def _progress(console: "Console", title: str) -> Iterator[Callable[[str], None]]:
    """One line of progress on a terminal, a line per step elsewhere; nothing is shown before the first step."""
    status = console.status("")

    def tell(step: str) -> None:
        if console.is_terminal:
            status.update(f"{title}: {step}")
            status.start()
        else:
            console.print(f"{title}: {step}", markup=False, highlight=False, soft_wrap=True)

    try:
        yield tell
    finally:
        status.stop()


def _list_tables(console: "Console", paper: "Paper") -> None:
    """The tables with one line each, and the settings."""
    import msgspec

    sources = {"simulated": "simulated", "run": "makes runs", "recorded": "run directories", "committed": "kept"}

    console.print(f"{paper.name}: {paper.title}\n", markup=False)
    rows = [(table.name, table.title, sources[table.source]) for table in paper.tables]
    _print_table(console, ("table", "title", "from"), rows)
    settings = [
        (field.name, _text(field.name, field.default), (getattr(field.type, "extra_json_schema", None) or {}))
        for field in msgspec.inspect.type_info(paper.settings).fields  # type: ignore[attr-defined]
    ]
    if settings:
        rows = [(name, default, extra.get("description", "")) for name, default, extra in settings]
        _print_table(console, ("\nsetting", "\ndefault", "\nmeaning"), rows)


def _print_table(console: "Console", titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.markup import escape
    from rich.table import Column, Table

    # A title is folded, a name is not.
    table = Table(*(Column(title, no_wrap=title not in FOLDED) for title in titles), box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)


def _text(name: str, value: Any) -> str:
    if name == "seeds":
        return f"{value[0]}-{value[-1]}" if len(value) > 1 else str(value[0])
    return f"{value:g}" if isinstance(value, float) else str(value)


def _assignments(texts: Iterable[str]) -> dict[str, Any]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise PenstockError(f"--set {text}: expected setting=value, such as --set law=exponential")
        found[name] = value
    return found


def _seeds(text: str) -> tuple[int, ...]:
    """``3`` and ``1-3`` are the seeds 1, 2 and 3. PenstockError for anything else."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)", text.strip())
    first, last = (int(found[1] or 1), int(found[2])) if found else (1, 0)
    if not 0 < first <= last:
        raise PenstockError(f"--seeds {text}: expected a range such as 1-20, or 20 for the same")
    return tuple(range(first, last + 1))
