"""The socket of a server, taken before the server starts: a taken address is one line, and a free port is known."""

import socket

from penstock.errors import PenstockError


def listen(host: str, port: int, way_out: str) -> socket.socket:
    """A socket bound to ``host:port``; port 0 takes a free one. Raises PenstockError that ends in ``way_out``."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise PenstockError(f"http://{host}:{port}: cannot listen there ({error.strerror}); {way_out}") from None
    return listener


def port_of(listener: socket.socket) -> int:
    """The port that it has."""
    return int(listener.getsockname()[1])
