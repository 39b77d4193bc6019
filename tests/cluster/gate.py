"""A door in front of a server: TCP goes through while it is open, and while it is shut the server is away."""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Final, Self

CHUNK: Final = 1 << 16


class Gate:
    """Listens on a port of 127.0.0.1 and hands all on to ``host``:``port``. Shut, it breaks what goes through and
    refuses what comes.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._lock = threading.Lock()
        self._through: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shut()

    def open(self) -> None:
        """Let in, on the same port each time; nothing to do if it is open."""
        if self._listener is not None:
            return
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        with self._lock:
            self._listener = listener
        threading.Thread(target=self._let_in, args=(listener,), daemon=True).start()

    def shut(self) -> None:
        """The server is away from now on, for those who are connected, too."""
        with self._lock:
            listener, self._listener = self._listener, None
            through, self._through = self._through, set()
        if listener is not None:
            _break(listener)
        for each in through:
            _break(each)

    def _let_in(self, listener: socket.socket) -> None:
        while True:
            try:
                caller, _ = listener.accept()
                server = socket.create_connection(self._server, timeout=5)
            except OSError:
                if listener.fileno() < 0:
                    return
                continue
            server.settimeout(None)
            with self._lock:
                shut = self._listener is not listener
                if not shut:
                    self._through |= {caller, server}
            if shut:
                _break(caller)
                _break(server)
                return
            for one, other in ((caller, server), (server, caller)):
                threading.Thread(target=self._hand_on, args=(one, other), daemon=True).start()

    def _hand_on(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(CHUNK):
                other.sendall(data)
        _break(one)
        _break(other)
        with self._lock:
            self._through -= {one, other}


def _break(connection: socket.socket) -> None:
    """Close it, and wake whoever waits for it in another thread."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
