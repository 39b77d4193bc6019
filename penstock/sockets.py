"""Sockets of servers. One is taken before its server starts: a taken address is one line, and a free port is known."""

import os
import socket
from pathlib import Path
from typing import Final

from penstock.errors import PenstockError

EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - a pod's address is not known beforehand
SOCKET_PATH_BYTES: Final = 107
"""Longest path of a Unix socket on Linux (``sockaddr_un``, less the closing zero)."""


def excess_bytes(path: Path) -> int:
    """By how many bytes the path of a Unix socket is too long for Linux; 0 if it fits."""
    return max(0, len(os.fsencode(path)) - SOCKET_PATH_BYTES)


def listen(host: str, port: int, way_out: str) -> tuple[socket.socket, int]:
    """A socket bound to ``host:port``, and its port, for port 0 a free one. PenstockError that ends in ``way_out``."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise PenstockError(f"http://{host}:{port}: cannot listen there ({error.strerror}); {way_out}") from None
    return listener, int(listener.getsockname()[1])
