"""The replicas of a pipeline's functions as their gateway reports them, without I/O.

Events of a gateway that reports them are taken as they are (``follow``). Of a gateway that reports counts only, as
OpenFaaS does, they are derived from the difference to the requested number (``FunctionReplicas.observe``).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Self

import msgspec

from controller.fleets.counted_replicas import CountedReplicas
from penstock.contracts import POD_STEPS, Phase, ReplicaEvent
from penstock.replica_set import in_order

LOST_NS: Final = 2_000_000_000
"""Replicas that are unavailable for this long are lost; a shorter gap is a change of pods."""


class FunctionReplicas(CountedReplicas, kw_only=True):
    """One function. ``short_ns``: since when fewer replicas are available than have joined."""

    short_ns: int | None = None

    @property
    def settled(self) -> bool:
        """Whether all replicas take requests."""
        return self.short_ns is None and len(self.serving()) == len(self.replicas)

    def withdraw(self, name: str, now_ns: int, reason: str) -> None:
        """A gateway starts replicas at once: one that does not serve yet drains before it is gone."""
        self.drain([name], now_ns, reason)
        self.remove([name], now_ns, reason)

    def observe(self, running: int, now_ns: int) -> None:
        """``running`` replicas take requests."""
        super().observe(running, now_ns)
        missing = [replica.name for replica in self.serving()[running:]]
        if not missing:
            self.short_ns = None
        elif self.short_ns is None:
            self.short_ns = now_ns
        elif now_ns - self.short_ns >= LOST_NS:
            self.remove(missing, now_ns, "no longer available")
            self.request(len(missing), now_ns, "in place of one that was lost")
            self.short_ns = None

    def follow(self, event: ReplicaEvent) -> None:
        """Take in a step that the gateway reports."""
        if event.replica not in self.replicas:
            if event.phase == "gone":
                return
            self._new(self._number(event.replica), event.at_ns, name=event.replica)
        if event.phase in POD_STEPS:
            self.record(event.replica, event.phase, event.at_ns, event.reason)
        else:
            self.enter(event.replica, event.phase, event.at_ns, event.reason)

    def align(self, phases: Mapping[str, Phase], now_ns: int) -> None:
        """Take the gateway's replicas as they are. Unknown ones are adopted, those that are not there are gone."""
        self.remove([name for name in self.replicas if name not in phases], now_ns, "gone while not observed")
        for name, phase in phases.items():
            replica = self.replicas.get(name) or self.adopt(name, now_ns)
            if replica.phase != phase:
                self.enter(name, phase, now_ns)


class FunctionReplicaSet(msgspec.Struct, kw_only=True):
    """All functions of one run. ``next_event``: number of the event to ask for next."""

    functions: dict[str, FunctionReplicas] = msgspec.field(default_factory=dict)
    next_event: int = 0

    @classmethod
    def of(cls, names: Iterable[str]) -> Self:
        """Functions without any replica yet."""
        return cls(functions={name: FunctionReplicas(fleet=name) for name in names})

    def sizes(self) -> dict[str, int]:
        """Replicas by function, without draining ones."""
        return {name: replicas.size for name, replicas in self.functions.items()}

    def phases(self) -> dict[str, Phase]:
        """Phase by replica, by function and age."""
        return {name: phase for each in self.functions.values() for name, phase in each.phases().items()}

    def copy(self) -> Self:
        """A copy to be written down."""
        return msgspec.json.decode(msgspec.json.encode(self), type=type(self))

    def take_events(self) -> Sequence[ReplicaEvent]:
        """Events since the last call, in order."""
        return in_order(*self.functions.values())
