"""The gateway as a process: ``python -m functions.gateway --state FOLDER --port PORT``.

SIGTERM ends the requests, the replicas and HAProxy. SIGHUP, like a kill, ends the control plane only: requests are
still served, and the next control plane in that folder continues.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from functions.gateway.control_plane import ControlPlane
from functions.gateway.provider import Provider
from functions.loading import HANDLERS
from penstock.adapters.exposition import expose
from penstock.adapters.http_server import configuration
from penstock.errors import PenstockError
from penstock.process_main import configure_log, on_termination, run_main

log = logging.getLogger("gateway")


async def serve(control: ControlPlane, password: str, ending: list[str]) -> None:
    """Serve until a signal. ``ending`` holds the name of a signal received before."""
    await control.start()
    socket_path = control.state / "control.sock"
    socket_path.unlink(missing_ok=True)
    server = uvicorn.Server(
        configuration(Provider(control, password).application, uds=str(socket_path), timeout_graceful_shutdown=2)
    )

    def leave() -> None:
        ending.append("SIGHUP")
        server.should_exit = True

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, leave)
    try:
        if not ending:
            log.info("answers on %s", control.url)
            await server.serve()
    finally:
        await (control.leave() if "SIGHUP" in ending else control.stop())
    log.info("has ended")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 after a signal, 2 with one line for an error that the user can correct."""
    parser = argparse.ArgumentParser(prog="python -m functions.gateway", description="Gateway of functions.")
    parser.add_argument("--state", type=Path, required=True, help="folder for sockets, configuration and logs")
    parser.add_argument("--port", type=int, required=True, help="on 127.0.0.1; on Kubernetes on all addresses")
    parser.add_argument("--handlers", type=Path, action="append", help="folder of handlers' folders (default: ours)")
    parser.add_argument("--password-file", type=Path, help="password of the user admin for /system; without: none")
    parser.add_argument("--pass-on", action="append", default=[], metavar="NAME", help="variable for all replicas")
    parser.add_argument(
        "--namespace",
        default="",
        help="on Kubernetes: replicas are pods of the Deployments function-NAME there, HAProxy is another container",
    )
    parser.add_argument("--scrape-targets", type=Path, help="folder in which Prometheus looks for what to scrape")
    given = parser.parse_args(arguments)
    configure_log({"httpx": logging.WARNING})
    ending: list[str] = []
    # uvicorn has its own handlers while it serves, and raises the signal again when it has ended.
    on_termination(lambda: ending.append("SIGTERM"))

    def work() -> None:
        password = given.password_file.read_text().strip() if given.password_file is not None else ""
        control = ControlPlane(
            given.state,
            given.port,
            handlers=tuple(folder.absolute() for folder in given.handlers or (HANDLERS,)),
            environment={name: os.environ[name] for name in given.pass_on if name in os.environ},
            namespace=given.namespace,
        )
        if given.scrape_targets is not None:
            expose("gateway", given.scrape_targets, registry=control.registry)
        asyncio.run(serve(control, password, ending))

    try:
        return run_main(work)
    except OSError as error:
        sys.stderr.write(f"error: {error.filename}: {error.strerror}\n")
        return PenstockError.exit_code


if __name__ == "__main__":
    sys.exit(main())
