"""A function app in a pod: ``python -m consumers.app_pod --pod NAME`` asks which app it is and becomes that app."""

import argparse
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from consumers import app
from penstock.adapters.app_boards import PodBoard
from penstock.adapters.redis import REDIS_AWAY
from penstock.apps import PodIdentity
from penstock.process_main import UnassignedError, await_identity, configure_log, run_main
from penstock.settings import Endpoints


def identify(pod: str) -> PodIdentity:
    """Wait until the controller has made the pod an app."""

    def ask() -> PodIdentity:
        identity = board.identity(pod)
        if identity is None:
            raise UnassignedError(f"pod {pod} is no app yet")
        return identity

    with closing(PodBoard(Endpoints().require("redis"))) as board:
        return await_identity(ask, *REDIS_AWAY)


def main() -> int:
    """Exit code of the app, or 2 with one line where the pod itself lacks something."""
    parser = argparse.ArgumentParser(prog="python -m consumers.app_pod", description=__doc__)
    parser.add_argument("--pod", required=True, help="name of this pod")
    pod = parser.parse_args().pod
    identities: list[PodIdentity] = []
    configure_log(label=pod)
    if code := run_main(lambda: identities.append(identify(pod))):
        return code
    folder = Path(tempfile.mkdtemp(prefix="run-"))
    for name, content in identities[0].files.items():
        (folder / name).write_bytes(content)
    return app.main(("--run", str(folder), *identities[0].arguments))


if __name__ == "__main__":
    sys.exit(main())
