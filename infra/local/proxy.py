"""A TCP proxy that can be cut: ``python -m infra.local.proxy --run DIRECTORY --listen HOST:PORT --to HOST:PORT``.

SIGUSR1 cuts: no byte passes in either direction and no new connection gets an answer; nothing is reset, as when packets
are lost. SIGUSR2 ends the cut: all connections of before are closed and what was on its way in them is lost; new ones
are served.
"""

import argparse
import asyncio
import signal
import sys
from contextlib import suppress
from typing import Final

CHUNK_BYTES: Final = 65_536
CONNECT_S: Final = 5.0


class Proxy:
    """Passes bytes on to ``host:port`` unless it is cut."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._passing = asyncio.Event()
        self._passing.set()
        self._connections: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Pass nothing on from now on."""
        self._passing.clear()

    def mend(self) -> None:
        """Close all connections and serve new ones. Nothing to do without a cut."""
        if not self._passing.is_set():
            for connection in self._connections:
                connection.cancel()
            self._passing.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until one side ends it, the cut's end closes it or the proxy ends."""
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        writers = [writer]
        try:
            await self._passing.wait()
            async with asyncio.timeout(CONNECT_S):
                back_reader, back_writer = await asyncio.open_connection(self._host, self._port)
            writers.append(back_writer)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass_on(reader, back_writer))
                both.create_task(self._pass_on(back_reader, writer))
        except* (OSError, asyncio.CancelledError):
            pass  # a side has gone, or the cut is over: both connections are closed
        finally:
            self._connections.discard(task)
            for each in writers:
                each.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            await self._passing.wait()
            writer.write(chunk)
            await writer.drain()
        await self._passing.wait()
        with suppress(OSError):
            writer.write_eof()


async def serve(listen: tuple[str, int], to: tuple[str, int]) -> None:
    """Serve until SIGTERM."""
    proxy, stopped = Proxy(*to), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number, act in ((signal.SIGUSR1, proxy.cut), (signal.SIGUSR2, proxy.mend), (signal.SIGTERM, stopped.set)):
        loop.add_signal_handler(number, act)
    server = await asyncio.start_server(proxy.serve, *listen)
    await stopped.wait()
    server.close()


def address(text: str) -> tuple[str, int]:
    """``host:port``."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m infra.local.proxy", description=__doc__)
    parser.add_argument("--run", help="directory of the run that it belongs to; `penstock down` and `ps` show it")
    parser.add_argument("--listen", required=True, type=address, help="host:port")
    parser.add_argument("--to", required=True, type=address, help="host:port")
    given = parser.parse_args()
    try:
        asyncio.run(serve(given.listen, given.to))
    except OSError as error:
        sys.exit(f"cannot listen on {given.listen[0]}:{given.listen[1]}: {error.strerror or error}")


if __name__ == "__main__":
    main()
