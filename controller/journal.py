"""The journal of a run: what was seen, decided and carried out at each tick, and the life of each replica.

A decision can be explained from its line alone. Lines are only ever appended, also by a restarted controller, so that
a killed one loses at most the line that it was writing.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, TypeAlias

import msgspec

from penstock.contracts import (
    Accepted,
    Decision,
    FleetObservation,
    FunctionObservation,
    NetworkObservation,
    QueueObservation,
    ReplicaEvent,
    StreamObservation,
)
from penstock.rundir import JsonLines, RunDirectory, read_lines

AnyObservation: TypeAlias = (
    FleetObservation | StreamObservation | QueueObservation | FunctionObservation | NetworkObservation
)
"""Every kind that a journal can hold, told apart by the field ``kind``; a new kind of fleet is added here."""


class TickRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One tick. ``decisions`` has the scalers that were due, ``acting`` the one whose decision was carried out.

    ``time_s`` is when the tick was due (start of the run + grid + phase) and what scalers reckon with; ``at_ns`` is
    when it happened, and ``phase_s`` how far after its grid point. ``observe_us``, ``decide_us`` (all scalers
    together) and ``act_us`` are what the parts took on the loop's clock. ``skipped`` counts the ticks that were
    missed since the one before. ``errors`` names what failed: "monitor", "actuator" or a scaler.
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
    note: str = ""


class Journal(Protocol):
    """Where a loop writes what happened."""

    def tick(self, record: TickRecord) -> None:
        """One tick is over."""
        ...

    def replicas(self, events: Iterable[ReplicaEvent]) -> None:
        """Steps in the lives of replicas, in order."""
        ...


class RunJournal:
    """``decisions.jsonl`` and ``replicas.jsonl`` of a run directory. Safe to use from several threads."""

    def __init__(self, directory: RunDirectory) -> None:
        self._decisions = JsonLines(directory.decisions_file)
        self._replicas = JsonLines(directory.replicas_file)
        self._lock = threading.Lock()

    def tick(self, record: TickRecord) -> None:
        """Append to decisions.jsonl. Terms stay in the order in which they were computed."""
        with self._lock:
            self._decisions.append(msgspec.Raw(msgspec.json.encode(record)))

    def replicas(self, events: Iterable[ReplicaEvent]) -> None:
        """Append to replicas.jsonl."""
        with self._lock:
            for event in events:
                self._replicas.append(event)

    def close(self) -> None:
        """Close both files."""
        with self._lock:
            self._decisions.close()
            self._replicas.close()


def read_ticks(directory: RunDirectory) -> Iterator[TickRecord]:
    """The ticks of a run in order. Raises PenstockError if there is no journal or a line is not a tick."""
    directory.require(directory.decisions_file)
    return read_lines(directory.decisions_file, TickRecord)


def read_replica_events(directory: RunDirectory) -> Iterator[ReplicaEvent]:
    """The life of each replica in order. Raises PenstockError if there is no journal or a line is not an event."""
    directory.require(directory.replicas_file)
    return read_lines(directory.replicas_file, ReplicaEvent)
