"""A proxy passes bytes on; cut, it passes none and resets nothing; afterwards old connections are closed."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from infra.local.ports import free_port
from infra.local.service import listens
from tests.support.eventually import eventually

LATER_S = 10.0
SOON_S = 0.3


Proxied = tuple[subprocess.Popen[bytes], int, socket.socket]
"""The proxy, its port, and the socket to which it leads."""


@pytest.fixture
def proxy() -> Iterator[Proxied]:
    """A proxy that passes bytes on."""
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(LATER_S)
        ends = ("--listen", f"127.0.0.1:{port}", "--to", f"127.0.0.1:{server.getsockname()[1]}")
        with subprocess.Popen((sys.executable, "-m", "infra.local.proxy", *ends)) as process:
            eventually(lambda: listens(port), lambda: "the proxy does not listen")
            server.accept()[0].close()  # of the look before
            yield process, port, server
            process.terminate()
        assert process.returncode == 0


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=LATER_S)


def test_bytes_pass_in_both_directions_until_one_side_ends(proxy: Proxied) -> None:
    _, port, server = proxy
    with connect(port) as client, closing(server.accept()[0]) as service:
        client.sendall(b"question")
        assert service.recv(100) == b"question"
        service.sendall(b"answer")
        service.shutdown(socket.SHUT_WR)
        assert (client.recv(100), client.recv(100)) == (b"answer", b"")


def test_a_cut_passes_nothing_and_its_end_closes_old_connections_and_serves_new_ones(proxy: Proxied) -> None:
    process, port, server = proxy
    with connect(port) as client, closing(server.accept()[0]) as service:
        client.sendall(b"1")
        assert service.recv(100) == b"1"
        process.send_signal(signal.SIGUSR1)
        service.settimeout(SOON_S)
        with pytest.raises(TimeoutError):  # the signal may come after a byte or two
            while True:
                client.sendall(b"2")
                service.recv(100)
        client.settimeout(SOON_S)
        with pytest.raises(TimeoutError):
            client.recv(1)
        with connect(port) as newcomer:
            newcomer.sendall(b"3")
            newcomer.settimeout(SOON_S)
            with pytest.raises(TimeoutError):
                newcomer.recv(1)
            process.send_signal(signal.SIGUSR2)
            for end in (client, newcomer, service):
                end.settimeout(LATER_S)
                assert closed(end), "what was on its way is lost"
    with connect(port) as client, closing(server.accept()[0]) as service:
        client.sendall(b"4")
        assert service.recv(100) == b"4"


def test_a_proxy_that_cannot_listen_says_where_and_why_in_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken_address = f"127.0.0.1:{taken.getsockname()[1]}"
        words = (sys.executable, "-m", "infra.local.proxy", "--listen", taken_address, "--to", taken_address)
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert taken_address in line and "address already in use" in line.lower()


def closed(end: socket.socket) -> bool:
    try:
        return end.recv(100) == b""
    except ConnectionResetError:
        return True
