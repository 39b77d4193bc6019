"""The base class of scalers that decide about one fleet at a time, on observations of one or many.

Such a scaler needs rates, backlogs and replicas only. It runs on consumer groups, functions of a pipeline and topics of
a network alike. docs/your-own-scaler.md shows how to write one.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from controller.scalers.shared.base import TOLERANCE_S, BaseScaler, CannotDecide, check_known
from controller.scalers.shared.parameters import Parameters
from penstock.contracts import Action, Decision, FleetObservation, hold

P = TypeVar("P", bound=Parameters)
S = TypeVar("S", bound=msgspec.Struct)
Step = tuple[Decision, S]
"""The decision for one fleet, and its next state."""


def elapsed_s(since_s: float, now_s: float) -> float:
    """Seconds between two ticks, without the rounding error of such sums: 20.1 - 10.1 is 10."""
    return round(now_s - since_s, 6)


class Window(msgspec.Struct, frozen=True):
    """Readings of one cumulative counter, oldest first, as (time in s, count)."""

    samples: tuple[tuple[float, float], ...] = ()

    def add(self, time_s: float, count: float | None, keep_s: float) -> "Window":
        """With one more reading, without those older than ``keep_s`` except the last of them.

        An unknown count (None) changes nothing. A count or a time that fell is of a counter that was reset: earlier
        readings are dropped. A second reading at the same time replaces the first.
        """
        if count is None:
            return self
        samples = self.samples
        if samples and (time_s < samples[-1][0] - TOLERANCE_S or count < samples[-1][1]):
            samples = ()
        if samples and time_s <= samples[-1][0] + TOLERANCE_S:
            samples = samples[:-1]
        edge = _last_at(samples, time_s - keep_s)
        return Window((*samples[edge:], (time_s, count)))

    def rate_per_s(self, over_s: float, *, whole: bool = False) -> float | None:
        """Counts per second over the last ``over_s``, from the newest reading back to the last one at that age.

        If the readings do not reach back that far: over all of them, or None if the window has to be ``whole``. None
        with fewer than two readings.
        """
        if len(self.samples) < 2:
            return None
        newest_s, newest = self.samples[-1]
        first_s, first = self.samples[_last_at(self.samples[:-1], newest_s - over_s)]
        if whole and newest_s - first_s < over_s - TOLERANCE_S:
            return None
        return (newest - first) / elapsed_s(first_s, newest_s)


def _last_at(samples: tuple[tuple[float, float], ...], time_s: float) -> int:
    """Index of the last reading at ``time_s`` or before, of the first one if there is none."""
    return max((i for i, (at_s, _) in enumerate(samples) if at_s <= time_s + TOLERANCE_S), default=0)


def known_rate(part: FleetObservation, field: str, readings: Window, over_s: float) -> float:
    """Counts per second of a counter. Raises CannotDecide if it could not be read, or was read only once."""
    check_known(part, field)
    rate = readings.rate_per_s(over_s)
    if rate is None:
        raise CannotDecide(f"no rate yet: this is the first reading of {field}")
    return rate


class FleetStates(msgspec.Struct, Generic[S], frozen=True):
    """The states of the fleets that were observed, by fleet."""

    by_fleet: dict[str, S] = msgspec.field(default_factory=dict)


class SingleFleetScaler(ABC, BaseScaler[P, FleetStates[S]], Generic[P, S]):
    """A scaler that decides about one fleet at a time, with a state for each, at first one with all its defaults.

    ``observation`` is the whole that ``part`` belongs to, often the part itself.
    """

    part_state: type[Any]

    @classmethod
    def state_type(cls, argument: type[Any]) -> type[Any]:
        """Define the state struct for a kind of part. A concrete type lets JSON be decoded."""
        cls.part_state = argument
        return msgspec.defstruct(
            f"{argument.__name__}ByFleet",
            [("by_fleet", dict[str, argument], msgspec.field(default_factory=dict))],  # type: ignore[valid-type]
            bases=(FleetStates,),
            frozen=True,
            module=argument.__module__,
        )

    def read(self, part: FleetObservation, state: S, observation: FleetObservation, /) -> S:  # noqa: ARG002
        """The state with the readings of this observation, which stay whatever is decided."""
        return state

    @abstractmethod
    def decide_part(self, part: FleetObservation, state: S, observation: FleetObservation, /) -> Step[S]:
        """One decision for one fleet on a state that has the readings. Raises CannotDecide to hold."""

    def decide(self, observation: FleetObservation, state: FleetStates[S]) -> tuple[Decision, FleetStates[S]]:
        """One decision for all parts together, at the time of the whole observation, which is the tick's."""
        states, decisions = dict(state.by_fleet), dict[str, Decision]()
        for each in observation.parts():
            part, fleet = each, each.fleet
            if part.time_s != observation.time_s:
                part = msgspec.structs.replace(each, time_s=observation.time_s)
            before = states[fleet] if fleet in states else self.part_state()
            states[fleet] = self.read(part, before, observation)
            try:
                decisions[fleet], states[fleet] = self.decide_part(part, states[fleet], observation)
            except CannotDecide as reason:
                decisions[fleet] = hold(fleet, str(reason), **reason.terms)
        following: FleetStates[S] = self.State(by_fleet=states)
        if not decisions:
            return hold(observation.fleet, "no fleet is known that could be scaled"), following
        return merged(decisions), following


def merged(decisions: Mapping[str, Decision]) -> Decision:
    """One decision from one per fleet: up if any goes up, else down if any goes down; hold only if all of them hold."""
    actions = {decision.action for decision in decisions.values()}
    action: Action = next((a for a in ("up", "down") if a in actions), "hold" if actions == {"hold"} else "none")
    targets = {fleet: target for each in decisions.values() for fleet, target in each.targets.items()}
    return Decision(action=action, targets=targets, why={fleet: each.why[fleet] for fleet, each in decisions.items()})
