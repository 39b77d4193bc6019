"""Prometheus metrics of one process: served on a free loopback port, announced through Prometheus' file discovery."""

import atexit
from collections.abc import Mapping
from pathlib import Path

import msgspec
from prometheus_client import REGISTRY, CollectorRegistry, start_http_server


def expose(
    name: str, folder: Path | None, labels: Mapping[str, str] | None = None, registry: CollectorRegistry = REGISTRY
) -> int:
    """Serve ``registry`` and write ``folder/name.json``, removed again at exit; returns the port.

    A killed process leaves its file behind: a successor of the same name overwrites it, the world removes the rest.
    """
    server, _ = start_http_server(0, addr="127.0.0.1", registry=registry)
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
