"""The replicas of a pipeline's functions, as their gateway tells them; without I/O.

A gateway that tells what happens to each replica is believed (``hear``). One that gives counts only, as OpenFaaS does,
is compared with what was asked for, and the steps in between are made from the difference (``compare``): replicas have
names of ours then, the oldest joins first, the newest goes first.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from penstock.contracts import POD_STEPS, Phase, ReplicaCounts, ReplicaEvent
from penstock.functions import SERVING

LOST_NS: Final = 2_000_000_000
"""Replicas that are no longer available for this long have gone: a reading in between two pods is not a loss."""


class FunctionState(msgspec.Struct, kw_only=True):
    """One function: its replicas with their phases, oldest first; ``next_number`` for the next name of ours;
    ``short_ns``: since when fewer are available than have joined.
    """

    replicas: dict[str, Phase] = msgspec.field(default_factory=dict)
    next_number: int = 1
    short_ns: int | None = None

    def current(self) -> list[str]:
        """Replicas that are not on the way out."""
        return [name for name, phase in self.replicas.items() if phase != "draining"]

    def serving(self) -> list[str]:
        """Replicas that take requests."""
        return [name for name, phase in self.replicas.items() if phase in SERVING]


class FunctionRoster(msgspec.Struct, kw_only=True):
    """All functions of one run. A plain struct: written down, it is where a restarted controller goes on.

    ``next_event``: number of the gateway's event to ask for next; ``events`` have not been handed out yet.
    """

    functions: dict[str, FunctionState] = msgspec.field(default_factory=dict)
    next_event: int = 0
    events: list[ReplicaEvent] = msgspec.field(default_factory=list)

    @classmethod
    def of(cls, names: Iterable[str]) -> "FunctionRoster":
        """Functions without any replica yet."""
        return cls(functions={name: FunctionState() for name in names})

    def sizes(self) -> dict[str, int]:
        """Replicas by function, without those on the way out."""
        return {name: len(state.current()) for name, state in self.functions.items()}

    def counts(self, function: str) -> ReplicaCounts:
        """Replicas of a function by phase."""
        return ReplicaCounts.count(self.functions[function].replicas.values())

    def phases(self) -> dict[str, Phase]:
        """Every replica with its phase, by function and age."""
        return {name: phase for state in self.functions.values() for name, phase in state.replicas.items()}

    def happened(self) -> list[ReplicaEvent]:
        """Everything since the last call, in order."""
        handed_out, self.events = self.events, []
        return handed_out

    # --- told step by step -------------------------------------------------------------------------------------------

    def hear(self, event: ReplicaEvent) -> None:
        """A step that the gateway tells of. Functions of others are none of ours."""
        state = self.functions.get(event.fleet)
        if state is None:
            return
        if event.phase == "gone":
            if state.replicas.pop(event.replica, None) is None:
                return
        elif event.phase not in POD_STEPS:
            state.replicas[event.replica] = event.phase
        self.events.append(event)

    def adopt(self, replicas: Mapping[str, Mapping[str, Phase]], now_ns: int) -> None:
        """What the gateway has is what there is: replicas by function. Those that nobody has told of were asked for by
        somebody else; those that are no more have gone meanwhile.
        """
        for name, state in self.functions.items():
            there = replicas.get(name, {})
            for replica in [replica for replica in state.replicas if replica not in there]:
                self._tell(name, replica, "gone", now_ns, "went while nobody looked")
            for replica, phase in there.items():
                if replica not in state.replicas:
                    self._tell(name, replica, "requested", now_ns, "adopted")
                if state.replicas[replica] != phase:
                    self._tell(name, replica, phase, now_ns)

    # --- made from counts --------------------------------------------------------------------------------------------

    def ask(self, function: str, replicas: int, now_ns: int, reason: str = "") -> None:
        """So many replicas are asked for: new ones are requested, or the newest are on the way out, those that have not
        joined yet before the others.
        """
        state = self.functions[function]
        current = state.current()
        for _ in range(replicas - len(current)):
            self._tell(function, f"{function}-{state.next_number}", "requested", now_ns, reason)
            state.next_number += 1
        if replicas < len(current):
            serving = set(state.serving())
            newest_first = [name for name in current[::-1] if name not in serving] + state.serving()[::-1]
            for name in newest_first[: len(current) - replicas]:
                self._tell(function, name, "draining", now_ns, reason)
                if name not in serving:
                    self._tell(function, name, "gone", now_ns, reason)

    def compare(self, function: str, available: int, now_ns: int) -> None:
        """So many replicas take requests now."""
        state = self.functions[function]
        for name in [name for name in state.current() if state.replicas[name] not in SERVING]:
            if available <= len(state.serving()):
                break
            self._tell(function, name, "started", now_ns)
            self._tell(function, name, "joined", now_ns)
        serving = state.serving()
        if available <= len(serving):
            for name in [name for name, phase in state.replicas.items() if phase == "draining"]:
                self._tell(function, name, "gone", now_ns)
        if available >= len(serving):
            state.short_ns = None
            return
        state.short_ns = now_ns if state.short_ns is None else state.short_ns
        if now_ns - state.short_ns >= LOST_NS:
            lost = serving[available:]
            for name in lost:
                self._tell(function, name, "gone", now_ns, "no longer available")
            self.ask(function, len(state.current()) + len(lost), now_ns, "in place of one that was lost")
            state.short_ns = None

    def _tell(self, function: str, replica: str, phase: Phase, at_ns: int, reason: str = "") -> None:
        replicas = self.functions[function].replicas
        if phase == "gone":
            del replicas[replica]
        else:
            replicas[replica] = phase
        self.events.append(ReplicaEvent(function, replica, phase, at_ns, reason))
