"""Processes of a state folder, found by the mark in their environment, whatever their parent."""

import os
import time
from collections.abc import Iterable
from contextlib import suppress
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
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            ours = process.uids().effective == os.geteuid() and process.status() != psutil.STATUS_ZOMBIE
            if ours and process.environ().get(MARKER) == str(state) and process.pid not in spared:
                found.append(process)
    return found


def stop_marked(state: Path, grace_s: float) -> list[str]:
    """SIGTERM, SIGKILL after ``grace_s``; returns the names of what was stopped. Raises PenstockError if any remain."""
    stopped: dict[int, str] = {}
    deadline = time.monotonic() + grace_s
    while left := marked(state):
        late = time.monotonic() > deadline
        if time.monotonic() > deadline + KILL_TIMEOUT_S:
            pids = ", ".join(str(process.pid) for process in left)
            raise PenstockError(f"processes of {state} cannot be ended: pid {pids}")
        for process in left:
            known = process.pid in stopped
            stopped.setdefault(process.pid, _name(process))
            with suppress(psutil.NoSuchProcess):
                if late:
                    process.kill()
                elif not known:
                    process.terminate()
        time.sleep(0.05)
    return list(stopped.values())


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.Error:
        return "a process that has ended since"


def names(processes: Iterable[psutil.Process]) -> str:
    """For a message: ``java (pid 12), redis-server (pid 13)``."""
    return ", ".join(f"{_name(process)} (pid {process.pid})" for process in processes)
