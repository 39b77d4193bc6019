"""Cells: each is one scaler with one set of parameters on the trace, in the sim world, in its own run directory.

A cell is run by the code of ``penstock compare --world sim``. It is described by plain values, so that a process of the
pool or a Spark task can run it anywhere on this machine's file system. Its outcome is the text of the user's error, or
empty.
"""

import contextlib
import gc
import io
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import msgspec
import numpy as np
from rich.console import Console

from experiments.driver import carry_out
from experiments.experiment import Experiment, Options
from experiments.progress import RunProgress
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.schedule import Schedule
from simulator.world import SimWorld

Tell = Callable[[str], None]


class CellTask(msgspec.Struct, frozen=True, kw_only=True):
    """``run`` is a described run directory with its schedule."""

    experiment: Experiment
    options: Options
    run: str


def carry_out_cell(task: CellTask) -> str:
    """Run the cell to its end. A user's error is returned, not raised: Spark would hide it in its own trace."""
    quiet = RunProgress(Console(file=io.StringIO()), runs=1)
    try:
        with SimWorld() as world:
            carry_out(world, task.experiment, task.options, RunDirectory.open(Path(task.run)), quiet)
    except PenstockError as error:
        return str(error)
    return ""


# --- processes of this machine ---------------------------------------------------------------------------------------


def carry_out_in_processes(tasks: Sequence[CellTask], jobs: int | None, tell: Tell) -> None:
    """All cells, ``jobs`` at a time (None: cores); ``tell`` is called with the outcome of each that has ended.

    Ends every process in any case. Raises PenstockError if one was killed from outside, such as for lack of memory.
    """
    # One process for --jobs 1, too: this one only waits, so that an interrupt is not lost in a library's callback.
    # Forked, so that processes share the loaded modules.
    _load_beforehand(tasks[0])
    jobs = min(jobs or _cores(), len(tasks))
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork"), initializer=_begin)
    started = set(multiprocessing.active_children())
    try:
        for future in as_completed([pool.submit(carry_out_cell, task) for task in tasks]):
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


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _load_beforehand(task: CellTask) -> None:
    """Load what cells load on first use (the engine with its compiled loops, pyarrow's extensions) by a run of one
    event, whose results are dropped.
    """
    from simulator.stream import make_engine

    spec = RunDirectory.open(Path(task.run)).spec()
    event = Schedule(np.zeros(1, np.int64), np.zeros(1, np.int16), duration_s=1.0)
    engine = make_engine(spec, event)
    engine.advance(spec.duration_s)
    engine.monitor.observe()
    with tempfile.TemporaryDirectory() as folder:
        engine.results().write(Path(folder), spec)


def _begin() -> None:
    """Ignore Ctrl-C, which reaches the whole group: the parent ends its children in order. Inherited objects are left
    to the parent's garbage collector: a client library's objects cannot be finalised in a fork.
    """
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


# --- tasks of Spark --------------------------------------------------------------------------------------------------


def carry_out_on_spark(tasks: Sequence[CellTask], jobs: int | None, tell: Tell) -> None:
    """The same as tasks on ``local[jobs]``; ``tell`` is called when all have ended. PenstockError without Java.

    Spark would retry a failed task, which a run directory does not allow; cells return their errors instead.
    """
    from pipelines.session import spark_session

    with (
        tempfile.TemporaryDirectory(prefix="penstock-replay-") as folder,
        _interrupts_as_before() as take_back,
        spark_session("penstock-replay", Path(folder), cores=jobs or _cores()) as session,
        ThreadPoolExecutor(1) as waiting,
    ):
        take_back()
        context = session.sparkContext
        # In a thread: an interrupt in the middle of a call to the JVM would come out as an error of that call.
        ends = waiting.submit(lambda: context.parallelize(list(tasks), len(tasks)).map(carry_out_cell).collect())
        try:
            for end in ends.result():
                tell(end)
        except KeyboardInterrupt:
            context.cancelAllJobs()
            raise


@contextlib.contextmanager
def _interrupts_as_before() -> Iterator[Callable[[], None]]:
    """Yields a function that restores the SIGINT handler: pyspark's calls the JVM and is permanent. It is also restored
    at the end. No effect outside the main thread, where pyspark sets no handler.
    """
    before = signal.getsignal(signal.SIGINT)

    def take_back() -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)

    try:
        yield take_back
    finally:
        take_back()
