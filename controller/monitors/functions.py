"""The monitor of a pipeline: what its manager writes to Redis, and replicas as the actuator knows them.

The manager takes its snapshot a moment before each tick (``penstock.functions``), with laxity samples over the
monitor's own epoch, so that no scaler's ticks take another one's samples away (AMESoS 3.5).
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from penstock.clock import NANOS_PER_SECOND, Clock
from penstock.contracts import FunctionObservation, FunctionStatus, ReplicaCounts
from penstock.functions import FunctionCounts, PipelineSnapshot, snapshot_key

log = logging.getLogger(__name__)

BLINDED: Final = "the monitor was blinded on purpose"
STALE_S: Final = 1.0
"""A snapshot that is older says nothing of now."""
TIMEOUT_S: Final = 0.25
FIELDS: Final = ("arrived", "completed", "backlog", "in_flight", "finished", "missed")
FUNCTION_FIELDS: Final = (
    "arrived", "completed", "backlog", "in_flight", "service_rate_per_s", "busy_s", "laxity_s", "concurrency",
)  # fmt: skip


class FunctionReplicas(Protocol):
    """What the monitor is told by the actuator. ``trouble``: why it cannot see replicas now, empty if it can."""

    trouble: str

    def counts(self, function: str) -> ReplicaCounts:
        """Replicas of a function by phase."""
        ...


class SnapshotReader:
    """Reads the manager's last snapshot of one run."""

    def __init__(self, url: str, run: str, clock: Clock) -> None:
        self._redis = redis.Redis.from_url(
            url, socket_timeout=TIMEOUT_S, socket_connect_timeout=TIMEOUT_S, retry=Retry(NoBackoff(), 0)
        )
        self._key, self._clock = snapshot_key(run), clock
        self._decoder = msgspec.json.Decoder(PipelineSnapshot)

    def read(self) -> PipelineSnapshot | str:
        """The snapshot, or why there is none that tells of now."""
        try:
            found = self._redis.get(self._key)
        except redis.RedisError as error:
            return f"Redis is away: {error}"
        if found is None:
            return "the pipeline manager has written nothing yet"
        try:
            snapshot = self._decoder.decode(found)
        except msgspec.DecodeError as error:
            return f"not a pipeline manager's snapshot: {error}"
        age_s = self._clock.now() - snapshot.at_ns / NANOS_PER_SECOND
        if age_s > STALE_S:
            return f"the pipeline manager has been silent for {age_s:.1f} s"
        return snapshot

    def close(self) -> None:
        """Close the connection."""
        self._redis.close()


class FunctionMonitor:
    """Monitor port on a pipeline. ``functions`` in topological order. While ``blind()`` is true nothing is read."""

    def __init__(
        self,
        *,
        fleet: str,
        pipeline: str,
        deadline_s: float,
        functions: Sequence[str],
        reader: SnapshotReader,
        replicas: FunctionReplicas,
        clock: Clock,
        origin_s: float,
        blind: Callable[[], bool] = lambda: False,
    ) -> None:
        self._fleet, self._pipeline, self._deadline_s = fleet, pipeline, deadline_s
        self._functions = tuple(functions)
        self._reader, self._replicas = reader, replicas
        self._clock, self._origin_s = clock, origin_s
        self._blind = blind
        self._before: dict[str, tuple[int, float]] = {}
        self._rates: dict[str, float] = {}

    def observe(self) -> FunctionObservation:
        """The pipeline now. ``backlog`` of the whole are the requests in it, of a function those that wait."""
        time_s = self._clock.now() - self._origin_s
        found = BLINDED if self._blind() else self._reader.read()
        counts = {name: self._replicas.counts(name) for name in self._functions}
        together = ReplicaCounts(
            **{phase: sum(getattr(c, phase) for c in counts.values()) for phase in ReplicaCounts.__struct_fields__}
        )
        unseen = {"replicas": self._replicas.trouble} if self._replicas.trouble else {}
        if isinstance(found, str):
            return FunctionObservation(
                time_s=time_s,
                fleet=self._fleet,
                replicas=together,
                pipeline=self._pipeline,
                deadline_s=self._deadline_s,
                functions=tuple(
                    FunctionStatus(
                        time_s=time_s,
                        fleet=name,
                        replicas=counts[name],
                        unknown={**unseen, **dict.fromkeys(FUNCTION_FIELDS, found)},
                    )
                    for name in self._functions
                ),
                unknown={**unseen, **dict.fromkeys(FIELDS, found)},
            )
        told = {each.name: each for each in found.functions}
        return FunctionObservation(
            time_s=time_s,
            fleet=self._fleet,
            replicas=together,
            arrived=found.arrived,
            completed=found.finished,
            backlog=found.arrived - found.finished,
            in_flight=sum(each.in_flight for each in found.functions),
            pipeline=self._pipeline,
            deadline_s=self._deadline_s,
            functions=tuple(
                self._status(name, told.get(name), counts[name], time_s, unseen) for name in self._functions
            ),
            finished=found.finished,
            missed=found.missed,
            unknown=unseen,
        )

    def _status(
        self, name: str, told: FunctionCounts | None, replicas: ReplicaCounts, time_s: float, unseen: dict[str, str]
    ) -> FunctionStatus:
        if told is None:
            reason = f"the pipeline manager has no function {name!r}"
            unknown = {**unseen, **dict.fromkeys(FUNCTION_FIELDS, reason)}
            return FunctionStatus(time_s=time_s, fleet=name, replicas=replicas, unknown=unknown)
        rate = self._service_rate_per_s(told)
        unknown = unseen if rate is not None else {**unseen, "service_rate_per_s": "no request has finished yet"}
        return FunctionStatus(
            time_s=time_s,
            fleet=name,
            replicas=replicas,
            arrived=told.arrived,
            completed=told.completed,
            backlog=told.waiting,
            in_flight=told.in_flight,
            service_rate_per_s=rate,
            busy_s=told.busy_s,
            laxity_s=told.laxity_s,
            concurrency=told.connections,
            unknown=unknown,
        )

    def _service_rate_per_s(self, told: FunctionCounts) -> float | None:
        """Of one replica, over the requests that finished since the last look; the last value if none did."""
        completed, busy_s = self._before.get(told.name, (0, 0.0))
        if told.completed > completed and told.busy_s > busy_s:
            self._rates[told.name] = (told.completed - completed) / (told.busy_s - busy_s)
        if told.completed != completed:
            self._before[told.name] = told.completed, told.busy_s
        return self._rates.get(told.name)
