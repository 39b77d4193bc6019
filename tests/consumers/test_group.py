"""The worker's consumer on a real broker: what kafka-python does not promise by itself."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import TopicPartition

from consumers.assignor import PlanAssignor
from consumers.group import FETCH_WAIT_MS, JOIN_TIMEOUT_MS, PARTIAL_FETCH_WAIT_MS, GroupConsumer
from penstock.runspec import WorkerSpec
from penstock.settings import Endpoints
from tests.consumers.observed_run import ObservedRun

pytestmark = pytest.mark.live

PATIENCE_S = 20.0


class Member:
    """One consumer and what it was told."""

    def __init__(self, run: ObservedRun, name: str) -> None:
        self.assignments: list[set[TopicPartition]] = []
        self.consumer = GroupConsumer(
            bootstrap=run.endpoints.require("kafka"),
            client_id=name,
            group=run.spec.group,
            topic=run.spec.events_topic,
            worker=WorkerSpec(),
            assignor=PlanAssignor("", run.spec.group, name),
            on_revoke=dict,
            on_uncommitted=lambda _: None,
            on_lost=lambda: None,
            on_assign=self.assignments.append,
        )

    def until_assigned(self, times: int = 1) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(self.assignments) < times:
            assert time.monotonic() < deadline
            assert self.consumer.take(1, 0) == []


@pytest.fixture
def run(services: Endpoints) -> Iterator[ObservedRun]:
    with ObservedRun(services, purpose="test", partitions=2) as opened:
        yield opened


@pytest.fixture
def join(run: ObservedRun) -> Iterator[Callable[[str], Member]]:
    members: list[Member] = []

    def make(name: str) -> Member:
        members.append(Member(run, name))
        return members[-1]

    yield make
    for member in members:
        member.consumer.close()


def test_a_first_commit_never_skips_what_was_read_ahead(run: ObservedRun, join: Callable[[str], Member]) -> None:
    run.send(range(20))
    member = join("a")
    member.until_assigned()
    deadline = time.monotonic() + PATIENCE_S
    time.sleep(0.5)  # both partitions are fetched
    while not (taken := member.consumer.take(1, 100)):
        assert time.monotonic() < deadline
    other = TopicPartition(run.spec.events_topic, 1 - taken[0].partition)
    assert any(record.partition == other.partition for record in member.consumer._read_ahead)
    assert member.consumer.position(other) == 10
    member.consumer.commit_first_positions({other})
    assert run.committed() == {other.partition: 0, taken[0].partition: None}


def test_a_lone_member_that_asks_for_a_rejoin_gets_exactly_one_more_rebalance(join: Callable[[str], Member]) -> None:
    member = join("a")
    member.until_assigned()
    member.consumer.request_rejoin()
    member.until_assigned(2)
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        assert member.consumer.take(1, 20) == []
    assert len(member.assignments) == 2
    assert {source.partition for source in member.assignments[-1]} == {0, 1}


def test_what_was_read_ahead_of_a_partition_that_stays_is_kept_over_a_rebalance(
    run: ObservedRun, join: Callable[[str], Member]
) -> None:
    run.send(range(20))
    member = join("a")
    member.until_assigned()
    deadline = time.monotonic() + PATIENCE_S
    taken: list[Any] = []
    while len(taken) < 5:
        assert time.monotonic() < deadline
        taken += member.consumer.take(1, 100)
    member.consumer.request_rejoin()
    while len(taken) < 20:
        assert time.monotonic() < deadline
        taken += member.consumer.take(1, 100)
    assert len(member.assignments) == 2
    for partition in (0, 1):
        assert [record.offset for record in taken if record.partition == partition] == list(range(10))


def test_a_fetch_waits_for_events_only_if_it_asks_for_all_partitions(
    run: ObservedRun, join: Callable[[str], Member]
) -> None:
    run.send(range(20))
    member = join("a")
    member.consumer._most = 3  # the rest of a partition's events is read ahead while others are fetched
    fetcher = member.consumer._fetcher
    create, seen = fetcher._create_fetch_requests, list[tuple[int, int]]()

    def created() -> Any:
        requests = create()
        seen.extend((len(offsets), request.max_wait_ms) for request, offsets in requests.values())
        return requests

    fetcher._create_fetch_requests = created
    member.until_assigned()
    deadline = time.monotonic() + PATIENCE_S
    taken = 0
    while taken < 20 or (2, FETCH_WAIT_MS) not in seen:
        assert time.monotonic() < deadline
        taken += len(member.consumer.take(1, 100))
    assert set(seen) == {(2, FETCH_WAIT_MS), (1, PARTIAL_FETCH_WAIT_MS)}


def test_a_join_that_begins_while_a_member_waits_for_events_is_made_in_one_piece(
    join: Callable[[str], Member],
) -> None:
    member = join("a")
    member.until_assigned()
    coordinator = member.consumer._coordinator
    ensure, waits_ms = coordinator.ensure_active_group_async, list[float]()

    async def ensured(timeout_ms: float) -> Any:
        waits_ms.append(timeout_ms)
        return await ensure(timeout_ms)

    coordinator.ensure_active_group_async = ensured
    asked = threading.Timer(0.1, member.consumer.request_rejoin)
    asked.start()
    assert member.consumer.take(1, 200) == []  # its poll sees the request
    asked.join()
    member.until_assigned(2)
    assert waits_ms == [JOIN_TIMEOUT_MS]
