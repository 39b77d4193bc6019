"""Carrying out trials: in processes on all cores, or as tasks of a local Spark. Both give the same outcomes."""

import contextlib
import multiprocessing
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from queue import SimpleQueue

from experiments.advise.trial import Outcome, Trial, simulate
from experiments.processes import begin_process
from penstock.errors import PenstockError

Tell = Callable[[int, Outcome], None]
"""Called with the number of a trial and its outcome, as soon as it is known."""
CarryOut = Callable[[Sequence[Trial], Tell], None]


@contextlib.contextmanager
def on_processes(jobs: int, first: Trial) -> Iterator[CarryOut]:
    """``jobs`` processes, all of which are ended in any case. ``first`` is simulated here before they are forked, so
    that they share the loaded modules and compiled loops. Raises PenstockError if one was killed from outside.
    """
    simulate(first)
    # Processes for one job, too: this one only waits, so that an interrupt is not lost in a library's callback.
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork"), initializer=begin_process)
    before = set(multiprocessing.active_children())

    def carry_out(trials: Sequence[Trial], tell: Tell) -> None:
        numbers: dict[Future[Outcome], int] = {
            pool.submit(simulate, trial): number for number, trial in enumerate(trials)
        }
        # In the order in which they end; ``as_completed`` has none for those that have ended before it is called.
        ended: SimpleQueue[Future[Outcome]] = SimpleQueue()
        for future in numbers:
            future.add_done_callback(ended.put)
        for _ in numbers:
            future = ended.get()
            tell(numbers[future], future.result())

    try:
        yield carry_out
    except BrokenProcessPool:
        raise PenstockError(
            f"a process was killed in the middle of a trial (out of memory?): try --jobs {max(1, jobs // 2)}"
        ) from None
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
            process.join()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def on_spark(jobs: int) -> Iterator[CarryOut]:
    """Tasks on ``local[jobs]``; outcomes are told when all of them have ended. PenstockError without Java."""
    from pipelines.session import spark_session

    with (
        tempfile.TemporaryDirectory(prefix="penstock-advise-") as folder,
        _interrupts_as_before() as take_back,
        spark_session("penstock-advise", Path(folder), cores=jobs) as session,
        ThreadPoolExecutor(1) as waiting,
    ):
        take_back()
        context = session.sparkContext

        def carry_out(trials: Sequence[Trial], tell: Tell) -> None:
            # In a thread: an interrupt in the middle of a call to the JVM would come out as an error of that call.
            tasks = context.parallelize(list(trials), max(1, len(trials)))
            ends = waiting.submit(lambda: tasks.map(simulate).collect())
            try:
                for number, outcome in enumerate(ends.result()):
                    tell(number, outcome)
            except KeyboardInterrupt:
                context.cancelAllJobs()
                raise

        yield carry_out


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
