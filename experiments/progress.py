"""Progress of a command: one line that is updated, and notes that stay.

The figures of a run come from the last line of its journal.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from controller.journal import JournalTail, TickRecord
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import StreamObservation
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec

LINE_EVERY_S = 10.0
"""Without a terminal."""
LONG_SILENCE_S = 5.0
"""Without a tick, or three times as long as between the last two."""


class RunProgress:
    """A progress bar over the runs of a command; without a terminal, notes only."""

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
        self._running = False

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._watching.set()
        self._bars.stop()

    def begin(self, title: str) -> None:
        """Begin the next run."""
        self._end_task()
        self._number += 1
        prefix = f"run {self._number} of {self._runs}: " if self._runs > 1 else ""
        self._task = self._bars.add_task("", total=1.0, title=prefix + title, state="")
        if not self._console.is_terminal:
            self._console.print(prefix + title)

    def phase(self, text: str) -> None:
        """Show the current step."""
        self._running = False
        if self._task is not None:
            self._bars.update(self._task, state=text)
        if self._task is None or not self._console.is_terminal:
            self.note(text)
        began_s = time.monotonic()
        self._repeat(lambda: f"{text}: {time.monotonic() - began_s:.0f} s")

    def step(self, text: str) -> None:
        """Show a step of the world. While a run is running its figures stay the current step: a service that a fault
        has stopped starts beside it.
        """
        if self._running:
            self.note(text)
        else:
            self.phase(text)

    def note(self, text: str) -> None:
        """Print a line that stays."""
        self._bars.console.print(f"  {text}", highlight=False, soft_wrap=True)

    def running(self, directory: RunDirectory, spec: RunSpec) -> None:
        """Follow a run's journal until the next phase."""
        self.phase(f"running for {spec.duration_s:g} s")
        self._running = True
        task, journal = self._task, JournalTail(directory.decisions_file)

        def state() -> str:
            journal.read()
            elapsed_s = max(0.0, time.time() - spec.start_ns / NANOS_PER_SECOND)
            newest = _newest_tick(journal.ticks[-1]) if journal.ticks else ""
            if spec.world == "local":  # a pod's journal is copied at its end
                newest = silence(journal.ticks, elapsed_s) or newest
            text = f"{elapsed_s:4.0f}/{spec.duration_s:.0f} s  {newest}"
            if task is not None:
                self._bars.update(task, completed=min(1.0, elapsed_s / spec.duration_s), state=text)
            return text

        self._repeat(state)

    def _repeat(self, state: Callable[[], str]) -> None:
        """Tell the state again and again until the next step: in the bar, or without a terminal in a line."""
        self._watching.set()
        self._watching = stop = threading.Event()

        def tell() -> None:
            while not stop.wait(0.5 if self._console.is_terminal else LINE_EVERY_S):
                text = state()
                if not self._console.is_terminal:
                    self.note(text)

        threading.Thread(target=tell, daemon=True).start()

    def _end_task(self) -> None:
        self._watching.set()
        if self._task is not None:
            self._bars.remove_task(self._task)
            self._task = None


def silence(ticks: Sequence[TickRecord], elapsed_s: float) -> str:
    """That no tick came for long, as while a scaler decides and decides; empty otherwise."""
    period_s = ticks[-1].time_s - ticks[-2].time_s if len(ticks) > 1 else 0.0
    silent_s = elapsed_s - (ticks[-1].time_s if ticks else 0.0)
    return f"no tick for {silent_s:.0f} s" if silent_s > max(LONG_SILENCE_S, 3 * period_s) else ""


def _newest_tick(tick: TickRecord) -> str:
    """Arrivals, lag, replicas and action as text."""
    seen = tick.observation
    partitions = seen.partitions if isinstance(seen, StreamObservation) else ()
    rates = [each.arrival_rate_per_s for each in partitions if each.arrival_rate_per_s is not None]
    action = tick.decisions[tick.acting].action if tick.acting in tick.decisions else ""
    parts = [
        f"{sum(rates):.0f} events/s" if rates else "",
        f"lag {seen.backlog}" if seen.backlog is not None else "",
        f"{seen.replicas.current} replicas" if seen.replicas.current else "",
        action if action in ("up", "down", "reassign") else "",
    ]
    return ", ".join(part for part in parts if part)
