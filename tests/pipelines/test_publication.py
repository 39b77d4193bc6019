import dataclasses
import math
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


def scraped(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    """All that one scrape reads, by name and stage."""
    return {
        (sample.name, sample.labels["stage"]): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


def test_first_scrape_of_a_stage_finds_zeros_so_that_a_rate_counts_all(directory: RunDirectory) -> None:
    registry = CollectorRegistry()
    publication = Publication(directory, registry)
    publication.take(0, results(), complete_until_ns=0)
    names = [(name, "payments") for name in (metrics.STAGE_RESULTS, metrics.STAGE_SLO_MET)]
    first, second = scraped(registry), scraped(registry)
    assert [first[name] for name in names] == [0, 0]
    assert [second[name] for name in names] == [4, 2]


def test_counters_lose_no_second_and_no_event_that_was_refused(directory: RunDirectory) -> None:
    registry = CollectorRegistry()
    publication = Publication(directory, registry)
    stage = {"stage": "payments"}
    publication.take(0, results(), complete_until_ns=0)
    scraped(registry)
    assert registry.get_sample_value(metrics.STAGE_RESULTS, stage) == 4
    assert registry.get_sample_value(metrics.STAGE_SLO_MET, stage) == 2
    buckets = {
        float(sample.labels["le"]): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == f"{metrics.STAGE_LATENCY}_bucket"
    }
    at_most = {bound: count for bound, count in buckets.items() if 0.08 < bound < 1.2}
    assert buckets[math.inf] == 3
    assert all(count == sum(latency <= bound for latency in (0.1, 0.2, 0.9)) for bound, count in at_most.items())
    assert len(at_most) > 10 and set(at_most.values()) == {0, 1, 2, 3}
    publication.publish(complete_until_ns=101 * SECOND)
    delay_s = registry.get_sample_value(metrics.STAGE_PUBLISH_DELAY, stage)
    assert delay_s is not None and delay_s > 0


def test_counters_never_fall_when_an_earlier_result_of_an_event_is_found(directory: RunDirectory) -> None:
    registry = CollectorRegistry()
    publication = Publication(directory, registry)
    publication.take(0, results(), complete_until_ns=0)
    earlier = dataclasses.replace(
        results(), finished_ns=np.full(4, 99 * SECOND), bucket=bucket_of([0.9] * 4), met=np.full(4, False)
    )
    scraped(registry)
    publication.take(1, earlier, complete_until_ns=0)
    assert registry.get_sample_value(metrics.STAGE_SLO_MET, {"stage": "payments"}) == 2
