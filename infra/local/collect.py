"""Raw data of a run: results, ledger, and the machine's load."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.adapters.kafka import READ_AT_ONCE, assign_from_start, make_consumer, read_topic, values
from penstock.adapters.redis import redis_client, redis_errors
from penstock.records import Result, read_result
from penstock.results import RESULT_SCHEMA

ROWS_PER_FILE = 200_000
READ_TIMEOUT_S = 30.0


def copy_results(bootstrap: str, topic: str, folder: Path, check: Callable[[], object] = lambda: None) -> int:
    """Write every record of ``topic`` to ``folder/part-<n>.parquet`` in the order of the topic; how many there were.
    ``check`` as of ``read_topic``.
    """
    rows: list[Result] = []
    files = total = 0
    for value in read_topic(bootstrap, topic, READ_TIMEOUT_S, check):
        rows.append(read_result(value))
        total += 1
        if len(rows) == ROWS_PER_FILE:
            _write_results(rows, folder / f"part-{files}.parquet")
            rows, files = [], files + 1
    if rows or not files:
        _write_results(rows, folder / f"part-{files}.parquet")
    return total


def _write_results(rows: Sequence[Result], path: Path) -> None:
    columns = {name: [getattr(row, name) for row in rows] for name in RESULT_SCHEMA.names}
    pq.write_table(pa.table(columns, schema=RESULT_SCHEMA), path, compression="zstd")


class OutcomeCounter:
    """How many of a run's ``scheduled`` events have an outcome by now: reads on in the results topic from where it
    stopped. As in ``outcomes_among``, nothing else on it counts.
    """

    def __init__(self, bootstrap: str, topic: str, run: str, scheduled: int) -> None:
        self._run, self._scheduled = run, scheduled
        self._consumer = make_consumer(bootstrap, f"{topic}.count")
        assign_from_start(self._consumer, topic, [0])
        self._ids: set[int] = set()

    def count(self) -> int:
        """Distinct ids with a terminal result."""
        while messages := self._consumer.consume(READ_AT_ONCE, timeout=0.1):
            for result in map(read_result, values(messages)):
                of_run = result.terminal and result.run == self._run
                if of_run and result.id is not None and 0 <= result.id < self._scheduled:
                    self._ids.add(result.id)
        return len(self._ids)

    def close(self) -> None:
        """Leave the topic."""
        self._consumer.close()


def copy_ledger(url: str, key: str, file: Path) -> int:
    """Write the event ids of a run's ledger; how many."""
    with redis_errors(), redis_client(url, READ_TIMEOUT_S) as client:
        ids = sorted(int(field) for field, _ in client.hscan_iter(key, count=10_000))
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), file, compression="zstd")
    return len(ids)


class MachineSampler:
    """Busy share of all cores together, once a second, and the share that the machine's own host gave to others.

    Time of processes at a lower priority (Spark's, and whatever else on the machine was started with ``nice``) is kept
    apart: they give way to the run.
    """

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="machine-sampler", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def _sample(self) -> None:
        psutil.cpu_times_percent()  # it reports what has passed since the same thread's last call
        while not self._stop.wait(1.0):
            share = psutil.cpu_times_percent()
            self._rows.append(
                {
                    "at_ns": time.time_ns(),
                    "cpu_busy_share": max(0.0, 100 - share.idle - share.iowait - share.nice) / 100,
                    "cpu_niced_share": share.nice / 100,
                    "cpu_stolen_share": getattr(share, "steal", 0.0) / 100,  # Linux only
                    "memory_available_bytes": psutil.virtual_memory().available,
                }
            )

    def stop(self) -> None:
        """End; idempotent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def newest(self) -> dict[str, Any]:
        """The newest row; empty before the first, and when sampling has ended."""
        return self._rows[-1] if self._rows and not self._stop.is_set() else {}

    def write(self, file: Path) -> None:
        """One row a second: at_ns, busy, niced and stolen share of the CPU (0…1), memory_available_bytes."""
        shares = [(f"cpu_{name}_share", pa.float64()) for name in ("busy", "niced", "stolen")]
        schema = pa.schema([("at_ns", pa.int64()), *shares, ("memory_available_bytes", pa.int64())])
        pq.write_table(pa.Table.from_pylist(self._rows, schema=schema), file)
