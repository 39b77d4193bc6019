"""What every world's clock, monitor and actuator must do. A world inherits these classes and says how to make its
own.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import pytest

from penstock.clock import Clock
from penstock.contracts import (
    POD_STEPS,
    Accepted,
    Actuator,
    Decision,
    FleetObservation,
    Monitor,
    Phase,
    ReplicaEvent,
    hold,
)

LIFE = ("requested", *POD_STEPS, "started", "joined", "first-event", "draining", "gone")


class SimulatedFleet(Protocol):
    """An engine of the simulator."""

    @property
    def actuator(self) -> Actuator: ...

    def advance(self, now_s: float) -> None: ...


class AdvancingActuator:
    """An actuator whose engine advances by 0.1 s whenever its replicas are observed."""

    def __init__(self, engine: SimulatedFleet) -> None:
        self._engine, self._actuator, self._now_s = engine, engine.actuator, 0.0

    def apply(self, decision: Decision) -> Accepted:
        return self._actuator.apply(decision)

    def events(self) -> Sequence[ReplicaEvent]:
        return self._actuator.events()

    def replicas(self) -> Mapping[str, Phase]:
        self._now_s += 0.1
        self._engine.advance(self._now_s)
        return self._actuator.replicas()


class ClockConformance(ABC):
    """A clock whose ``sleep_until`` never returns early, within what its ``now`` can tell."""

    @abstractmethod
    def make_clock(self) -> Clock:
        """A clock that runs."""

    def test_sleep_until_returns_no_earlier_than_asked(self) -> None:
        clock = self.make_clock()
        wanted = clock.now() + 0.02
        clock.sleep_until(wanted)
        assert clock.now() >= wanted - 1e-4

    def test_a_time_that_has_passed_does_not_turn_the_clock_back(self) -> None:
        clock = self.make_clock()
        before = clock.now()
        clock.sleep_until(before - 5)
        assert clock.now() >= before


class MonitorConformance(ABC):
    """A monitor whose source can be taken away and given back."""

    timeout_s = 20.0

    @abstractmethod
    def make_monitor(self) -> Monitor[FleetObservation]:
        """A monitor of a fleet that has had some events, two whole intervals before."""

    @abstractmethod
    def outage(self) -> AbstractContextManager[None]:
        """While it is open, the monitor's source is away."""

    def test_counts_are_cumulative_and_balance(self) -> None:
        monitor = self.make_monitor()
        seen = self.wait(monitor, lambda observation: observation.backlog is not None)
        assert seen.arrived is not None and seen.completed is not None and seen.backlog is not None
        assert seen.arrived >= seen.completed >= 0
        assert seen.backlog == seen.arrived - seen.completed

    def test_time_does_not_go_back(self) -> None:
        monitor = self.make_monitor()
        first, second = monitor.observe(), monitor.observe()
        assert second.time_s >= first.time_s

    def test_during_an_outage_values_are_none_with_reasons_and_come_back_by_themselves(self) -> None:
        monitor = self.make_monitor()
        self.wait(monitor, lambda observation: observation.backlog is not None)
        with self.outage():
            blind = monitor.observe()
            assert blind.arrived is None and blind.backlog is None
            assert {"arrived", "backlog"} <= set(blind.unknown)
            assert all(blind.unknown.values())
        self.wait(monitor, lambda observation: observation.backlog is not None)

    def wait(
        self, monitor: Monitor[FleetObservation], condition: Callable[[FleetObservation], bool]
    ) -> FleetObservation:
        """Observe until it holds."""
        deadline = time.monotonic() + self.timeout_s
        while time.monotonic() < deadline:
            if condition(observation := monitor.observe()):
                return observation
            time.sleep(0.1)
        raise AssertionError(f"not within {self.timeout_s} s; last seen {observation}")


class ActuatorConformance(ABC):
    """An actuator of one fleet with a cap of three replicas, which starts without any."""

    fleet = "conformance"
    timeout_s = 20.0

    @abstractmethod
    def make_actuator(self) -> AbstractContextManager[Actuator]:
        """An actuator at work; leaving it ends all its replicas."""

    @pytest.fixture
    def actuator(self) -> Iterator[Actuator]:
        with self.make_actuator() as actuator:
            yield actuator

    def test_what_was_requested_joins_and_what_is_not_wanted_goes(self, actuator: Actuator) -> None:
        events: list[ReplicaEvent] = []
        assert actuator.apply(self.scale("up", 2)).targets == {self.fleet: 2}
        self.wait(actuator, events, lambda: list(actuator.replicas().values()) == ["joined", "joined"])
        assert actuator.apply(self.scale("down", 1)).targets == {self.fleet: 1}
        self.wait(actuator, events, lambda: list(actuator.replicas().values()) == ["joined"])
        (gone,) = {event.replica for event in events if event.phase == "gone"}
        assert gone not in actuator.replicas()
        life = [event.phase for event in events if event.replica == gone and event.phase not in POD_STEPS]
        assert life == ["requested", "started", "joined", "draining", "gone"]

    def test_phases_of_a_replica_come_in_the_order_of_its_life(self, actuator: Actuator) -> None:
        events: list[ReplicaEvent] = []
        actuator.apply(self.scale("up", 2))
        self.wait(actuator, events, lambda: list(actuator.replicas().values()) == ["joined", "joined"])
        for replica in actuator.replicas():
            life = [event for event in events if event.replica == replica]
            assert [event.at_ns for event in life] == sorted(event.at_ns for event in life)
            assert [LIFE.index(event.phase) for event in life] == sorted(LIFE.index(event.phase) for event in life)

    def test_the_cap_is_reported(self, actuator: Actuator) -> None:
        accepted = actuator.apply(self.scale("up", 9))
        assert accepted.targets == {self.fleet: 3}
        assert "9" in accepted.clamped[self.fleet] and "3" in accepted.clamped[self.fleet]
        assert len(actuator.replicas()) == 3

    def test_hold_changes_nothing(self, actuator: Actuator) -> None:
        events: list[ReplicaEvent] = []
        actuator.apply(self.scale("up", 1))
        self.wait(actuator, events, lambda: list(actuator.replicas().values()) == ["joined"])
        before = dict(actuator.replicas())
        assert actuator.apply(hold(self.fleet, "for a reason")).targets == {self.fleet: 1}
        assert dict(actuator.replicas()) == before
        assert not actuator.events()

    def test_an_event_is_handed_out_once(self, actuator: Actuator) -> None:
        actuator.apply(self.scale("up", 1))
        first = list(actuator.events())
        assert [event.phase for event in first][:1] == ["requested"]
        assert not set(first) & set(actuator.events())

    def scale(self, action: str, replicas: int) -> Decision:
        """A decision of that size."""
        return Decision(action=action, targets={self.fleet: replicas})  # type: ignore[arg-type]

    def wait(self, actuator: Actuator, events: list[ReplicaEvent], condition: Callable[[], bool]) -> None:
        """Collect events until it holds."""
        deadline = time.monotonic() + self.timeout_s
        while not condition():
            events.extend(actuator.events())
            assert time.monotonic() < deadline, f"not within {self.timeout_s} s: {actuator.replicas()}, {events}"
            time.sleep(0.02)
        events.extend(actuator.events())
