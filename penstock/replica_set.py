"""The replicas of one fleet: the common part of every book that a controller or a gateway keeps of them.

After Dask's adaptive scaling: planned, requested and observed replicas are three sets, and the difference is the work.
No clock, no I/O: a timeline of calls gives a timeline of events. A plain struct: written down after each change, it is
where a restarted controller continues. Kinds of fleet add fields to ``Replica`` and their own rules in a subclass.
"""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import msgspec

from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import MEASURED, Phase, ReplicaCounts, ReplicaEvent

LIFECYCLE: Final[tuple[Phase, ...]] = ("requested", "started", "joined", "first-event")
"""Phases of a replica that is wanted, in order."""
SERVING: Final[frozenset[Phase]] = frozenset(("joined", "first-event"))
"""Phases of a replica that takes events."""
OUT: Final[frozenset[Phase]] = frozenset(("draining", "pooled"))
"""Phases of a replica that does not count towards the size of its fleet."""


class Replica(msgspec.Struct, kw_only=True):
    """One replica. ``number``: its position in the order of creation. ``requested_ns``: when it was requested, or
    requested anew; earlier reports belong to a former process. ``entered_ns``: when it entered its phase.
    """

    name: str
    number: int
    phase: Phase = "requested"
    requested_ns: int = 0
    entered_ns: int = 0


ReplicaT = TypeVar("ReplicaT", bound=Replica)


class ReplicaSet(msgspec.Struct, Generic[ReplicaT], kw_only=True):
    """All replicas of ``fleet`` that are not gone, oldest first. Names are ``prefix`` (``<fleet>-`` unless given) and a
    number, and are never used twice. ``events`` have not been taken yet. ``start_ups_ns``: from request to joining, of
    the last ``MEASURED`` replicas that joined.

    A subclass for replicas with more fields: ``class PodSet(ReplicaSet[Pod]): Kind = Pod``.
    """

    Kind: ClassVar[type[Any]] = Replica

    fleet: str
    prefix: str = ""
    replicas: dict[str, ReplicaT] = msgspec.field(default_factory=dict)
    next_number: int = 1
    events: list[ReplicaEvent] = msgspec.field(default_factory=list)
    start_ups_ns: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Complete the prefix."""
        self.prefix = self.prefix or f"{self.fleet}-"

    def current(self) -> list[ReplicaT]:
        """Replicas that exist or are requested, without draining and pooled ones; oldest first."""
        return [replica for replica in self.replicas.values() if replica.phase not in OUT]

    def serving(self) -> list[ReplicaT]:
        """Replicas that take events, oldest first."""
        return [replica for replica in self.replicas.values() if replica.phase in SERVING]

    def surplus(self, size: int) -> list[ReplicaT]:
        """Current replicas beyond ``size`` in the order of removal: not serving before serving, youngest first."""
        current = self.current()
        order = sorted(current, key=lambda replica: (replica.phase in SERVING, -replica.number))
        return order[: max(0, len(current) - size)]

    @property
    def size(self) -> int:
        """Number of current replicas."""
        return len(self.current())

    def phases(self) -> dict[str, Phase]:
        """Phase by replica, oldest first."""
        return {name: replica.phase for name, replica in self.replicas.items()}

    def start_ups_s(self) -> tuple[float, ...]:
        """From request to joining, of the last replicas that joined."""
        return tuple(start_up_ns / NANOS_PER_SECOND for start_up_ns in self.start_ups_ns)

    def counts(self) -> ReplicaCounts:
        """Replicas by phase."""
        return ReplicaCounts.count(self.phases().values())

    def take_events(self) -> list[ReplicaEvent]:
        """Events since the last call, in order."""
        taken, self.events = self.events, []
        return taken

    def copy(self) -> Self:
        """A copy of its own, to be written down."""
        return msgspec.json.decode(msgspec.json.encode(self), type=type(self))

    def request(self, count: int, now_ns: int, reason: str = "", **fields: Any) -> list[str]:
        """Add ``count`` requested replicas; returns their names. ``fields`` are of the replica's kind."""
        names = [self._new(self.next_number, now_ns, **fields).name for _ in range(count)]
        for name in names:
            self.enter(name, "requested", now_ns, reason)
        return names

    def adopt(self, name: str, now_ns: int, reason: str = "adopted", **fields: Any) -> ReplicaT:
        """Add a replica that runs without a request on record: its controller died before it wrote that down."""
        replica = self._new(self._number(name), now_ns, name=name, **fields)
        self.enter(name, "requested", now_ns, reason)
        return replica

    def drain(self, names: Iterable[str], now_ns: int, reason: str = "") -> None:
        """Take these out of service."""
        for name in names:
            self.enter(name, "draining", now_ns, reason)

    def remove(self, names: Iterable[str], now_ns: int, reason: str = "") -> None:
        """These are gone."""
        for name in list(names):
            self.enter(name, "gone", now_ns, reason)

    def respawn(self, name: str, now_ns: int, gone: str) -> None:
        """A replica's process ended, for the reason ``gone``; a new one is requested under the same name."""
        replica = self.replicas[name]
        self.record(name, "gone", now_ns, gone)
        self.enter(name, "requested", now_ns, "respawned")
        replica.requested_ns = now_ns

    def reach(self, name: str, phase: Phase, at_ns: int) -> None:
        """A replica is reported in ``phase`` of its lifecycle. Phases that it skipped are entered at the same time.
        Unknown and draining replicas, phases it is past, and reports of a former process change nothing.
        """
        replica = self.replicas.get(name)
        if replica is None or replica.phase not in LIFECYCLE or phase not in LIFECYCLE or at_ns < replica.requested_ns:
            return
        joins = replica.phase not in SERVING and phase in SERVING
        for step in LIFECYCLE[LIFECYCLE.index(replica.phase) + 1 : LIFECYCLE.index(phase) + 1]:
            self.enter(name, step, at_ns)
        if joins:
            self.joined(replica, at_ns)

    def joined(self, replica: ReplicaT, at_ns: int) -> None:
        """Note how long it took to join."""
        self.start_ups_ns = (*self.start_ups_ns, at_ns - replica.requested_ns)[-MEASURED:]

    def enter(self, name: str, phase: Phase, at_ns: int, reason: str = "") -> None:
        """Put a replica into ``phase`` (``gone`` removes it) and record it, never before its last phase."""
        replica = self.replicas[name]
        at_ns = max(at_ns, replica.entered_ns)
        if phase == "gone":
            del self.replicas[name]
        replica.phase, replica.entered_ns = phase, at_ns
        self.record(name, phase, at_ns, reason)

    def record(self, name: str, phase: Phase, at_ns: int, reason: str = "") -> None:
        """Record an event that leaves the phase as it is, such as a step of the replica's pod."""
        self.events.append(ReplicaEvent(self.fleet, name, phase, at_ns, reason))

    def _new(self, number: int, now_ns: int, **fields: Any) -> ReplicaT:
        fields = {"name": f"{self.prefix}{number}", "number": number, **fields}
        replica: ReplicaT = self.Kind(requested_ns=now_ns, **fields)
        self.replicas[replica.name] = replica
        if number < self.next_number:  # adopted: older than others
            ordered = sorted(self.replicas.items(), key=lambda item: item[1].number)
            self.replicas.clear()
            self.replicas.update(ordered)
        self.next_number = max(self.next_number, number + 1)
        return replica

    def _number(self, name: str) -> int:
        """The number in a name, the next one where it has none."""
        digits = name.removeprefix(self.prefix)
        return int(digits) if digits.isdecimal() else self.next_number


def in_order(*sets: "ReplicaSet[Any]") -> Sequence[ReplicaEvent]:
    """Take the events of several sets, in order of time."""
    return sorted((event for each in sets for event in each.take_events()), key=lambda event: event.at_ns)
