from collections.abc import Callable

import msgspec
import numpy as np
import pandas as pd
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as sql

from penstock.measures import BUCKET_FLOOR_S, bucket_of, bucket_upper_s
from penstock.records import Result, encode
from pipelines import columns
from pipelines.results_query import measured_results, to_columns

MakeResult = Callable[..., Result]


def parse(spark: SparkSession, text: str) -> Row:
    frame = spark.createDataFrame([(text,)], "value string")
    row = columns.parse_results(frame).first()
    assert row is not None
    return row


def test_a_result_comes_through_with_every_field(spark: SparkSession, make_result: MakeResult) -> None:
    result = make_result(7, 10**18, broker_ns=5, deadline_ns=6, visit=2, attempt=3, terminal=False, reason="why")
    assert parse(spark, encode(result).decode()).asDict() == msgspec.structs.asdict(result)


def test_defaults_that_are_left_out_on_the_wire_are_filled_in(spark: SparkSession, make_result: MakeResult) -> None:
    result = make_result(7, 10**18)
    assert b"terminal" not in encode(result)
    assert parse(spark, encode(result).decode()).asDict() == msgspec.structs.asdict(result)


def test_buckets_are_those_of_numpy_everywhere(spark: SparkSession) -> None:
    edges = bucket_upper_s(np.arange(0, 3500))
    rng = np.random.default_rng(1)
    values = np.concatenate(
        [
            edges,
            np.nextafter(edges, 0),
            np.nextafter(edges, np.inf),
            -edges,
            [0.0, -0.0, BUCKET_FLOOR_S, 1.0, 0.5, 1e-9, 1e12],
            rng.integers(-(10**9), 10**11, 50_000) / 1e9,
            10 ** rng.uniform(-7, 5, 50_000),
        ]
    )
    frame = spark.createDataFrame(pd.DataFrame({"row": np.arange(len(values)), "latency_s": values}))
    found = frame.select("row", columns.bucket_of(sql.col("latency_s")).alias("bucket")).orderBy("row").toArrow()
    np.testing.assert_array_equal(found["bucket"].to_numpy(), bucket_of(values))


def test_whole_nanoseconds_become_the_seconds_of_numpy(spark: SparkSession) -> None:
    nanos = np.random.default_rng(2).integers(-(10**12), 10**15, 10_000)
    frame = spark.createDataFrame(pd.DataFrame({"row": np.arange(len(nanos)), "nanos": nanos}))
    found = frame.select("row", columns.seconds(sql.col("nanos")).alias("s")).orderBy("row").toArrow()
    np.testing.assert_array_equal(found["s"].to_numpy(), nanos / 1e9)


def test_results_are_measured_and_what_is_none_of_the_run_is_left_out(
    spark: SparkSession, make_result: MakeResult
) -> None:
    texts = [
        encode(make_result(1, 10**18, 500_000_000)).decode(),
        encode(make_result(2, 10**18, 500_000_001)).decode(),
        encode(make_result(3, 10**18, -20_000_000)).decode(),
        encode(make_result(4, 10**18, outcome="failed")).decode(),
        encode(make_result(0, 10**18)).decode(),
        encode(make_result(5, 10**18, terminal=False)).decode(),
        encode(make_result(5, 10**18, run="another")).decode(),
        encode(make_result(6, 10**18)).decode(),
        encode(make_result(-1, 10**18)).decode(),
        encode(make_result(None, 10**18, outcome="failed", reason="unreadable")).decode(),
        "not JSON",
        '{"id": "seven"}',
        "",
    ]
    raw = spark.createDataFrame([(text,) for text in texts], "value string")
    found = to_columns(measured_results(raw, "test", 6, slo_s=0.5))
    assert found.event_id.tolist() == [1, 2, 3, 4, 0]
    assert found.bucket.tolist() == [*bucket_of([0.5, 0.500000001, -0.02]).tolist(), -1, int(bucket_of(0.05))]
    assert found.met.tolist() == [True, False, True, False, True]
    assert found.finished_ns.tolist() == [10**18] * 5
    assert set(found.stage) == {"payments"}
