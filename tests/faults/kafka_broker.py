"""Kafka: logs, commits and the classic group protocol of one broker, and the three clients that Penstock uses."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import confluent_kafka
from kafka import TopicPartition
from kafka.errors import CommitFailedError, KafkaConnectionError
from kafka.structs import OffsetAndMetadata

from consumers.assignor import PlanAssignor
from tests.faults.kernel import SECOND, Kernel, Process, SimEvent, SimThread, Thread, kernel
from tests.faults.network import Lane, Network, Reply, Trouble

RETRY_NS = SECOND // 10
READ_AHEAD = 64


class Record:
    """One record of a log."""

    __slots__ = ("offset", "partition", "timestamp", "timestamp_type", "topic", "value")

    def __init__(self, topic: str, partition: int, offset: int, value: bytes, at_ns: int) -> None:
        self.topic, self.partition, self.offset, self.value = topic, partition, offset, value
        self.timestamp, self.timestamp_type = at_ns // 1_000_000, 1


class Broker:
    """``committed`` is called with (group, partition, offset) at each commit."""

    def __init__(self, kernel: Kernel, network: Network) -> None:
        self.kernel, self.network = kernel, network
        self.logs: dict[str, list[list[Record]]] = {}
        self.commits: dict[tuple[str, str, int], int] = {}
        self.groups: dict[str, Coordinator] = {}
        self.committed: Callable[[str, int, int], None] = lambda group, partition, offset: None
        self.stored: Callable[[Record], None] = lambda record: None
        self.assigned: Callable[[Mapping[str, Mapping[str, Sequence[int]]]], None] = lambda given: None
        self.stale_until = 0
        self._history: deque[tuple[int, dict[tuple[str, str, int], int], dict[str, list[int]]]] = deque()
        self._fetching: dict[tuple[str, int], list[Thread]] = {}

    def create(self, topic: str, partitions: int) -> None:
        self.logs[topic] = [[] for _ in range(partitions)]

    def append(self, topic: str, partition: int, value: bytes) -> Record:
        log = self.logs[topic][partition]
        k = self.kernel
        record = Record(topic, partition, len(log), value, k.now_ns + k.wall_ns)
        log.append(record)
        self.stored(record)
        for thread in self._fetching.pop((topic, partition), ()):
            k.wake(thread, "records")
        return record

    def wait_for(self, sources: Sequence[tuple[str, int]], thread: Thread) -> Callable[[], None]:
        """Wake a thread at the next record of these; what is returned ends that."""
        for source in sources:
            self._fetching.setdefault(source, []).append(thread)

        def forget() -> None:
            for source in sources:
                threads = self._fetching.get(source, [])
                if thread in threads:
                    threads.remove(thread)

        return forget

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        for (topic, partition), offset in offsets.items():
            self.committed(group, partition, offset)
            self.commits[group, topic, partition] = offset

    def group(self, name: str) -> "Coordinator":
        if name not in self.groups:
            self.groups[name] = Coordinator(self, name)
        return self.groups[name]

    def remember(self) -> None:
        """Keep what a follower that lags shows."""
        ends = {topic: [len(log) for log in logs] for topic, logs in self.logs.items()}
        self._history.append((self.kernel.now_ns, dict(self.commits), ends))
        while len(self._history) > 8:
            self._history.popleft()

    def read_commit(self, group: str, topic: str, partition: int) -> int:
        """As a client sees it, -1001 for none."""
        commits = self._history[0][1] if self.stale_until > self.kernel.now_ns and self._history else self.commits
        return commits.get((group, topic, partition), -1001)

    def topic(self, name: str) -> Any:
        """Its metadata."""
        return SimpleNamespace(partitions=dict.fromkeys(range(len(self.logs[name]))))

    def read_end(self, topic: str, partition: int) -> int:
        if self.stale_until > self.kernel.now_ns and self._history:
            return self._history[0][2][topic][partition]
        return len(self.logs[topic][partition])


# --- the group protocol --------------------------------------------------------------------------------------------


class GroupMember:
    """A member as its coordinator knows it."""

    def __init__(self, member_id: str, session_ns: int, now_ns: int) -> None:
        self.member_id, self.session_ns, self.heard_ns = member_id, session_ns, now_ns
        self.metadata: Any = None
        self.join: Reply | None = None
        self.sync: Reply | None = None


class Coordinator:
    """One group: Empty → PreparingRebalance → CompletingRebalance → Stable."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker, self.name = broker, name
        self.members: dict[str, GroupMember] = {}
        self.generation = 0
        self.state = "Empty"
        self.leader = ""
        self.assignments: dict[str, Any] = {}
        self._ids = 0
        self._rebalance_ns = 0

    def join(self, member_id: str, client: str, metadata: Any, session_ns: int, reply: Reply) -> None:
        now_ns = self.broker.kernel.now_ns
        if member_id and member_id not in self.members:
            reply(("unknown", None))
            return
        if not member_id:
            self._ids += 1
            member_id = f"{client}-{self._ids:04d}"
            self.members[member_id] = GroupMember(member_id, session_ns, now_ns)
            self._watch(member_id)
        member = self.members[member_id]
        member.metadata, member.join, member.heard_ns = metadata, reply, now_ns
        if self.state != "PreparingRebalance":
            self._prepare()
        self._complete_if_all_joined()

    def sync(self, member_id: str, generation: int, given: Mapping[str, Any] | None, reply: Reply) -> None:
        member = self.members.get(member_id)
        if member is None:
            reply(("unknown", None))
        elif generation != self.generation or self.state == "PreparingRebalance":
            reply(("rebalance", None))
        elif self.state == "Stable":
            reply(("ok", self.assignments.get(member_id)))
        else:
            member.sync, member.heard_ns = reply, self.broker.kernel.now_ns
            if given is not None and member_id == self.leader:
                self.assignments = dict(given)
                self.state = "Stable"
                self._check(given)
                for each in self.members.values():
                    if each.sync is not None:
                        sync, each.sync = each.sync, None
                        each.heard_ns = self.broker.kernel.now_ns
                        sync(("ok", self.assignments.get(each.member_id)))

    def heartbeat(self, member_id: str, generation: int) -> str:
        member = self.members.get(member_id)
        if member is None:
            return "unknown"
        member.heard_ns = self.broker.kernel.now_ns
        if self.state == "PreparingRebalance":
            return "rebalance"
        return "ok" if generation == self.generation else "illegal"

    def leave(self, member_id: str) -> None:
        if self.members.pop(member_id, None) is not None:
            self._without()

    def commit(self, member_id: str, generation: int, offsets: Mapping[tuple[str, int], int]) -> bool:
        """Whether it was taken: from a member of the present generation only."""
        member = self.members.get(member_id)
        if member is None or generation != self.generation or self.state == "CompletingRebalance":
            return False
        member.heard_ns = self.broker.kernel.now_ns
        self.broker.commit(self.name, offsets)
        return True

    # --- inside ------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self.state = "PreparingRebalance"
        self._rebalance_ns = self.broker.kernel.now_ns
        for member in self.members.values():
            if member.sync is not None:
                sync, member.sync = member.sync, None
                sync(("rebalance", None))

    def _complete_if_all_joined(self) -> None:
        if self.state != "PreparingRebalance" or any(member.join is None for member in self.members.values()):
            return
        if not self.members:
            self.state = "Empty"
            return
        self.generation += 1
        self.state = "CompletingRebalance"
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        self.assignments = {}
        everyone = [SimpleNamespace(member_id=each.member_id, metadata=each.metadata) for each in self.members.values()]
        for member in self.members.values():
            join, member.join = member.join, None
            member.heard_ns = self.broker.kernel.now_ns
            assert join is not None
            leads = member.member_id == self.leader
            join(("ok", (member.member_id, self.generation, everyone if leads else None)))

    def _watch(self, member_id: str) -> None:
        """Expel a member that has been silent for a session; while the broker is away nobody is heard or expelled."""
        member = self.members.get(member_id)
        if member is None:
            return
        now_ns, network = self.broker.kernel.now_ns, self.broker.network
        since_ns = max(member.heard_ns, network.away.get("kafka", 0))
        # A join that waits keeps its member, as in Kafka, unless the others wait for the dead.
        waits = member.join is not None and self.state == "PreparingRebalance" and not member.join.over
        if now_ns - since_ns >= member.session_ns and not waits:
            self.broker.kernel.note(f"{member_id} is expelled")
            del self.members[member_id]
            self._without()
            return
        self.broker.kernel.soon(
            lambda: self._watch(member_id), max(SECOND // 20, since_ns + member.session_ns - now_ns)
        )

    def _without(self) -> None:
        if self.state != "PreparingRebalance":
            self._prepare()
        self._complete_if_all_joined()

    def _check(self, given: Mapping[str, Any]) -> None:
        topics: dict[str, dict[str, Sequence[int]]] = {
            member: {topic: list(held) for topic, held in assignment.assigned_partitions}
            for member, assignment in given.items()
        }
        self.broker.assigned(topics)


# --- the worker's consumer -----------------------------------------------------------------------------------------


class CommitFuture:
    """A commit that was sent."""

    def __init__(self) -> None:
        self.is_done = False
        self.exception: Exception | None = None

    def failed(self) -> bool:
        return self.exception is not None

    def finish(self, error: Exception | None) -> None:
        self.is_done, self.exception = True, error


class GroupClient:
    """``consumers.group.GroupConsumer`` on the simulated broker; joins and heartbeats run in a thread of their own.
    ``rebalance_pause_s`` is left out.
    """

    broker: Broker

    def __init__(
        self,
        *,
        bootstrap: str,
        client_id: str,
        group: str,
        topic: str,
        worker: Any,
        assignor: PlanAssignor,
        on_revoke: Callable[[], Mapping[TopicPartition, OffsetAndMetadata]],
        on_uncommitted: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None],
        on_lost: Callable[[], None],
        on_assign: Callable[[set[TopicPartition]], None],
    ) -> None:
        del bootstrap
        self._name, self._group, self._topic = client_id, group, topic
        self._assignor = assignor
        self._on_revoke, self._on_uncommitted = on_revoke, on_uncommitted
        self._on_lost, self._on_assign = on_lost, on_assign
        self._session_ns = round(worker.session_timeout_s * SECOND)
        self._heartbeat_s = worker.heartbeat_s
        self._member_id, self._generation = "", -1
        self.is_leader = False
        self.waiting_to_join = False
        self._need_rejoin = True
        self._lost = False
        self._held: list[int] = []
        self._positions: dict[int, int] = {}
        self._ahead: deque[Record] = deque()
        self._stable = False
        self._lane = Lane()
        self._inside = SimEvent()
        self._joined = SimEvent()
        self._joining: SimThread | None = None
        self._taker: Thread | None = None
        self._closed = False
        self._call("metadata", lambda reply: reply(), 2.0)
        SimThread(target=self._beat, name="heartbeat").start()

    # --- what the worker calls ---------------------------------------------------------------------------------------

    def take(self, most: int, timeout_ms: int) -> list[Record]:
        self._inside.set()
        try:
            if not self._take_part():
                return []
            if not self._ahead:
                self._ahead.extend(self._fetch(READ_AHEAD, timeout_ms))
                if not self._take_part():
                    return []
            return [self._ahead.popleft() for _ in range(min(most, len(self._ahead)))]
        finally:
            self._inside.clear()

    def commit_soon(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> CommitFuture | None:
        future = CommitFuture()
        k = kernel()
        k.step("kafka commit")
        assert k.current is not None
        member_id, generation, wanted = self._member_id, self._generation, _plain(offsets)
        coordinator = self.broker.group(self._group)

        def done(taken: Any, trouble: str) -> None:
            future.finish(None if taken and not trouble else CommitFailedError(trouble or "another generation"))

        network = self.broker.network
        network.request(
            k.current.process,
            "kafka",
            lambda reply: reply(coordinator.commit(member_id, generation, wanted)),
            done,
            self._lane,
        )
        return future

    def commit_first_positions(self, sources: set[TopicPartition]) -> None:
        group, topic = self._group, self._topic
        found = self._ask(
            "committed", lambda: {s.partition: self.broker.commits.get((group, topic, s.partition)) for s in sources}
        )
        unread = {record.partition: record.offset for record in reversed(self._ahead)}
        fresh = {
            (topic, partition): unread.get(partition, self._positions.get(partition, 0))
            for partition, offset in sorted(found.items())
            if offset is None
        }
        if fresh:
            member_id, generation = self._member_id, self._generation
            coordinator = self.broker.group(group)
            if not self._ask("commit first", lambda: coordinator.commit(member_id, generation, fresh)):
                raise CommitFailedError("another generation")

    def request_rejoin(self) -> None:
        self._need_rejoin = True
        if self._taker is not None:
            kernel().wake(self._taker, "rejoin")

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition(self._topic, partition) for partition in self._held}

    def close(self, timeout_ms: int) -> None:
        del timeout_ms
        if self._held:
            self._revoke()
        self._closed = True
        if self._member_id:
            member_id, coordinator = self._member_id, self.broker.group(self._group)
            try:
                self._ask("leave", lambda: coordinator.leave(member_id))
            except KafkaConnectionError:
                return
            finally:
                self._held = []

    # --- rebalance ---------------------------------------------------------------------------------------------------

    def _take_part(self) -> bool:
        if self._lost:
            self._lost = False
            self._held = []
            self._positions.clear()
            self._ahead.clear()
            self._on_lost()
        if not self._need_rejoin and (self._joining is None or not self._joining.is_alive()):
            return True
        if self._joining is None or not self._joining.is_alive():
            self._need_rejoin = self._stable = False
            self._joined.clear()
            self._joining = SimThread(target=self._join, name="join")
            self._joining.start()
        return self._joined.wait(1.0) and not self._need_rejoin

    def _join(self) -> None:
        """Revoke, join, assign if it leads, sync, take over; from the start after an error."""
        try:
            self._revoke()
            while not self._closed and not self._attempt():
                kernel().sleep(0.025)
        finally:
            self._joined.set()

    def _attempt(self) -> bool:
        coordinator = self.broker.group(self._group)
        metadata = self._assignor.metadata({self._topic})
        member_id, session_ns = self._member_id, self._session_ns
        self.waiting_to_join = True
        try:
            status, answer = self._call(
                "join", lambda reply: coordinator.join(member_id, self._name, metadata, session_ns, reply), 65.0
            )
        except KafkaConnectionError:
            return False
        finally:
            self.waiting_to_join = False
        if status != "ok":
            self._member_id, self._generation = "", -1
            return False
        self._member_id, generation, everyone = answer
        self.is_leader = everyone is not None
        given = None
        if everyone is not None:
            count = len(self.broker.logs[self._topic])
            cluster = SimpleNamespace(partitions_for_topic=lambda _: set(range(count)))
            given = self._assignor.assign(cluster, everyone)
        member_id = self._member_id
        try:
            status, assignment = self._call(
                "sync", lambda reply: coordinator.sync(member_id, generation, given, reply), 65.0
            )
        except KafkaConnectionError:
            return False
        if status == "unknown":
            self._member_id, self._generation = "", -1
        if status != "ok":
            return False
        self._generation = generation
        if assignment is None:
            assignment = SimpleNamespace(user_data=b"", assigned_partitions=[])
        held = [partition for _, partitions in assignment.assigned_partitions for partition in partitions]
        self._find_positions(held)
        self._assignor.on_assignment(assignment, generation)
        if not self._inside.is_set():
            self._inside.wait()
        self._held = held
        self._ahead = deque(record for record in self._ahead if record.partition in held)
        self._stable = True
        self._on_assign(self.assignment())
        return True

    def _find_positions(self, held: Sequence[int]) -> None:
        """Partitions that stay keep their position."""
        self._positions = {partition: at for partition, at in self._positions.items() if partition in held}
        unknown = [partition for partition in held if partition not in self._positions]
        group, topic = self._group, self._topic
        while unknown and not self._closed:
            try:
                found = self._ask(
                    "committed", lambda: {each: self.broker.commits.get((group, topic, each), 0) for each in unknown}
                )
            except KafkaConnectionError:
                kernel().sleep(0.05)
                continue
            self._positions.update(found)
            return

    def _revoke(self) -> None:
        if self._held and (offsets := self._on_revoke()):
            member_id, generation, wanted = self._member_id, self._generation, _plain(offsets)
            coordinator = self.broker.group(self._group)
            try:
                self._ask("commit on revoke", lambda: coordinator.commit(member_id, generation, wanted))
            except KafkaConnectionError:
                self._on_uncommitted(offsets)

    def _beat(self) -> None:
        coordinator = self.broker.group(self._group)
        while not self._closed:
            kernel().sleep(self._heartbeat_s)
            if not self._stable or self._closed:
                continue
            member_id, generation = self._member_id, self._generation
            try:
                status = self._ask("heartbeat", partial(coordinator.heartbeat, member_id, generation))
            except KafkaConnectionError:
                continue
            if generation != self._generation or self._closed or not self._stable:
                continue
            if status == "rebalance":
                self.request_rejoin()
            elif status != "ok":
                self._member_id, self._generation = "", -1
                self._lost = True
                self.request_rejoin()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _fetch(self, most: int, timeout_ms: int) -> list[Record]:
        k = kernel()
        me = k.current
        assert me is not None
        deadline_ns = k.now_ns + timeout_ms * 1_000_000
        sources = [(self._topic, partition) for partition in self._held]
        while True:
            if any(self._positions[p] < len(self.broker.logs[self._topic][p]) for p in self._held):
                try:
                    found: list[Record] = self._ask("fetch", lambda: self._read(most))
                except KafkaConnectionError:
                    found = []
                    k.sleep(0.02)
                for record in found:
                    if record.partition in self._held:
                        self._positions[record.partition] = record.offset + 1
                if found or k.now_ns >= deadline_ns:
                    return found
                continue
            if k.now_ns >= deadline_ns or self._need_rejoin:
                return []
            forget = self.broker.wait_for(sources, me)
            self._taker = me
            k.park(deadline_ns - k.now_ns)
            self._taker = None
            forget()

    def _read(self, most: int) -> list[Record]:
        logs = self.broker.logs[self._topic]
        found: list[Record] = []
        for partition in self._held:
            at = self._positions.get(partition, 0)
            found += logs[partition][at : at + most - len(found)]
        return found[:most]

    def _ask(self, what: str, effect: Callable[[], Any]) -> Any:
        return self._call(what, lambda reply: reply(effect()), 2.0)

    def _call(self, what: str, handle: Callable[[Reply], None], timeout_s: float) -> Any:
        try:
            return self.broker.network.call("kafka", what, handle, timeout_s, self._lane)
        except Trouble as trouble:
            if str(trouble) == "timeout":
                self._lane.closed, self._lane = True, Lane()
            raise KafkaConnectionError(str(trouble)) from None


def _plain(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[tuple[str, int], int]:
    return {(source.topic, source.partition): int(offset.offset) for source, offset in offsets.items()}


# --- confluent's clients -------------------------------------------------------------------------------------------


class Producer:
    """``confluent_kafka.Producer``: sends again until the broker has confirmed; reports are served by ``poll``."""

    broker: Broker

    def __init__(self, settings: Mapping[str, Any]) -> None:
        del settings
        k = kernel()
        assert k.current is not None
        self._process: Process = k.current.process
        self._outstanding = 0
        self._reports: deque[Callable[[Any, Any], None]] = deque()
        self._polling: Thread | None = None

    def produce(self, topic: str, value: bytes, key: bytes | None, on_delivery: Callable[[Any, Any], None]) -> None:
        kernel().step(f"kafka produce {topic.rpartition('.')[2]} {'' if key is None else key.decode()}")
        self._outstanding += 1
        self._send(topic, value, on_delivery)

    def _send(self, topic: str, value: bytes, on_delivery: Callable[[Any, Any], None]) -> None:
        k, network = self.broker.kernel, self.broker.network
        tried = [False]

        def done(_: Any, trouble: str) -> None:
            if tried[0] or self._process.dead:
                return
            tried[0] = True
            if trouble:
                k.soon(lambda: None if self._process.dead else self._send(topic, value, on_delivery), RETRY_NS)
                return
            self._reports.append(on_delivery)
            if self._polling is not None:
                k.wake(self._polling)

        network.request(self._process, "kafka", lambda reply: reply(self.broker.append(topic, 0, value) and None), done)
        if network.faults:
            k.soon(lambda: done(None, "timeout"), SECOND)

    def poll(self, timeout: float = 0.0) -> int:
        k = kernel()
        if not self._reports and timeout > 0:
            self._polling = k.current
            k.park(round(timeout * SECOND))
            self._polling = None
        served = 0
        while self._reports:
            report = self._reports.popleft()
            self._outstanding -= 1
            served += 1
            report(None, None)
        return served

    def __len__(self) -> int:
        return self._outstanding


class Consumer:
    """``confluent_kafka.Consumer`` without a group."""

    broker: Broker

    def __init__(self, bootstrap: str, group: str, log: Any = None, **settings: Any) -> None:
        del bootstrap, log
        self._group = group
        self._on_commit: Callable[[Any, list[Any]], None] | None = settings.get("on_commit")
        self._positions: dict[tuple[str, int], int] = {}
        self._callbacks: deque[Callable[[], None]] = deque()

    def committed(self, partitions: Sequence[Any], timeout: float) -> Any:
        return self._ask(
            "committed",
            lambda: [
                _Partition(each.topic, each.partition, self.broker.read_commit(self._group, each.topic, each.partition))
                for each in partitions
            ],
            timeout,
        )

    def list_topics(self, topic: str, timeout: float) -> Any:
        return self._ask("topics", lambda: SimpleNamespace(topics={topic: self.broker.topic(topic)}), timeout)

    def offsets_for_times(self, partitions: Sequence[Any], timeout: float) -> Any:
        return self._ask(
            "ends",
            lambda: [
                _Partition(each.topic, each.partition, self.broker.read_end(each.topic, each.partition))
                for each in partitions
            ],
            timeout,
        )

    def assign(self, partitions: Sequence[Any]) -> None:
        self._positions = {(each.topic, each.partition): max(0, each.offset) for each in partitions}

    def poll(self, timeout: float) -> Any:
        found = self.consume(1, timeout)
        return found[0] if found else None

    def consume(self, most: int, timeout: float) -> list[Any]:
        while self._callbacks:
            self._callbacks.popleft()()
        k = kernel()
        if not self._positions:
            return []
        if not self._ready() and timeout > 0:
            assert k.current is not None
            forget = self.broker.wait_for(list(self._positions), k.current)
            k.park(round(timeout * SECOND))
            forget()
        if not self._ready():
            return []
        try:
            records: list[Record] = self._ask("fetch", lambda: self._read(most), 0.5)
        except confluent_kafka.KafkaException:
            return []
        for record in records:
            self._positions[record.topic, record.partition] = record.offset + 1
        return [_Message(record) for record in records]

    def _ready(self) -> bool:
        logs = self.broker.logs
        return any(at < len(logs[topic][partition]) for (topic, partition), at in self._positions.items())

    def _read(self, most: int) -> list[Record]:
        found: list[Record] = []
        for (topic, partition), at in self._positions.items():
            found += self.broker.logs[topic][partition][at : at + most - len(found)]
        return found[:most]

    def commit(self, *, offsets: Sequence[Any], asynchronous: bool) -> None:
        wanted = {(each.topic, each.partition): each.offset for each in offsets}

        def effect() -> bool:
            self.broker.commit(self._group, wanted)
            return True

        if not asynchronous:
            self._ask("commit", effect, 5.0)
            return
        k = kernel()
        k.step("kafka commit")
        assert k.current is not None

        def done(_: Any, trouble: str) -> None:
            code = confluent_kafka.KafkaError._TRANSPORT
            error = confluent_kafka.KafkaError(code, trouble) if trouble else None
            if self._on_commit is not None:
                self._callbacks.append(partial(self._on_commit, error, list(offsets)))

        self.broker.network.request(k.current.process, "kafka", lambda reply: reply(effect()), done)

    def close(self) -> None:
        return

    def _ask(self, what: str, effect: Callable[[], Any], timeout_s: float) -> Any:
        try:
            return self.broker.network.ask("kafka", what, effect, timeout_s)
        except Trouble as trouble:
            code = confluent_kafka.KafkaError._TIMED_OUT
            raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(code, str(trouble))) from None


class _Partition:
    """``confluent_kafka.TopicPartition`` in an answer."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self.topic, self.partition, self.offset, self.error = topic, partition, offset, None


class _Message:
    """``confluent_kafka.Message``."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def value(self) -> bytes:
        return self._record.value

    def partition(self) -> int:
        return self._record.partition

    def offset(self) -> int:
        return self._record.offset

    def error(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 2, self._record.timestamp
