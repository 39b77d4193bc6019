"""The run directory: one run's record, complete enough to analyse it again from here alone.

Layout::

    run.json           what was asked for (RunSpec)
    manifest.json      what it ran on, the verdict, checksums of what it rests on; written last
    schedule.parquet   intended times
    delivery.parquet   the sender's delivery reports, one row an event
    decisions.jsonl    one tick a line: observation, every scaler's decision, what was accepted
    replicas.jsonl     events of each replica
    faults.jsonl       what was injected, when
    ledger.parquet     event ids that were booked
    results/*.parquet  raw results
    metrics/*.parquet  per-second figures from Spark (latency, Prometheus series)
    latency.parquet    log-bucket histogram behind the CDF
    summary.json       the measures
    report.html
    verdict.json       verdict and share within the SLO, for scripts
    logs/              what the processes said

and during the run: ``controller-state.json`` (for a restarted controller), ``controller-ready`` (the initial replicas
have joined), ``blind`` (a fault: while it exists the monitor observes nothing).
"""

import errno
import hashlib
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Literal, TypeVar

import msgspec

from penstock.errors import ChangedRunError, PenstockError
from penstock.log_once import LogOnce
from penstock.records import read_record
from penstock.runspec import RunSpec

log = logging.getLogger(__name__)

Verdict = Literal["VALID", "DEGRADED", "INVALID"]

T = TypeVar("T", bound=msgspec.Struct)


LOAD_SESSION = "load"
"""Name of the experiment of Locust's sessions."""

NO_SPACE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
"""Errors of a write that finds no space: a full disk, a quota, a limit on the size of files."""

LEAST_FREE_BYTES = 32_000_000
"""A report alone has five million bytes."""


def check_runs_folder(folder: Path) -> None:
    """Make the folder of all runs. PenstockError if it is full, read-only or no folder."""
    remedy = "set PENSTOCK_RUNS to another folder"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise PenstockError(f"runs folder {folder}: {error.strerror}; {remedy}") from None
    if free < LEAST_FREE_BYTES:
        least = f"a run needs at least {LEAST_FREE_BYTES / 1e6:.0f} MB"
        raise PenstockError(f"runs folder {folder}: {free / 1e6:.0f} MB are free, {least}; make room, or {remedy}")


class FileSum(msgspec.Struct, frozen=True):
    """Size and SHA-256 of a file."""

    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a run ran on and whether it may be believed.

    ``cpu_saturation`` is the share of the run's seconds in which all cores together were more than 90 % busy; phases
    are of the ticks achieved, in seconds. ``files`` are those on which the verdict rests, by their path in the
    directory; None in the manifest of an older Penstock. ``command`` made the run; empty for one made by a program.
    """

    run: str
    command: str = ""
    finished_at: str
    git_revision: str
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    cpu_saturation: float | None = None
    tick_phase_p50_s: float | None = None
    tick_phase_p99_s: float | None = None
    files: Mapping[str, FileSum] | None = None
    shadows_note: str = (
        "Shadows advise on the system as the acting scaler drove it; they are not what would have happened under them."
    )


class RunDirectory:
    """Paths and readers of one run's directory. Nothing is created until it is written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.spec_file = path / "run.json"
        self.manifest_file = path / "manifest.json"
        self.schedule_file = path / "schedule.parquet"
        self.delivery_file = path / "delivery.parquet"
        self.decisions_file = path / "decisions.jsonl"
        self.replicas_file = path / "replicas.jsonl"
        self.faults_file = path / "faults.jsonl"
        self.ledger_file = path / "ledger.parquet"
        self.results_folder = path / "results"
        self.metrics_folder = path / "metrics"
        self.latency_file = path / "latency.parquet"
        self.summary_file = path / "summary.json"
        self.report_file = path / "report.html"
        self.logs_folder = path / "logs"
        self.controller_state_file = path / "controller-state.json"
        self.controller_ready_file = path / "controller-ready"
        self.refusal_file = path / "controller-refusal"
        self.blind_file = path / "blind"
        self.per_second_file = self.metrics_folder / "latency-per-second.parquet"

    @classmethod
    def create(cls, runs: Path, experiment: str, scaler: str, *, now: datetime | None = None) -> "RunDirectory":
        """Make ``runs/<utc>-<experiment>-<scaler>``; a number is added where that exists already."""
        stamp = (now or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
        name = f"{stamp}-{slug(experiment)}-{slug(scaler)}"
        for attempt in range(1, 1000):
            path = runs / (name if attempt == 1 else f"{name}-{attempt}")
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            directory = cls(path)
            for folder in (directory.results_folder, directory.metrics_folder, directory.logs_folder):
                folder.mkdir()
            return directory
        raise PenstockError(f"{runs}: a thousand runs named {name} exist already; remove some")

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """An existing run's directory. Raises PenstockError if it has no run.json."""
        directory = cls(path)
        if not directory.spec_file.is_file():
            from penstock.settings import Folders

            raise PenstockError(
                f"{path}: not a run directory (no run.json); "
                f"`penstock runs list` prints those in {Folders().runs} (PENSTOCK_RUNS)"
            )
        return directory

    @property
    def name(self) -> str:
        """The run's name, also the prefix of its topics."""
        return self.path.name

    def require(self, *files: Path) -> None:
        """Raise PenstockError that names what an incomplete run directory lacks."""
        missing = [file.name for file in files if not file.exists()]
        if missing:
            again = "run it again (`penstock compare … --resume` keeps the finished runs)"
            with suppress(PenstockError):  # run.json may be missing or broken, too
                if self.spec().experiment == LOAD_SESSION:
                    again = "the load session did not come to its end; start another one with `penstock load`"
            raise PenstockError(f"{self.path}: incomplete run directory, missing {', '.join(missing)}; {again}")

    def spec(self) -> RunSpec:
        """The specification of the run."""
        return _decode(self.spec_file, RunSpec)

    def manifest(self) -> Manifest:
        """Machine, versions and verdict of a finished run."""
        self.require(self.manifest_file)
        return _decode(self.manifest_file, Manifest)

    @property
    def finished(self) -> bool:
        """Whether the run came to its end: the manifest is written last."""
        return self.manifest_file.is_file()

    def file_sums(self) -> dict[str, FileSum]:
        """The files on which verdict and report rest, with their checksums."""
        single = (self.spec_file, self.schedule_file, self.delivery_file, self.ledger_file, self.decisions_file)
        more = (self.replicas_file, self.faults_file, self.latency_file, self.summary_file)
        folders = (self.results_folder, self.metrics_folder)
        found = [*single, *more, *(file for folder in folders for file in sorted(folder.glob("*.parquet")))]
        return {str(file.relative_to(self.path)): _sum_of(file) for file in found if file.is_file()}

    def verify(self, manifest: Manifest) -> None:
        """Raise ChangedRunError unless the directory has exactly the files of its manifest (unknown of an old run)."""
        if manifest.run != self.spec().run:
            raise ChangedRunError(f"{self.path}: manifest.json is of another run ({manifest.run})")
        if manifest.files is None:
            return
        found = self.file_sums()
        changed = []
        for name in sorted(manifest.files.keys() | found.keys()):
            if name not in found:
                changed.append(f"{name} is missing")
            elif manifest.files.get(name) != found[name]:
                changed.append(f"{name} {'does not match its checksum' if name in manifest.files else 'was added'}")
        if changed:
            raise ChangedRunError(f"{self.path}: changed after its end: {', '.join(changed)}; run it again")

    def write(self, file: Path, record: Any) -> None:
        """JSON, written beside and moved into place, so that a reader never sees half a file."""
        partial = file.with_name(file.name + ".partial")
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(record, order="deterministic"), indent=2) + b"\n")
        partial.replace(file)


def _sum_of(file: Path) -> FileSum:
    with file.open("rb") as content:
        return FileSum(file.stat().st_size, hashlib.file_digest(content, "sha256").hexdigest())


def _decode(file: Path, kind: type[T]) -> T:
    try:
        return read_record(msgspec.json.Decoder(kind), file.read_bytes())
    except FileNotFoundError:
        raise PenstockError(f"{file.parent}: incomplete run directory, missing {file.name}") from None
    except msgspec.DecodeError as error:
        raise PenstockError(f"{file}: cannot be read as {kind.__name__}: {error}") from None


@contextmanager
def while_full(trouble: LogOnce) -> Iterator[None]:
    """The block ends where the disk is full, which is noted: what it writes has to be written later."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        trouble.note(f"{error.strerror or error}: {error.filename or 'a journal'} is written when there is space")
    else:
        trouble.clear()


class JsonLines:
    """Append-only JSON lines, each flushed as it is written: a killed process loses at most a torn last line. While the
    disk is full, lines are kept and written with a later one.

    Opening a file whose last line is torn ends that line first, so that the next record is not lost to it.
    """

    def __init__(self, path: Path) -> None:
        torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
        self._path = path
        self._file: IO[bytes] = path.open("ab", buffering=0)
        self._encoder = msgspec.json.Encoder(order="deterministic")
        self._unwritten = bytearray()
        self._closed = False
        self._full = LogOnce(log, "%s")
        if torn:
            self._unwritten += b"\n"

    def append(self, record: Any) -> None:
        """One record, one line."""
        self._unwritten += self._encoder.encode(record) + b"\n"
        with while_full(self._full):
            self._write()

    def close(self) -> None:
        """Close the file; idempotent. OSError that names the file if lines are left for which there is no space."""
        if self._closed:
            return
        self._closed = True
        try:
            self._write()
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from None
        finally:
            self._file.close()

    def _write(self) -> None:
        while self._unwritten:  # a disk that is nearly full takes a part
            del self._unwritten[: self._file.write(self._unwritten)]


def read_lines(path: Path, kind: type[T]) -> Iterator[T]:
    """Records of a JSON-lines file in order; none if it does not exist. A line torn by a kill is skipped."""
    if not path.exists():
        return
    decoder = msgspec.json.Decoder(kind)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield read_record(decoder, line)
            except msgspec.ValidationError as error:
                raise PenstockError(f"{path}:{number}: not a {kind.__name__}: {error}") from None
            except msgspec.DecodeError:
                continue


def slug(text: str) -> str:
    """Letters, digits and dashes only, as topic and file names take them."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def git_revision(root: Path) -> str:
    """Commit of the working tree, with ``+changes`` where it differs; in an image that of its sources
    (PENSTOCK_REVISION); ``unknown`` elsewhere.
    """

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return os.environ.get("PENSTOCK_REVISION", "unknown")


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of Python and of the packages that a result depends on."""
    found = {"python": platform.python_version()}
    return found | {package: _version(package) for package in packages}


@cache
def _version(package: str) -> str:
    """Read once in a process: its metadata is a file of some hundred lines."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def machine() -> dict[str, Any]:
    """The machine, without its name."""
    import psutil

    return {
        "system": platform.system(),
        "release": platform.release(),
        "architecture": platform.machine(),
        "cores": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": sys.implementation.name,
    }
