from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from penstock.records import Result
from penstock.rundir import RunDirectory
from pipelines import batch, run_measures
from tests.pipelines.conftest import EVENTS

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("run", pa.string()),
        ("outcome", pa.string()),
        ("terminal", pa.bool_()),
        ("intended_ns", pa.int64()),
        ("sent_ns", pa.int64()),
        ("started_ns", pa.int64()),
        ("finished_ns", pa.int64()),
        ("worker", pa.string()),
    ]
)


@pytest.fixture
def directory(tmp_path: Path, make_directory: Callable[..., RunDirectory]) -> RunDirectory:
    return make_directory(tmp_path, "test")


def write(directory: RunDirectory, results: list[Result], files: int = 1) -> None:
    for index in range(files):
        rows = [msgspec.structs.asdict(result) for result in results[index::files]]
        table = pa.Table.from_pylist([{name: row[name] for name in SCHEMA.names} for row in rows], schema=SCHEMA)
        pq.write_table(table, directory.results_folder / f"part-{index}.parquet")


def test_spark_gives_the_numbers_of_numpy(
    spark: SparkSession, directory: RunDirectory, make_result: Callable[..., Result]
) -> None:
    rng = np.random.default_rng(5)
    start = 1_790_000_000 * 10**9
    latency = (rng.lognormal(-2, 1.2, 4000) * 1e9).astype(int)
    results = [make_result(i, start + i * 3_000_000, int(latency[i])) for i in range(4000)]
    results += [
        make_result(i, start + i * 3_000_000 + 10**9, 10**9 + int(latency[i]), attempt=2) for i in range(0, 900, 3)
    ]
    results += [make_result(4000 + i, start, -int(i) * 10**6) for i in range(5)]
    results += [make_result(5000 + i, start, outcome="failed") for i in range(7)]
    results += [make_result(None, start, outcome="failed", reason="unreadable"), make_result(None, start)]
    results += [make_result(6000, start, outcome="rejected"), make_result(6001, start, terminal=False)]
    results += [make_result(6002, start, sent_ns=None)]
    rng.shuffle(results)
    write(directory, results, files=3)

    by_numpy = run_measures.measure(directory)
    assert (by_numpy.completed, by_numpy.redelivered, by_numpy.unmeasured) == (4005, 300, 1)
    assert by_numpy.other_outcomes == {"failed": 7, "rejected": 1}
    assert by_numpy.external == 2
    assert by_numpy.negative["latency"] == 4
    assert batch.measure(spark, directory) == by_numpy


def test_only_results_of_the_run_and_its_schedule_count(
    spark: SparkSession, directory: RunDirectory, make_result: Callable[..., Result]
) -> None:
    results = [make_result(1, 10**18, 200_000_000), make_result(EVENTS - 1, 10**18, 300_000_000)]
    results += [make_result(1, 10**18 - 1, 9), make_result(3, 10**18, 9_000_000_000)]
    results[2:] = [msgspec.structs.replace(result, run="another") for result in results[2:]]
    results += [make_result(EVENTS, 10**18, outcome="failed"), make_result(-1, 10**18), make_result(None, 10**18)]
    write(directory, results)
    by_numpy = run_measures.measure(directory)
    assert (by_numpy.completed, by_numpy.redelivered, by_numpy.unmeasured) == (2, 0, 0)
    assert (by_numpy.other_outcomes, by_numpy.external) == ({}, 5)
    assert (by_numpy.parts["latency"].p50_s, by_numpy.parts["latency"].max_s) == (0.2, 0.3)
    assert batch.measure(spark, directory) == by_numpy


def test_a_run_without_its_schedule_is_refused(directory: RunDirectory, make_result: Callable[..., Result]) -> None:
    write(directory, [make_result(1, 10**18)])
    directory.schedule_file.unlink()
    with pytest.raises(PenstockError, match=r"schedule\.parquet: no schedule there"):
        run_measures.measure(directory)


def test_a_run_in_which_nothing_completed_has_no_latency(
    spark: SparkSession, directory: RunDirectory, make_result: Callable[..., Result]
) -> None:
    write(directory, [make_result(1, 10**18, outcome="failed")])
    by_numpy = run_measures.measure(directory)
    assert (by_numpy.completed, by_numpy.slo_share, by_numpy.parts, by_numpy.histogram) == (0, None, {}, {})
    assert batch.measure(spark, directory) == by_numpy


def test_parts_add_up_to_the_latency(directory: RunDirectory, make_result: Callable[..., Result]) -> None:
    write(directory, [make_result(i, 10**18 + i, 80_000_000 + i) for i in range(100)])
    parts = run_measures.measure(directory).parts
    total_s = sum(parts[part].mean_s or 0.0 for part in ("send_delay", "queueing", "service"))
    assert total_s == pytest.approx(parts["latency"].mean_s)
    assert parts["service"].p99_9_s == 0.005


def test_an_incomplete_run_directory_is_named_with_what_it_lacks(directory: RunDirectory) -> None:
    with pytest.raises(PenstockError, match=r"no results/\*\.parquet; it did not end: run it again"):
        run_measures.measure(directory)


def test_a_torn_results_file_is_named(directory: RunDirectory) -> None:
    (directory.results_folder / "part-0.parquet").write_bytes(b"PAR1 torn")
    with pytest.raises(PenstockError, match=r"part-0\.parquet: cannot be read as Parquet"):
        run_measures.measure(directory)


def test_some_other_table_is_not_taken_for_results(directory: RunDirectory) -> None:
    pq.write_table(pa.table({"id": [1]}), directory.results_folder / "part-0.parquet")
    with pytest.raises(PenstockError, match="lacks finished_ns, intended_ns, outcome, run"):
        run_measures.measure(directory)
