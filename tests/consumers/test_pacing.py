"""Pacing by absolute deadlines, on the numbers of its clock; how long sleeps really take is nobody's claim here."""

import time

import pytest

from consumers.pacing import BACK_TO_BACK_NS, Pacer, Slot

MS = 1_000_000


def served(pacer: Pacer, slot: Slot) -> Slot:
    pacer.wait(slot, ready_ns=slot.start_ns)  # a machine that stands still is not the work's lateness
    return slot


def test_an_event_that_waited_starts_at_the_deadline_before_it_so_lateness_never_adds_up() -> None:
    pacer = Pacer(0.005, "deterministic", seed=1, replica="r")
    first = served(pacer, pacer.next(time.monotonic_ns()))
    second = pacer.next(first.deadline_ns + BACK_TO_BACK_NS)
    assert first.deadline_ns - first.start_ns == 5 * MS
    assert (second.start_ns, second.deadline_ns) == (first.deadline_ns, first.deadline_ns + 5 * MS)


def test_an_event_that_came_to_an_idle_worker_starts_when_it_was_got() -> None:
    pacer = Pacer(0.005, "deterministic", seed=1, replica="r")
    first = served(pacer, pacer.next(time.monotonic_ns()))
    received = first.deadline_ns + BACK_TO_BACK_NS + 1
    assert pacer.next(received).start_ns == received


def test_no_event_starts_before_it_was_sent_nor_after_it_was_got() -> None:
    pacer = Pacer(0.005, "deterministic", seed=1, replica="r")
    free = served(pacer, pacer.next(time.monotonic_ns())).deadline_ns
    received = free + MS
    assert pacer.next(received, free + MS // 2).start_ns == free + MS // 2
    assert pacer.next(received, free + 9 * MS).start_ns == received


def test_the_events_of_a_chunk_follow_each_other() -> None:
    pacer = Pacer(0.002, "deterministic", seed=1, replica="r")
    first = served(pacer, pacer.next(time.monotonic_ns()))
    second = served(pacer, pacer.following())
    third = pacer.following()
    assert second.start_ns == first.deadline_ns
    assert third.start_ns == second.deadline_ns


def test_work_that_outlasts_its_floor_frees_the_worker_when_it_ends() -> None:
    pacer = Pacer(0.001, "deterministic", seed=1, replica="r")
    slot = pacer.next(time.monotonic_ns())
    time.sleep(0.003)
    before = time.monotonic_ns()
    pacer.wait(slot)
    assert pacer.following().start_ns >= before > slot.deadline_ns


def test_coming_late_to_a_deadline_is_not_the_works_fault() -> None:
    pacer = Pacer(0.001, "deterministic", seed=1, replica="r")
    slot = pacer.next(time.monotonic_ns())
    ready = slot.start_ns + MS // 2
    time.sleep(0.003)
    assert pacer.wait(slot, ready) > slot.deadline_ns
    assert pacer.following().start_ns == slot.deadline_ns
    again = pacer.next(slot.deadline_ns)
    pacer.wait(again, again.deadline_ns + MS)
    assert pacer.following().start_ns > again.deadline_ns


def test_an_event_may_bring_its_own_service_time_and_a_worker_its_own_idea_of_back_to_back() -> None:
    pacer = Pacer(0, "deterministic", seed=1, replica="r", back_to_back_ns=50 * MS)
    first = served(pacer, pacer.next(time.monotonic_ns(), floor_ns=2 * MS))
    assert first.deadline_ns - first.start_ns == 2 * MS
    second = pacer.next(first.deadline_ns + 50 * MS, floor_ns=7 * MS)
    assert (second.start_ns, second.deadline_ns) == (first.deadline_ns, first.deadline_ns + 7 * MS)


def test_without_a_floor_nothing_is_waited_for() -> None:
    pacer = Pacer(0, "exponential", seed=1, replica="r")
    slot = pacer.next(time.monotonic_ns())
    assert slot.start_ns == slot.deadline_ns


def test_exponential_service_times_are_drawn_from_a_stream_of_the_replicas_own() -> None:
    def draws(seed: int, replica: str) -> list[int]:
        pacer = Pacer(0.005, "exponential", seed=seed, replica=replica)
        return [slot.deadline_ns - slot.start_ns for slot in (pacer.next(1) for _ in range(4000))]

    one = draws(1, "r-0")
    assert one == draws(1, "r-0")
    assert one != draws(1, "r-1")
    assert one != draws(2, "r-0")
    mean = sum(one) / len(one)
    assert mean == pytest.approx(5 * MS, rel=0.05)
    deviation = (sum((value - mean) ** 2 for value in one) / len(one)) ** 0.5
    assert deviation == pytest.approx(mean, rel=0.08)
