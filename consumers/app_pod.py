"""A function app in a pod: ``python -m consumers.app_pod --pod NAME`` asks which app it is and becomes that."""

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from consumers import app
from penstock.apps import AWAY, AppIntroduction, PodBoard
from penstock.errors import PenstockError
from penstock.settings import Endpoints

POLL_S: Final = 0.1


def ask(board: PodBoard, pod: str) -> AppIntroduction:
    """Which app this pod is; waits as long as it is none."""
    while True:
        try:
            if (found := board.introduction(pod)) is not None:
                return found
        except AWAY:
            pass  # it is starting, too
        time.sleep(POLL_S)


def main() -> int:
    """The app's exit code; 2 with one line where the pod itself lacks something."""
    parser = argparse.ArgumentParser(prog="python -m consumers.app_pod", description=__doc__)
    parser.add_argument("--pod", required=True, help="name of the pod that this is")
    pod = parser.parse_args().pod
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the first process of a container has no default action
    try:
        board = PodBoard(Endpoints().require("redis"))
    except PenstockError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    introduction = ask(board, pod)
    board.close()
    folder = Path(tempfile.mkdtemp(prefix="run-"))
    for name, content in introduction.files.items():
        (folder / name).write_bytes(content)
    return app.main(("--run", str(folder), *introduction.arguments))


if __name__ == "__main__":
    sys.exit(main())
