"""Workloads: the published figures, formulas, traces, and the text that names them."""

import math
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError
from producers.workloads import Playback, Trace, parse_workload
from producers.workloads.catalogue import WORKLOADS, AtRate, describe, example
from producers.workloads.contract import rates_per_s
from producers.workloads.published import BinpackWorkload1, NycTaxi
from producers.workloads.synthetic import Constant, OnOff, Sinusoid, Step


def test_workload_1_sums_to_the_published_reading_with_its_peak_in_second_470() -> None:
    rates = rates_per_s(BinpackWorkload1())
    assert rates.shape == (600,)
    assert math.floor(rates.sum()) == 108_757
    assert [rates.max(), int(rates.argmax())] == [349.0, 470]
    assert rates[[420, 530]].tolist() == [212.0, 206.0]


def test_nyc_taxi_sums_to_the_published_reading() -> None:
    rates = rates_per_s(NycTaxi())
    assert rates.shape == (7207,)
    assert round(rates.sum()) == 1_310_567
    assert rates.max() == 364.0
    assert rates[[0, 20, 7200, 7206]].tolist() == [1.0, 19.0, 208.0, 215.0]


def test_jitter_is_off_by_default_seeded_and_as_large_as_asked() -> None:
    smooth = rates_per_s(NycTaxi())
    jittered = rates_per_s(NycTaxi(jitter_per_s=2.6, jitter_seed=7))
    assert np.array_equal(jittered, rates_per_s(NycTaxi(jitter_per_s=2.6, jitter_seed=7)))
    assert not np.array_equal(jittered, rates_per_s(NycTaxi(jitter_per_s=2.6, jitter_seed=8)))
    assert np.std(jittered - smooth) == pytest.approx(2.6, rel=0.05)
    assert jittered.min() >= 0


@settings(deadline=None)
@given(
    st.sampled_from(
        [BinpackWorkload1(), NycTaxi(), NycTaxi(jitter_per_s=2.6), Sinusoid(200, 100, 60), OnOff(300, 20, 40)]
    ),
    st.data(),
)
def test_a_slice_has_the_rates_of_that_part_of_the_whole(workload: NycTaxi, data: st.DataObject) -> None:
    whole = rates_per_s(workload)
    first = data.draw(st.integers(0, len(whole) - 1))
    seconds = data.draw(st.integers(1, len(whole) - first))
    part = Playback(workload, from_s=first, seconds=seconds)
    assert np.array_equal(part.step_rates(), whole[first : first + seconds])


@settings(deadline=None)
@given(st.floats(0.1, 50))
def test_speed_multiplies_rates_and_divides_durations(speed: float) -> None:
    played = Playback(BinpackWorkload1(), from_s=400, seconds=100, speed=speed)
    assert played.duration_s == pytest.approx(100 / speed)
    assert played.rate_at(70.5 / speed) == pytest.approx(349 * speed)


def test_formulas_give_the_rates_they_name() -> None:
    assert rates_per_s(Constant(12.5, duration_s=3)).tolist() == [12.5] * 3
    assert rates_per_s(Step(10, 30, at_s=2, duration_s=4)).tolist() == [10, 10, 30, 30]
    assert rates_per_s(OnOff(8, on_s=2, off_s=1, duration_s=6)).tolist() == [8, 8, 0, 8, 8, 0]
    wave = Sinusoid(mean_per_s=100, amplitude_per_s=100, period_s=40, duration_s=40)
    assert wave.rate_at([0, 10, 30]) == pytest.approx([100, 200, 0])


@pytest.mark.parametrize("kind", WORKLOADS.values(), ids=lambda kind: kind.name)
def test_every_workload_can_be_named_by_its_example(
    kind: type[Constant], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("load.csv").write_text("rate_per_s\n3\n")
    Path("azure-2019.csv").write_text("HashOwner,HashApp,HashFunction,Trigger,1,2\no,a,f,http,6,12\n")
    Path("azure-2021.csv").write_text("app,func,end_timestamp,duration\na,f,100.5,0.5\na,f,102.0,1.0\n")
    workload = parse_workload(example(kind))
    assert describe(workload)["name"] == kind.name
    assert rates_per_s(workload).sum() > 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("constnt:rate_per_s=1", "unknown workload 'constnt' (did you mean constant?)"),
        ("constant:rate=1", "unknown parameter 'constant.rate'"),
        ("constant", "constant needs rate_per_s, as in constant:rate_per_s=200"),
        ("constant:200", "'200' is not parameter=value"),
        ("constant:rate_per_s=1,rate_per_s=2", "rate_per_s is given twice"),
        ("constant:rate_per_s=fast", "constant.rate_per_s=fast"),
        ("constant:rate_per_s=nan", "rate_per_s has to be a number above 0, not nan"),
        ("constant:rate_per_s=inf", "rate_per_s has to be a number above 0, not inf"),
        ("poisson:rate_per_s=-3", "rate_per_s has to be a number above 0, not -3"),
        ("sinusoid:mean_per_s=5,amplitude_per_s=6,period_s=9", "the rate would be negative"),
        ("step:before_per_s=1,after_per_s=2,at_s=200", "at_s 200 is not before the end"),
        ("on-off:on_per_s=1,on_s=0,off_s=1", "on_s has to be a number above 0"),
        ("nyc-taxi:jitter_per_s=-1", "jitter_per_s has to be a number of at least 0"),
    ],
)
def test_a_workload_that_cannot_be_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(PenstockError) as refused:
        parse_workload(text)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("from_s", "seconds", "speed", "message"),
    [
        (600, None, 1, "from 600 s: binpack-workload-1 runs from 0 to 600 s"),
        (-1, None, 1, "from -1 s"),
        (500, 101, 1, "ends at 600 s; ask for 100 s or less"),
        (0, 0, 1, "seconds 0"),
        (0, None, 0, "speed 0"),
        (0, None, math.nan, "speed nan"),
    ],
)
def test_a_part_that_a_workload_does_not_have_is_refused(
    from_s: float, seconds: float | None, speed: float, message: str
) -> None:
    with pytest.raises(PenstockError) as refused:
        Playback(BinpackWorkload1(), from_s=from_s, seconds=seconds, speed=speed)
    assert message in str(refused.value)


# --- trace files -----------------------------------------------------------------------------------------------------


def trace(tmp_path: Path, text: str, parameters: str = "") -> Trace:
    file = tmp_path / "load.csv"
    file.write_text(text)
    made = parse_workload(f"trace:path={file}{parameters}")
    assert isinstance(made, Trace)
    return made


def test_a_trace_plays_the_named_column_a_row_a_second(tmp_path: Path) -> None:
    made = trace(tmp_path, "host,rate\na,5\nb,7.5\n\nc,0\n", ",column=rate")
    assert rates_per_s(made).tolist() == [5, 7.5, 0]


def test_a_trace_with_times_holds_each_rate_until_the_next_row(tmp_path: Path) -> None:
    made = trace(tmp_path, "t,rate_per_s\n100,1\n102,4\n103,9\n", ",time_column=t")
    assert rates_per_s(made).tolist() == [1, 1, 4, 9]


def test_a_trace_may_have_calendar_times(tmp_path: Path) -> None:
    made = trace(tmp_path, "at,rate_per_s\n2022-09-05 16:34:58,1\n2022-09-05 16:35:00,4\n", ",time_column=at")
    assert rates_per_s(made).tolist() == [1, 1, 4, 4]


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_calendar_times_without_offset_are_the_same_everywhere_also_where_summer_time_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, day: str
) -> None:
    rows = "".join(f"{day} {minutes // 60:02}:{minutes % 60:02}:00,{minutes}\n" for minutes in range(30, 240, 30))
    try:
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
            time.tzset()
            made = trace(tmp_path, "timestamp,rate_per_s\n" + rows)
            with_offset = trace(tmp_path, f"timestamp,rate_per_s\n{day}T00:00:00+02:00,1\n{day}T00:00:00+01:00,1\n")
    finally:
        time.tzset()
    assert made.rows.start_s.tolist() == [1800.0 * row for row in range(7)]
    assert with_offset.rows.start_s.tolist() == [0.0, 3600.0]


def test_rows_of_a_trace_may_last_longer_than_a_second(tmp_path: Path) -> None:
    assert rates_per_s(trace(tmp_path, "rate_per_s\n1\n2\n", ",row_s=2")).tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("text", "parameters", "message"),
    [
        ("", "", "empty trace file"),
        ("rate_per_s\n", "", "no rows below the column names"),
        ("rate_per_s\n1\nmany\n", "", "line 3: rate_per_s 'many' is not a number"),
        ("rate_per_s\n1\n-2\n", "", "line 3: rate_per_s '-2' is negative"),
        ("rate_per_s\nNaN\n", "", "line 2: rate_per_s 'NaN' is not a finite number"),
        ("rate_per_s\ninf\n", "", "line 2: rate_per_s 'inf' is not a finite number"),
        ("a,rate_per_s\n1,2\n3\n", "", "line 3: only 1 of 2 columns"),
        ("a,rate_per_s\n1,\n", "", "line 2: rate_per_s '' is not a number"),
        (
            "time,load\n1,2\n",
            "",
            "no column 'rate_per_s'; the columns are 'time', 'load'; choose one, as in trace:path=",
        ),
        ("t,rate_per_s\n1,2\n", ",time_column=time", ",time_column=NAME"),
        ("0.5,12.5\n1.5,13\n", "", "line 1: no column 'rate_per_s'; it holds values"),
        ("t,rate_per_s\n1,2\n1,3\n", ",time_column=t", "line 3: time '1' is not after the one before"),
        ("t,rate_per_s\nnoon,2\n", ",time_column=t", "line 2: t 'noon' is not a time"),
    ],
)
def test_a_broken_trace_is_refused_with_file_line_and_value(
    tmp_path: Path, text: str, parameters: str, message: str
) -> None:
    with pytest.raises(PenstockError) as refused:
        trace(tmp_path, text, parameters)
    assert "load.csv" in str(refused.value)
    assert message in str(refused.value)


def test_a_load_without_an_event_has_no_shape_for_another_rate(tmp_path: Path) -> None:
    nothing = trace(tmp_path, "rate_per_s\n0\n0\n")
    with pytest.raises(PenstockError, match=r"load\.csv: all its rates are 0; leave the rate out or name another"):
        rates_per_s(AtRate(f"trace:path={nothing.path}", 100.0))


def test_a_missing_or_binary_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="no such trace file"):
        parse_workload(f"trace:path={tmp_path / 'nowhere.csv'}")
    (tmp_path / "picture.csv").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(PenstockError, match="not a CSV text file"):
        parse_workload(f"trace:path={tmp_path / 'picture.csv'}")
    with pytest.raises(PenstockError, match="cannot be read"):
        parse_workload(f"trace:path={tmp_path}")


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_file_alone_is_a_trace_and_its_times_are_used(tmp_path: Path) -> None:
    file = tmp_path / "load.csv"
    file.write_text("time_s,rate_per_s\n0,1\n2,3\n")
    assert rates_per_s(parse_workload(str(file))).tolist() == [1, 1, 3, 3]
    file.write_text("rate_per_s\n1\n3\n")
    assert rates_per_s(parse_workload(str(file))).tolist() == [1, 3]


RAMP = Path(__file__).resolve().parents[3] / "docs" / "examples" / "ramp.py"


def own(tmp_path: Path, right: str = "", wrong: str = "") -> str:
    """The example with one thing changed, with its parameters."""
    assert right in RAMP.read_text()
    file = tmp_path / "ramp.py"
    file.write_text(RAMP.read_text().replace(right, wrong) if right else RAMP.read_text())
    return f"{file}:Ramp:from_per_s=10,to_per_s=20"


def test_a_class_from_a_file_is_a_workload_with_its_parameters(tmp_path: Path) -> None:
    made = parse_workload(own(tmp_path) + ",duration_s=2")
    assert rates_per_s(made).tolist() == [12.5, 17.5]
    assert describe(made) == {"name": "ramp", "from_per_s": 10, "to_per_s": 20, "duration_s": 2}


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("class Ramp(", "class Rampe(", "no workload class 'Ramp' in it (a class with rate_at); it has Rampe"),
        ("(Workload)", "", "is not a dataclass derived from Workload; docs/your-own-workload.md"),
        ("name: ClassVar[str] =", "called: ClassVar[str] =", "has no `name`, a text such as name = 'my-workload'"),
        ("share *", "shore *", "ramp.py:30: workload ramp fails when it gives its rates: NameError"),
        ("return self.from", "return -self.from", "rate_at answers -"),
        ("        return self.from_per_s +", "        return 1.0  #", "rate_at answers 1.0; expected 60 rates"),
        ("from dataclasses", "from dataclass", "ramp.py:3: ModuleNotFoundError while importing it"),
    ],
)
def test_a_class_that_fails_is_refused_in_one_line(tmp_path: Path, right: str, wrong: str, message: str) -> None:
    with pytest.raises(PenstockError) as refused:
        parse_workload(own(tmp_path, right, wrong))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_missing_parameter_is_named_with_an_example_of_the_same_class(tmp_path: Path) -> None:
    name = own(tmp_path).rpartition(":")[0]
    with pytest.raises(
        PenstockError, match=r"ramp\.py:Ramp needs from_per_s, to_per_s, as in .*ramp\.py:Ramp:from_per"
    ):
        parse_workload(name)
