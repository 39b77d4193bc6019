"""What the local world asks of each service: its ports, its program, and whether it answers."""

import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from infra.local.state import StateFolder
from penstock.errors import PenstockError
from penstock.supervision import Program

PREFIX = "service:"
"""Of services' names at the supervisor; replicas and the parts of a run have others."""


class Service(Protocol):
    """One service of a state folder. ``ports``: name of its setting → port."""

    name: str

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports it listens on."""
        ...

    @property
    def url(self) -> str:
        """What clients are given, as ``PENSTOCK_<NAME>``."""
        ...

    def prepare(self) -> Program:
        """Write its config and data folder. Raises PenstockError if the machine lacks something."""
        ...

    def answers(self) -> bool:
        """Whether it serves requests now; returns within two seconds."""
        ...


def service_program(
    state: StateFolder, name: str, command: tuple[str, ...], env: Mapping[str, str], grace_s: float
) -> Program:
    """The program of a service; not respawned, since a service that dies must be told of."""
    return Program(
        name=PREFIX + name,
        command=command,
        folder=service_folder(state, name),
        log=state.logs / f"{name}.log",
        env=env,
        grace_s=grace_s,
    )


def service_folder(state: StateFolder, name: str) -> Path:
    """Where its config and data lie; made on demand."""
    folder = state.path / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def find_executable(name: str, package: str) -> str:
    """Its full path. Raises PenstockError that names the Debian package it is in."""
    path = shutil.which(name)
    if path is None:
        raise PenstockError(f"there is no {name} on PATH: `make setup` installs it, or `apt-get install {package}`")
    return path


def listens(port: int) -> bool:
    """Whether something accepts connections on 127.0.0.1:port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
    except OSError:
        return False
