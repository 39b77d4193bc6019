"""A server's socket."""

import asyncio
import socket

import pytest

from penstock.errors import PenstockError
from penstock.sockets import listen


def test_a_taken_address_is_one_line_that_ends_in_the_way_out() -> None:
    first, port = listen("127.0.0.1", 0, "")
    with first:
        first.listen()
        assert port > 0
        with pytest.raises(
            PenstockError, match=rf"^http://127.0.0.1:{port}: cannot listen there \(.+\); choose another$"
        ):
            listen("127.0.0.1", port, "choose another")


def test_a_host_that_is_not_here_is_told_too() -> None:
    with pytest.raises(PenstockError, match=r"^http://192.0.2.1:80: cannot listen there"):
        listen("192.0.2.1", 80, "choose another")


def test_answers_in_two_writes_are_not_delayed() -> None:
    """asyncio turns Nagle's algorithm off only for sockets that say that they are TCP. With it, the second write waits
    for the client's delayed acknowledgement, 40 ms on Linux.
    """

    async def accepted() -> int:
        ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            ready.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listener, port = listen("127.0.0.1", 0, "")
        async with await asyncio.start_server(connected, sock=listener):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return await ready

    assert asyncio.run(accepted())
