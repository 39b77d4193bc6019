"""What happened to replicas, by number, written down line by line: a restarted control plane goes on counting."""

import logging
from pathlib import Path

import msgspec

from penstock.contracts import Phase, ReplicaEvent
from penstock.functions import ReplicaEvents

log = logging.getLogger("events")

MOST_AT_ONCE = 10_000


class EventLog:
    """``events.jsonl`` of a gateway. ``fresh``: begin anew."""

    def __init__(self, file: Path, *, fresh: bool) -> None:
        self._events = [] if fresh else _read(file)
        # Written again rather than appended to: the last line may be half a one.
        partial = file.with_suffix(".partial")
        partial.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in self._events))
        partial.replace(file)
        self._file = file.open("ab")

    def add(self, fleet: str, replica: str, phase: Phase, at_ns: int, reason: str = "") -> None:
        """One more."""
        event = ReplicaEvent(fleet, replica, phase, at_ns, reason)
        self._events.append(event)
        self._file.write(msgspec.json.encode(event) + b"\n")
        self._file.flush()
        log.info("%s %s%s", replica, phase, f" ({reason})" if reason else "")

    def since(self, number: int) -> ReplicaEvents:
        """From ``number`` on, at most ten thousand; from the beginning if ``number`` is beyond the end."""
        start = number if 0 <= number <= len(self._events) else 0
        found = tuple(self._events[start : start + MOST_AT_ONCE])
        return ReplicaEvents(next=start + len(found), events=found)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _read(file: Path) -> list[ReplicaEvent]:
    decoder = msgspec.json.Decoder(ReplicaEvent)
    events: list[ReplicaEvent] = []
    for line in file.read_bytes().splitlines() if file.exists() else ():
        try:
            events.append(decoder.decode(line))
        except msgspec.DecodeError:
            log.warning("a line of %s was cut short", file)
    return events
