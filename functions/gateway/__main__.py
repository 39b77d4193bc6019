"""The gateway as a process: ``python -m functions.gateway --state FOLDER --port PORT``.

SIGTERM ends all of it: requests in hand, replicas, HAProxy. SIGHUP ends the control plane alone, and so does whatever
kills it: requests go on being served, and the next control plane in that folder goes on from there.
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

from functions.gateway.control import ControlPlane
from functions.gateway.provider import Provider
from functions.loading import HANDLERS
from penstock.errors import PenstockError
from penstock.exposition import expose

log = logging.getLogger("gateway")


async def serve(control: ControlPlane, password: str, ending: Sequence[str]) -> None:
    """Until a signal comes. ``ending`` holds the name of one that came already."""
    await control.start()
    socket_path = control.state / "control.sock"
    socket_path.unlink(missing_ok=True)
    server = uvicorn.Server(
        uvicorn.Config(
            Provider(control, password).application,
            uds=str(socket_path),
            lifespan="off",
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=2,
        )
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: _leave(server, ending))
    try:
        if not ending:
            log.info("answers on %s", control.url)
            await server.serve()
    finally:
        if "SIGHUP" in ending:
            await control.leave()
        else:
            await control.stop()
    log.info("has ended")


def _leave(server: uvicorn.Server, ending: Sequence[str]) -> None:
    assert isinstance(ending, list)
    ending.append("SIGHUP")
    server.should_exit = True


def main(arguments: Sequence[str] | None = None) -> int:
    """The process. Exit code 0 after a signal, 2 with one line for what the user can mend."""
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
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    ending: list[str] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn has handlers of its own while it serves, and raises what it caught once more when it has ended.
        signal.signal(number, lambda *_: ending.append("SIGTERM"))
    try:
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
    except OSError as error:
        sys.stderr.write(f"error: {error.filename}: {error.strerror}\n")
        return PenstockError.exit_code
    except PenstockError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
