"""Prometheus metrics of one process: served on a free loopback port and announced through Prometheus' file discovery.

In a pod they are served on a port that is known beforehand (``PENSTOCK_METRICS``), and Prometheus finds the pods.
"""

import atexit
from collections.abc import Mapping
from pathlib import Path

import msgspec
from prometheus_client import REGISTRY, CollectorRegistry, start_http_server

from penstock.errors import PenstockError
from penstock.settings import Exposition


def expose(
    name: str, folder: Path | None, labels: Mapping[str, str] | None = None, registry: CollectorRegistry = REGISTRY
) -> int:
    """Serve ``registry`` and write ``folder/name.json``, removed again at exit; returns the port. PenstockError if the
    address of the settings can't be had.

    A killed process leaves its file behind: a successor of the same name overwrites it, the world removes the rest.
    """
    address = Exposition().metrics
    host, _, wanted = address.rpartition(":")
    try:
        server, _ = start_http_server(int(wanted), addr=host, registry=registry)
    except (OSError, ValueError) as error:
        raise PenstockError(f"PENSTOCK_METRICS={address}: metrics cannot be served there ({error})") from None
    port = int(server.server_port)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / f"{name}.json"
        partial = folder / f"{name}.partial"
        partial.write_bytes(
            msgspec.json.encode([{"targets": [f"127.0.0.1:{port}"], "labels": {"process": name, **(labels or {})}}])
        )
        partial.replace(target)
        atexit.register(target.unlink, missing_ok=True)
    return port
