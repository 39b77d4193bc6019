"""``penstock advise TRACE.csv --slo 500ms``: the cheapest scaler with its settings on a user's trace, and why."""

import contextlib
import hashlib
import inspect
import shutil
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import typer

from experiments.advise.request import AdviceRequest
from experiments.replay.command import tell_conditions, tell_of_a_large_trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from experiments.advise.session import Found, Session

EPILOG = "Example: penstock advise load.csv --slo 500ms --service-time 5ms --partitions 5"

WIDE = 140
TOLD_EVERY_S = 10.0
"""Where there is no progress line."""
REQUEST = "request.json"


def register_advise(app: typer.Typer) -> None:
    """Add the command."""
    advise.__signature__ = inspect.signature(AdviceRequest)  # type: ignore[attr-defined]
    advise.__annotations__ = {}
    app.command("advise", epilog=EPILOG)(advise)


def advise(**given: Any) -> None:
    """Find the cheapest scaler and its settings for your own trace.

    Every scaler is simulated at its best: settings are chosen on the first part of the trace and proven on the rest.
    The advice is kept in the folder PENSTOCK_RUNS (default: runs).
    """
    from rich.console import Console

    from experiments.advise.session import ADVICE, carry_out, prepare
    from penstock.rundir import check_runs_folder
    from penstock.settings import Folders

    request = AdviceRequest(**given)
    said = Console(stderr=request.json, highlight=False, soft_wrap=True)
    runs = Folders().runs.absolute()
    check_runs_folder(runs)
    tell_of_a_large_trace(request)
    asked = _identity(request)
    unfinished = [path.parent for path in runs.glob(f"*-advise*/{REQUEST}") if not (path.parent / ADVICE).exists()]
    same = sorted(path for path in unfinished if (path / REQUEST).read_bytes() == asked)
    if request.resume and not same:
        said.print(
            f"nothing to continue in {runs}: no interrupted request has these options, this trace, these scalers' code "
            "and this version of Penstock; it begins anew",
            markup=False,
        )
    folder = same[-1] if same and request.resume else _new_folder(request, runs)
    try:
        session = prepare(request, folder)
    except BaseException:
        if folder not in same:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    (folder / REQUEST).write_bytes(asked)
    tell_conditions(session.plan, said)
    if session.plan.hopeless:
        said.print(f"warning: {session.plan.hopeless}", style="yellow", markup=False)
    with _progress(said) as (phase, told):
        try:
            found = carry_out(session, phase, told)
        except KeyboardInterrupt:
            said.print("interrupted, all is stopped; the same command with --resume continues it")
            raise
    _tell(session, found, said)


def _identity(request: AdviceRequest) -> bytes:
    """The request, without how it is carried out, and what else its outcomes depend on: checksums of its trace and of
    the user's own scalers, and Penstock's version. PenstockError if there is no such trace.
    """
    import dataclasses

    import msgspec

    from experiments.driver import ROOT
    from experiments.replay.plan import names
    from penstock import __version__
    from penstock.own_class import is_own
    from penstock.rundir import git_revision

    if not request.trace.is_file():
        from penstock.errors import PenstockError

        raise PenstockError(f"{request.trace}: no such file")
    own = {Path(name.rpartition(":")[0]) for name in names(request.scalers) if is_own(name)}
    asked = {
        **dataclasses.asdict(request),
        **dict.fromkeys(("jobs", "engine", "resume", "json")),
        "trace": str(request.trace),
        "trace_sha256": _sha256(request.trace),
        "own_scalers_sha256": {str(path): _sha256(path) for path in own if path.is_file()},
        "penstock": __version__,
        "git_revision": git_revision(ROOT),
    }
    return msgspec.json.encode(asked, order="deterministic")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _new_folder(request: AdviceRequest, runs: Path) -> Path:
    from datetime import UTC, datetime

    from penstock.rundir import slug

    stem = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-advise-{slug(request.trace.stem) or 'trace'}"
    for number in range(1, 1000):
        folder = runs / (stem if number == 1 else f"{stem}-{number}")
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise AssertionError("there is always another number")


@contextlib.contextmanager
def _progress(said: "Console") -> "Iterator[tuple[Callable[[str], None], Callable[[int], None]]]":
    """A line with step, trials and time; without a terminal a line now and then."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    # No thread of its own: processes are forked while it is shown.
    bars = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(),
        console=said, transient=True, disable=not said.is_terminal, auto_refresh=False,
    )  # fmt: skip
    step, trials, told_s = "", 0, monotonic()
    with bars:
        line = bars.add_task("")

        def show() -> None:
            bars.update(line, description=f"{step}: {trials} trials", refresh=True)

        def phase(name: str) -> None:
            nonlocal step
            step = name
            show()

        def told(number: int) -> None:
            nonlocal trials, told_s
            trials = number
            show()
            if not said.is_terminal and monotonic() - told_s >= TOLD_EVERY_S:
                said.print(f"{step}: {trials} trials")
                told_s = monotonic()

        yield phase, told


def _tell(session: "Session", found: "Found", said: "Console") -> None:
    """Table, assumptions, sentence, commands and YAML; or all of it as JSON. Writes the page."""
    import msgspec
    from rich.console import Console

    from experiments.advise.advice import conditions, table_of, why_yaml
    from experiments.advise.page import write_page

    request, advice, experiment, facts = session.request, found.advice, session.plan.experiment, session.plan.facts
    for name, text in advice.manifests.items():
        (session.folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    write_page(session, found)
    rest = session.parts["rest"]
    if request.json:
        data = {
            "advice": advice,
            "scalers": found.rows,
            "trials": found.trials,
            "share": request.share,
            "slo_s": request.slo,
            "service_time_s": experiment.worker.service_time_s,
            "start_up_s": facts["start_up_s"],
            "rebalance_s": facts["rebalance_time_s"],
            "price_per_replica_hour": request.price,
            "partitions": experiment.partitions,
            "max_replicas": experiment.max_replicas,
            "proven_on_s": rest.seconds,
            "seeds": request.seeds,
            "warnings": session.plan.warnings,
            "hot_partitions": session.plan.hot,
            "folder": str(session.folder),
        }
        typer.echo(msgspec.json.format(msgspec.json.encode(data), indent=2))
        return
    # A file or a pipe has no edge at which a table would have to be folded.
    if found.rows:
        Console(width=None if said.is_terminal else WIDE).print(table_of(found.rows, request.share))
    assumed = conditions(session.plan, request, rest.minutes, advice.best)
    said.print(f"\n{found.trials} trials, {assumed}", markup=False)
    said.print(f"\n{advice.sentence}", markup=False, style="bold")
    for title, line in (("play it", advice.replay), ("deploy it", advice.control)):
        if line:
            said.print(f"{title}: {line}", markup=False)
    if advice.deployed:
        said.print(f"note: {advice.deployed}", markup=False)
    for name, text in advice.manifests.items():
        said.print(f"\n{why_yaml(name, advice)}; {session.folder / name}.yaml:\n{text}", markup=False)
    said.print(f"\nreport: {session.folder / 'report.html'}", markup=False)
