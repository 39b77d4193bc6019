"""Every form of a trace comes out as the rates it means; every broken one as a line that says where and what to do."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import DefaultPartitioner

from experiments.replay.trace import key_hash, read_trace
from penstock.errors import PenstockError
from tests.support.mutations import mutations


def write(folder: Path, text: str) -> Path:
    path = folder / "load.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_row_a_second_is_played_as_it_is(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "rate_per_s\n10\n12.5\n\n0\n"))
    assert trace.rate_per_s.tolist() == [10.0, 12.5, 0.0]
    assert trace.partitions is None and trace.offset_ns is None


def test_events_per_minute_keep_their_number(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "when,events_per_minute\na,600\nb,1200\n"))
    assert trace.seconds == 120
    assert (trace.rate_per_s[0], trace.rate_per_s[60], trace.rate_per_s.sum()) == (10.0, 20.0, 1800.0)


def test_per_minute_is_told_by_the_option_too(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "load\n600\n"), column="load", per="minute")
    assert trace.rate_per_s.tolist() == [10.0] * 60


def test_a_rate_holds_until_the_next_time(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "timestamp,rate_per_s\n2026-01-02T00:00:00Z,4\n2026-01-02T00:00:05Z,8\n"))
    assert trace.rate_per_s.tolist() == [4.0] * 5 + [8.0] * 5


def test_rows_shorter_than_a_second_keep_every_event(tmp_path: Path) -> None:
    rows = "".join(f"{0.4 * row:.1f},{10 * row}\n" for row in range(5))
    trace = read_trace(write(tmp_path, "time_s,rate_per_s\n" + rows))
    assert trace.rate_per_s == pytest.approx([0.4 * 0 + 0.4 * 10 + 0.2 * 20, 0.2 * 20 + 0.4 * 30 + 0.4 * 40])


def test_timestamps_keep_their_exact_times(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "timestamp\n100.25\n100.25\n100.75\n103.5\n"))
    assert trace.rate_per_s.tolist() == [3.0, 0.0, 0.0, 1.0]
    assert trace.offset_ns is not None
    assert trace.offset_ns.tolist() == [250_000_000, 250_000_000, 750_000_000, 3_500_000_000]


def test_events_keep_the_partition_that_they_were_recorded_on(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "timestamp,partition\n0.5,2\n0.6,0\n2.5,2\n"))
    assert trace.placed is not None and trace.placed.tolist() == [2, 0, 2]
    assert trace.partitions == 3
    assert trace.form == "3 timestamps (column timestamp), partitions (column partition)"
    shares = trace.share_of(4)
    assert shares is not None
    np.testing.assert_allclose(shares, [[0.5, 0.0, 0.5, 0.0], [0.25] * 4, [0.0, 0.0, 1.0, 0.0]])


def test_a_key_goes_to_the_partition_that_kafka_gives_it(tmp_path: Path) -> None:
    keys = ["21", "foobar", "a-little-bit-long-string", "\u03bb", "account 7"]
    text = "key,timestamp\n" + "".join(f"{key},{second}\n" for second, key in enumerate(keys))
    trace = read_trace(write(tmp_path, text))
    assert trace.placed is not None and trace.partitions is None
    seven = dict.fromkeys(("partitions_for_topic", "available_partitions_for_topic"), lambda _: range(7))
    cluster = SimpleNamespace(topics=lambda: {"topic"}, **seven)
    producer = DefaultPartitioner()
    chosen = [producer.partition("topic", key, key.encode(), None, None, cluster) for key in keys]
    assert (trace.placed % 7).tolist() == chosen


def test_the_hash_of_a_key_is_that_of_kafkas_own_tests() -> None:
    """Of org.apache.kafka.common.utils.UtilsTest, without their sign."""
    assert key_hash("21") == -973932308 & 0x7FFFFFFF
    assert key_hash("foobar") == -790332482 & 0x7FFFFFFF
    assert key_hash("a-little-bit-long-string") == -985981536 & 0x7FFFFFFF


def test_times_by_another_name_have_partitions_too(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "at,partition\n1,1\n"), timestamps=True, column="at")
    assert trace.placed is not None and trace.placed.tolist() == [1]


def test_columns_of_partitions_give_the_share_of_each_second(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "p1,p0\n30,10\n0,0\n0,5\n"))
    assert trace.rate_per_s.tolist() == [40.0, 0.0, 5.0]
    assert trace.partition_share is not None
    np.testing.assert_allclose(trace.partition_share, [[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]])


def test_columns_of_partitions_may_have_any_name(tmp_path: Path) -> None:
    path = write(tmp_path, "east,west,rate_per_s\n1,3,4\n")
    trace = read_trace(path, partition_columns=("west", "east"))
    assert trace.partition_share is not None
    np.testing.assert_allclose(trace.partition_share, [[0.75, 0.25]])


def test_what_is_written_is_what_the_workload_trace_plays(tmp_path: Path) -> None:
    from producers.workloads import Trace
    from producers.workloads.contract import rates_per_s

    trace = read_trace(write(tmp_path, "rate_per_s\n0.1\n349.00000000000006\n"))
    trace.write(tmp_path / "again.csv")
    assert rates_per_s(Trace(path=str(tmp_path / "again.csv"))).tolist() == trace.rate_per_s.tolist()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty file"),
        ("rate_per_s\n", "no rows below"),
        ("rate_per_s\n10\nabc\n", "line 3: rate_per_s 'abc' is not a number"),
        ("rate_per_s\n10\nnan\n", "line 3: rate_per_s 'nan' is not a finite number"),
        ("rate_per_s\n-1\n", "line 2: rate_per_s '-1' is negative"),
        ("rate_per_s,x\n,1\n", "line 2: rate_per_s is empty; write 0"),
        ("x,rate_per_s\n1,2\n3\n", "line 3: only 1 of 2 columns"),
        ("rate_per_s\n0\n0\n", "every rate_per_s is 0"),
        ("10\n20\n", "line 1: '10' are values, not names of columns"),
        ("load\n10\n", "line 1: no column rate_per_s"),
        ("rate_per_s,events_per_minute\n1,2\n", "are both rates; say which with --column"),
        ("time_s,rate_per_s\n0,1\n1,1\n1,1\n", "line 4: time_s '1' is not after the row before; sort the rows"),
        ("time_s,rate_per_s\n0,1\n1,1\n2,1\n9,1\n", "line 5: time_s jumps by 7 s"),
        ("time_s,rate_per_s\n0,1\n1000,1\n2000,1\n", "as milliseconds do; divide by 1000"),
        ("timestamp\n1700000000000\n", "line 2: timestamp 1700000000000 looks like milliseconds"),
        ("timestamp\nyesterday\n", "line 2: timestamp 'yesterday' is not a time"),
        ("timestamp\n5\n4\n", "line 3: timestamp '4' is not after the row before"),
        ("timestamp,partition\n5,0\n6,-1\n", "line 3: partition '-1' is not a partition"),
        ("timestamp,partition\n5,\n", "line 2: partition '' is not a partition"),
        ("timestamp,partition\n5,99999\n", "line 2: partition 99999 is too high a number; name the column key"),
        ("timestamp,key\n5,a\n6,\n", "line 3: key is empty"),
        ("timestamp,key\n5\n", "line 2: only 1 of 2 columns"),
    ],
)
def test_what_is_broken_is_named_with_file_line_and_way_out(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(PenstockError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match=r"absent\.csv: no such trace file"):
        read_trace(tmp_path / "absent.csv")


def test_a_picture_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "load.csv"
    path.write_bytes(b"\x89PNG\r\n\xff\xfe")
    with pytest.raises(PenstockError, match="not a CSV text file"):
        read_trace(path)


def test_an_option_that_contradicts_the_name_of_the_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match=r"--per minute: column rate_per_s .* says per second"):
        read_trace(write(tmp_path, "rate_per_s\n1\n"), per="minute")


def test_a_file_that_would_take_minutes_to_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    with path.open("w") as file:
        file.write("timestamp\n")
        file.truncate(2_100_000_000)  # sparse
    with pytest.raises(PenstockError, match=r"2,100 MB; at most 500 MB can be read"):
        read_trace(path)


FORMS = {
    "rates": b"rate_per_s\n10\n12.5\n0\n7\n",
    "minutes": b"when,events_per_minute\na,600\nb,1200\n",
    "timestamps": b"timestamp,partition\n1.5,0\n1.75,1\n3,0\n",
    "partitions": b"time,p0,p1\n0,1,2\n1,3,4\n",
}


@pytest.mark.parametrize("form", FORMS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_any_file_is_a_trace_or_is_refused_by_name(tmp_path: Path, form: str, data: st.DataObject) -> None:
    path = tmp_path / "load.csv"
    path.write_bytes(data.draw(st.binary(max_size=60) | mutations(FORMS[form])))
    try:
        trace = read_trace(path)
    except PenstockError as error:
        assert "load.csv" in str(error)
    else:
        assert np.isfinite(trace.rate_per_s).all() and (trace.rate_per_s >= 0).all() and trace.seconds > 0
