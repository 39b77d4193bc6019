"""What may be committed when: delivery reports in any order, failures, partitions that go."""

import time
from collections.abc import Callable

import msgspec
import pytest
from kafka import TopicPartition

from consumers.commit_tracker import CommitTracker
from penstock.records import Result
from penstock.settings import Endpoints

A, B = TopicPartition("events", 0), TopicPartition("events", 1)
FAR_NS = 20_000_000_000
RESULT = Result(
    id=1, run="r", pipeline="p", stage="s", outcome="completed", queue="q", intended_ns=1, sent_ns=1, received_ns=1,
    started_ns=1, finished_ns=1, worker="w",
)  # fmt: skip


@pytest.fixture
def box() -> CommitTracker:
    """A tracker whose broker is away: nothing is delivered but by the test."""
    return CommitTracker("127.0.0.1:1", "results", "test")


def deliver(box: CommitTracker, source: TopicPartition, offset: int) -> None:
    """The client library's report for the result of one event."""
    next(item for item in box._queues[source] if item.next_offset == offset + 1).out()


def offsets(box: CommitTracker) -> dict[TopicPartition, int]:
    return {source: offset.offset for source, offset in box.committable().items()}


def test_an_offset_is_committable_once_all_results_before_it_are_out(box: CommitTracker) -> None:
    for offset in (7, 8, 9):
        box.publish(A, offset, RESULT)
    box.publish(B, 3, RESULT)
    deliver(box, A, 8)
    deliver(box, B, 3)
    assert offsets(box) == {B: 4}
    deliver(box, A, 7)
    assert offsets(box) == {A: 9}
    assert offsets(box) == {}
    assert box.outstanding == 1
    assert box.unsettled
    deliver(box, A, 9)
    assert offsets(box) == {A: 10}
    assert not box.unsettled


def test_offsets_of_a_failed_commit_come_back_unless_later_ones_are_there(box: CommitTracker) -> None:
    box.publish(A, 0, RESULT)
    box.publish(A, 1, RESULT)
    deliver(box, A, 0)
    failed = box.committable()
    box.restore(failed)
    assert offsets(box) == {A: 1}
    deliver(box, A, 1)
    box.restore(failed)
    assert offsets(box) == {A: 2}


def test_nothing_of_a_partition_that_went_to_somebody_else_is_committed(box: CommitTracker) -> None:
    box.publish(A, 0, RESULT)
    box.publish(B, 0, RESULT)
    deliver(box, A, 0)
    failed = box.committable()
    box.publish(A, 1, RESULT)
    deliver(box, A, 1)
    late = box._queues[B][0]
    box.keep({A})
    assert offsets(box) == {A: 2}
    box.keep(())
    late.out()
    box.restore(failed)
    assert offsets(box) == {}


def test_waiting_for_reports_ends_at_the_deadline(box: CommitTracker) -> None:
    box.publish(A, 0, RESULT)
    assert not box.collect(time.monotonic_ns() + 10_000_000)
    assert box.outstanding == 1


@pytest.mark.live
def test_results_reach_the_topic_and_are_reported(services: Endpoints, topic: Callable[[int], str]) -> None:
    box = CommitTracker(services.require("kafka"), topic(3), "test")
    for offset in range(50):
        box.publish(A, offset, msgspec.structs.replace(RESULT, id=offset))
    assert box.collect(time.monotonic_ns() + FAR_NS)
    assert offsets(box) == {A: 50}
