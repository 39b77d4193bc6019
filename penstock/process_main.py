"""``main`` of a run's processes: arguments, log, signals, priority, exit codes; and which replica a pod is."""

import argparse
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

from penstock.errors import PenstockError
from penstock.log_once import LogOnce

log = logging.getLogger(__name__)

NICENESS: Final = -10
"""Of what measures. Replicas, broker and services stay at 0, Spark is at 10 (``pipelines.stream``)."""
ASK_AGAIN_S: Final = 0.1

T = TypeVar("T")


def process_parser(module: str, description: str) -> argparse.ArgumentParser:
    """Arguments of ``python -m module``, with ``--run``: the run directory."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="run directory with its run.json")
    return parser


def configure_log(quiet: Mapping[str, int] | None = None, *, label: str = "") -> None:
    """Log to standard error from INFO on. ``quiet``: least level by logger, such as ``{"httpx": logging.WARNING}``.
    ``label`` marks the lines of a process whose log is shared.
    """
    label = label.replace("%", "%%") + " " if label else ""
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s {label}%(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    for name, level in (quiet or {}).items():
        logging.getLogger(name).setLevel(level)


def on_termination(stop: Callable[[], object]) -> None:
    """Call ``stop`` at SIGTERM and SIGINT."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop())


def run_main(work: Callable[[], object]) -> int:
    """The exit code of a process: 0, or that of a PenstockError, which is one line on standard error."""
    try:
        work()
    except PenstockError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


def take_precedence() -> bool:
    """Raise the priority of this thread and of those it starts; return whether that is allowed (root, CAP_SYS_NICE).

    Optional: late ticks and sends are measured either way. Call it first, since Linux keeps a niceness per thread.
    """
    try:
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    except PermissionError:
        return False
    return True


class UnassignedError(Exception):
    """The pod is no replica yet."""


def await_identity(ask: Callable[[], T], *away: type[Exception]) -> T:
    """The identity that ``ask`` returns, asked until it raises neither UnassignedError nor one of ``away``.

    SIGTERM meanwhile ends the process with exit code 0: there is nothing to put in order yet, and the first process of
    a container has no default action.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    trouble = LogOnce(log, "%s; asking again which replica this is", level=logging.INFO)
    retried: tuple[type[Exception], ...] = (UnassignedError, *away)
    while True:
        try:
            return ask()
        except retried as error:
            trouble.note(str(error) or type(error).__name__)
        time.sleep(ASK_AGAIN_S)
