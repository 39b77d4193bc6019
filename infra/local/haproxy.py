"""The gateway of the functions in the local world: its control plane, which manages HAProxy and the replicas."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from functions.gateway.backends import SOCKETS
from functions.gateway.haproxy import find_haproxy
from infra.local.service import Service, service_folder
from infra.local.state import MARKER, StateFolder, write_private
from penstock.adapters.process_manager import Program


@dataclass(frozen=True, repr=False)  # its password is not for logs
class Gateway(Service):
    """The gateway, with a password for /system. ``redis_url``: store of the functions' intermediate results.

    On SIGTERM, replicas finish their requests in flight, then they and HAProxy end. After SIGKILL they serve until
    the supervisor starts the gateway again, which adopts them; without a supervisor, ``penstock down`` ends them.
    """

    name: ClassVar = "gateway"
    health: ClassVar = "/healthz"
    """Of both HAProxy and the control plane."""

    password: str
    redis_url: str

    @property
    def url(self) -> str:
        """With the credentials."""
        return f"http://admin:{self.password}@127.0.0.1:{self.port}"

    def prepare(self) -> Program:
        """Write the password down. Raises PenstockError if there is no HAProxy."""
        find_haproxy()
        folder = self.folder
        password = folder / "password"
        write_private(password, self.password.encode())
        command = (
            *(sys.executable, "-m", "functions.gateway", "--state", str(folder), "--port", str(self.port)),
            *("--password-file", str(password), "--scrape-targets", str(self.state.scrape_targets)),
            *("--pass-on", MARKER, "--pass-on", "redis_url"),
        )
        return self.program(command, 25.0, {"redis_url": self.redis_url}, respawn=True)


def fork_servers(state: StateFolder) -> list[Path]:
    """Sockets of the functions' fork servers, of the gateway in that folder."""
    return sorted((service_folder(state, Gateway.name) / SOCKETS).glob("*"))
