"""The same cells as tasks of Spark, one task a cell; every executor sees this machine's files."""

import contextlib
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from experiments.replay.cells import CellTask, carry_out_cell
from experiments.replay.sweep import Tell


def carry_out_on_spark(tasks: Sequence[CellTask], cores: int, tell: Tell) -> None:
    """All cells on ``local[cores]``; ``tell`` hears of them when all have ended. PenstockError where there is no Java.

    Spark would run a failed task again, which a run directory does not allow; cells return their errors instead.
    """
    from pipelines.session import spark_session

    with (
        tempfile.TemporaryDirectory(prefix="penstock-replay-") as folder,
        _interrupts_as_before() as take_back,
        spark_session("penstock-replay", Path(folder), cores=cores) as session,
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
    """Gives a function that takes SIGINT back from pyspark, whose handler calls the JVM and stays for good; in the end
    it is taken back anyway. Does nothing outside of the main thread, where pyspark sets no handler.
    """
    before = signal.getsignal(signal.SIGINT)

    def take_back() -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)

    try:
        yield take_back
    finally:
        take_back()
