"""Per-second and whole-run figures of each stage, merged from micro-batches of results.

Histograms only: percentiles of merged log buckets lie within one bucket of the exact ones, and nothing is averaged.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.clock import NANOS_PER_SECOND
from penstock.measures import PERCENTILES, Floats, Ints, bucket_upper_s, histogram_percentiles
from pipelines.deduplication import EarliestResults

NO_LATENCY: Final = -1
"""Bucket of results that have none: failed, rejected, dead-lettered."""


@dataclass(frozen=True, slots=True, eq=False)
class ResultColumns:
    """Terminal results of the run's events, one row each, as Spark hands them over. ``bucket``: log bucket of the
    latency or ``NO_LATENCY``; ``met``: whether the latency is within the SLO.
    """

    stage: npt.NDArray[np.object_]
    event_id: Ints
    finished_ns: Ints
    bucket: Ints
    met: npt.NDArray[np.bool_]


@dataclass(slots=True)
class Figures:
    """Latency histogram of completed events (bucket → count), how many met the SLO, and how many results had none."""

    counts: Counter[int] = field(default_factory=Counter)
    met: int = 0
    failed: int = 0

    @property
    def completed(self) -> int:
        """Events behind the histogram."""
        return self.counts.total()

    @property
    def slo_share(self) -> float | None:
        """Share of completed events within the SLO; None for none."""
        completed = self.completed
        return self.met / completed if completed else None

    def add(self, bucket: int, count: int, *, met: bool) -> None:
        """Count results of one bucket; ``count`` below 0 takes them back."""
        if bucket == NO_LATENCY:
            self.failed += count
            return
        self.met += count * met
        self.counts[bucket] += count
        if not self.counts[bucket]:
            del self.counts[bucket]

    def histogram(self) -> tuple[Ints, Ints]:
        """(buckets ascending, counts)."""
        buckets = sorted(self.counts)
        counts = [self.counts[bucket] for bucket in buckets]
        return np.asarray(buckets, dtype=np.int64), np.asarray(counts, dtype=np.int64)

    def percentiles_s(self) -> Floats | None:
        """Upper bounds of the buckets that hold ``PERCENTILES``; None without a completed event."""
        if not self.counts:
            return None
        return bucket_upper_s(histogram_percentiles(*self.histogram(), PERCENTILES))


@dataclass(slots=True)
class Second:
    """One whole second (since the epoch, by finishing time) of one stage.

    ``published_ns``: when its figures were first out with every result that the topic held after its end;
    ``updated_ns``: when they last changed. Both 0 until that happened.
    """

    figures: Figures = field(default_factory=Figures)
    published_ns: int = 0
    updated_ns: int = 0
    dirty: bool = True


class StageFigures:
    """All seconds of all stages. Not safe for threads: whoever shares it holds a lock."""

    def __init__(self) -> None:
        self.seconds: dict[tuple[str, int], Second] = {}
        self.totals: dict[str, Figures] = {}
        self._earliest: dict[tuple[str, bool], EarliestResults] = {}
        self._last_batch = -1

    def merge(self, batch: int, results: ResultColumns) -> bool:
        """Merge a micro-batch; one that Spark runs again after a failure is known by its number and left out."""
        if batch <= self._last_batch:
            return False
        completed = results.bucket != NO_LATENCY
        marks = np.stack((results.finished_ns, results.bucket * 2 + results.met))
        for stage in np.unique(results.stage.astype(str)).tolist():
            for has_latency in (True, False):
                rows = np.flatnonzero((results.stage == stage) & (completed == has_latency))
                if len(rows):
                    earliest = self._earliest.setdefault((stage, has_latency), EarliestResults())
                    added, removed = earliest.absorb(results.event_id[rows], marks[:, rows])
                    self._count(stage, added, 1)
                    self._count(stage, removed, -1)
        self._last_batch = batch
        return True

    def _count(self, stage: str, marks: Ints, sign: int) -> None:
        cells, counts = np.unique(marks // [[NANOS_PER_SECOND], [1]], axis=1, return_counts=True)
        total = self.totals.setdefault(stage, Figures())
        for second, cell, count in zip(*cells.tolist(), counts.tolist(), strict=True):
            entry = self.seconds.setdefault((stage, second), Second())
            entry.dirty = True
            for figures in (entry.figures, total):
                figures.add(cell >> 1, sign * count, met=bool(cell & 1))

    def publish(self, now_ns: int, complete_until_ns: int) -> None:
        """Stamp what is new: figures go out at ``now_ns``, and results up to ``complete_until_ns`` have been read."""
        for (_, second), entry in self.seconds.items():
            if entry.dirty:
                entry.updated_ns, entry.dirty = now_ns, False
            if not entry.published_ns and (second + 1) * NANOS_PER_SECOND <= complete_until_ns:
                entry.published_ns = now_ns

    @property
    def incomplete(self) -> bool:
        """Whether there is a second that was not published in full yet."""
        return any(not entry.published_ns for entry in self.seconds.values())

    def newest_published(self) -> Mapping[str, tuple[int, Second]]:
        """Newest second of each stage whose figures are out and complete."""
        seconds = sorted(self.seconds.items(), key=itemgetter(0))
        return {stage: (second, entry) for (stage, second), entry in seconds if entry.published_ns}
