"""Engines of the sim world: a fleet in virtual time behind a monitor and an actuator, and its events.

An engine reads no wall clock and draws only from generators seeded by the run's seed, so that a seed always gives the
same bytes. Times are seconds since the start of the run. The ``at_ns`` of its ReplicaEvents are nanoseconds since the
start (``simulator.clock.nanos``); the world adds its virtual epoch.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeVar, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.contracts import Actuator, FleetObservation, Monitor
from penstock.errors import PenstockError
from penstock.records import SCHEMA_VERSION, Outcome
from penstock.results import RESULT_SCHEMA
from penstock.runspec import Fault, FaultKind, RunSpec

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Codes = npt.NDArray[np.int8]
Flags = npt.NDArray[np.bool_]

OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
COMPLETED, FAILED, REJECTED, DEAD_LETTERED = range(len(OUTCOMES))
"""Outcome codes of an EventTable: positions in ``OUTCOMES``."""

ROWS_PER_FILE = 1_000_000

NOT_SIMULATED: Final[Mapping[FaultKind, str]] = {
    "kill-gateway": "its gateway has no process: replicas are called directly",
    "stop-gateway": "its gateway has no process: replicas are called directly",
    "kill-dataflow": "its pipeline manager has no process of its own that could lose requests",
    "restart-redis": "its pipeline manager books without a store",
}
"""Faults of the live world that some simulated fleet lacks, with the reason."""

TEXT = pa.string()
NAMES = [column.name for column in RESULT_SCHEMA if column.type == TEXT]
ASCENDING = ["id", "intended_ns", "sent_ns", "received_ns", "started_ns", "finished_ns"]
"""Columns whose differences are small: written as such they take an eighth of the space and half of the time."""


class Engine(Protocol):
    """One fleet in virtual time, at time 0 when it is made, with its initial replicas serving.

    ``FleetKind.engine`` refers to ``make_engine(spec, schedule) -> Engine``. Monitor and actuator act at the time to
    which the engine was last advanced.
    """

    @property
    def monitor(self) -> Monitor[FleetObservation]:
        """Reads the fleet at the engine's time."""
        ...

    @property
    def actuator(self) -> Actuator:
        """Changes the fleet from the engine's time on."""
        ...

    def advance(self, until_s: float) -> None:
        """Process everything that is due up to ``until_s``; an earlier time changes nothing."""
        ...

    def inject(self, fault: Fault) -> bool:
        """Begin a fault at the engine's time (``fault.at_s``); False if there was nothing to hit. PenstockError if the
        engine has no such fault.
        """
        ...

    def left(self) -> int:
        """Events of the schedule without an outcome by now: not completed, rejected or failed."""
        ...

    def results(self) -> "EventTable":
        """All results so far, one row each."""
        ...


Begin = TypeVar("Begin", bound=Callable[..., "bool | None"])


def simulates(kind: FaultKind) -> Callable[[Begin], Begin]:
    """Mark the method of an engine that begins a fault at the engine's time, with the time in seconds at which a
    lasting one ends. It returns False if there was nothing to hit.
    """

    def mark(method: Begin) -> Begin:
        method.simulates = kind  # type: ignore[attr-defined]
        return method

    return mark


class FaultInjection(ABC):
    """The faults of an engine: those of its methods that ``simulates`` marks."""

    faults: ClassVar[Mapping[FaultKind, str]]
    """Name of the method that begins a fault."""
    blind_until_s = 0.0
    """Until then the monitor can read nothing."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        methods = {name: method for base in reversed(cls.__mro__) for name, method in vars(base).items()}
        marked = {name: getattr(method, "simulates", None) for name, method in methods.items()}
        cls.faults = {kind: name for name, kind in marked.items() if kind}

    @property
    @abstractmethod
    def now_s(self) -> float:
        """The engine's time."""

    def inject(self, fault: Fault) -> bool:
        """Begin a fault now; False if there was nothing to hit. PenstockError for one that the engine does not have."""
        if fault.kind not in self.faults:
            raise unsupported(fault, self.faults)
        hit: bool | None = getattr(self, self.faults[fault.kind])(self.now_s + fault.seconds)
        return hit is not False

    @simulates("blind-monitor")
    def _blind(self, until_s: float) -> None:
        """The monitor can read nothing until then."""
        self.blind_until_s = max(self.blind_until_s, until_s)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class EventTable:
    """Results as columns of one length, one row per result that a live worker would publish.

    ``*_s`` are seconds since the start of the run. ``worker``, ``queue`` and ``stage`` are indices into ``workers``,
    ``queues`` (queue or partition names) and ``stages``; ``outcome`` into ``OUTCOMES``; ``attempt`` is 2 or more for a
    redelivery. Optional: ``visit`` (None: 1), ``terminal`` (None: all are) for stages in the middle of a route,
    ``deadline_s`` (None: no deadline), ``reason`` an index into ``reasons`` (None: no reasons).
    A rejected event has the time of its rejection as received, started and finished time, and -1 as worker.
    """

    id: Ints
    intended_s: Floats
    sent_s: Floats
    received_s: Floats
    started_s: Floats
    finished_s: Floats
    worker: Indices
    queue: Indices
    outcome: Codes
    stage: Indices
    attempt: Indices
    workers: tuple[str, ...]
    queues: tuple[str, ...]
    stages: tuple[str, ...]
    visit: Indices | None = None
    terminal: Flags | None = None
    deadline_s: Floats | None = None
    reason: Indices | None = None
    reasons: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.id)

    def write(self, folder: Path, spec: RunSpec) -> None:
        """``folder/part-<n>.parquet`` in the columns of the live worlds' raw results; at least one file, also if empty.
        ``spec`` gives run, pipeline and ``start_ns``.
        """
        for part, begin in enumerate(range(0, max(1, len(self)), ROWS_PER_FILE)):
            pq.write_table(
                self._arrow(slice(begin, begin + ROWS_PER_FILE), spec),
                folder / f"part-{part}.parquet",
                compression="zstd",
                use_dictionary=NAMES,
                column_encoding=dict.fromkeys(ASCENDING, "DELTA_BINARY_PACKED"),
            )

    def _arrow(self, rows: slice, spec: RunSpec) -> pa.Table:
        """These rows in the order of ``RESULT_SCHEMA``."""
        count = len(self.id[rows])

        def at_ns(seconds: Floats) -> Ints:
            return spec.start_ns + np.rint(seconds[rows] * 1e9).astype(np.int64)

        def constant(value: Any, kind: pa.DataType = TEXT) -> pa.Array:
            return pa.repeat(pa.scalar(value, kind), count)

        def named(index: Indices | Codes, names: tuple[str, ...]) -> pa.Array:
            chosen = pa.array(np.asarray(index[rows], dtype=np.int32) + 1, pa.int32())
            # As text: from a dictionary, pyarrow can leave unwritten bytes at the end of a page.
            return pa.array(["", *names], TEXT).take(chosen)

        columns = {
            "id": self.id[rows],
            "run": constant(spec.run),
            "pipeline": constant(spec.pipeline),
            "stage": named(self.stage, self.stages),
            "outcome": named(self.outcome, OUTCOMES),
            "queue": named(self.queue, self.queues),
            "intended_ns": at_ns(self.intended_s),
            "sent_ns": at_ns(self.sent_s),
            "received_ns": at_ns(self.received_s),
            "started_ns": at_ns(self.started_s),
            "finished_ns": at_ns(self.finished_s),
            "worker": named(self.worker, self.workers),
            "broker_ns": pa.nulls(count, pa.int64()),
            "deadline_ns": pa.nulls(count, pa.int64()) if self.deadline_s is None else at_ns(self.deadline_s),
            "visit": (constant(1, pa.int32()) if self.visit is None else np.asarray(self.visit[rows], dtype=np.int32)),
            "attempt": np.asarray(self.attempt[rows], dtype=np.int32),
            "terminal": constant(True, pa.bool_()) if self.terminal is None else self.terminal[rows],
            "reason": constant("") if self.reason is None else named(self.reason, self.reasons),
            "schema": constant(SCHEMA_VERSION, pa.int32()),
        }
        return pa.table({name: columns[name] for name in RESULT_SCHEMA.names})


def unsupported(fault: Fault, known: Collection[str]) -> PenstockError:
    """The error for a fault that an engine does not have, with those that it has."""
    reason = NOT_SIMULATED.get(fault.kind, "it has no such part")
    return PenstockError(
        f"--fault {fault}: this simulated fleet knows {', '.join(sorted(known)) or 'no faults'}; {reason}"
    )
