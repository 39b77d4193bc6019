"""The journal of a run: every tick with what was observed, decided and carried out, and every step of a replica.

A decision can be explained from its line alone. Lines are only appended, also by a restarted controller: a killed one
loses at most the line that it was writing.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec

from penstock.contracts import Accepted, Decision, ReplicaEvent
from penstock.fleet_kinds import AnyObservation
from penstock.rundir import JsonLines, RunDirectory, read_lines

KEPT: Final = 120
"""Ticks that are kept of a journal that grows, for the small curves and each shadow's last advice."""
TAIL_BYTES: Final = 4_000_000
"""Of a long journal only the end is read."""


class TickRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tick. ``decisions`` has the scalers that were due, ``acting`` the one whose decision was carried out.

    ``time_s`` is when the tick was due (start of the run + grid + phase), the time that scalers compute with; ``at_ns``
    is when it happened, and ``phase_s`` how far after its grid point. ``observe_us``, ``decide_us`` (all scalers) and
    ``act_us`` are durations on the loop's clock. ``skipped`` counts the ticks missed since the one before. ``errors``
    has the error of what failed: "monitor", "actuator" or a scaler. ``slow`` has the seconds of each scaler whose
    decision took longer than its interval.
    """

    tick: int
    time_s: float
    at_ns: int
    phase_s: float
    observe_us: float = 0.0
    decide_us: float = 0.0
    act_us: float = 0.0
    observation: AnyObservation
    decisions: Mapping[str, Decision]
    acting: str
    accepted: Accepted | None = None
    plan_epoch: int = 0
    skipped: int = 0
    errors: Mapping[str, str] = msgspec.field(default_factory=dict)
    slow: Mapping[str, float] = msgspec.field(default_factory=dict)
    note: str = ""


class TickJournal(Protocol):
    """Where a loop reports its ticks."""

    def tick(self, record: TickRecord) -> None:
        """Take in one tick."""
        ...


class DecisionsFile:
    """``decisions.jsonl`` of a run directory. ``epoch_ns`` is added to the records' ``at_ns``."""

    def __init__(self, directory: RunDirectory, epoch_ns: int = 0) -> None:
        self._lines = JsonLines(directory.decisions_file)
        self._epoch_ns = epoch_ns

    def tick(self, record: TickRecord) -> None:
        """Append a tick. Terms stay in the order in which they were computed."""
        record = msgspec.structs.replace(record, at_ns=self._epoch_ns + record.at_ns)
        self._lines.append(msgspec.Raw(msgspec.json.encode(record)))

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


class ReplicasFile:
    """``replicas.jsonl`` of a run directory. ``epoch_ns`` is added to the events' ``at_ns``."""

    def __init__(self, directory: RunDirectory, epoch_ns: int = 0) -> None:
        self._lines = JsonLines(directory.replicas_file)
        self._epoch_ns = epoch_ns

    def append(self, events: Iterable[ReplicaEvent]) -> None:
        """Append events in order."""
        for event in events:
            self._lines.append(msgspec.structs.replace(event, at_ns=self._epoch_ns + event.at_ns))

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


def read_ticks(directory: RunDirectory) -> Iterator[TickRecord]:
    """The ticks of a run in order. PenstockError if there is no journal or a line is not a tick."""
    directory.require(directory.decisions_file)
    return read_lines(directory.decisions_file, TickRecord)


def read_replica_events(directory: RunDirectory) -> Iterator[ReplicaEvent]:
    """The replica events of a run in order. PenstockError if there is no journal or a line is not an event."""
    directory.require(directory.replicas_file)
    return read_lines(directory.replicas_file, ReplicaEvent)


class JournalTail:
    """The end of a journal that grows: ``read`` takes in the lines that are new."""

    def __init__(self, path: Path) -> None:
        self.ticks: deque[TickRecord] = deque(maxlen=KEPT)
        self._path = path
        self._at = 0
        self._torn = b""
        self._decoder = msgspec.json.Decoder(TickRecord)

    def read(self) -> None:
        """Take in what was appended; a line that is not whole yet waits for its end."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            size = file.seek(0, 2)
            skipping = self._at == 0 and size > TAIL_BYTES
            file.seek(size - TAIL_BYTES if skipping else self._at)
            *lines, self._torn = (self._torn + file.read()).split(b"\n")
            self._at = file.tell()
        for line in lines[1:] if skipping else lines:
            try:
                self.ticks.append(self._decoder.decode(line))
            except msgspec.DecodeError:
                continue  # torn by a kill; the journal's readers skip it too
