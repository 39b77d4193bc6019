"""The external scaler's service in a thread of the test."""

import asyncio
import gc
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from controller.keda.service import Fleets, serve
from controller.keda.tls import TlsFiles
from infra.local.ports import free_port
from tests.support.eventually import eventually


@contextmanager
def frozen_broker() -> Iterator[str]:
    """An address where connections are taken and nothing is ever answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def serving(broker: str, tls: TlsFiles | None = None) -> Iterator[str]:
    """Its address, while it serves the groups of that broker."""
    address, stop, loop = f"127.0.0.1:{free_port()}", asyncio.Event(), asyncio.new_event_loop()
    service = serve(Fleets(broker, {}, tls=tls is not None), address, stop, tls)
    thread = threading.Thread(target=loop.run_until_complete, args=(service,))
    thread.start()
    try:
        eventually(lambda: _listens(address), "the service does not listen")
        yield address
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        with warnings.catch_warnings():  # of sockets that kafka-python could not connect
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def _listens(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as client:
        return client.connect_ex((host, int(port))) == 0
