"""The Kafka monitor: end and committed offsets of every partition in one tick, and arrival rates measured from them.

Lag is log end offset minus committed offset (spec 4.7). Rates are never the producer's own numbers: they are Δend/Δt
between two successful readings a whole second or more apart, because a shorter or a drifting interval reads nothing
or twice a burst.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from penstock.clock import NANOS_PER_SECOND, Clock
from penstock.contracts import Groups, PartitionObservation, ReplicaCounts, StreamObservation
from penstock.plan import Plan

log = logging.getLogger(__name__)

NO_COMMIT = "no commit yet"
BLINDED = "the monitor was blinded on purpose"
LEAST_TIMEOUT_S = 0.05
JITTER = 0.1
"""Share of the rate interval by which a tick may come early and still close the interval."""


class FleetView(Protocol):
    """What the monitor is told by those who know: replicas by the actuator, plan and assignment by the plan board."""

    def counts(self) -> ReplicaCounts:
        """Replicas by phase."""
        ...


class PlanView(Protocol):
    """The plan board as far as an observation needs it."""

    @property
    def groups(self) -> Groups:
        """The grouping last asked for."""
        ...

    @property
    def current(self) -> Plan | None:
        """The plan in force."""
        ...

    @property
    def last_rebalance_ns(self) -> int | None:
        """When the group last reached a new generation."""
        ...

    def assigned(self) -> Mapping[str, tuple[int, ...]]:
        """What each member reported to hold."""
        ...


class Reading(msgspec.Struct, frozen=True):
    """Offsets by partition at one instant; a partition that could not be read is missing and ``unknown`` says why."""

    at_s: float
    end: Mapping[int, int]
    committed: Mapping[int, int]
    unknown: Mapping[str, str]


class OffsetReader:
    """Reads a group's commits and a topic's end offsets, one request each, in ``timeout_s`` at most.

    It is a consumer that never subscribes, so that it is no member of the group. librdkafka's admin client could ask
    for both at once, but 2.16 does not survive a broker that goes away: an assertion of its own ends the whole
    process, or it keeps the leader's old epoch, which the broker that came back refuses.
    """

    def __init__(
        self, *, bootstrap: str, topic: str, group: str, partitions: int, clock: Clock, timeout_s: float
    ) -> None:
        self._clock, self._timeout_s = clock, timeout_s
        self._commits_of = [TopicPartition(topic, number) for number in range(partitions)]
        self._ends_of = [TopicPartition(topic, number, OFFSET_END) for number in range(partitions)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": f"{group}-monitor",
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 500,  # the default of 10 s would be blindness after the broker is back
            },
            logger=log,
        )

    def read(self) -> Reading:
        """All offsets now. The broker's silence or refusal is in ``unknown``, not an exception.

        Commits first: an event that is done between the two requests is then still counted as lag, never as less than
        none.
        """
        at_s = self._clock.now()
        unknown: dict[str, str] = {}
        committed = self._ask("committed_offset", self._consumer.committed, self._commits_of, self._timeout_s, unknown)
        left_s = max(LEAST_TIMEOUT_S, self._timeout_s - (self._clock.now() - at_s))
        end = self._ask("end_offset", self._consumer.offsets_for_times, self._ends_of, left_s, unknown)
        return Reading(at_s, end, committed, unknown)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def _ask(
        self,
        field: str,
        request: Callable[..., list[TopicPartition]],
        partitions: list[TopicPartition],
        timeout_s: float,
        unknown: dict[str, str],
    ) -> dict[int, int]:
        """Offset by partition, and a reason in ``unknown`` for those without."""
        found: dict[int, int] = {}
        reasons: dict[int, str] = {}
        try:
            for each in request(partitions, timeout=timeout_s):
                if each.error is not None:
                    reasons[each.partition] = str(each.error.str())
                elif each.offset >= 0:
                    found[each.partition] = each.offset
        except KafkaException as error:
            reasons = {each.partition: str(error.args[0].str()) for each in partitions}
        for each in partitions:
            if each.partition not in found:
                unknown[f"partitions.{each.partition}.{field}"] = reasons.get(each.partition, NO_COMMIT)
        return found


class ArrivalRates:
    """Δend/Δt by partition, over the last interval of at least ``interval_s`` between two readings that had it.

    After an outage the interval is as long as the outage was: the rate is then the average since the last reading.
    """

    def __init__(self, interval_s: float) -> None:
        self._least_s = interval_s * (1 - JITTER)
        self._young: deque[tuple[float, Mapping[int, int]]] = deque()
        self._since_s: dict[int, float] = {}
        self._before: dict[int, int] = {}
        """By partition: the youngest reading that is an interval old, and when it was."""

    def add(self, at_s: float, end: Mapping[int, int]) -> dict[int, float]:
        """Take in a reading; returns events/s of the partitions that have two."""
        since_s, before = self._since_s, self._before
        while self._young and at_s - self._young[0][0] >= self._least_s:
            read_s, offsets = self._young.popleft()
            since_s.update(dict.fromkeys(offsets, read_s))
            before.update(offsets)
        self._young.append((at_s, end))
        return {
            partition: max(0, offset - before[partition]) / (at_s - since_s[partition])
            for partition, offset in end.items()
            if partition in before
        }


class KafkaMonitor:
    """Monitor port on a consumer group.

    ``rate_interval_s`` is a second of the run (shorter in a run that is sped up). While ``blind()`` is true nothing
    is read and everything is unknown: the fault ``blind-monitor``, which a world switches by the run directory's file
    ``blind``.
    """

    def __init__(
        self,
        *,
        fleet: str,
        reader: OffsetReader,
        partitions: int,
        clock: Clock,
        origin_s: float,
        replicas: FleetView,
        plans: PlanView,
        rate_interval_s: float = 1.0,
        blind: Callable[[], bool] = lambda: False,
    ) -> None:
        self._fleet = fleet
        self._reader = reader
        self._partitions = range(partitions)
        self._clock, self._origin_s = clock, origin_s
        self._replicas, self._plans = replicas, plans
        self._rates = ArrivalRates(rate_interval_s)
        self._blind = blind

    def observe(self) -> StreamObservation:
        """The group now. What could not be read is None, its reason in ``unknown``
        (``partitions.3.committed_offset``).
        """
        reading = self._blindness() if self._blind() else self._reader.read()
        rates = self._rates.add(reading.at_s, reading.end)
        unknown = dict(reading.unknown)
        for partition in sorted(reading.end.keys() - rates.keys()):
            unknown[f"partitions.{partition}.arrival_rate_per_s"] = "needs two readings a second apart"
        end, committed, rate = reading.end.get, reading.committed.get, rates.get
        partitions = tuple(
            PartitionObservation(partition, end(partition), committed(partition), rate(partition))
            for partition in self._partitions
        )
        plan, rebalanced_ns = self._plans.current, self._plans.last_rebalance_ns
        return StreamObservation(
            time_s=reading.at_s - self._origin_s,
            fleet=self._fleet,
            replicas=self._replicas.counts(),
            arrived=_total("arrived", [each.end_offset for each in partitions], unknown),
            completed=_total("completed", [each.committed_offset for each in partitions], unknown),
            backlog=_total("backlog", [each.lag for each in partitions], unknown),
            unknown=unknown,
            partitions=partitions,
            plan=self._plans.groups,
            plan_epoch=plan.epoch if plan is not None else 0,
            assigned=dict(self._plans.assigned()),
            last_rebalance_s=None if rebalanced_ns is None else rebalanced_ns / NANOS_PER_SECOND - self._origin_s,
        )

    def _blindness(self) -> Reading:
        fields = ("end_offset", "committed_offset")
        unknown = {f"partitions.{each}.{field}": BLINDED for each in self._partitions for field in fields}
        return Reading(self._clock.now(), {}, {}, unknown)


def _total(field: str, values: list[int | None], unknown: dict[str, str]) -> int | None:
    """The sum, or None with the reason if a part is unknown."""
    known = [value for value in values if value is not None]
    if len(known) == len(values):
        return sum(known)
    missing = [str(partition) for partition, value in enumerate(values) if value is None]
    unknown[field] = f"unknown for partition{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
    return None
