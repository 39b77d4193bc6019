"""Azure's two trace formats, the synthetic files of each, and AMESoS' curves."""

from pathlib import Path

import numpy as np
import pytest

from penstock.errors import PenstockError
from penstock.parameters import make_parameters
from producers.schedule import make_schedule
from producers.workloads.azure import AmesosWorkload, Azure2019, Azure2021, read_2019, read_2021
from producers.workloads.contract import rates_per_s
from tests.producers.workloads import sample_traces

HEAD_2019 = "HashOwner,HashApp,HashFunction,Trigger,1,2,3\n"


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, Path]:
    day, invocations = tmp_path / "2019.csv", tmp_path / "2021.csv"
    day.write_text(HEAD_2019 + "o,a,f1,http,6,0,12\no,a,f2,timer,60,60,60\n\no,a,f1,queue,6,0,0\n")
    invocations.write_text(
        "app,func,end_timestamp,duration\na1,f1,105.5,5.5\na1,f1,101.0,0.5\na2,f1,112.0,1.0\na1,f2,130.0,10.0\n"
    )
    return day, invocations


def test_a_minute_of_2019_is_a_rate_and_rows_of_one_function_are_added_up(small: tuple[Path, Path]) -> None:
    day, _ = small
    assert {name: counts.tolist() for name, counts in read_2019(day).items()} == {"f1": [12, 0, 12], "f2": [60, 60, 60]}
    one = Azure2019(str(day), function="f1")
    assert one.duration_s == 180
    assert one.rate_at([0, 59.9, 60, 179.9]).tolist() == [0.2, 0.2, 0.0, 0.2]
    assert Azure2019(str(day)).rate_at(0) == pytest.approx(1.2)


def test_scale_multiplies_rates_and_a_shorter_minute_keeps_them(small: tuple[Path, Path]) -> None:
    day, _ = small
    fast = Azure2019(str(day), function="f2", scale=3, minute_s=10)
    assert fast.duration_s == 30
    assert rates_per_s(fast).tolist() == pytest.approx([3.0] * 30)


def test_an_invocation_of_2021_arrives_at_its_end_minus_its_duration(small: tuple[Path, Path]) -> None:
    _, path = small
    everything = read_2021(path)
    assert everything == [("a1", "f1", 100.0), ("a1", "f1", 100.5), ("a2", "f1", 111.0), ("a1", "f2", 120.0)]


def test_arrivals_of_2021_are_counted_in_windows_from_the_first_of_them(small: tuple[Path, Path]) -> None:
    _, path = small
    assert Azure2021(str(path)).rows.rate_per_s.tolist() == [0.2, 0.1, 0.1]
    assert Azure2021(str(path), app="a1").rows.rate_per_s.tolist() == [0.2, 0.0, 0.1]
    one = Azure2021(str(path), app="a1", func="f1", window_s=0.25, scale=2)
    assert one.rows.rate_per_s.tolist() == [8.0, 0.0, 8.0]
    assert one.duration_s == pytest.approx(0.75)
    assert one.rate_at([0.0, 0.3, 0.74]).tolist() == [8.0, 0.0, 8.0]


def test_the_traces_can_be_scheduled_with_poisson_arrivals() -> None:
    day = Azure2019(str(sample_traces.FOLDER / "azure-2019.csv"), minute_s=1.0)
    schedule = make_schedule(day, seed=1, partitions=1)
    assert schedule.description["arrivals"] == "poisson"
    assert len(schedule) == pytest.approx(rates_per_s(day).sum(), rel=0.1)
    invocations = make_schedule(Azure2021(str(sample_traces.FOLDER / "azure-2021.csv")), seed=1, partitions=1)
    assert len(invocations) == pytest.approx(200, rel=0.2)


def test_the_synthetic_files_are_what_their_generator_makes() -> None:
    assert (sample_traces.FOLDER / "azure-2019.csv").read_text() == sample_traces.text_2019()
    assert (sample_traces.FOLDER / "azure-2021.csv").read_text() == sample_traces.text_2021()
    counts = read_2019(sample_traces.FOLDER / "azure-2019.csv")
    assert [len(c) for c in counts.values()] == [1440] * 3
    assert len(read_2021(sample_traces.FOLDER / "azure-2021.csv")) == 200


def test_the_beginning_of_a_hash_names_a_function() -> None:
    path = sample_traces.FOLDER / "azure-2019.csv"
    names = list(read_2019(path))
    one = Azure2019(str(path), function=names[0][:8])
    assert np.array_equal(one.rows.rate_per_s, Azure2019(str(path), function=names[0]).rows.rate_per_s)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,rate\n", "line 1: not the 2019 trace"),
        ("HashOwner,HashApp,HashFunction,Trigger\n", "after Trigger come the minutes"),
        ("HashOwner,HashApp,HashFunction,Trigger,1,3\n", "after Trigger come the minutes"),
        (HEAD_2019, "no functions below"),
        (HEAD_2019 + "o,a,f,http,1,2\n", "line 2: 6 of 7 columns"),
        (HEAD_2019 + "o,a,f,http,1,x,2\n", "line 2: 'x' is not a finite number"),
        (HEAD_2019 + "o,a,f,http,1,-1,2\n", "line 2: -1 invocations"),
    ],
)
def test_a_broken_file_of_2019_is_told_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(PenstockError, match=message):
        Azure2019(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("app,func,end,duration\n", "line 1: not the 2021 trace"),
        ("app,func,end_timestamp,duration\n", "no invocations below"),
        ("app,func,end_timestamp,duration\na,f,5\n", "line 2: 3 of 4 columns"),
        ("app,func,end_timestamp,duration\na,f,5,nan\n", "line 2: 'nan' is not a finite number"),
        ("app,func,end_timestamp,duration\na,f,5,-1\n", "line 2: duration '-1' is negative"),
    ],
)
def test_a_broken_file_of_2021_is_told_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(PenstockError, match=message):
        Azure2021(str(path))


def test_what_is_not_there_is_told(tmp_path: Path, small: tuple[Path, Path]) -> None:
    day, invocations = small
    with pytest.raises(PenstockError, match="no such trace file"):
        Azure2019(str(tmp_path / "none.csv"))
    with pytest.raises(PenstockError, match="no function begins with 'g'; the busiest are f2, f1"):
        Azure2019(str(day), function="g")
    with pytest.raises(PenstockError, match="func=f2"):
        Azure2021(str(invocations), app="a2", func="f2")


def test_amesos_curves_have_their_knots_and_peaks() -> None:
    document = AmesosWorkload()
    assert document.duration_s == 480
    assert document.rate_at([0, 15, 30, 150, 480]).tolist() == [20, 27.5, 35, 150, 25]
    for pipeline in ("synthetic", "matrix"):
        low = make_parameters("amesos", AmesosWorkload, {"pipeline": pipeline})
        assert [rates_per_s(low).max() <= 25, low.rate_at(180).item()] == [True, 25]
    assert AmesosWorkload(scale=0.5).rate_at(150) == 75
    with pytest.raises(PenstockError, match="pipeline"):
        make_parameters("amesos", AmesosWorkload, {"pipeline": "other"})
