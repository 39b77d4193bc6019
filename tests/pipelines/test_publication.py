from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from prometheus_client import CollectorRegistry

from penstock import metrics
from penstock.measures import bucket_of, bucket_upper_s
from penstock.rundir import RunDirectory
from pipelines.figures import NO_LATENCY, ResultColumns
from pipelines.publication import PER_SECOND_SCHEMA, Publication

SECOND = 1_000_000_000


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    (tmp_path / "metrics").mkdir()
    return RunDirectory(tmp_path)


def results() -> ResultColumns:
    """Four events in second 100, one of them failed, one above the SLO."""
    bucket = bucket_of([0.1, 0.2, 0.9, 0.0])
    bucket[3] = NO_LATENCY
    return ResultColumns(
        stage=np.full(4, "payments", dtype=object),
        event_id=np.arange(4),
        finished_ns=np.full(4, 100 * SECOND),
        bucket=bucket,
        met=np.asarray([True, True, False, False]),
    )


def test_a_row_has_counts_percentiles_and_the_histogram_behind_them(directory: RunDirectory) -> None:
    publication = Publication(directory, CollectorRegistry())
    publication.take(0, results(), complete_until_ns=0)
    publication.finish()
    table = pq.read_table(directory.per_second_file)
    assert table.schema.equals(PER_SECOND_SCHEMA)
    (row,) = table.to_pylist()
    assert (row["stage"], row["second"], row["count"], row["failed"], row["slo_met"]) == ("payments", 100, 3, 1, 2)
    assert row["slo_share"] == pytest.approx(2 / 3)
    assert row["p50_s"] == bucket_upper_s(bucket_of(0.2))
    assert row["p99_9_s"] == bucket_upper_s(bucket_of(0.9))
    assert row["buckets"] == bucket_of([0.1, 0.2, 0.9]).tolist()
    assert row["counts"] == [1, 1, 1]
    assert row["published_ns"] >= row["updated_ns"] > 0


def test_the_whole_run_gives_one_histogram_a_stage(directory: RunDirectory) -> None:
    publication = Publication(directory, CollectorRegistry())
    publication.take(0, results(), complete_until_ns=0)
    publication.finish()
    rows = pq.read_table(directory.latency_file).to_pylist()
    assert [row["bucket"] for row in rows] == bucket_of([0.1, 0.2, 0.9]).tolist()
    assert [row["upper_s"] for row in rows] == bucket_upper_s(bucket_of([0.1, 0.2, 0.9])).tolist()
    assert sum(row["count"] for row in rows) == 3


def test_no_half_written_file_is_left_beside(directory: RunDirectory) -> None:
    publication = Publication(directory, CollectorRegistry())
    publication.take(0, results(), complete_until_ns=0)
    publication.finish()
    assert [file.name for file in directory.metrics_folder.iterdir()] == ["latency-per-second.parquet"]


def test_a_run_without_results_still_gives_readable_files(directory: RunDirectory) -> None:
    Publication(directory, CollectorRegistry()).finish()
    assert pq.read_table(directory.latency_file).num_rows == 0
    assert pq.read_table(directory.per_second_file).num_rows == 0


def test_gauges_show_the_newest_complete_second_and_the_run_so_far(directory: RunDirectory) -> None:
    registry = CollectorRegistry()
    publication = Publication(directory, registry)
    publication.take(0, results(), complete_until_ns=0)
    second = {"stage": "payments", "scope": "second", "quantile": "0.5"}
    run = {"stage": "payments", "scope": "run", "quantile": "0.5"}
    assert registry.get_sample_value(metrics.STAGE_LATENCY, second) is None
    assert registry.get_sample_value(metrics.STAGE_LATENCY, run) == bucket_upper_s(bucket_of(0.2))
    publication.publish(complete_until_ns=101 * SECOND)
    assert registry.get_sample_value(metrics.STAGE_LATENCY, second) == bucket_upper_s(bucket_of(0.2))
    assert registry.get_sample_value(metrics.STAGE_EVENTS, {"stage": "payments"}) == 3
    share = registry.get_sample_value(metrics.STAGE_SLO_SHARE, {"stage": "payments", "scope": "second"})
    assert share == pytest.approx(2 / 3)
    delay_s = registry.get_sample_value(metrics.STAGE_PUBLISH_DELAY, {"stage": "payments"})
    assert delay_s is not None and delay_s > 0
