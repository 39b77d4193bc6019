"""Messages between the gateway and a function's fork server: JSON lines over a Unix socket.

The gateway sends ``Command``; the fork server sends ``BackendState`` after every command and every change. A message
holds the whole state, so that a restarted gateway needs the last line only.
"""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

BackendPhase = Literal["cold", "ready", "broken", "ending"]

LOOK_S: Final = 5.0


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """``start`` and ``end`` (SIGTERM) name a replica. ``quit``: end all replicas, then the fork server. Without any of
    these it asks for the state only. ``number`` is repeated in the answer. ``requested_ns``: start of the cold start.
    """

    number: int
    start: str = ""
    requested_ns: int = 0
    end: str = ""
    quit: bool = False


class BackendReplica(msgspec.Struct, kw_only=True):
    """One replica. ``cold``: in its cold start; ``broken``: its handler hangs, it takes no more requests; ``ending``:
    it was asked to end. ``created_ns`` and ``scheduled_ns``: of its pod, 0 for none or if not observed.
    """

    pid: int
    port: int
    address: str = "127.0.0.1"
    phase: BackendPhase
    created_ns: int = 0
    scheduled_ns: int = 0
    started_ns: int
    first_ns: int = 0
    busy: bool = False


class Departure(msgspec.Struct, frozen=True):
    """A replica that is gone. ``reason`` is empty if it was asked to end."""

    replica: str
    at_ns: int
    reason: str = ""


class BackendState(msgspec.Struct, frozen=True, kw_only=True):
    """All replicas of a backend, those that are gone (oldest first), and the sums of all their counters."""

    answers: int
    pid: int
    replicas: Mapping[str, BackendReplica]
    gone: tuple[Departure, ...] = ()
    invocations: int = 0
    failed: int = 0
    busy_s: float = 0.0
    violations: int = 0


def look(server: Path) -> BackendState:
    """Present state of the fork server at this socket, for other callers than its gateway. OSError if it is away."""
    command = Command(number=1)
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(LOOK_S)
        caller.connect(str(server))
        caller.sendall(msgspec.json.encode(command) + b"\n")
        with caller.makefile("rb") as lines:
            for line in lines:
                state = msgspec.json.decode(line, type=BackendState)
                if state.answers == command.number:
                    return state
    raise ConnectionError(f"{server}: the fork server has ended")
