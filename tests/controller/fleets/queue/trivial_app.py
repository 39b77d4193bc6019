"""A process that has as many containers as it is told, without any broker: what an actuator sees of a function app.

Run as ``python trivial_app.py RUN --run DIR --replica NAME …``, with PENSTOCK_REDIS in the environment. A file
``NAME.busy`` in its folder keeps it from letting go of its last container.
"""

import os
import signal
import sys
import time
from pathlib import Path

from penstock.adapters.app_boards import AppBoard
from penstock.apps import AppReport


def main() -> None:
    run, replica = sys.argv[1], sys.argv[sys.argv.index("--replica") + 1]
    board = AppBoard(os.environ["PENSTOCK_REDIS"], run)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    started_ns = time.time_ns()
    while True:
        busy = int(Path(f"{replica}.busy").exists())
        containers = max(busy, board.wanted(replica) or 0)
        board.report(AppReport(replica, containers, busy, 0, 0.0, 0.0, time.time_ns(), started_ns=started_ns))
        time.sleep(0.1)


if __name__ == "__main__":
    main()
