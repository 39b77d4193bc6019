"""A replica in a pod of its own: ``python -m functions.pod --gateway URL --pod NAME``.

It asks the gateway which replica of which function it is and with what environment (GET /penstock/pods/<pod>), imports
the handler, takes what is left of its cold start and serves on a port that all replicas have, one request at a time, as
replicas that are forked do (``functions.replica``). At ``TALLY_PATH`` it tells what it has done.
"""

import argparse
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

import httpx
import msgspec

from functions.loading import handler_folder, load_handler
from functions.replica import BROKEN, Replica, ReplicaSettings, StartResponse
from functions.tally import FIELDS, Counters
from penstock.errors import PenstockError

log = logging.getLogger("pod")

EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - the address of a pod, which nobody knows beforehand
PORT: Final = 8080
TALLY_PATH: Final = "/_/tally"
ASK_S: Final = 20.0
RETRY_S: Final = 0.2


class Introduction(msgspec.Struct, frozen=True):
    """Who a pod is. ``requested_ns``: when the replica was asked for; its cold start runs from then."""

    replica: str
    image: str
    environment: dict[str, str]
    requested_ns: int


class Tally(msgspec.Struct):
    """What a replica has done. ``broken``: its handler hangs, it takes no more requests."""

    invocations: int = 0
    failed: int = 0
    busy_ns: int = 0
    violations: int = 0
    busy: bool = False
    first_ns: int = 0
    broken: bool = False


class Told:
    """WSGI: the tally, and all else is the replica's. ``voice``: what the replica tells whoever has started it."""

    def __init__(self, row: Counters, voice: socket.socket, application: Any) -> None:
        self._row = row
        self._voice = voice
        self._application = application
        self._broken = False

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """One request."""
        if environ["PATH_INFO"] != TALLY_PATH:
            answered: Iterable[bytes] = self._application(environ, start_response)
            return answered
        self._listen()
        values = {field: self._row[field] for field in FIELDS}
        tally = msgspec.convert({**values, "busy": bool(values["busy"]), "broken": self._broken}, Tally)
        start_response("200 OK", [("Content-Type", "application/json")])
        return [msgspec.json.encode(tally)]

    def _listen(self) -> None:
        try:
            while said := self._voice.recv(64):
                self._broken |= BROKEN in said
        except BlockingIOError:
            return


def who_am_i(gateway: str, pod: str) -> Introduction:
    """Ask until the gateway knows. It may come up later than its replicas."""
    said = ""
    with httpx.Client(base_url=gateway, timeout=ASK_S + 5, trust_env=False) as client:
        while True:
            try:
                answer = client.get(f"/penstock/pods/{pod}", params={"wait_s": ASK_S})
                if answer.status_code == httpx.codes.OK:
                    return msgspec.json.decode(answer.content, type=Introduction)
                reason = f"{answer.status_code} {answer.text.strip()}"
            except (httpx.HTTPError, msgspec.DecodeError) as error:
                reason = str(error)
            if reason != said:
                log.info("the gateway does not say who I am: %s", reason)
            said = reason
            time.sleep(RETRY_S)


def serve(known: Introduction, port: int) -> None:
    """Become that replica. Returns never."""
    os.environ.update(known.environment)
    ReplicaSettings(os.environ)
    handle = load_handler(handler_folder(known.image))
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((EVERYWHERE, port))  # it listens once it serves
    voice, own_voice = socket.socketpair()
    voice.setblocking(False)
    row = dict.fromkeys(FIELDS, 0)
    replica = Replica(
        *(known.replica, handle, os.environ),
        listener=listener,
        tell=own_voice,
        row=row,
        requested_ns=known.requested_ns,
        outermost=lambda application: Told(row, voice, application),
    )
    replica.run()


def main(arguments: Sequence[str] | None = None) -> int:
    """The process. Exit code 2 with one line for a handler that cannot be imported or an environment that is wrong."""
    parser = argparse.ArgumentParser(prog="python -m functions.pod", description="A replica of a function in a pod.")
    parser.add_argument("--gateway", required=True, help="its URL, such as http://gateway:8080")
    parser.add_argument("--pod", required=True, help="the name of the pod that this is")
    parser.add_argument("--port", type=int, default=PORT, help="that it serves on, on all addresses")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    for name, level in (("httpx", logging.WARNING), ("waitress.queue", logging.ERROR)):
        logging.getLogger(name).setLevel(level)
    # the first process of a container has no default: without this it would not end before it serves
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    try:
        known = who_am_i(given.gateway, given.pod)
        log.info("I am %s", known.replica)
        serve(known, given.port)
    except PenstockError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except Exception as error:  # whatever a handler's import raises is its author's to mend
        log.exception("cannot begin")
        sys.stderr.write(f"error: {type(error).__name__}: {error}\n")
        return PenstockError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
