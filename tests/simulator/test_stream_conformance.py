"""The simulated consumer group's ports against the suite that every world's ports inherit."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

import numpy as np

from penstock.clock import Clock
from penstock.contracts import Accepted, Actuator, Decision, FleetObservation, Monitor, Phase, ReplicaEvent
from penstock.runspec import Fault
from penstock.schedule import Schedule
from simulator.clock import VirtualClock
from simulator.stream import StreamEngine, make_engine
from tests.conformance.ports import ActuatorConformance, ClockConformance, MonitorConformance
from tests.simulator.playing import ideal, spec_of

STEP_S = 0.05


def steady(seconds: float) -> Schedule:
    """A hundred events per second on five partitions."""
    events = int(100 * seconds)
    return Schedule(np.arange(events) * 10_000_000, (np.arange(events) % 5).astype(np.int16), duration_s=seconds)


class Passing:
    """An engine's actuator while time passes, a little with each look."""

    def __init__(self, engine: StreamEngine) -> None:
        self._engine = engine

    def apply(self, decision: Decision) -> Accepted:
        return self._engine.actuator.apply(decision)

    def events(self) -> Sequence[ReplicaEvent]:
        self._engine.advance(self._engine.now_s + STEP_S)
        return self._engine.actuator.events()

    def replicas(self) -> Mapping[str, Phase]:
        return self._engine.actuator.replicas()


class TestVirtualClock(ClockConformance):
    def make_clock(self) -> Clock:
        return VirtualClock()


class TestStreamMonitor(MonitorConformance):
    def make_monitor(self) -> Monitor[FleetObservation]:
        self.engine = make_engine(spec_of(seconds=60), steady(60))
        for time_s in (1.1, 2.1, 3.1):
            self.engine.advance(time_s)
            self.engine.monitor.observe()
        return self.engine.monitor

    def outage(self) -> AbstractContextManager[None]:
        @contextmanager
        def blind() -> Iterator[None]:
            self.engine.inject(Fault("blind-monitor", at_s=self.engine.now_s, seconds=5))
            yield
            self.engine.advance(self.engine.now_s + 5)

        return blind()


class TestStreamActuator(ActuatorConformance):
    def make_actuator(self) -> AbstractContextManager[Actuator]:
        return self._actuator(start_up_s=0.0)

    @contextmanager
    def _actuator(self, start_up_s: float) -> Iterator[Actuator]:
        spec = spec_of(
            seconds=60,
            fleet=self.fleet,
            initial_replicas=0,
            max_replicas=3,
            system=ideal(start_up_s=start_up_s),
        )
        nothing = Schedule(np.empty(0, np.int64), np.empty(0, np.int16), duration_s=60)
        yield Passing(make_engine(spec, nothing))


class TestStreamActuatorWithAStartUp(TestStreamActuator):
    def make_actuator(self) -> AbstractContextManager[Actuator]:
        return self._actuator(start_up_s=1.2)
