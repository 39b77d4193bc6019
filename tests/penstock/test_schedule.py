"""The schedule on disk."""

from pathlib import Path

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.schedule import Schedule, events_scheduled


def schedule() -> Schedule:
    return Schedule(
        intended_offset_ns=np.asarray([0, 0, 1_500_000_000], dtype=np.int64),
        partition=np.asarray([0, 1, 0], dtype=np.int16),
        duration_s=3.0,
        description={"workload": "three events", "seed": 1},
    )


def test_the_same_schedule_gives_the_same_bytes_and_is_read_back(tmp_path: Path) -> None:
    schedule().write(tmp_path / "a.parquet")
    schedule().write(tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    read = Schedule.read(tmp_path / "a.parquet")
    assert read.intended_offset_ns.tolist() == [0, 0, 1_500_000_000]
    assert (read.duration_s, read.description) == (3.0, {"workload": "three events", "seed": 1})


def test_arrivals_are_counted_by_whole_second() -> None:
    assert schedule().arrivals_per_second().tolist() == [2, 1, 0]


def test_its_events_are_counted_without_reading_them(tmp_path: Path) -> None:
    schedule().write(tmp_path / "a.parquet")
    assert events_scheduled(tmp_path / "a.parquet") == len(schedule()) == 3


def test_a_missing_schedule_and_another_parquet_file_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for read in (Schedule.read, events_scheduled):
        with pytest.raises(PenstockError, match="no schedule there"):
            read(tmp_path / "none.parquet")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other.parquet")
    with pytest.raises(PenstockError, match="not a schedule of Penstock"):
        Schedule.read(tmp_path / "other.parquet")
