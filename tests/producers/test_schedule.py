"""Schedules: counts, order, bursts, skew, speed, and that one seed always gives the same bytes."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import PenstockError
from penstock.runspec import Arrivals
from penstock.schedule import Schedule
from producers.schedule import hot_weights, make_schedule
from producers.workloads.contract import Workload, rates_per_s
from producers.workloads.published import BinpackWorkload1, NycTaxi
from producers.workloads.synthetic import Constant, OnOff, Poisson, Sinusoid, Step

workloads: st.SearchStrategy[Workload] = st.one_of(
    st.just(BinpackWorkload1()),
    st.builds(Constant, rate_per_s=st.floats(0.5, 300), duration_s=st.floats(3, 40)),
    st.builds(Step, before_per_s=st.floats(0, 9), after_per_s=st.floats(1, 9), at_s=st.just(5), duration_s=st.just(9)),
    st.builds(OnOff, on_per_s=st.floats(1, 90), on_s=st.floats(1, 9), off_s=st.floats(1, 9), duration_s=st.just(30.0)),
    st.builds(Sinusoid, mean_per_s=st.just(50.0), amplitude_per_s=st.floats(0, 50), period_s=st.floats(5, 60)),
)  # fmt: skip
laws = st.sampled_from(get_args(Arrivals))


def made(workload: Workload, arrivals: Arrivals | None = None, seed: int = 1, speed: float = 1.0) -> Schedule:
    return make_schedule(workload, seed=seed, partitions=5, arrivals=arrivals, speed=speed)


@settings(deadline=None)
@given(workloads, laws, st.integers(0, 2**32), st.sampled_from([1.0, 3.0, 0.7, 10.0]))
def test_times_ascend_within_the_run(workload: Workload, arrivals: Arrivals, seed: int, speed: float) -> None:
    try:
        schedule = made(workload, arrivals, seed, speed)
    except PenstockError as error:  # at a low rate a Poisson draw may be empty
        assert arrivals == "poisson"
        assert "has no events" in str(error)
        return
    offsets = schedule.intended_offset_ns
    assert [offsets.dtype.name, schedule.partition.dtype.name] == ["int64", "int16"]
    assert np.all(np.diff(offsets) >= 0)
    assert offsets[0] >= 0
    assert offsets[-1] < schedule.duration_s * 1e9
    assert schedule.duration_s == pytest.approx(workload.duration_s / speed)
    assert set(schedule.partition.tolist()) <= set(range(5))
    assert schedule.arrivals_per_second().sum() == len(schedule)


def test_a_burst_is_the_rounded_up_rate_at_the_start_of_each_second() -> None:
    schedule = made(BinpackWorkload1())
    assert schedule.description["arrivals"] == "burst"
    assert np.all(schedule.intended_offset_ns % 1_000_000_000 == 0)
    assert np.array_equal(schedule.arrivals_per_second(), np.ceil(rates_per_s(BinpackWorkload1()) - 1e-9))


def test_bursts_come_speed_times_as_often_when_played_faster() -> None:
    slow, fast = made(BinpackWorkload1()), made(BinpackWorkload1(), speed=4)
    assert len(fast) == len(slow)
    assert np.array_equal(fast.intended_offset_ns, slow.intended_offset_ns // 4)
    assert fast.duration_s == 150


@settings(deadline=None)
@given(st.floats(0.5, 400), st.integers(3, 60))
def test_uniform_arrivals_carry_fractions_from_second_to_second(rate_per_s: float, seconds: int) -> None:
    schedule = made(Constant(rate_per_s, duration_s=seconds), "uniform")
    assert abs(len(schedule) - rate_per_s * seconds) <= 0.5 + 1e-6
    expected = rate_per_s * np.arange(1, seconds + 1)
    assert np.all(np.abs(np.cumsum(schedule.arrivals_per_second()) - expected) <= 0.5 + 1e-6)


def test_uniform_arrivals_of_a_constant_rate_are_evenly_spaced() -> None:
    gaps = np.diff(made(Constant(200, duration_s=5)).intended_offset_ns)
    assert np.all(np.abs(gaps - 5_000_000) <= 1)


def test_a_silent_stretch_gets_no_events() -> None:
    schedule = made(OnOff(on_per_s=7.3, on_s=10, off_s=10, duration_s=40))
    in_turn_s = schedule.intended_offset_ns / 1e9 % 20
    assert np.all(in_turn_s <= 10)


def test_poisson_counts_have_the_rate_as_mean_and_variance() -> None:
    counts = made(Poisson(100, duration_s=4000)).arrivals_per_second()
    assert counts.mean() == pytest.approx(100, rel=0.01)
    assert counts.var() == pytest.approx(100, rel=0.1)


def test_poisson_gaps_are_exponential() -> None:
    gaps_s = np.diff(made(Poisson(50, duration_s=2000)).intended_offset_ns) / 1e9
    assert gaps_s.mean() == pytest.approx(0.02, rel=0.02)
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(1.0, abs=0.02)


def test_skew_gives_half_of_the_events_to_the_first_two_of_nine_partitions() -> None:
    weights = hot_weights(9, 2, 0.5)
    assert weights == pytest.approx((0.25,) * 2 + (0.5 / 7,) * 7)
    schedule = make_schedule(BinpackWorkload1(), seed=3, partitions=9, partition_weights=weights)
    shares = np.bincount(schedule.partition, minlength=9) / len(schedule)
    assert shares == pytest.approx(weights, abs=0.005)


def test_a_partition_of_weight_zero_gets_nothing() -> None:
    schedule = make_schedule(Constant(1000), seed=1, partitions=3, partition_weights=(1, 2, 0))
    assert set(schedule.partition.tolist()) == {0, 1}


@pytest.mark.parametrize("arrivals", get_args(Arrivals))
def test_one_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path: Path, arrivals: Arrivals) -> None:
    files = [tmp_path / name for name in ("first.parquet", "again.parquet", "other.parquet")]
    for file, seed in zip(files, (5, 5, 6), strict=True):
        workload = NycTaxi(jitter_per_s=2.6)
        make_schedule(workload, seed=seed, partitions=5, arrivals=arrivals, from_s=600, seconds=120).write(file)
    first, again, other = (file.read_bytes() for file in files)
    assert first == again
    assert first != other


def test_what_is_written_can_be_read_again(tmp_path: Path) -> None:
    schedule = make_schedule(BinpackWorkload1(), seed=1, partitions=9, from_s=420, seconds=110, speed=2)
    schedule.write(tmp_path / "schedule.parquet")
    read = Schedule.read(tmp_path / "schedule.parquet")
    assert np.array_equal(read.intended_offset_ns, schedule.intended_offset_ns)
    assert np.array_equal(read.partition, schedule.partition)
    assert (read.duration_s, read.description) == (55.0, schedule.description)


def test_changing_the_arrivals_leaves_the_partitions_alone() -> None:
    burst, uniform = made(Constant(50), "burst"), made(Constant(50), "uniform")
    assert len(burst) == len(uniform)
    assert np.array_equal(burst.partition, uniform.partition)


@settings(deadline=None)
@given(st.integers(0, 590), st.integers(1, 10))
def test_the_burst_schedule_of_a_slice_has_the_counts_of_that_part(first: int, seconds: int) -> None:
    whole = made(BinpackWorkload1()).arrivals_per_second()[first : first + seconds]
    if not whole.sum():
        return
    part = make_schedule(BinpackWorkload1(), seed=9, partitions=5, from_s=first, seconds=seconds)
    assert np.array_equal(part.arrivals_per_second(), whole)


@pytest.mark.parametrize(
    ("workload", "arguments", "message"),
    [
        (Poisson(5), {"arrivals": "burst"}, "arrivals burst: poisson draws its own"),
        (Constant(5), {"partition_weights": (1, 2)}, "2 values for 5 partitions"),
        (Constant(5), {"partition_weights": (1, 2, -3, 1, 1)}, "at least 0"),
        (Constant(5), {"partition_weights": (0,) * 5}, "one of them above 0"),
        (Constant(5), {"partitions": 0}, "partitions 0"),
        (Constant(5), {"seed": -1}, "seed -1"),
        (Constant(0.001), {}, "constant has no events"),
        (Constant(1e9), {}, "a schedule holds"),
        (Constant(5), {"from_s": 70}, "constant runs from 0 to 60 s"),
    ],
)
def test_what_cannot_be_scheduled_is_refused(workload: Workload, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        make_schedule(workload, **{"seed": 1, "partitions": 5, **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize(("hot", "share"), [(0, 0.5), (9, 0.5), (2, 1.5)])
def test_an_impossible_skew_is_refused(hot: int, share: float) -> None:
    with pytest.raises(PenstockError, match="hot"):
        hot_weights(9, hot, share)


def test_a_file_that_is_no_schedule_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="no schedule there"):
        Schedule.read(tmp_path / "schedule.parquet")
    (tmp_path / "schedule.parquet").write_text("not parquet")
    with pytest.raises(PenstockError, match="not a Parquet file"):
        Schedule.read(tmp_path / "schedule.parquet")
