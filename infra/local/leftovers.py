"""Processes that belong to a state folder, found by the mark in their environment, whoever their parent is by now."""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import psutil

from infra.local.state import MARKER
from penstock.errors import PenstockError

KILL_TIMEOUT_S: Final = 5.0


def marked(state: Path) -> list[psutil.Process]:
    """This user's living processes that carry the mark of ``state``; never this one or its ancestors."""
    here = psutil.Process()
    spared = {here.pid, *(parent.pid for parent in here.parents())}
    return [process for process, value in _marks() if value == str(state) and process.pid not in spared]


def stop_marked(state: Path, grace_s: float) -> list[str]:
    """SIGTERM, SIGKILL after ``grace_s``; returns the names of what was stopped. Raises PenstockError if any remain."""
    stopped: dict[int, str] = {}
    deadline = time.monotonic() + grace_s
    told: set[int] = set()
    while left := marked(state):
        late = time.monotonic() > deadline
        if time.monotonic() > deadline + KILL_TIMEOUT_S:
            pids = ", ".join(str(process.pid) for process in left)
            raise PenstockError(f"processes of {state} that cannot be ended: pid {pids}")
        for process in left:
            stopped.setdefault(process.pid, _name(process))
            if late or process.pid not in told:
                _end(process, kill=late)
                told.add(process.pid)
        time.sleep(0.05)
    return list(stopped.values())


def wait_until_gone(state: Path, timeout_s: float) -> bool:
    """Whether all marked processes ended within ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while marked(state):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _marks() -> Iterator[tuple[psutil.Process, str]]:
    for process in psutil.process_iter():
        try:
            if process.uids().effective != os.geteuid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            environment: Mapping[str, str] = process.environ()
        except (psutil.Error, OSError):
            continue
        if MARKER in environment:
            yield process, environment[MARKER]


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return "a process that has ended since"


def _end(process: psutil.Process, *, kill: bool) -> None:
    try:
        if kill:
            process.kill()
        else:
            process.terminate()
    except psutil.NoSuchProcess:
        return


def names(processes: Iterable[psutil.Process]) -> str:
    """For a message: ``java (pid 12), redis-server (pid 13)``."""
    return ", ".join(f"{_name(process)} (pid {process.pid})" for process in processes)
