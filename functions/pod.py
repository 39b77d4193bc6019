"""A replica in a pod: ``python -m functions.pod --gateway URL --pod NAME``.

It requests its identity and environment from the gateway (GET /penstock/pods/<pod>) and serves like a forked replica
(``functions.replica``), and its counters at ``COUNTERS_PATH``.
"""

import argparse
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import httpx
import msgspec

from functions.loading import Handle, handler_folder, load_handler
from functions.replica import BROKEN, Replica, ReplicaSettings, StartResponse
from functions.shared_counters import Counters
from penstock.process_main import UnassignedError, await_identity, configure_log, run_main
from penstock.sockets import EVERYWHERE, listen

log = logging.getLogger("pod")

PORT: Final = 8080
COUNTERS_PATH: Final = "/_/counters"
ASK_S: Final = 20.0


class FunctionIdentity(msgspec.Struct, frozen=True):
    """The replica that a pod is. ``requested_ns``: start of its cold start."""

    replica: str
    image: str
    environment: dict[str, str]
    requested_ns: int


class PodReplica(Replica):
    """Serves its counters, too. ``reported``: the other end of its status bytes."""

    def __init__(self, known: FunctionIdentity, handle: Handle, port: int) -> None:
        self._reported, status = socket.socketpair()
        self._reported.setblocking(False)
        self._counters = Counters()
        super().__init__(
            *(known.replica, handle, os.environ),
            listener=listen(EVERYWHERE, port, "choose another --port")[0],
            status=status,
            row=self._counters,
            requested_ns=known.requested_ns,
        )

    def serve(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """One request."""
        if environ["PATH_INFO"] != COUNTERS_PATH:
            return super().serve(environ, start_response)
        with contextlib.suppress(BlockingIOError):
            while status := self._reported.recv(64):
                self._counters.broken |= BROKEN in status
        start_response("200 OK", [("Content-Type", "application/json")])
        return [msgspec.json.encode(self._counters)]


def ask_identity(gateway: str, pod: str) -> FunctionIdentity:
    """Identity of this pod, polled until the gateway knows it; the gateway may start after its replicas."""
    with httpx.Client(base_url=gateway, timeout=ASK_S + 5, trust_env=False) as client:

        def ask() -> FunctionIdentity:
            answer = client.get(f"/penstock/pods/{pod}", params={"wait_s": ASK_S})
            if answer.status_code != httpx.codes.OK:
                raise UnassignedError(f"{answer.status_code} {answer.text.strip()}")
            return msgspec.json.decode(answer.content, type=FunctionIdentity)

        return await_identity(ask, httpx.HTTPError, msgspec.DecodeError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 2 with one line for a handler that cannot be imported or a wrong environment."""
    parser = argparse.ArgumentParser(prog="python -m functions.pod", description="A replica of a function in a pod.")
    parser.add_argument("--gateway", required=True, help="URL of the gateway, such as http://gateway:8080")
    parser.add_argument("--pod", required=True, help="name of this pod")
    parser.add_argument("--port", type=int, default=PORT, help="port to serve on, on all addresses")
    given = parser.parse_args(arguments)
    configure_log({"httpx": logging.WARNING, "waitress.queue": logging.ERROR})

    def work() -> None:
        known = ask_identity(given.gateway, given.pod)
        log.info("this is %s", known.replica)
        # Until it serves; a handler's import may swallow SystemExit.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        os.environ.update(known.environment)
        ReplicaSettings(os.environ)
        PodReplica(known, load_handler(handler_folder(known.image)), given.port).run()

    return run_main(work)


if __name__ == "__main__":
    sys.exit(main())
