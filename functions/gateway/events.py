"""Numbered log of replica events in a file: a restarted control plane continues the numbers."""

import logging
from pathlib import Path

from penstock.contracts import ReplicaEvent
from penstock.function_messages import ReplicaEvents
from penstock.rundir import JsonLines, read_lines

log = logging.getLogger("events")

MOST_AT_ONCE = 10_000


class EventLog:
    """``events.jsonl`` of a gateway. ``fresh``: start empty."""

    def __init__(self, file: Path, *, fresh: bool) -> None:
        if fresh:
            file.unlink(missing_ok=True)
        self._events = list(read_lines(file, ReplicaEvent))
        self._file = JsonLines(file)

    def add(self, event: ReplicaEvent) -> None:
        """Append one event."""
        self._events.append(event)
        self._file.append(event)
        log.info("%s %s%s", event.replica, event.phase, f" ({event.reason})" if event.reason else "")

    def since(self, number: int) -> ReplicaEvents:
        """Events from ``number`` on, at most ten thousand; from the start if ``number`` is beyond the end."""
        start = number if 0 <= number <= len(self._events) else 0
        found = tuple(self._events[start : start + MOST_AT_ONCE])
        return ReplicaEvents(next=start + len(found), events=found)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
