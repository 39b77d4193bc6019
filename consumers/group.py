"""The worker's consumer-group member: kafka-python's consumer with functions that its public interface lacks.

All uses of kafka-python 3.0's internals are here: rejoining at once, finishing a rebalance, committing inside its
listener.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from kafka import AsyncConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.errors import KafkaError
from kafka.future import Future
from kafka.structs import MemberState, OffsetAndMetadata

from consumers.assignor import PlanAssignor
from penstock.adapters.kafka_security import kafka_python_settings
from penstock.runspec import WorkerSpec

log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]

FETCH_WAIT_MS = 30
"""How long the broker holds an empty fetch: the longest time that a partition with events can be stalled behind a fetch
of the empty ones (a client has one fetch in flight per broker). Shorter ones cost an idle worker CPU: 8 % at 30 ms."""
PARTIAL_FETCH_WAIT_MS = 2
"""The same for a fetch that leaves out a partition, since its events are read ahead or its position is not known yet
after a rebalance: that partition is fetched after this fetch only."""
PARTITION_FETCH_BYTES = 64 * 1024
"""A fetched partition is processed before the next one's turn: small fetches keep the partitions' waits alike. They
grow with ``commit_every``, for throughput."""
LARGEST_FETCH_BYTES = 1024 * 1024
READ_AHEAD = 64
"""Records taken over from the client library at a time; each of its polls costs two changes of thread."""
JOIN_TIMEOUT_MS = 1000
"""Waits for a join are long: the client library drops a request that is answered between two of them and sends another,
which costs the group one more rebalance."""
PAUSE_STEP_S = 0.005
REBALANCE_TIMEOUT_MS = 60_000
COMMIT_TIMEOUT_MS = 2000
METADATA_TIMEOUT_MS = 2000


class GroupConsumer(KafkaConsumer, AsyncConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python ships no types
    """Member of ``group`` on ``topic``, assigned by ``assignor``.

    ``on_revoke`` is called before the partitions go and returns what can be committed while they are ours,
    ``on_uncommitted`` with these offsets if that failed, ``on_lost`` when the partitions went without that,
    ``on_assign`` with the partitions of each new assignment. All of them on the I/O thread, while the caller is inside
    ``take`` or ``close``. Raises a KafkaError if the broker is away.
    """

    def __init__(
        self,
        *,
        bootstrap: str,
        client_id: str,
        group: str,
        topic: str,
        worker: WorkerSpec,
        assignor: PlanAssignor,
        on_revoke: Callable[[], Offsets],
        on_uncommitted: Callable[[Offsets], None],
        on_lost: Callable[[], None],
        on_assign: Callable[[set[TopicPartition]], None],
    ) -> None:
        super().__init__(
            **kafka_python_settings(bootstrap),
            client_id=client_id,
            group_id=group,
            partition_assignment_strategy=[assignor],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=round(worker.session_timeout_s * 1000),
            heartbeat_interval_ms=round(worker.heartbeat_s * 1000),
            max_poll_interval_ms=max(REBALANCE_TIMEOUT_MS, round(worker.session_timeout_s * 1000)),
            fetch_max_wait_ms=FETCH_WAIT_MS,
            max_partition_fetch_bytes=min(LARGEST_FETCH_BYTES, PARTITION_FETCH_BYTES * worker.commit_every),
            bootstrap_timeout_ms=2000,
            retry_backoff_ms=25,
            reconnect_backoff_max_ms=1000,
            check_crcs=False,  # in pure Python they cost more than the whole payment; TCP and broker check too
            metrics_enabled=False,
            allow_auto_create_topics=False,
        )
        self._read_ahead: deque[Any] = deque()
        self._most = max(READ_AHEAD, worker.commit_every)
        self._pause_s = worker.rebalance_pause_s
        self._resume_at = 0.0
        self._bell = Future()
        self._on_uncommitted = on_uncommitted
        self._on_lost = on_lost
        self._on_assign = on_assign
        self._choose_waits()
        self.subscribe([topic], listener=self)
        self._on_revoke = on_revoke
        self._learn_of_topic()

    def _choose_waits(self) -> None:
        """Have the client library ask for the waits of joins and fetches here."""
        self._join = self._coordinator.ensure_active_group
        self._coordinator.ensure_active_group = self._join_in_one_piece
        self._fetchable = self._fetcher._fetchable_partitions
        self._fetcher._fetchable_partitions = self._partitions_to_fetch

    # --- records -----------------------------------------------------------------------------------------------------

    def take(self, most: int, timeout_ms: int) -> list[Any]:
        """Up to ``most`` records, waiting ``timeout_ms`` for the first. A rebalance that is due comes first, so that it
        waits for the records taken before at most.
        """
        if not self._take_part():
            return []
        if self._resume_at and not self._resume(timeout_ms / 1000):
            return []
        if not self._read_ahead:
            self._hang_up_bell()
            for records in self.poll(timeout_ms=timeout_ms, max_records=self._most).values():
                self._read_ahead.extend(records)
            if not self._take_part() or self._resume_at:
                return []
        return [self._read_ahead.popleft() for _ in range(min(most, len(self._read_ahead)))]

    def _take_part(self) -> bool:
        """Take part in a rebalance if one is due; False if it is not over yet."""
        return not self._rejoin_due() or self._join_in_one_piece()

    def _resume(self, timeout_s: float) -> bool:
        """Wait a moment for the end of the pause after a rebalance; whether it has ended."""
        time.sleep(min(max(0.0, self._resume_at - time.monotonic()), timeout_s, PAUSE_STEP_S))
        if time.monotonic() < self._resume_at:
            return False
        self._resume_at = 0.0
        return True

    def _partitions_to_fetch(self) -> list[TopicPartition]:
        """Those of the next fetch. The client library asks for them before it reads how long the fetch may wait."""
        found: list[TopicPartition] = self._fetchable()
        complete = len(found) == len(self._subscription.assigned_partitions())
        self._fetcher.config["fetch_max_wait_ms"] = FETCH_WAIT_MS if complete else PARTIAL_FETCH_WAIT_MS
        return found

    # --- offsets -----------------------------------------------------------------------------------------------------

    def commit_soon(self, offsets: Offsets) -> Any | None:
        """Send a commit without waiting: a future, or None while the group's coordinator is unknown."""
        if self._coordinator.coordinator_unknown():
            self._coordinator.lookup_coordinator()
            return None
        return self.commit_async(dict(offsets))

    def commit_first_positions(self, sources: set[TopicPartition]) -> None:
        """Where there is no commit yet, commit the position, so that the lag is known before an event. Nothing of
        ``sources`` may have been taken yet.
        """
        unread = {
            TopicPartition(record.topic, record.partition): record.offset for record in reversed(self._read_ahead)
        }
        fresh: dict[TopicPartition, OffsetAndMetadata] = {}
        for source in sources:
            if self.committed(source, timeout_ms=COMMIT_TIMEOUT_MS) is None:
                position = unread.get(source, self.position(source, timeout_ms=COMMIT_TIMEOUT_MS))
                if position is not None:
                    fresh[source] = OffsetAndMetadata(position, "", -1)
        if fresh:
            self.commit(fresh, timeout_ms=COMMIT_TIMEOUT_MS)

    # --- membership --------------------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether this member assigned the partitions of the present generation."""
        return bool(self._coordinator._is_leader)

    @property
    def waiting_to_join(self) -> bool:
        """Whether a request to join waits at the broker for the other members."""
        member = self.group_metadata()
        return bool(member.member_id) and member.state is MemberState.REBALANCING

    def request_rejoin(self) -> None:
        """Take part in a new rebalance: at the next ``take``, or at once if the caller waits in it. From any thread."""
        self._coordinator.request_rejoin()
        bell = self._bell

        async def ring() -> None:
            if not bell.is_done:
                bell.success(None)

        with suppress(RuntimeError):  # closed meanwhile
            self._net.call_soon_threadsafe(ring)

    def _join_in_one_piece(self, timeout_ms: float | None = None) -> bool:
        """In place of the client library's: a poll, too, waits for a join that it begins."""
        del timeout_ms
        return bool(self._join(timeout_ms=JOIN_TIMEOUT_MS))

    def _rejoin_due(self) -> bool:
        """Whether the next poll takes part in a rebalance. One begun because the topic's metadata changed looks
        finished to the client library when a poll ends in the middle of it; asking for a rejoin has it finished.
        """
        if self._coordinator.rejoining and not self._coordinator.need_rejoin():
            self._coordinator.request_rejoin()
        return bool(self._coordinator.need_rejoin())

    def _hang_up_bell(self) -> None:
        """The client library waits for records until a fetch is done: add one that a rejoin request completes."""
        if self._bell.is_done or self._bell not in self._fetcher._fetch_futures:
            self._bell = Future()
            self._fetcher._fetch_futures.append(self._bell)

    def _learn_of_topic(self) -> None:
        """Wait for the topic's metadata: a leader that joins without them has to rebalance again when they come."""
        try:
            self._net.run(self._manager.wait_for, self._cluster.request_update(), METADATA_TIMEOUT_MS)
        except KafkaError:
            self.close(timeout_ms=0)
            raise

    # --- kafka-python's callbacks; partitions that stay keep their position, also in its eager protocol ---------------

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Commit what is ours still."""
        if revoked and (offsets := self._on_revoke()):
            try:
                await self._coordinator._commit_offsets_sync_async(dict(offsets), timeout_ms=COMMIT_TIMEOUT_MS)
            except KafkaError as error:
                log.warning("commit on revoke: %s; what moves to another member will be delivered again", error)
                self._on_uncommitted(offsets)
        self._drop_unassigned()

    async def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        """Removed from the group: records read ahead belong to other members."""
        del lost
        self._read_ahead.clear()
        self._on_lost()

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """A new assignment; ``assigned`` is, in the cooperative protocol, only what was added."""
        del assigned
        self._drop_unassigned()
        if self._pause_s:
            self._resume_at = time.monotonic() + self._pause_s
        self._on_assign(self.assignment())

    def _drop_unassigned(self) -> None:
        """Drop records read ahead, but for the partitions that stay."""
        held = self.assignment()
        self._read_ahead = deque(r for r in self._read_ahead if TopicPartition(r.topic, r.partition) in held)
