"""What the gateway knows of a function's replicas, and how a warm parent tells it.

A warm parent and the gateway talk over a Unix socket: JSON, one line a message. The gateway sends ``Command``; the
parent sends a ``Brood`` after every command and whenever something has changed. What is told is how things are, not
what changed: a gateway that was started anew needs the last line only.
"""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

HatchlingPhase = Literal["cold", "ready", "broken", "ending"]

LOOK_S: Final = 5.0


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """``start`` and ``end`` (SIGTERM) name a replica. ``quit``: end all of them and then yourself. Without any of
    these it asks for the state only. ``number`` comes back in the answer. ``requested_ns``: when the replica was asked
    for; its cold start runs from then.
    """

    number: int
    start: str = ""
    requested_ns: int = 0
    end: str = ""
    quit: bool = False


class Hatchling(msgspec.Struct, kw_only=True):
    """One replica. ``cold``: in its cold start; ``broken``: its handler hangs, it takes no more requests;
    ``ending``: it was told to end. ``created_ns`` and ``scheduled_ns``: of its pod, 0 where there is none or
    nobody saw.
    """

    pid: int
    port: int
    address: str = "127.0.0.1"
    phase: HatchlingPhase
    created_ns: int = 0
    scheduled_ns: int = 0
    started_ns: int
    ready_ns: int = 0
    first_ns: int = 0
    busy: bool = False


class Departure(msgspec.Struct, frozen=True):
    """A replica that is gone. ``reason`` is empty if it was asked to go."""

    replica: str
    at_ns: int
    reason: str = ""


class Brood(msgspec.Struct, frozen=True, kw_only=True):
    """All replicas of a parent, those that are gone (oldest first), and what all of them have done together."""

    answers: int
    function: str
    pid: int
    replicas: Mapping[str, Hatchling]
    gone: tuple[Departure, ...] = ()
    invocations: int = 0
    failed: int = 0
    busy_s: float = 0.0
    violations: int = 0


def look(parent: Path) -> Brood:
    """What the warm parent at this socket has now, for those who are not its gateway. Raises OSError if it is away."""
    command = Command(number=1)
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(LOOK_S)
        caller.connect(str(parent))
        caller.sendall(msgspec.json.encode(command) + b"\n")
        with caller.makefile("rb") as lines:
            for line in lines:
                brood = msgspec.json.decode(line, type=Brood)
                if brood.answers == command.number:
                    return brood
    raise ConnectionError(f"{parent}: the warm parent has gone")
