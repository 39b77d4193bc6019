"""``penstock watch``: a run at a terminal, during the run or afterwards, from its directory alone.

Rates, lag and replicas are those of the newest tick in the journal, so nothing is shown that a scaler has not seen;
latencies are what Spark publishes in the directory second by second (log-bucket histograms, merged and never averaged).
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from controller.journal import JournalTail, TickRecord
from penstock.contracts import Decision, FleetObservation
from penstock.errors import PenstockError
from penstock.measures import Distribution, bucket_upper_s, histogram_percentiles
from penstock.rundir import Manifest, RunDirectory
from penstock.runspec import RunSpec
from report.explain import explain
from report.wording import short_duration

RATE_S: Final = 5.0
RECENT_S: Final = 10
"""Seconds of results in the line of recent latencies."""
SILENCE_S: Final = 120.0
"""A run that has written nothing for this long has ended, or was ended."""
CURVE: Final = "▁▂▃▄▅▆▇█"
CURVE_WIDTH: Final = 60
DECISION_LINES: Final = 16
PHASES: Final = ("requested", "started", "joined", "draining", "pooled")


class Latency(msgspec.Struct, frozen=True):
    """Of ``count`` completed events, seconds; ``share``: of them within the SLO."""

    count: int
    share: float
    p50_s: float
    p99_s: float


class FinishedRun(msgspec.Struct, frozen=True):
    """The part of a finished run's summary.json that is shown: the exact figures."""

    completed_events: int = 0
    slo_share: float | None = None
    latency: Distribution = Distribution()


class Latencies:
    """What Spark has published of a run so far; read again when the file is a new one."""

    def __init__(self, directory: RunDirectory) -> None:
        self._per_second = directory.per_second_file
        self._summary = directory.summary_file
        self._read_ns = 0
        self.recent: Latency | None = None
        self.total: Latency | None = None

    def read(self) -> None:
        """Take the newest figures; once there is a summary, its own."""
        if self._summary.exists():
            self.total, self.recent = exact(self._summary), None
            return
        try:
            changed_ns = self._per_second.stat().st_mtime_ns
            if changed_ns == self._read_ns:
                return
            rows = pq.read_table(
                self._per_second, columns=["second", "slo_met", "buckets", "counts", "published_ns"]
            ).to_pylist()
        except (OSError, pa.ArrowInvalid):
            return
        self._read_ns = changed_ns
        newest = max((row["second"] for row in rows if row["published_ns"]), default=None)
        self.total = merged(rows)
        self.recent = newest and merged(row for row in rows if newest - RECENT_S < row["second"] <= newest)


def merged(rows: Iterable[dict[str, Any]]) -> Latency | None:
    """Percentiles of several seconds and stages together; None without an event."""
    met, buckets = 0, Counter[int]()
    for row in rows:
        met += row["slo_met"]
        for bucket, events in zip(row["buckets"], row["counts"], strict=True):
            buckets[bucket] += events
    if not buckets.total():
        return None
    found = np.array(sorted(buckets))
    summed = np.array([buckets[bucket] for bucket in found.tolist()])
    p50_s, p99_s = bucket_upper_s(histogram_percentiles(found, summed, (50.0, 99.0))).tolist()
    return Latency(buckets.total(), met / buckets.total(), p50_s, p99_s)


def exact(file: Path) -> Latency | None:
    """The whole run's, None without a completed event. PenstockError if that file is not a summary."""
    try:
        found = msgspec.json.decode(file.read_bytes(), type=FinishedRun)
    except msgspec.DecodeError as error:
        raise PenstockError(f"{file}: cannot be read as a summary: {error}") from None
    p50_s, p99_s, share = found.latency.p50_s, found.latency.p99_s, found.slo_share
    if p50_s is None or p99_s is None or share is None:
        return None
    return Latency(found.completed_events, share, p50_s, p99_s)


class WatchedRun:
    """A run with all that is shown of it; ``look`` brings it up to date."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.spec: RunSpec = directory.spec()
        self.journal = JournalTail(directory.decisions_file)
        self.latencies = Latencies(directory)
        self.manifest: Manifest | None = None

    def look(self) -> None:
        """Read what is new."""
        if self.spec.start_ns == 0:
            self.spec = self.directory.spec()
        if self.directory.finished:
            self.manifest = self.directory.manifest()
        self.journal.read()
        self.latencies.read()

    @property
    def silent_s(self) -> float:
        """Seconds since the journal (before it is there, the run's description) was last written."""
        written = self.directory.decisions_file
        return time.time() - (written if written.exists() else self.directory.spec_file).stat().st_mtime

    @property
    def over(self) -> bool:
        """Whether nothing more will be written."""
        return self.manifest is not None or self.silent_s > SILENCE_S


def find_run(runs: Path, given: Path | None) -> RunDirectory:
    """The run that was named, or the newest in ``runs``. PenstockError where there is none."""
    if given is not None:
        return RunDirectory.open(given)
    found = [path.parent for path in runs.glob("*/run.json")]
    if not found:
        raise PenstockError(
            f"no run in {runs} yet: `penstock run …` or `make demo` makes one; one elsewhere can be named"
        )
    return RunDirectory.open(max(found, key=lambda path: (path / "run.json").stat().st_mtime))


# --- the frame -------------------------------------------------------------------------------------------------------


def frame(watched: WatchedRun) -> RenderableType:
    """Everything on one screen."""
    parts: list[RenderableType] = [Text(headline(watched), style="bold")]
    if ticks := watched.journal.ticks:
        parts += [fleets(ticks), curves(ticks), latency_lines(watched), decision_lines(watched, ticks), *shadows(ticks)]
    else:
        parts += [Text("no tick yet: the fleet is being brought up"), latency_lines(watched)]
    return Group(*parts, ending(watched))


def headline(watched: WatchedRun) -> str:
    """Name of the run, its acting scaler, and its time."""
    spec, ticks = watched.spec, watched.journal.ticks
    of = f" of {spec.duration_s:g}" if spec.duration_s else ""
    until = f", {ticks[-1].time_s:.0f}{of} s" if ticks else ""
    return f"{spec.run}: {spec.scaler.name} in the {spec.world} world{until}"


def fleets(ticks: Sequence[TickRecord]) -> Table:
    """One row for each fleet that one number scales."""
    table = Table("fleet", box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("arrivals", "done", "lag", *PHASES):
        table.add_column(title, justify="right")
    for part in ticks[-1].observation.parts():
        seen = [each for tick in ticks for each in tick.observation.parts() if each.fleet == part.fleet]
        rates = (rate_per_s(seen, field) for field in ("arrived", "completed"))
        table.add_row(
            part.fleet,
            *("unknown" if rate is None else f"{rate:,.1f}/s" for rate in rates),
            "unknown" if part.backlog is None else f"{part.backlog:,}",
            *(str(getattr(part.replicas, phase) or "·") for phase in PHASES),
        )
    return table


def rate_per_s(seen: Sequence[FleetObservation], field: str) -> float | None:
    """Of a cumulative counter, over the last ``RATE_S`` or a little more; None where it was not read twice."""
    known = [(each.time_s, getattr(each, field)) for each in seen if getattr(each, field) is not None]
    if len(known) < 2:
        return None
    newest_s, newest = known[-1]
    since_s, before = next(
        ((at_s, count) for at_s, count in reversed(known[:-1]) if newest_s - at_s >= RATE_S - 0.5), known[0]
    )
    return float(max(0, newest - before)) / (newest_s - since_s) if newest_s > since_s else None


def curves(ticks: Sequence[TickRecord]) -> Table:
    """Arrival rate, lag and replicas of the last ticks, all fleets together, each from 0 to its highest value."""
    shown = list(ticks)[-CURVE_WIDTH - 1 :]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    rates = [rate_per_s([before.observation, after.observation], "arrived") for before, after in pairwise(shown)]
    lags: list[float | None] = []
    replicas: list[float | None] = []
    for tick in shown[1:]:
        parts = tick.observation.parts()
        known = [part.backlog for part in parts if part.backlog is not None]
        lags.append(sum(known) if len(known) == len(parts) else None)
        replicas.append(sum(part.replicas.current for part in parts))
    for title, values in (("arrivals", rates), ("lag", lags), ("replicas", replicas)):
        highest = max((value for value in values if value is not None), default=None)
        table.add_row(
            Text(title, style="dim"), curve(values), Text("" if highest is None else f"≤ {highest:,.0f}", style="dim")
        )
    return table


def curve(values: Iterable[float | None]) -> str:
    """One character a value, eight heights; a blank where it is unknown."""
    shown = list(values)
    highest = max((value for value in shown if value is not None), default=0.0) or 1.0
    steps = len(CURVE) - 1
    return "".join(" " if value is None else CURVE[round(steps * max(0.0, value) / highest)] for value in shown)


def latency_lines(watched: WatchedRun) -> Text:
    """p50 and p99 against the SLO, recently and since the start."""
    text, slo = Text(), short_duration(watched.spec.slo_s)
    all_of = "so far" if watched.manifest is None else "of the run"
    for title, latency in (("last 10 s", watched.latencies.recent), (all_of, watched.latencies.total)):
        if latency is not None:
            text.append(f"latency {title}: p50 {short_duration(latency.p50_s)}, p99 ")
            style = "green" if latency.p99_s <= watched.spec.slo_s else "bold red"
            text.append(short_duration(latency.p99_s), style=style)
            text.append(f" (SLO {slo}), {latency.share:.1%} of {latency.count:,} within\n")
    if not text:
        why = "Spark has not published any yet" if watched.spec.analytics else "this run computes none until its end"
        text.append(f"latency: no figures, {why} (SLO {slo})\n")
    return text


def decision_lines(watched: WatchedRun, ticks: Sequence[TickRecord]) -> Text:
    """The acting scaler's last decision with its terms, and the last one that changed something."""
    text = Text()
    last = next((tick for tick in reversed(ticks) if tick.acting in tick.decisions), None)
    if last is None:
        return text
    lines = explain(last.acting, last.decisions[last.acting]).splitlines()
    text.append(f"at {last.time_s:g} s: ", style="dim")
    text.append("\n".join(lines[:DECISION_LINES]) + "\n")
    if len(lines) > DECISION_LINES:
        more = f"  … {len(lines) - DECISION_LINES} more lines: penstock explain {watched.directory.path}"
        text.append(f"{more} --at {int(last.time_s)}\n", style="dim")
    if last.note:
        text.append(f"{last.note}\n", style="yellow")
    changed = next((tick for tick in reversed(ticks) if tick.accepted is not None), None)
    if changed is not None and changed is not last and changed.accepted is not None:
        wanted = ", ".join(f"{fleet} {count}" for fleet, count in changed.accepted.targets.items())
        action = changed.decisions[changed.acting].action
        text.append(f"last change: at {changed.time_s:g} s, {action}: {wanted}\n", style="dim")
    return text


def shadows(ticks: Sequence[TickRecord]) -> Iterator[Table]:
    """The last advice of each shadow."""
    opinions: dict[str, Decision] = {}
    for tick in ticks:
        opinions |= {name: each for name, each in tick.decisions.items() if name != tick.acting}
    if not opinions:
        return
    table = Table("shadow", "would", "replicas", "why", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.columns[0].no_wrap = True
    for name, decision in sorted(opinions.items()):
        targets = decision.targets.values()
        reasons = (str(terms["reason"]) for terms in decision.why.values() if "reason" in terms)
        table.add_row(name, decision.action, ", ".join(map(str, targets)) or "·", next(reasons, ""))
    yield table


def ending(watched: WatchedRun) -> Text:
    """How the run ended, or why nothing is written."""
    if watched.manifest is not None:
        reasons = "; ".join(watched.manifest.reasons)
        return Text(f"the run has ended: {watched.manifest.verdict}{f' ({reasons})' if reasons else ''}", style="bold")
    if watched.silent_s > SILENCE_S:
        return Text(
            f"nothing was written for {watched.silent_s:.0f} s and there is no verdict: the run was ended", style="bold"
        )
    if watched.journal.ticks and watched.silent_s > 3 * RATE_S:
        return Text(f"no tick for {watched.silent_s:.0f} s: the run drains, or its controller is away", style="yellow")
    return Text("Ctrl-C leaves; the run continues", style="dim")
