"""A run on a Kafka consumer group."""

from controller.monitors.kafka import OffsetReader
from infra.local.runs.run import LocalRun
from penstock.clock import WallClock
from penstock.topics import create_topics

READ_TIMEOUT_S = 5.0


class StreamRun(LocalRun):
    """A topic with the run's partitions; the run is over when the group has committed all of it."""

    _reader: OffsetReader | None = None

    def make_channels(self) -> None:
        """Events and results."""
        create_topics(self.admin, {self.spec.events_topic: self.spec.partitions, self.spec.results_topic: 1})

    def left(self) -> int | None:
        """What the group has not committed; None while a partition's offsets cannot be read."""
        if self._reader is None:
            self._reader = OffsetReader(
                bootstrap=self.endpoints.require("kafka"),
                topic=self.spec.events_topic,
                group=self.spec.group,
                partitions=self.spec.partitions,
                clock=WallClock(),
                timeout_s=READ_TIMEOUT_S,
            )
        reading = self._reader.read()
        if len(reading.end) < self.spec.partitions:
            return None
        return sum(end - reading.committed.get(partition, 0) for partition, end in reading.end.items())

    def close_readers(self) -> None:
        """The reader of offsets."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
