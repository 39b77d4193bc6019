"""Messages between gateway, pipeline manager and controller, and two times that they share with the simulator.

The manager calls functions with the headers below and writes a ``PipelineSnapshot`` to Redis for the controller's
monitor. The gateway answers ``GET /penstock/functions`` (a list of ``FunctionReport``) and ``GET
/penstock/events?since=N`` (``ReplicaEvents``); ``penstock.openfaas`` has OpenFaaS' own messages.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.contracts import Phase, ReplicaEvent
from penstock.replica_set import SERVING

RETRY_S: Final = 0.1
"""After a 429 the pipeline manager leaves that connection alone for this long (ours; the paper has no value)."""

EPOCH_S: Final = 2.5
"""The monitor's epoch (AMESoS 3.4), over which it gives laxity samples."""

EVENT_HEADER: Final = "X-Penstock-Event"
"""Of a call: the event's id."""
DEADLINE_HEADER: Final = "X-Penstock-Deadline-Ns"
"""Of a call: when the request has to have left the pipeline, ns since the epoch."""
REPLICA_HEADER: Final = "X-Penstock-Replica"
"""Of an answer: the replica that gave it."""
STARTED_HEADER: Final = "X-Penstock-Started-Ns"
"""Of an answer: when the replica began, ns since the epoch."""
FINISHED_HEADER: Final = "X-Penstock-Finished-Ns"
"""Of an answer: when the replica was done, floor included, ns since the epoch."""


class FunctionReport(msgspec.Struct, frozen=True, kw_only=True):
    """One function as its gateway sees it: replicas with their phases; requests that wait for one and that are in one
    now; calls and processing time since it was deployed. Other members may be there besides.
    """

    name: str
    replicas: Mapping[str, Phase]
    waiting: int = 0
    in_flight: int = 0
    invocations: int = 0
    busy_s: float = 0.0

    @property
    def serving(self) -> int:
        """Replicas that take requests."""
        return sum(phase in SERVING for phase in self.replicas.values())


class ReplicaEvents(msgspec.Struct, frozen=True):
    """Events from number ``since`` on, in order; ``next`` is what to ask for then. A gateway that was started anew and
    has forgotten begins with a ``next`` below the one that it was asked for.
    """

    next: int
    events: tuple[ReplicaEvent, ...] = ()


class FunctionCounts(msgspec.Struct, frozen=True, kw_only=True):
    """One function in the pipeline manager. ``arrived``, ``completed``, ``refused`` (429, 503), ``failed`` (attempts
    that came to nothing) and ``busy_s`` (processing time of the completed) are cumulative; ``waiting`` counts those in
    its queue or put aside until they are tried again. ``connections`` is the limit of its pool.
    ``laxity_s``: one sample for each request that was taken up in the last epoch or waits now.
    """

    name: str
    arrived: int = 0
    completed: int = 0
    refused: int = 0
    failed: int = 0
    waiting: int = 0
    in_flight: int = 0
    busy_s: float = 0.0
    connections: int = 1
    laxity_s: tuple[float, ...] = ()


class PipelineSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The pipeline manager at ``at_ns``. ``epoch`` only grows, also over a restart. ``finished`` requests have left the
    pipeline, whatever their outcome; ``missed`` of them after their deadline or without ever being completed.
    ``positions``: next record of each source (a Kafka partition), by which a successor recognises new records.
    """

    epoch: int
    at_ns: int
    arrived: int
    finished: int
    missed: int
    unreadable: int = 0
    functions: tuple[FunctionCounts, ...] = ()
    positions: Mapping[str, int] = msgspec.field(default_factory=dict)


def snapshot_key(run: str) -> str:
    """Redis key of the last ``PipelineSnapshot`` of a run, JSON."""
    return f"penstock:{run}:pipeline"
