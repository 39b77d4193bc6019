"""The functions' gateway of the local world: its control plane, which looks after HAProxy and the replicas."""

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from functions.gateway.haproxy import find_haproxy
from functions.gateway.parents import PARENTS
from infra.local.service import service_folder, service_program
from infra.local.state import MARKER, StateFolder, write_private
from penstock.supervision import Program, base_environment


class Gateway:
    """On loopback, with a password for /system. ``redis_url``: where functions keep intermediate results.

    Stopped, it lets replicas finish what they have in hand and takes HAProxy and all replicas with it. Killed, it
    leaves them serving, and the supervisor starts it again to go on with them; where no supervisor is left, ``penstock
    down`` finds them by their mark.
    """

    name = "gateway"

    def __init__(self, state: StateFolder, port: int, password: str, redis_url: str) -> None:
        self._state = state
        self._port = port
        self._password = password
        self._redis_url = redis_url

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports it listens on."""
        return {"PENSTOCK_GATEWAY_PORT": self._port}

    @property
    def url(self) -> str:
        """With the credentials."""
        return f"http://admin:{self._password}@127.0.0.1:{self._port}"

    def prepare(self) -> Program:
        """Write the password down. Raises PenstockError if there is no HAProxy."""
        find_haproxy()
        folder = service_folder(self._state, self.name)
        password = folder / "password"
        write_private(password, self._password.encode())
        command = (
            *(sys.executable, "-m", "functions.gateway", "--state", str(folder), "--port", str(self._port)),
            *("--password-file", str(password), "--scrape-targets", str(self._state.scrape_targets)),
            *("--pass-on", MARKER, "--pass-on", "redis_url"),
        )
        env = {**base_environment(), "redis_url": self._redis_url}
        return msgspec.structs.replace(
            service_program(self._state, self.name, command, env, grace_s=25.0), respawn=True
        )

    def answers(self) -> bool:
        """Whether both HAProxy and the control plane do."""
        import httpx

        try:
            return httpx.get(f"http://127.0.0.1:{self._port}/healthz", timeout=2.0, trust_env=False).is_success
        except httpx.HTTPError:
            return False


def warm_parents(state: StateFolder) -> list[Path]:
    """Sockets of the functions' warm parents, of the gateway in that folder."""
    return sorted((service_folder(state, Gateway.name) / PARENTS).glob("*"))
