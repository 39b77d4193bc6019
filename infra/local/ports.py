"""Loopback TCP ports: free ones, and the holder of a taken one."""

import random
import socket
import time
from collections.abc import Collection
from typing import Final

import psutil

from penstock.errors import PenstockError

FREE_PORTS: Final = range(20000, 32000)
"""Below Linux' ephemeral range: what is chosen here stays free until its service binds it."""


DYING_S: Final = 5.0


def is_free(port: int) -> bool:
    """Whether a service can listen on 127.0.0.1:port. Connections of an earlier one that still linger do not matter."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_port(besides: Collection[int] = ()) -> int:
    """A free port, none of ``besides``."""
    chance = random.SystemRandom()
    for _ in range(1000):
        port = chance.choice(FREE_PORTS)
        if port not in besides and is_free(port):
            return port
    raise PenstockError(f"no free port found on 127.0.0.1 between {FREE_PORTS.start} and {FREE_PORTS.stop}")


def require_free(port: int, setting: str, service: str) -> None:
    """Raise PenstockError if a port is taken, with the setting and, if known, the process.

    A process that is being killed keeps its port for a moment; that is waited for.
    """
    deadline = time.monotonic() + DYING_S
    while not is_free(port):
        holder = _holder(port)
        if holder is not None or time.monotonic() > deadline:
            raise PenstockError(
                f"port {port} for {service} is taken by {holder or 'a process that cannot be seen from here'}: "
                f"stop that, or set {setting} to another port (0: any free one)"
            )
        time.sleep(0.05)


def _holder(port: int) -> str | None:
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:
        return None
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,) and connection.pid is not None:
            try:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
            except psutil.Error:
                return None
    return None
