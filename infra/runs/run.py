"""One live run from its channels to its collected data, whatever its kind of fleet and wherever its replicas are."""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, Final, Literal, ParamSpec, TypeAlias, TypeVar

import msgspec
import pyarrow.parquet as pq

from controller.fleets.stream.offset_reader import OffsetReader
from infra.local.collect import MachineSampler, OutcomeCounter, copy_ledger, copy_results
from infra.local.program_cpu import ProgramCpu
from infra.runs.context import PARTS, RunContext
from infra.runs.cuts import Cut
from infra.runs.exposition import RunMetrics
from infra.runs.faults import Faults
from infra.runs.programs import ControllerProgram, Replicas, SenderProgram
from penstock.adapters.amqp import Management
from penstock.adapters.redis import redis_client, redis_errors
from penstock.adapters.topics import create_topics, delete_topics
from penstock.clock import NANOS_PER_SECOND, WallClock
from penstock.errors import PenstockError
from penstock.runspec import Fault, RunSpec
from penstock.schedule import events_scheduled
from penstock.settings import Folders

if TYPE_CHECKING:
    from infra.runs.pods import ControllerPod

Broker = Literal["kafka", "rabbitmq"]
P = ParamSpec("P")
T = TypeVar("T")

READ_TIMEOUT_S: Final = 1.0
"""For the offsets of a drain, which are read again and again. Services are checked in between."""
REDIS_S: Final = 30.0
SENDER_TIMEOUT_S: Final = 180.0
"""Longest wait for the sender's last delivery reports."""
DRAIN_STALL_S: Final = 30.0
"""A drain without progress for this long is given up; what is left counts as in flight. Events that take longer than
a fraction of it need more (``stall_s``).
"""
DRAIN_POLL_S: Final = 0.5


class Channels:
    """A topic of results; a topic of events with the run's partitions, or RabbitMQ queues made by the controller."""

    def __init__(self, context: RunContext, events: Broker) -> None:
        spec = context.spec
        self._context = context
        self._queues = events == "rabbitmq"
        self._partitions = {} if self._queues else {spec.events_topic: spec.partitions}
        self._partitions[spec.results_topic] = 1

    def make(self) -> None:
        """Create the topics."""
        create_topics(self._context.admin, self._partitions, self._context.check_services)

    def clear(self) -> None:
        """Delete topics, queues and policies, once the processes have ended. A broker that died keeps its own."""
        if self._context.answers("kafka"):
            delete_topics(self._context.admin, list(self._partitions))
        if self._queues and self._context.answers("rabbitmq"):
            with closing(Management(self._context.endpoints.require("rabbitmq_management"))) as management:
                management.delete_run(self._context.spec.run)


class CommittedOffsets:
    """A consumer group is drained when it has committed the end of every partition."""

    def __init__(self, context: RunContext) -> None:
        spec = context.spec
        self._partitions = spec.partitions
        self._reader = OffsetReader(
            bootstrap=context.endpoints.require("kafka"),
            topic=spec.events_topic,
            group=spec.group,
            partitions=spec.partitions,
            clock=WallClock(),
            timeout_s=READ_TIMEOUT_S,
        )
        self.close = self._reader.close

    def left(self) -> int | None:
        """Events that the group has not committed; None while a partition's offsets cannot be read."""
        reading = self._reader.read()
        if len(reading.end) < self._partitions:
            return None
        return sum(end - reading.committed.get(partition, 0) for partition, end in reading.end.items())


class CountedOutcomes:
    """A fleet whose broker keeps no offsets is drained when every acknowledged event has a terminal result."""

    def __init__(self, context: RunContext) -> None:
        reports = pq.read_table(context.directory.delivery_file, columns=["acked_ns"])
        self._acknowledged: int = reports.num_rows - reports.column("acked_ns").null_count
        self._counter = OutcomeCounter(
            context.endpoints.require("kafka"),
            context.spec.results_topic,
            context.spec.run,
            events_scheduled(context.directory.schedule_file),
        )
        self.close = self._counter.close

    def left(self) -> int | None:
        """Acknowledged events without a terminal result."""
        return max(0, self._acknowledged - self._counter.count())


DrainRule: TypeAlias = Callable[[RunContext], CommittedOffsets | CountedOutcomes]
"""Made once the sender has written its delivery reports; counts the events that are left. To be closed."""


def _blaming(phase: "Callable[Concatenate[Run, P], T]") -> "Callable[Concatenate[Run, P], T]":
    """A phase whose error is that of a service, if one has died."""

    @wraps(phase)
    def blaming(run: "Run", /, *arguments: P.args, **options: P.kwargs) -> T:
        with run.context.blaming():
            return phase(run, *arguments, **options)

    return blaming


@dataclass(kw_only=True)
class Run:
    """A run, composed: channels, controller, replicas, sender, drain rule and faults. It is a ``PreparedRun``."""

    context: RunContext
    channels: Channels
    controller: "ControllerProgram | ControllerPod"
    replicas: Replicas
    sender: SenderProgram
    drain_rule: DrainRule
    faults: Faults
    stall_s: float = DRAIN_STALL_S
    """A drain without progress for this long is given up."""
    cuts: Sequence[Cut] = ()
    """The proxies of the run's cuts of the network."""
    start_helper: Callable[[RunContext], None] | None = None
    """Starts the process beside the controller that the kind has."""
    sampler: MachineSampler = field(default_factory=MachineSampler)
    metrics: RunMetrics = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = RunMetrics(self.sampler, self.faults, ProgramCpu(self.context.supervisor.programs))

    @_blaming
    def prepare(self) -> None:
        """Channels, then Spark (the slowest to start), then the controller, which brings up the replicas."""
        context = self.context
        if context.spec.analytics:
            Folders().jars_of("spark")  # without them Spark ends at once, which is noticed when the pods are there
        self.replicas.check()
        self.channels.make()
        if context.spec.analytics:
            context.add("pipelines", "pipelines.stream", respawn=True, grace_s=60)
        for cut in self.cuts:
            cut.start()
        self.replicas.prepare()
        self.controller.start()
        if self.start_helper is not None:
            self.start_helper(context)
        self.controller.await_ready()
        if context.spec.analytics:
            context.await_file("pipelines", context.directory.path / "pipelines-ready")

    @_blaming
    def start(self) -> RunSpec:
        """Set offset 0 to a whole second, a few ahead, and start the sender."""
        context = self.context
        start_s = math.ceil(time.time() + self.sender.lead_s)
        context.spec = msgspec.structs.replace(context.spec, start_ns=start_s * NANOS_PER_SECOND)
        context.directory.write(context.directory.spec_file, context.spec)
        self.sender.start()
        self.sampler.start()
        self.metrics.serve(context.spec.run, context.endpoints.scrape_targets)
        self.controller.notify_start()
        return context.spec

    @_blaming
    def wait_until(self, offset_s: float) -> None:
        """Sleep in short steps and check the sender."""
        until_s = self.context.spec.start_ns / NANOS_PER_SECOND + offset_s
        while (remaining_s := until_s - time.time()) > 0:
            self.sender.check()
            time.sleep(min(0.5, remaining_s))

    @_blaming
    def inject(self, fault: Fault) -> None:
        """Inject a fault and record it in faults.jsonl."""
        self.faults.inject(fault)

    @_blaming
    def drain(self) -> int:
        """Wait until the sender has ended and no event is left, or nothing has moved for a while since the last fault
        was undone; return how many are left. Raise PenstockError if that could not be read.
        """
        self.sender.wait(SENDER_TIMEOUT_S)
        before: int | None = None
        moved_s = time.monotonic()
        with closing(self.drain_rule(self.context)) as rule:
            while time.monotonic() - moved_s < self.stall_s:
                self.context.check_services()
                left = rule.left()
                if left == 0:
                    return 0
                lasts = self.faults.lasting  # a broker that is away on purpose; its restart may take long
                if lasts or (left is not None and left != before):
                    before, moved_s = before if left is None else left, time.monotonic()
                time.sleep(DRAIN_POLL_S)
        if before is None:
            raise PenstockError(
                f"Kafka has not answered within {self.stall_s:g} s: how many events are left is unknown"
            )
        return before

    @_blaming
    def stop(self) -> None:
        """Stop the controller first, so that it does not replace the replicas; then these; then all other parts."""
        self.faults.end()
        self.sampler.stop()
        self.replicas.save_logs()
        self.controller.stop()
        self.replicas.remove()
        for part in PARTS:
            self.context.remove(part)

    @_blaming
    def collect(self) -> None:
        """Stop the run and write its raw data into its directory."""
        self.stop()
        context, directory = self.context, self.context.directory
        kafka, topic = context.endpoints.require("kafka"), context.spec.results_topic
        copy_results(kafka, topic, directory.results_folder, context.check_services)
        copy_ledger(context.endpoints.require("redis"), context.spec.ledger_key, directory.ledger_file)
        self.sampler.write(directory.metrics_folder / "machine.parquet")

    def close(self) -> None:
        """Stop what still belongs to the run; delete its channels and keys. A step that fails does not skip others."""
        with ExitStack() as steps:  # last in, first out
            steps.callback(self._delete_keys)
            steps.callback(self.channels.clear)
            steps.callback(self.context.remove_all)
            steps.callback(self.replicas.close)
            steps.callback(self.controller.close)
            steps.callback(self.sampler.stop)
            steps.callback(self.metrics.close)
            steps.callback(self.faults.close)

    def _delete_keys(self) -> None:
        if not self.context.answers("redis"):
            return
        with redis_errors(), redis_client(self.context.endpoints.require("redis"), REDIS_S) as client:
            keys = list(client.scan_iter(match=f"penstock:{self.context.spec.run}:*", count=1000))
            if keys:
                client.delete(*keys)
