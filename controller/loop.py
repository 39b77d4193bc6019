"""The control loop: observe → decide (every scaler that is due, same observation) → act (one) → journal.

Clock, monitor, actuator and journals are ports, so that the simulator runs this loop in virtual time. Scalers compute
with the scheduled time of a tick; the journal also has the time at which it happened.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import msgspec

from controller.guard import guarded
from controller.journal import TickJournal, TickRecord
from penstock.clock import NANOS_PER_SECOND, Clock
from penstock.contracts import (
    Accepted,
    Actuator,
    Decision,
    FleetObservation,
    Monitor,
    ReplicaCounts,
    Scaler,
    StreamObservation,
    hold,
)
from penstock.errors import PenstockError
from penstock.runspec import GuardSpec

AnyScaler = Scaler[Any, Any]

FINEST_GRID_S = Fraction(1, 1000)


class LoopState(msgspec.Struct, frozen=True, kw_only=True):
    """Where a restarted loop continues. ``tick`` is the last grid point that was ticked, ``scalers`` the state of each
    as JSON (which has no infinities and no NaN).
    """

    tick: int = -1
    last_scale_s: float | None = None
    scalers: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)


class Grid:
    """The instants at which some scaler is due: grid point k is at origin + k · step + phase.

    The step is the greatest common divisor of all periods, so that each period is a whole number of steps. It is kept
    as a ratio of two integers, so that a time is rounded once, as with a Fraction but many times faster.
    """

    def __init__(self, periods_s: Sequence[float], phase_s: float) -> None:
        periods = [Fraction(period_s).limit_denominator(1000) for period_s in periods_s]
        if not periods or min(periods) <= 0:
            raise PenstockError(f"decision periods {list(periods_s)}: each must be at least 1 ms")
        common = math.lcm(*(period.denominator for period in periods))
        self.step = Fraction(math.gcd(*(int(period * common) for period in periods)), common)
        if self.step < FINEST_GRID_S:
            raise PenstockError(
                f"decision periods {list(periods_s)} have no common step of 1 ms or more; choose others"
            )
        self.phase_s = phase_s
        self._above, self._below = self.step.as_integer_ratio()
        self._every = [int(period / self.step) for period in periods]

    def time_s(self, point: int) -> float:
        """When a grid point is due, seconds from the start of the run."""
        return self.offset_s(point) + self.phase_s

    def offset_s(self, point: int) -> float:
        """The same without the phase."""
        return point * self._above / self._below

    def due(self, point: int) -> list[bool]:
        """Which of the periods begin at a grid point."""
        return [point % every == 0 for every in self._every]

    def next_due(self, point: int) -> int:
        """The first grid point after ``point`` at which something is due."""
        return min((point // every + 1) * every for every in self._every)

    def next_to_tick(self, last: int, now_s: float) -> tuple[int, int]:
        """(grid point to tick next, due points missed before it). A point is missed once the next due one has come."""
        point, missed = self.next_due(last), 0
        while self.time_s(after := self.next_due(point)) <= now_s:
            point, missed = after, missed + 1
        return point, missed


class Loop:
    """One fleet with its acting scaler and the shadows.

    ``origin_s`` is offset 0 of the run on the clock. The loop writes the scheduled time and its own last scale action
    into each observation, so that a hold time of 10 s counts ticks and not their jitter. A scaler that fails holds,
    with the error as reason; all hold when the monitor fails. ``deciding``: name of the scaler that decides now.
    """

    def __init__(
        self,
        *,
        fleet: str,
        clock: Clock,
        monitor: Monitor[FleetObservation],
        actuator: Actuator,
        acting: AnyScaler,
        guard: GuardSpec | None = None,
        shadows: Sequence[AnyScaler] = (),
        journals: Sequence[TickJournal],
        origin_s: float = 0.0,
        tick_phase_s: float = 0.0,
        seed: int = 1,
        resume: LoopState | None = None,
    ) -> None:
        self.fleet, self._journals, self._origin_s = fleet, journals, origin_s
        self._clock, self._monitor, self._actuator = clock, monitor, actuator
        if guard is not None:
            acting = guarded(acting, guard)
        self._acting, self._scalers = acting, (acting, *shadows)
        names = [scaler.name for scaler in self._scalers]
        if len(set(names)) < len(names):
            raise PenstockError(f"scalers {', '.join(names)}: each may appear once only")
        self.grid = Grid([scaler.period_s for scaler in self._scalers], tick_phase_s)
        self.deciding = ""
        resume = resume or LoopState()
        self._point, self._last_scale_s = resume.tick, resume.last_scale_s
        self._states = {
            scaler.name: msgspec.json.decode(resume.scalers[scaler.name], type=scaler.State)
            if scaler.name in resume.scalers
            else scaler.start(seed)
            for scaler in self._scalers
        }

    def snapshot(self) -> LoopState:
        """The state on which the next tick depends."""
        return LoopState(
            tick=self._point,
            last_scale_s=self._last_scale_s,
            scalers={name: msgspec.Raw(msgspec.json.encode(state)) for name, state in self._states.items()},
        )

    def run(self, stop: Callable[[], bool], after_tick: Callable[[TickRecord], None] = lambda _: None) -> None:
        """Tick until ``stop()``. Deadlines are absolute; a missed tick is skipped and counted, never made up."""
        while not stop():
            point, missed = self.grid.next_to_tick(self._point, self._clock.now() - self._origin_s)
            self._clock.sleep_until(self._origin_s + self.grid.time_s(point))
            if stop():
                return
            after_tick(self.tick(point, missed))

    def tick(self, point: int, skipped: int = 0) -> TickRecord:
        """Tick one grid point now. Returns its record."""
        began_s = self._clock.now()
        errors: dict[str, str] = {}
        observation = self._observe(point, errors)
        observed_s = self._clock.now()
        slow: dict[str, float] = {}
        decisions = {
            scaler.name: self._decide(scaler, observation, errors, slow)
            for scaler, due in zip(self._scalers, self.grid.due(point), strict=True)
            if due
        }
        decided_s = self._clock.now()
        wanted = decisions.get(self._acting.name)
        accepted = self._act(wanted, observation, errors) if wanted is not None else None
        acted_s = self._clock.now()
        self._point = point
        record = TickRecord(
            tick=point,
            time_s=observation.time_s,
            at_ns=round(began_s * NANOS_PER_SECOND),
            phase_s=round(began_s - self._origin_s - self.grid.offset_s(point), 6),
            observe_us=_micros(observed_s - began_s),
            decide_us=_micros(decided_s - observed_s),
            act_us=_micros(acted_s - decided_s),
            observation=observation,
            decisions=decisions,
            acting=self._acting.name,
            accepted=accepted,
            plan_epoch=getattr(observation, "plan_epoch", 0),
            skipped=skipped,
            errors=errors,
            slow=slow,
            note=_note(observation, wanted, errors),
        )
        for journal in self._journals:
            journal.tick(record)
        return record

    def _observe(self, point: int, errors: dict[str, str]) -> FleetObservation:
        time_s = self.grid.time_s(point)
        try:
            seen = self._monitor.observe()
        except Exception as error:
            errors["monitor"] = reason = _one_line(error)
            counts = ReplicaCounts.count(self._actuator.replicas().values())
            seen = FleetObservation(time_s=time_s, fleet=self.fleet, replicas=counts, unknown={"observation": reason})
        return msgspec.structs.replace(seen, time_s=time_s, last_scale_s=self._last_scale_s)

    def _decide(
        self, scaler: AnyScaler, observation: FleetObservation, errors: dict[str, str], slow: dict[str, float]
    ) -> Decision:
        if "monitor" in errors:
            return hold(self.fleet, f"no observation: {errors['monitor']}")
        began_s = self._clock.now()
        self.deciding = scaler.name
        try:
            decision, state = scaler.decide(observation, self._states[scaler.name])
            check_decision(decision, observation)
        except Exception as error:
            errors[scaler.name] = reason = _one_line(error)
            return hold(self.fleet, f"scaler failed: {reason}")
        finally:
            self.deciding = ""
            if (took_s := self._clock.now() - began_s) > scaler.period_s:
                slow[scaler.name] = round(took_s, 3)
        self._states[scaler.name] = state
        return decision

    def _act(self, decision: Decision, observation: FleetObservation, errors: dict[str, str]) -> Accepted | None:
        if decision.action in ("hold", "none"):
            return None
        try:
            accepted = self._actuator.apply(decision)
        except Exception as error:
            errors["actuator"] = _one_line(error)
            return None
        current = {part.fleet: part.replicas.current for part in (observation, *observation.parts())}
        changed = any(current.get(fleet, target) != target for fleet, target in accepted.targets.items())
        if decision.action in ("up", "down") and changed:
            self._last_scale_s = observation.time_s
        return accepted


def check_decision(decision: Decision, observation: FleetObservation) -> None:
    """Raise ValueError for a decision that no fleet could carry out: a target that is no number of replicas (negative,
    not whole, not a number) or names another fleet; a grouping that has a partition twice or not at all.
    """
    fleets = dict.fromkeys((observation.fleet, *(part.fleet for part in observation.parts())))
    for fleet, target in decision.targets.items():
        if type(target) is not int or target < 0:
            raise ValueError(f"{target!r} replicas for {fleet}: a target is a whole number, at least 0")
        if fleet not in fleets:
            raise ValueError(f"{target} replicas for {fleet}: there is no such fleet, but {', '.join(fleets)}")
    if decision.assignment is not None and isinstance(observation, StreamObservation):
        given = sorted(partition for group in decision.assignment for partition in group)
        due = sorted(each.partition for each in observation.partitions)
        if given != due:
            raise ValueError(f"partitions {given} in the groups, not each of {due} once")


def check_kinds(scalers: Sequence[AnyScaler], offered: type[FleetObservation]) -> None:
    """Raise PenstockError for a scaler that reads another kind of fleet than the run has."""
    for scaler in scalers:
        if not issubclass(offered, scaler.fleets):
            raise PenstockError(
                f"scaler {scaler.name!r} reads {scaler.fleets.__name__}, this run's fleet gives {offered.__name__}; "
                "`penstock scalers` shows the kind of fleet of each"
            )


def _note(observation: FleetObservation, wanted: Decision | None, errors: dict[str, str]) -> str:
    """Why nothing was done, where it was not the scaler's own choice."""
    if errors:
        return "; ".join(f"{part}: {reason}" for part, reason in errors.items())
    if wanted is not None and wanted.action == "hold" and observation.unknown:
        field, reason = next(iter(observation.unknown.items()))
        return f"holding: {len(observation.unknown)} unknown, first {field}: {reason}"
    return ""


def _micros(seconds: float) -> float:
    return round(seconds * 1e6, 1)


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
