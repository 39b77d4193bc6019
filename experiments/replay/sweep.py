"""Cells in parallel processes of this machine."""

import gc
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from experiments.replay.cells import CellEnd, CellTask, carry_out_cell, load_beforehand
from penstock.errors import PenstockError

Tell = Callable[[CellEnd], None]


def default_jobs() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def carry_out_in_processes(tasks: Sequence[CellTask], jobs: int, tell: Tell) -> None:
    """All cells, ``jobs`` at a time; ``tell`` hears of each that has ended. Ends every process, whatever happens.

    Raises PenstockError if a process was killed from outside, such as for want of memory.
    """
    # One process for --jobs 1, too: this one only waits, so that an interrupt cannot be lost in a library's callback.
    # Forked, so that no process has to load again what this one has loaded.
    load_beforehand(tasks[0])
    pool = ProcessPoolExecutor(
        min(jobs, len(tasks)), mp_context=multiprocessing.get_context("fork"), initializer=_begin
    )
    started = set(multiprocessing.active_children())
    try:
        futures = [pool.submit(carry_out_cell, task) for task in tasks]
        for future in as_completed(futures):
            tell(future.result())
    except BrokenProcessPool:
        raise PenstockError(
            f"a process was killed in the middle of a cell (out of memory?): try --jobs {max(1, jobs // 2)}"
        ) from None
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - started:
            process.terminate()
            process.join()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin() -> None:
    """Ctrl-C reaches the whole group; the parent ends its children in order. And what this process has inherited is the
    parent's to collect: a client library's objects do not survive being taken apart in a fork.
    """
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
