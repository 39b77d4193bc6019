"""The Kafka monitor: end and committed offsets of every partition in one tick, and arrival rates measured from them.

Lag is log end offset minus committed offset. Rates are not the producer's numbers, but Δend/Δt between two successful
readings a second or more apart: a shorter or drifting interval counts a burst never or twice.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, Self, cast

from controller.fleets.stream.arrivals import ArrivalSampler
from controller.fleets.stream.assignment import AssignmentPlanner
from controller.fleets.stream.offsets import OffsetReading
from penstock.clock import NANOS_PER_SECOND, Clock
from penstock.contracts import BLINDED, PartitionObservation, ReplicaCounts, StreamObservation

READING_SHARE: Final = 0.4
"""Of the shortest period: the longest time in which the offsets are read, so that no tick is missed for it."""
JITTER: Final = 0.1
"""Share of the rate interval by which a tick may come early and still close the interval."""


class OffsetSource(Protocol):
    """``OffsetReader``, or its stand-in in virtual time."""

    def read(self) -> OffsetReading:
        """All offsets now."""

    def close(self) -> None:
        """Close the connections."""


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
    """Monitor port on a consumer group. ``counts``: its replicas by phase, ``plans``: its planner or a copy of it.

    ``rate_interval_s`` is a second of the run (shorter in a run that is sped up). ``arrivals``: reads arrivals by slot,
    for a scaler that wants them. ``start_ups``: seconds from request to joining of the last replicas. While
    ``blind()`` is true every value is unknown (fault ``blind-monitor``, switched by the file ``blind`` in the run
    directory).
    """

    def __init__(
        self,
        *,
        fleet: str,
        reader: OffsetSource,
        partitions: int,
        clock: Clock,
        origin_s: float,
        counts: Callable[[], ReplicaCounts],
        plans: Callable[[], AssignmentPlanner],
        rate_interval_s: float = 1.0,
        arrivals: ArrivalSampler | None = None,
        start_ups: Callable[[], tuple[float, ...]] = tuple,
        blind: Callable[[], bool] = lambda: False,
    ) -> None:
        self._fleet, self._reader, self._partitions = fleet, reader, range(partitions)
        self._clock, self._origin_s, self._blind = clock, origin_s, blind
        self._counts, self._plans, self._start_ups = counts, plans, start_ups
        self._rates = ArrivalRates(rate_interval_s)
        self._arrivals = arrivals

    @classmethod
    def connected(
        cls,
        *,
        bootstrap: str,
        topic: str,
        group: str,
        partitions: int,
        clock: Clock,
        period_s: float,
        rate_interval_s: float = 1.0,
        reads_arrivals: bool = False,
        **known: Any,
    ) -> Self:
        """A monitor whose reader has asked the broker once. ``period_s``: of the decisions, of which a reading takes a
        part only. ``reads_arrivals``: a second connection reads arrivals by slot. ``known``: the other parameters.
        """
        from controller.fleets.stream.offset_reader import OffsetReader

        timeout_s = READING_SHARE * min(1.0, period_s)

        def connect() -> OffsetReader:
            reader = OffsetReader(
                bootstrap=bootstrap, topic=topic, group=group, partitions=partitions, clock=clock, timeout_s=timeout_s
            )
            reader.read()
            return reader

        arrivals = None
        if reads_arrivals:
            ends = connect()
            arrivals = ArrivalSampler(lambda: ends.ends(timeout_s, {}), ends.close, clock, rate_interval_s)
            arrivals.start()
        return cls(
            reader=connect(),
            partitions=partitions,
            clock=clock,
            rate_interval_s=rate_interval_s,
            arrivals=arrivals,
            **known,
        )

    def observe(self) -> StreamObservation:
        """The group now. What could not be read is None, why is in ``unknown`` (``partitions.3.end_offset``)."""
        reading = self._blindness() if self._blind() else self._reader.read()
        rates = self._rates.add(reading.at_s, reading.end)
        unknown = dict(reading.unknown)
        if len(rates) < len(reading.end):
            for partition in sorted(reading.end.keys() - rates.keys()):
                unknown[f"partitions.{partition}.arrival_rate_per_s"] = "needs two readings a second apart"
        arrivals = reading.arrivals
        if self._arrivals is not None:
            arrivals = self._arrivals.until(reading.at_s, reading.end) if reading.end else {}
            for partition in sorted(set(self._partitions).difference(arrivals)):
                unknown[f"partitions.{partition}.arrivals_by_slot"] = "the last second was not read without a gap"
        end, committed, rate, slots = reading.end.get, reading.committed.get, rates.get, arrivals.get
        partitions = tuple(
            PartitionObservation(each, end(each), committed(each), rate(each), slots(each)) for each in self._partitions
        )
        plans = self._plans()
        plan, rebalanced_ns = plans.current, plans.last_rebalance_ns
        return StreamObservation(
            time_s=reading.at_s - self._origin_s,
            fleet=self._fleet,
            replicas=self._counts(),
            arrived=_total("arrived", [each.end_offset for each in partitions], unknown),
            completed=_total("completed", [each.committed_offset for each in partitions], unknown),
            backlog=_total("backlog", [each.lag for each in partitions], unknown),
            unknown=unknown,
            partitions=partitions,
            plan=plans.groups,
            plan_epoch=plan.epoch if plan is not None else 0,
            assigned=plans.assigned(),
            last_rebalance_s=None if rebalanced_ns is None else rebalanced_ns / NANOS_PER_SECOND - self._origin_s,
            finished=reading.finished if reading.finished is not None else plans.finished,
            late=reading.late if reading.late is not None else plans.late,
            busy_s=reading.busy_s if reading.busy_s is not None else plans.busy_s,
            start_ups_s=self._start_ups(),
            rebalances_s=plans.rebalances_s(),
            delivery_s=plans.delivery_s,
        )

    def close(self) -> None:
        """Close the connections."""
        if self._arrivals is not None:
            self._arrivals.close()
        self._reader.close()

    def _blindness(self) -> OffsetReading:
        fields = ("end_offset", "committed_offset")
        unknown = {f"partitions.{each}.{field}": BLINDED for each in self._partitions for field in fields}
        return OffsetReading(self._clock.now(), {}, {}, unknown)


def _total(field: str, values: list[int | None], unknown: dict[str, str]) -> int | None:
    """The sum, or None with the reason if a part is unknown."""
    if None not in values:
        return sum(cast(list[int], values))
    missing = [str(partition) for partition, value in enumerate(values) if value is None]
    unknown[field] = f"unknown for partition{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
    return None
