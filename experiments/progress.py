"""What the person who waits sees: one line that moves, and notes that stay.

The figures of a run in progress come from the last line of its journal, whatever the world.
"""

import threading
import time
from types import TracebackType
from typing import Any, Self

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from penstock.clock import NANOS_PER_SECOND
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec

TAIL_BYTES = 65_536


class RunProgress:
    """A progress bar over the runs of a command; safe to use where the output is no terminal (notes only)."""

    def __init__(self, console: Console, runs: int) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("[bold]{task.fields[title]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[state]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._runs = runs
        self._number = 0
        self._task: TaskID | None = None
        self._watching = threading.Event()

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watching.set()
        self._bars.stop()

    def begin(self, title: str) -> None:
        """The next run."""
        self._end_task()
        self._number += 1
        prefix = f"run {self._number} of {self._runs}: " if self._runs > 1 else ""
        self._task = self._bars.add_task("", total=1.0, title=prefix + title, state="")
        if not self._console.is_terminal:
            self._console.print(prefix + title)

    def phase(self, text: str) -> None:
        """What is being done now."""
        self._watching.set()
        if self._task is not None:
            self._bars.update(self._task, state=text)
        if self._task is None or not self._console.is_terminal:
            self.note(text)

    def note(self, text: str) -> None:
        """A line that stays."""
        self._bars.console.print(f"  {text}", highlight=False, soft_wrap=True)

    def running(self, directory: RunDirectory, spec: RunSpec) -> None:
        """Follow a run's journal until the next phase."""
        self.phase(f"running for {spec.duration_s:g} s")
        self._watching = threading.Event()
        if self._console.is_terminal:
            threading.Thread(target=self._follow, args=(directory, spec, self._watching), daemon=True).start()

    def _follow(self, directory: RunDirectory, spec: RunSpec, stop: threading.Event) -> None:
        task = self._task
        while task is not None and not stop.wait(0.5):
            elapsed_s = time.time() - spec.start_ns / NANOS_PER_SECOND
            state = f"{max(0.0, elapsed_s):4.0f}/{spec.duration_s:.0f} s  {_last_tick(directory, spec)}"
            self._bars.update(task, completed=min(1.0, max(0.0, elapsed_s / spec.duration_s)), state=state)

    def _end_task(self) -> None:
        self._watching.set()
        if self._task is not None:
            self._bars.remove_task(self._task)
            self._task = None


def _last_tick(directory: RunDirectory, spec: RunSpec) -> str:
    """Arrivals, lag and replicas of the newest journal line, in words."""
    tick = _last_line(directory)
    observation = tick.get("observation") or {}
    replicas = observation.get("replicas") or {}
    current = sum(replicas.get(phase, 0) for phase in ("requested", "started", "joined"))
    rates = [partition.get("arrival_rate_per_s") for partition in observation.get("partitions") or ()]
    known = [rate for rate in rates if rate is not None]
    action = ((tick.get("decisions") or {}).get(spec.scaler.name) or {}).get("action", "")
    parts = [
        f"{sum(known):.0f} events/s" if known else "",
        f"lag {observation['backlog']}" if observation.get("backlog") is not None else "",
        f"{current} replicas" if current else "",
        action if action in ("up", "down", "reassign") else "",
    ]
    return ", ".join(part for part in parts if part)


def _last_line(directory: RunDirectory) -> dict[str, Any]:
    try:
        with directory.decisions_file.open("rb") as journal:
            journal.seek(0, 2)
            journal.seek(max(0, journal.tell() - TAIL_BYTES))
            lines = journal.read().split(b"\n")
        return msgspec.json.decode(lines[-2], type=dict[str, Any]) if len(lines) > 1 else {}
    except (OSError, msgspec.DecodeError):
        return {}
