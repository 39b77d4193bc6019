"""Guards around any scaler: a decision is changed where it would scale in blindly, or repeat what has gone wrong.

1. Unknown input: no fleet gets fewer replicas while a value of it is unknown.
2. A scale-in that makes events late is undone, and not repeated at such a load for a while, longer each time.
3. Oscillation: after three reversals within a minute of decisions, no fleet gets fewer replicas until they are over.
4. At the maximum with too many events late, the number that would be needed is named, or why none would do.

Each is written into the decision as the term ``guard``. Times are in decision intervals of the guarded scaler.
"""

from collections.abc import Mapping
from itertools import pairwise
from math import ceil
from typing import Any, ClassVar, Final, cast

import msgspec

from penstock.contracts import Decision, FleetObservation, Groups, Scaler, StreamObservation, Term
from penstock.runspec import GuardSpec

SETTLE: Final = 2.0
"""After a scale-in: the rebalance, whose late events any change would cause."""
EVIDENCE: Final = 3.0
"""Decision intervals of results before a scale-in is judged."""
WATCH: Final = 12.0
"""After this, later events are not the scale-in's."""
MEMORY: Final = 120.0
"""How long a scale-in that went wrong is remembered, the first time; doubled each time."""
SIMILAR: Final = 0.9
"""Of the arrival rate at which it went wrong: from there on it would go wrong again."""
WINDOW: Final = 60.0
REVERSALS: Final = 3
WORSE: Final = 2.0
"""A scale-in has raised lateness if the share of late events is this many times what it was."""


class Reading(msgspec.Struct, frozen=True):
    """Results so far. ``overdue``, where late events are not counted: more wait than arrive within the SLO."""

    at_s: float
    finished: int | None = None
    late: int | None = None
    overdue: bool | None = None


class ScaleIn(msgspec.Struct, frozen=True):
    """A decision for fewer replicas: what was there before, its grouping (streams), and the share of late events."""

    at_s: float
    replicas: int
    groups: Groups
    rate_per_s: float
    late_share: float


class Floor(msgspec.Struct, frozen=True):
    """A remembered scale-in: from ``rate_per_s`` on, ``replicas`` are kept until ``until_s``."""

    replicas: int
    groups: Groups
    rate_per_s: float
    until_s: float
    times: int = 1


class FleetMemory(msgspec.Struct, frozen=True):
    """``readings``: of the last ``WATCH`` intervals. ``turns``: when the target rose (1) and fell (−1)."""

    arrived: tuple[float, int] | None = None
    rate_per_s: float | None = None
    readings: tuple[Reading, ...] = ()
    scale_in: ScaleIn | None = None
    floor: Floor | None = None
    turns: tuple[tuple[float, int], ...] = ()

    def late_share(self, from_s: float) -> float | None:
        """Share of late events among those finished since then; None without two readings."""
        since = [each for each in self.readings if each.at_s >= from_s]
        if len(since) < 2:
            return None
        first, last = since[0], since[-1]
        if first.finished is not None and last.finished is not None and last.late is not None:
            done = last.finished - first.finished
            return (last.late - (first.late or 0)) / done if done > 0 else 0.0
        overdue = [each.overdue for each in since if each.overdue is not None]
        return sum(overdue) / len(overdue) if overdue else None

    def reversals(self) -> int:
        """How often the direction changed."""
        return sum(1 for (_, a), (_, b) in pairwise(self.turns) if a != b)


def guarded(scaler: Scaler[Any, Any], spec: GuardSpec) -> Scaler[Any, Any]:
    """The scaler with guards around it, of the same name and interval."""
    return cast(Scaler[Any, Any], Guarded(scaler, spec))


class Guarded:
    """A scaler with guards."""

    fleets: ClassVar[Any] = FleetObservation
    paper: ClassVar[str] = ""

    def __init__(self, scaler: Scaler[Any, Any], spec: GuardSpec) -> None:
        self.name, self.parameters = scaler.name, scaler.parameters
        self.Parameters, self._scaler, self._spec = scaler.Parameters, scaler, spec
        self.State: type[Any] = msgspec.defstruct(
            "GuardedState",
            [("scaler", scaler.State), ("memory", dict[str, FleetMemory]), ("interventions", int)],
            frozen=True,
        )

    @property
    def period_s(self) -> float:
        """The decision interval."""
        return self._scaler.period_s

    def start(self, seed: int) -> Any:
        """The scaler's first state, and nothing remembered."""
        return self.State(self._scaler.start(seed), {}, 0)

    def decide(self, observation: FleetObservation, state: Any) -> tuple[Decision, Any]:
        """The scaler's decision, with the targets that the guards allow."""
        decision, inner = self._scaler.decide(observation, state.scaler)
        memory, targets, notes = dict(state.memory), dict(decision.targets), dict[str, str]()
        groups, interventions = decision.assignment, state.interventions
        for part in observation.parts():
            now = self._read(part, memory.get(part.fleet, FleetMemory()), observation.time_s)
            current = part.replicas.current
            wanted = decision.targets.get(part.fleet, current)
            allowed, kept, note, now = self._allow(part, now, current, wanted, observation.time_s)
            if allowed != wanted:
                targets[part.fleet] = allowed
                interventions += 1
                groups = kept
            if allowed != current:
                turn = 1 if allowed > current else -1
                now = msgspec.structs.replace(now, turns=(*now.turns, (observation.time_s, turn)))
            if allowed < current:
                now = msgspec.structs.replace(now, scale_in=self._scale_in(part, now, current, observation.time_s))
            if note or (note := self._limit(part, now, allowed, observation.time_s)):
                notes[part.fleet] = note
            memory[part.fleet] = now
        if targets != dict(decision.targets):
            decision = _changed(decision, observation, targets, groups)
        if notes:
            decision = msgspec.structs.replace(decision, why=_noted(decision.why, notes))
        return decision, self.State(inner, memory, interventions)

    # --- the guards --------------------------------------------------------------------------------------------------

    def _allow(
        self, part: FleetObservation, memory: FleetMemory, current: int, wanted: int, now_s: float
    ) -> tuple[int, Groups | None, str, FleetMemory]:
        """(replicas, their grouping where it is remembered, why they are not as wanted, memory)."""
        floor, tried = memory.floor, memory.scale_in
        if tried is not None and now_s - tried.at_s > WATCH * self.period_s:
            tried = None
        if tried is not None and now_s - tried.at_s >= (SETTLE + EVIDENCE) * self.period_s:
            late = memory.late_share(tried.at_s + SETTLE * self.period_s)
            if late is not None and late > max(1 - self._spec.slo_share, WORSE * tried.late_share):
                times = floor.times + 1 if floor is not None else 1
                until_s = now_s + MEMORY * 2 ** (times - 1) * self.period_s
                floor = Floor(tried.replicas, tried.groups, SIMILAR * tried.rate_per_s, until_s, times)
                memory = msgspec.structs.replace(memory, floor=floor)
                if wanted < tried.replicas:
                    note = f"{late:.1%} were late after the scale-in from {tried.replicas}: it is undone"
                    return tried.replicas, tried.groups, note, msgspec.structs.replace(memory, scale_in=None)
                tried = None
        memory = msgspec.structs.replace(memory, scale_in=tried)
        rate = memory.rate_per_s
        remembered = floor is not None and now_s < floor.until_s and rate is not None and rate >= floor.rate_per_s
        if remembered and floor is not None and wanted < floor.replicas:
            note = f"fewer than {floor.replicas} were too few from {floor.rate_per_s:.4g} events/s on"
            return floor.replicas, floor.groups, note, memory
        if wanted < current and (missing := _unknown(part)):
            return current, None, f"no scale-in to {wanted}: {missing}", memory
        if wanted < current and memory.reversals() >= REVERSALS:
            times, span_s = memory.reversals(), WINDOW * self.period_s
            return current, None, f"no scale-in to {wanted}: {times} reversals within {span_s:.4g} s", memory
        return wanted, None, "", memory

    def _limit(self, part: FleetObservation, memory: FleetMemory, target: int, now_s: float) -> str:
        """What would be needed, where all replicas that may be are not enough."""
        spec, rate = self._spec, memory.rate_per_s
        late = memory.late_share(now_s - WATCH * self.period_s)
        if target < spec.max_replicas or late is None or late <= 1 - spec.slo_share:
            return ""
        reached = f"{late:.1%} are late with the maximum of {spec.max_replicas} replicas"
        service = spec.service_rate_per_s
        if service is None or rate is None:
            return reached
        if 1 / service > spec.slo_s:
            return f"{reached}; none would do: an event takes {1 / service:.3g} s, the SLO is {spec.slo_s:.3g} s"
        if isinstance(part, StreamObservation):
            rates = {each.partition: each.arrival_rate_per_s or 0.0 for each in part.partitions}
            hottest = max(rates, key=rates.__getitem__, default=None)
            if hottest is not None and rates[hottest] > service:
                return (
                    f"{reached}; none would do: partition {hottest} has {rates[hottest]:.4g} events/s, "
                    f"a replica serves {service:.4g}"
                )
        needed = ceil(rate / service)
        if needed > spec.max_replicas:
            return f"{reached}; {rate:.4g} events/s need {needed}"
        if spec.rebalance_time_s is not None and spec.rebalance_time_s >= spec.slo_s:
            return f"{reached}; a rebalance takes {spec.rebalance_time_s:.3g} s, the SLO is {spec.slo_s:.3g} s"
        return reached

    # --- memory ------------------------------------------------------------------------------------------------------

    def _read(self, part: FleetObservation, memory: FleetMemory, now_s: float) -> FleetMemory:
        """With the results of this tick."""
        rate, arrived = memory.rate_per_s, memory.arrived
        if part.arrived is not None:
            if arrived is not None and now_s > arrived[0]:
                rate = max(0, part.arrived - arrived[1]) / (now_s - arrived[0])
            arrived = now_s, part.arrived
        if isinstance(part, StreamObservation) and part.finished is not None:
            reading = Reading(now_s, part.finished, part.late)
        else:
            overdue = None if part.backlog is None or rate is None else part.backlog > rate * self._spec.slo_s
            reading = Reading(now_s, overdue=overdue)
        oldest_s = now_s - 2 * WATCH * self.period_s
        return msgspec.structs.replace(
            memory,
            arrived=arrived,
            rate_per_s=rate,
            readings=(*(each for each in memory.readings if each.at_s > oldest_s), reading),
            turns=tuple(each for each in memory.turns if each[0] > now_s - WINDOW * self.period_s),
        )

    def _scale_in(self, part: FleetObservation, memory: FleetMemory, current: int, now_s: float) -> ScaleIn:
        before = memory.late_share(now_s - WATCH * self.period_s) or 0.0
        groups = part.plan if isinstance(part, StreamObservation) else ()
        return ScaleIn(now_s, current, groups, memory.rate_per_s or 0.0, before)


def _unknown(part: FleetObservation) -> str:
    """The first value that could not be read, with the reason."""
    for field in ("arrived", "completed", "backlog"):
        if getattr(part, field) is None:
            return f"{field} is unknown ({part.unknown.get(field, 'no reason')})"
    return ""


def _changed(
    decision: Decision, observation: FleetObservation, targets: Mapping[str, int], groups: Groups | None
) -> Decision:
    """The decision with these targets; none at all where nothing changes."""
    current = {part.fleet: part.replicas.current for part in observation.parts()}
    before, after = (sum(each.get(fleet, current[fleet]) for fleet in current) for each in (current, targets))
    if all(targets.get(fleet, replicas) == replicas for fleet, replicas in current.items()):
        return Decision(action="none", why=decision.why)
    return msgspec.structs.replace(
        decision, action="up" if after > before else "down", targets=dict(targets), assignment=groups or None
    )


def _noted(why: Mapping[str, Mapping[str, Term]], notes: Mapping[str, str]) -> dict[str, dict[str, Term]]:
    found: dict[str, dict[str, Term]] = {fleet: dict(terms) for fleet, terms in why.items()}
    for fleet, note in notes.items():
        found.setdefault(fleet, {})["guard"] = note
    return found
