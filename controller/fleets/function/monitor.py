"""The monitor of a pipeline: reads the manager's snapshots from Redis and the replicas from the actuator.

The manager takes its snapshot a moment before each tick (``penstock.function_messages``), with laxity samples over the
monitor's own epoch, independent of any scaler's period (AMESoS 3.5).
"""

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from controller.fleets.function.actuator import OpenFaasActuator
from penstock.adapters.redis import RedisError, redis_client
from penstock.clock import NANOS_PER_SECOND, Clock
from penstock.contracts import BLINDED, FunctionObservation, FunctionStatus, ReplicaCounts
from penstock.function_messages import FunctionCounts, PipelineSnapshot, snapshot_key
from penstock.runspec import RunSpec
from penstock.systems import FunctionSystem

STALE_S: Final = 1.0
"""A snapshot that is older is not used."""
TIMEOUT_S: Final = 0.25
FIELDS: Final = ("arrived", "completed", "backlog", "in_flight", "finished", "missed")
FUNCTION_FIELDS: Final = (
    "arrived", "completed", "backlog", "in_flight", "service_rate_per_s", "busy_s", "laxity_s", "concurrency",
)  # fmt: skip


class SnapshotReader:
    """Reads the manager's last snapshot of one run."""

    def __init__(self, url: str, run: str, clock: Clock) -> None:
        self._redis = redis_client(url, TIMEOUT_S)
        self._key, self._clock = snapshot_key(run), clock
        self._decoder = msgspec.json.Decoder(PipelineSnapshot)

    def read(self) -> PipelineSnapshot | str:
        """The snapshot, or the reason why there is no recent one."""
        try:
            found = self._redis.get(self._key)
        except RedisError as error:
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
    """Monitor port on the pipeline of ``spec``. While ``blind()`` is true nothing is read."""

    def __init__(
        self,
        spec: RunSpec,
        *,
        clock: Clock,
        origin_s: float,
        reader: SnapshotReader,
        replicas: OpenFaasActuator,
        blind: Callable[[], bool] = lambda: False,
    ) -> None:
        assert isinstance(spec.system, FunctionSystem)
        self._spec, self._deadline_s = spec, spec.system.deadline_s
        self._reader, self._replicas = reader, replicas
        self._clock, self._origin_s, self._blind = clock, origin_s, blind
        self._after = {each.name: tuple(each.after) for each in spec.system.functions}
        self._before: dict[str, tuple[int, float]] = {}
        self._rates: dict[str, float] = {}

    def observe(self) -> FunctionObservation:
        """The pipeline now. ``backlog`` of the whole: requests in it; of a function: requests that wait."""
        time_s = self._clock.now() - self._origin_s
        found = BLINDED if self._blind() else self._reader.read()
        away = {"replicas": self._replicas.trouble} if self._replicas.trouble else {}
        functions = [
            FunctionStatus(
                time_s=time_s,
                fleet=name,
                replicas=self._replicas.counts(name),
                after=self._after.get(name),
                unknown=away,
            )
            for name in self._replicas.functions
        ]
        pipeline = FunctionObservation(
            time_s=time_s,
            fleet=self._spec.fleet,
            replicas=ReplicaCounts.total(each.replicas for each in functions),
            pipeline=self._spec.pipeline,
            deadline_s=self._deadline_s,
            unknown=away,
        )
        if isinstance(found, str):
            return replace(
                pipeline,
                functions=tuple(
                    replace(each, unknown={**away, **dict.fromkeys(FUNCTION_FIELDS, found)}) for each in functions
                ),
                unknown={**away, **dict.fromkeys(FIELDS, found)},
            )
        reported = {each.name: each for each in found.functions}
        return replace(
            pipeline,
            arrived=found.arrived,
            completed=found.finished,
            backlog=found.arrived - found.finished,
            in_flight=sum(each.in_flight for each in found.functions),
            functions=tuple(self._status(each, reported.get(each.fleet)) for each in functions),
            finished=found.finished,
            missed=found.missed,
        )

    def _status(self, status: FunctionStatus, counts: FunctionCounts | None) -> FunctionStatus:
        """The status with what the manager counts."""
        if counts is None:
            reason = f"the pipeline manager has no function {status.fleet!r}"
            return replace(status, unknown={**status.unknown, **dict.fromkeys(FUNCTION_FIELDS, reason)})
        rate = self._service_rate_per_s(counts)
        idle = {} if rate is not None else {"service_rate_per_s": "no request has finished yet"}
        return replace(
            status,
            arrived=counts.arrived,
            completed=counts.completed,
            backlog=counts.waiting,
            in_flight=counts.in_flight,
            service_rate_per_s=rate,
            busy_s=counts.busy_s,
            laxity_s=counts.laxity_s,
            concurrency=counts.connections,
            unknown={**status.unknown, **idle},
        )

    def _service_rate_per_s(self, counts: FunctionCounts) -> float | None:
        """Of one replica, over the requests that have finished since the last observation; else the last value."""
        completed, busy_s = self._before.get(counts.name, (0, 0.0))
        if counts.completed > completed and counts.busy_s > busy_s:
            self._rates[counts.name] = (counts.completed - completed) / (counts.busy_s - busy_s)
        if counts.completed != completed:
            self._before[counts.name] = counts.completed, counts.busy_s
        return self._rates.get(counts.name)
