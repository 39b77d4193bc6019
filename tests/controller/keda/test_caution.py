"""Caution as timelines: what a scaler wants, how many replicas there are, and what is told."""

from collections.abc import Iterable

from controller.keda.caution import STEADY_S, Caution

Reading = tuple[float, int | None, int | None]


def told(caution: Caution, readings: Iterable[Reading]) -> list[int | None]:
    """What is told after each of the readings: time, replicas wanted, replicas there."""
    found = []
    for time_s, wanted, present in readings:
        caution.take(time_s, wanted, present)
        found.append(caution.told)
    return found


STEADY = round(STEADY_S)


def test_nothing_is_told_before_the_replicas_have_been_the_same_for_a_while() -> None:
    steady: list[Reading] = [(float(t), 3, 7) for t in range(STEADY + 2)]
    assert told(Caution(60), steady) == [None] * STEADY + [7, 7]
    joining: list[Reading] = [(float(t), 3, 2 if t < 8 else 7) for t in range(STEADY + 10)]
    assert told(Caution(60), joining) == [None] * (STEADY + 8) + [7, 7]


def test_members_that_join_again_one_by_one_scale_nothing_in_after_a_start() -> None:
    # Each as late as librdkafka allows: two connections, 15 s for each, and a heartbeat of the others.
    joining: list[Reading] = [(float(t), 1, 1 + min(3, t // 33)) for t in range(160)]
    assert set(told(Caution(600), joining)) == {None, 4}


def test_the_first_decision_after_a_start_scales_nothing_in_for_the_hold() -> None:
    assert set(told(Caution(60), [(float(t), 3, 7) for t in range(60)])[STEADY:]) == {7}
    assert told(Caution(60), [(float(t), 3, 7) for t in range(62)])[59:] == [7, 3, 3]


def test_a_scale_out_does_not_wait_for_the_hold() -> None:
    assert told(Caution(60), [(float(t), 9, 7) for t in range(STEADY + 1)])[-1] == 9


def test_within_the_hold_the_highest_decision_counts() -> None:
    readings: list[Reading] = [(float(t), 9 if t == 52 else 3, 7) for t in range(61)]
    found = told(Caution(60), readings)
    assert (found[51], found[52], found[59], found[60]) == (7, 9, 9, 3)


def test_a_gap_in_the_readings_begins_a_new_hold_at_the_last_number_that_was_told() -> None:
    caution = Caution(60)
    assert told(caution, [(float(t), 12, 12) for t in range(70)])[-1] == 12
    # The broker was away for 75 s; one of twelve members has joined again, and the rate looks low.
    after = told(caution, [(145.0 + t, 3, 1 if t < 10 else 12) for t in range(61)])
    assert after == [12] * 60 + [3]


def test_members_that_are_counted_twice_scale_nothing_out() -> None:
    caution = Caution(60)
    told(caution, [(float(t), 4, 4) for t in range(70)])
    assert set(told(caution, [(145.0 + t, 4, 8) for t in range(20)])) == {4}


def test_a_few_missed_readings_are_no_gap() -> None:
    caution = Caution(10)
    told(caution, [(float(t), 5, 5) for t in range(20)])
    assert told(caution, [(24.0, 2, 5)]) == [2]


def test_where_members_cannot_be_counted_the_first_decision_is_told_after_the_hold() -> None:
    assert told(Caution(60), [(float(t), 3, None) for t in range(61)]) == [None] * 60 + [3]


def test_without_a_hold_each_decision_is_told_at_once() -> None:
    assert told(Caution(0), [(0.0, 3, 7), (1.0, None, 7), (2.0, 1, 7)]) == [3, 3, 1]
