"""The interface of a service of the local world: its ports, its program, and whether it answers."""

import shutil
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar, Final

from infra.local.state import StateFolder
from penstock.adapters.process_manager import Program, base_environment
from penstock.errors import PenstockError

PREFIX: Final = "service:"
"""Prefix of the services' program names; replicas and the parts of a run have other names."""


@dataclass(frozen=True)
class Service(ABC):
    """One service of a state folder; it listens on loopback. Its ports are the fields whose names end in ``port``."""

    name: ClassVar[str]
    health: ClassVar[str] = "/"
    """Path of its health check over HTTP."""
    state: StateFolder
    port: int

    @property
    def ports(self) -> dict[str, int]:
        """Name of the setting → port."""
        names = [each.name for each in fields(self) if each.name.endswith("port")]
        return {f"PENSTOCK_{self.name}_{name}".upper(): getattr(self, name) for name in names}

    @property
    def url(self) -> str:
        """Address for clients, with credentials."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def exports(self) -> dict[str, str]:
        """Its addresses by variable."""
        return {f"PENSTOCK_{self.name.upper()}": self.url}

    @abstractmethod
    def prepare(self) -> Program:
        """Write config and data folder. Raises PenstockError if the machine lacks something."""

    def answers(self) -> bool:
        """Whether it serves requests now; returns within two seconds."""
        import httpx

        from penstock.adapters.tls import tls_context

        url = f"http://127.0.0.1:{self.port}{self.health}"
        try:
            return httpx.get(url, timeout=2.0, trust_env=False, verify=tls_context()).is_success
        except httpx.HTTPError:
            return False

    @property
    def folder(self) -> Path:
        """Folder of config and data; created on demand."""
        return service_folder(self.state, self.name)

    @property
    def log(self) -> Path:
        """Its log."""
        return self.state.logs / f"{self.name}.log"

    @property
    def listening(self) -> str:
        """Its address and ports, for messages."""
        return "127.0.0.1:" + ", ".join(map(str, self.ports.values()))

    def program(
        self, command: tuple[str, ...], grace_s: float, env: Mapping[str, str] | None = None, *, respawn: bool = False
    ) -> Program:
        """The service's program. ``env`` is added to the basic environment. By default it is not started again, since a
        service that dies has to be noticed.
        """
        env = {**base_environment(), **(env or {})}
        place = {"folder": self.folder, "log": self.log}
        return Program(name=PREFIX + self.name, command=command, **place, env=env, respawn=respawn, grace_s=grace_s)


def service_folder(state: StateFolder, name: str) -> Path:
    """Folder of a service's config and data; created on demand."""
    folder = state.path / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def find_executable(name: str, package: str) -> str:
    """Full path of a program. Raises PenstockError that names the Debian package."""
    path = shutil.which(name)
    if path is None:
        raise PenstockError(f"there is no {name} on PATH: `penstock setup` installs it, or `apt-get install {package}`")
    return path


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a process accepts connections on host:port."""
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False
