"""Prometheus metrics of one process: served on a free loopback port and announced through Prometheus' file discovery.

In a pod they are served on a port that is known beforehand (``PENSTOCK_METRICS``), and Prometheus finds the pods.
"""

import atexit
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
from prometheus_client import REGISTRY, CollectorRegistry, start_http_server

from penstock.errors import PenstockError
from penstock.settings import Exposition


class Exposed(NamedTuple):
    """Metrics that are being served."""

    port: int
    close: Callable[[], None]
    """Withdraws the announcement and stops serving."""


def expose(
    name: str, folder: Path | None, labels: Mapping[str, str] | None = None, registry: CollectorRegistry = REGISTRY
) -> Exposed:
    """Serve ``registry`` and write ``folder/name.json``, removed again at exit. PenstockError if the address of the
    settings can't be had.

    A killed process leaves its file behind: a successor of the same name overwrites it, the world removes the rest.
    """
    address = Exposition().metrics
    host, _, wanted = address.rpartition(":")
    try:
        server, thread = start_http_server(int(wanted), addr=host, registry=registry)
    except (OSError, ValueError) as error:
        raise PenstockError(f"PENSTOCK_METRICS={address}: metrics cannot be served there ({error})") from None
    port = int(server.server_port)
    target = None if folder is None else folder / f"{name}.json"

    def withdraw() -> None:
        if target is not None:
            target.unlink(missing_ok=True)

    def close() -> None:
        withdraw()
        server.shutdown()
        server.server_close()
        thread.join()

    if folder is not None and target is not None:
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / f"{name}.partial"
        partial.write_bytes(
            msgspec.json.encode([{"targets": [f"127.0.0.1:{port}"], "labels": {"process": name, **(labels or {})}}])
        )
        partial.replace(target)
        atexit.register(withdraw)
    return Exposed(port, close)
