"""Reads the offsets of a consumer group from Kafka."""

from collections.abc import Callable
from typing import Final

from controller.fleets.stream.offsets import NO_COMMIT, OffsetReading
from penstock.adapters.kafka import OFFSET_END, Consumer, KafkaException, Stall, TopicPartition, make_consumer, reason
from penstock.clock import Clock

LEAST_TIMEOUT_S: Final = 0.05


class OffsetReader:
    """Reads a group's commits and a topic's end offsets, one request each, in ``timeout_s`` at most. The first reading
    makes the connections.

    A consumer that never subscribes and so is no member of the group. librdkafka's admin client (2.16) has one request
    for both, but when a broker goes away it ends the process by an assertion, or keeps the leader's old epoch, which
    the returned broker refuses.
    """

    def __init__(
        self, *, bootstrap: str, topic: str, group: str, partitions: int, clock: Clock, timeout_s: float
    ) -> None:
        self._clock, self._timeout_s = clock, timeout_s
        self._commits_of = [TopicPartition(topic, number) for number in range(partitions)]
        self._ends_of = [TopicPartition(topic, number, OFFSET_END) for number in range(partitions)]
        self._bootstrap, self._group = bootstrap, group
        self._stall = Stall(bootstrap)
        self._consumer = self._connect()

    def read(self) -> OffsetReading:
        """All offsets now. Time-outs and errors of the broker are in ``unknown``.

        Commits first, so that an event that completes between the two requests does not make the lag negative.
        """
        if self._stall.is_lost():
            self._consumer.close()
            self._consumer = self._connect()
        at_s = self._clock.now()
        unknown: dict[str, str] = {}
        committed = self._ask("committed_offset", self._consumer.committed, self._commits_of, self._timeout_s, unknown)
        left_s = max(LEAST_TIMEOUT_S, self._timeout_s - (self._clock.now() - at_s))
        return OffsetReading(at_s, self.ends(left_s, unknown), committed, unknown)

    def ends(self, timeout_s: float, unknown: dict[str, str]) -> dict[int, int]:
        """End offsets by partition now, and a reason in ``unknown`` for those without."""
        return self._ask("end_offset", self._consumer.offsets_for_times, self._ends_of, timeout_s, unknown)

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def _connect(self) -> Consumer:
        return make_consumer(self._bootstrap, self._group, client_id=f"{self._group}-monitor")

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
            reasons = {each.partition: reason(error) for each in partitions}
        else:
            self._stall.over()
        for each in partitions:
            if each.partition not in found:
                unknown[f"partitions.{each.partition}.{field}"] = reasons.get(each.partition, NO_COMMIT)
        return found
