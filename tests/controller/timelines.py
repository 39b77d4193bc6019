"""A scripted world for the loop: a clock that is set, a monitor that plays a script, an actuator that keeps what it
is told.

The ports of the loop are where a fake is the right thing: what is tested is the loop, in virtual time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgspec

from controller.journal import TickRecord
from controller.loop import AnyScaler, Loop, LoopState
from penstock.contracts import (
    Accepted,
    Decision,
    FleetObservation,
    Phase,
    ReplicaCounts,
    ReplicaEvent,
    hold,
)

FLEET = "payments"


class VirtualClock:
    """Time passes when somebody sleeps, and ``late_s`` more than asked at those sleeps."""

    def __init__(self, now_s: float = 0.0, late_s: Mapping[int, float] | None = None) -> None:
        self._now_s = now_s
        self._late_s = dict(late_s or {})
        self._sleeps = 0
        self.slept_until: list[float] = []

    def now(self) -> float:
        return self._now_s

    def sleep_until(self, time_s: float) -> None:
        self.slept_until.append(time_s)
        self._now_s = max(self._now_s, time_s) + self._late_s.get(self._sleeps, 0.0)
        self._sleeps += 1

    def pass_time(self, seconds: float) -> None:
        self._now_s += seconds


class ScriptedMonitor:
    """Arrivals of ``rate`` events a second and a fleet that completes all of them; ``script`` replaces observations."""

    def __init__(self, actuator: "RecordingActuator", script: Mapping[int, FleetObservation | Exception]) -> None:
        self._actuator, self._script = actuator, script
        self.count = 0

    def observe(self) -> FleetObservation:
        answer = self._script.get(self.count)
        self.count += 1
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            return answer
        replicas = ReplicaCounts.count(self._actuator.replicas().values())
        return FleetObservation(
            time_s=-1.0, fleet=FLEET, replicas=replicas, arrived=100 * self.count, completed=90 * self.count, backlog=10
        )


class RecordingActuator:
    """Every decision is carried out at once, up to four replicas."""

    def __init__(self, replicas: int = 1) -> None:
        self.size = replicas
        self.applied: list[Decision] = []

    def apply(self, decision: Decision) -> Accepted:
        self.applied.append(decision)
        wanted = decision.targets[FLEET]
        self.size = min(4, wanted)
        return Accepted({FLEET: self.size}, {} if self.size == wanted else {FLEET: f"{wanted} → 4: cap 4"})

    def events(self) -> Sequence[ReplicaEvent]:
        return []

    def replicas(self) -> Mapping[str, Phase]:
        return {f"{FLEET}-{number}": "joined" for number in range(self.size)}


class MemoryJournal:
    """Keeps the records."""

    def __init__(self) -> None:
        self.records: list[TickRecord] = []

    def tick(self, record: TickRecord) -> None:
        self.records.append(record)


@dataclass(frozen=True)
class StepParameters:
    """One more replica every ``every`` decisions, not within ``hold_s`` after the last scale action."""

    every: int = 3
    period_s: float = 1.0
    hold_s: float = 0.0


class StepState(msgspec.Struct):
    """Decisions taken, and a sum that depends on everything seen."""

    decisions: int = 0
    sum: float = 0.0


class StepScaler:
    """A scaler with a state that matters."""

    name: ClassVar[str] = "step"
    fleets: ClassVar[type[FleetObservation]] = FleetObservation
    paper: ClassVar[str] = "none"
    Parameters: ClassVar[type[StepParameters]] = StepParameters
    State: ClassVar[type[StepState]] = StepState

    def __init__(self, parameters: StepParameters) -> None:
        self.parameters = parameters

    @property
    def period_s(self) -> float:
        return self.parameters.period_s

    def start(self, seed: int) -> StepState:
        return StepState(sum=float(seed))

    def decide(self, observation: FleetObservation, state: StepState) -> tuple[Decision, StepState]:
        if observation.arrived is None:
            return hold(FLEET, "arrivals unknown"), state
        last_s = observation.last_scale_s
        if last_s is not None and observation.time_s - last_s <= self.parameters.hold_s:
            return hold(FLEET, "hold time", since_s=observation.time_s - last_s), state
        new = StepState(state.decisions + 1, state.sum / 3 + observation.arrived)
        why = {FLEET: {"sum": new.sum}}
        current = observation.replicas.current
        if new.decisions % self.parameters.every:
            return Decision(action="none", targets={FLEET: current}, why=why), new
        return Decision(action="up", targets={FLEET: current + 1}, why=why), new


def named(name: str, *, decide: Callable[..., object] | None = None, **parameters: float) -> StepScaler:
    """A step scaler of another name, perhaps with another way to decide."""
    members: dict[str, object] = {"name": name}
    if decide is not None:
        members["decide"] = decide
    kind = type(name, (StepScaler,), members)
    scaler: StepScaler = kind(StepParameters(**parameters))  # type: ignore[arg-type]
    return scaler


class Timeline:
    """A loop on the scripted world, and what came of it."""

    def __init__(
        self,
        *scalers: AnyScaler,
        clock: VirtualClock | None = None,
        script: Mapping[int, FleetObservation | Exception] | None = None,
        actuator: RecordingActuator | None = None,
        phase_s: float = 0.1,
        origin_s: float = 0.0,
        resume: LoopState | None = None,
    ) -> None:
        self.clock = clock or VirtualClock()
        self.actuator = actuator or RecordingActuator()
        self.monitor = ScriptedMonitor(self.actuator, script or {})
        self.journal = MemoryJournal()
        self.loop = Loop(
            fleet=FLEET,
            clock=self.clock,
            monitor=self.monitor,
            actuator=self.actuator,
            acting=scalers[0],
            shadows=scalers[1:],
            journals=(self.journal,),
            origin_s=origin_s,
            tick_phase_s=phase_s,
            seed=7,
            resume=resume,
        )

    def run(self, ticks: int, after_tick: Callable[[TickRecord], None] = lambda _: None) -> list[TickRecord]:
        """That many ticks more; returns all so far."""
        until = len(self.journal.records) + ticks
        self.loop.run(lambda: len(self.journal.records) >= until, after_tick)
        return self.journal.records
