"""The one schema of raw results: what run directories hold must not change by accident."""

from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from infra.local.collect import _write_results
from penstock.records import Result, encode, result_decoder
from penstock.results import DEFAULTS, RESULT_SCHEMA

SMALL = {"visit": pa.int32(), "attempt": pa.int32(), "schema": pa.int32()}
TEXTS = dict.fromkeys(("run", "pipeline", "stage", "outcome", "queue", "worker", "reason"), pa.string())

MEASURED = Result(
    id=3, run="r", pipeline="payments", stage="payments", outcome="completed", queue="payments/3",
    intended_ns=10, sent_ns=20, received_ns=30, started_ns=40, finished_ns=50, worker="w",
    broker_ns=25, deadline_ns=90, visit=2, attempt=3, terminal=False, reason="why",
)  # fmt: skip
UNREADABLE = Result(
    id=None, run="r", pipeline="payments", stage="payments", outcome="failed", queue="payments/3",
    intended_ns=None, sent_ns=None, received_ns=30, started_ns=40, finished_ns=50, worker="w",
)  # fmt: skip


def test_the_columns_are_the_fields_of_a_result_with_the_types_that_older_runs_have() -> None:
    assert tuple(RESULT_SCHEMA.names) == Result.__struct_fields__
    others = {**SMALL, **TEXTS, "terminal": pa.bool_()}
    assert {column.name: column.type for column in RESULT_SCHEMA} == {
        name: others.get(name, pa.int64()) for name in Result.__struct_fields__
    }


def test_a_field_that_the_wire_leaves_out_means_its_default() -> None:
    left_out = set(Result.__struct_fields__) - set(msgspec.json.decode(encode(UNREADABLE)))
    assert left_out == {*DEFAULTS, "broker_ns", "deadline_ns"}
    assert {name: getattr(result_decoder.decode(encode(UNREADABLE)), name) for name in DEFAULTS} == DEFAULTS


def test_live_results_are_written_in_this_schema_and_come_back_whole(tmp_path: Path) -> None:
    _write_results([MEASURED, UNREADABLE], tmp_path / "part-0.parquet")
    written = pq.read_table(tmp_path / "part-0.parquet")
    assert written.schema.equals(RESULT_SCHEMA)
    assert [Result(**row) for row in written.to_pylist()] == [MEASURED, UNREADABLE]
