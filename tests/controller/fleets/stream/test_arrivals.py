"""Arrivals by slot, from end offsets at known times."""

import threading
from collections.abc import Callable, Mapping

import pytest

from controller.fleets.stream.arrivals import ArrivalSampler, ArrivalSlots
from penstock.clock import WallClock
from penstock.contracts import ARRIVAL_SLOTS

BURST = 200


def bursts(at_s: float) -> Mapping[int, int]:
    """``BURST`` events at each whole second in partition 0, one every 100 ms in partition 1."""
    return {0: BURST * (1 + int(at_s + 1e-6)), 1: int(at_s * 10 + 1e-6)}


def read(slots: ArrivalSlots, from_s: float, to_s: float, end: Callable[[float], Mapping[int, int]] = bursts) -> None:
    """Readings 50 ms apart, 10 ms into each slot."""
    at_s = from_s + 0.01
    while at_s < to_s:
        slots.add(at_s, end(at_s))
        at_s += 0.05


def test_a_burst_is_in_the_slot_of_its_instant() -> None:
    slots = ArrivalSlots(1.0)
    read(slots, 10.0, 12.73)
    found = slots.until(12.73)
    assert [len(each) for each in found.values()] == [ARRIVAL_SLOTS, ARRIVAL_SLOTS]
    assert sum(found[0]) == BURST
    assert found[0].index(BURST) == 5  # from 11.98 to 12.03, read at 12.01
    assert sum(found[1]) == 10
    assert max(found[1]) == 1


def test_each_event_is_in_the_slots_of_one_interval_only() -> None:
    slots = ArrivalSlots(1.0)
    read(slots, 0.0, 1.53)
    slots.add(1.53, bursts(1.53))  # the caller's own reading
    first = slots.until(1.53)
    read(slots, 1.55, 2.53)
    slots.add(2.53, bursts(2.53))
    second = slots.until(2.53)
    assert sum(first[1]) + sum(second[1]) == bursts(2.53)[1] - bursts(0.51)[1]


def test_a_gap_in_the_readings_makes_the_slots_unknown_and_not_zero() -> None:
    slots = ArrivalSlots(1.0)
    read(slots, 0.0, 1.2)
    read(slots, 1.5, 2.5)
    assert slots.until(2.2) == {}
    assert slots.until(2.49) == {}
    read(slots, 2.5, 2.7)
    assert slots.until(2.66) != {}


def test_it_is_unknown_until_a_whole_interval_was_read() -> None:
    slots = ArrivalSlots(1.0)
    read(slots, 5.0, 5.9)
    assert slots.until(5.9) == {}


def test_a_partition_without_one_of_the_readings_is_unknown_alone() -> None:
    slots = ArrivalSlots(1.0)
    read(slots, 0.0, 1.5, lambda at_s: {0: 7} if 0.8 < at_s < 0.9 else bursts(at_s))
    assert list(slots.until(1.46)) == [0]


def test_a_topic_that_was_made_anew_has_no_negative_arrivals() -> None:
    slots = ArrivalSlots(1.0)
    read(slots, 0.0, 1.5, lambda at_s: {0: 1000 if at_s < 1 else 3})
    assert min(slots.until(1.46)[0]) == 0


def test_a_clock_that_was_set_back_is_read_from_there_on() -> None:
    slots = ArrivalSlots(1.0)
    read(slots, 1000.0, 1001.5)
    read(slots, 10.0, 11.5)
    assert sum(slots.until(11.46)[0]) == BURST


@pytest.mark.parametrize("interval_s", [1.0, 0.1])
def test_old_readings_are_forgotten(interval_s: float) -> None:
    slots = ArrivalSlots(interval_s)
    for number in range(500):
        slots.add(number * interval_s / ARRIVAL_SLOTS, {0: number})
    assert len(slots._readings) <= 2 * ARRIVAL_SLOTS + 1


def test_the_sampler_reads_until_it_is_closed_and_then_ends_its_connections() -> None:
    count, enough, closed = 0, threading.Event(), threading.Event()

    def count_up() -> Mapping[int, int]:
        nonlocal count
        count += 1
        if count > 2 * ARRIVAL_SLOTS:
            enough.set()
        return {0: count}

    clock = WallClock()
    sampler = ArrivalSampler(count_up, closed.set, clock, interval_s=0.2)
    sampler.start()
    assert enough.wait(20)
    now_s = clock.now()
    found = sampler.until(now_s, {})
    sampler.close()
    assert closed.is_set()
    assert not found or len(found[0]) == ARRIVAL_SLOTS
    assert not sampler._thread.is_alive()
