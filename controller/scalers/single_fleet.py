"""A scaler of one fleet, on observations of many: it is asked about every part, and its answers become one decision.

Scalers that know nothing of a fleet's kind (rates, backlogs, replicas) are written for one fleet and run on all kinds:
on a consumer group, which is one part, as on the functions of a pipeline or the topics of a network.

To write one::

    class RpsState(msgspec.Struct, frozen=True):
        arrivals: Window = Window()


    class Rps(SingleFleetScaler[RpsParameters, RpsState]):
        name: ClassVar[str] = "rps"
        paper: ClassVar[str] = "..."
        Parameters: ClassVar[type[RpsParameters]] = RpsParameters
        State: ClassVar[type[FleetStates[RpsState]]] = states_by_fleet(RpsState)

        def start_part(self) -> RpsState:
            return RpsState()

        def decide_part(self, part, state, observation):
            ...
            return resize_part(part, target, why), state
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from controller.scalers.stream import DecidesPeriodically
from penstock.contracts import Action, Decision, FleetObservation, Term, hold

TOLERANCE_S = 1e-6
"""Times on a grid of ticks are sums of doubles: two that differ by less than this are the same."""


def elapsed_s(since_s: float, now_s: float) -> float:
    """Seconds between two ticks, without the last digits that such sums leave: 20.1 - 10.1 is 10."""
    return round(now_s - since_s, 6)


class Window(msgspec.Struct, frozen=True):
    """Readings of one cumulative counter, oldest first, as (time in s, count)."""

    samples: tuple[tuple[float, float], ...] = ()

    def add(self, time_s: float, count: float | None, keep_s: float) -> "Window":
        """With one more reading; what is older than ``keep_s`` goes, except the one reading that spans that edge.

        An unknown count (None) changes nothing. A count that fell, or a time that did, is another counter (its source
        began anew): what was read before is of no use. A second reading at the same time replaces the first.
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

        Where the readings do not reach back that far: over what there is, or None if the window has to be ``whole``.
        None with fewer than two readings.
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


class PartDecision(NamedTuple):
    """What is wanted for one fleet: ``target`` replicas with up and down, None otherwise; ``why`` as in Decision."""

    action: Action
    target: int | None
    why: Mapping[str, Term]


def hold_part(reason: str, **terms: Term) -> PartDecision:
    """Leave this fleet as it is, with the reason."""
    return PartDecision("hold", None, {"reason": reason, **terms})


def resize_part(part: FleetObservation, replicas: int, why: Mapping[str, Term]) -> PartDecision:
    """Scale this fleet to ``replicas``: up, down, or nothing to do because that is its current number."""
    current = part.replicas.current
    if replicas == current:
        return PartDecision("none", None, {**why, "action": "none"})
    action: Action = "up" if replicas > current else "down"
    return PartDecision(action, replicas, {**why, "action": action})


def unknown_part(part: FleetObservation, *fields: str) -> PartDecision | None:
    """A hold if one of these fields could not be read, with what the monitor said about it; None if all are known."""
    for field in fields:
        if getattr(part, field) is None:
            said = f" ({part.unknown[field]})" if field in part.unknown else ""
            return hold_part(f"{field} is unknown{said}")
    return None


P = TypeVar("P", bound=DecidesPeriodically)
S = TypeVar("S")


class FleetStates(msgspec.Struct, Generic[S], frozen=True):
    """The state of a scaler of single fleets: one part state per fleet that it was asked about."""

    by_fleet: dict[str, S] = msgspec.field(default_factory=dict)


def states_by_fleet(part_state: type[S]) -> type[FleetStates[S]]:
    """The ``State`` of a scaler with this part state: a struct of its own, so that it can be read back from JSON."""
    states: Any = msgspec.defstruct(
        f"{part_state.__name__}ByFleet",
        [("by_fleet", dict[str, part_state], msgspec.field(default_factory=dict))],  # type: ignore[valid-type]
        bases=(FleetStates,),
        frozen=True,
        module=part_state.__module__,
    )
    kind: type[FleetStates[S]] = states
    return kind


class SingleFleetScaler(ABC, Generic[P, S]):
    """A scaler that decides about one fleet at a time, with a state for each.

    A subclass names ``name``, ``paper``, ``Parameters`` and ``State`` (by ``states_by_fleet``) and defines
    ``start_part`` and ``decide_part``. Its parameters have a ``decision_interval_s``.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    fleets: ClassVar[type[FleetObservation]] = FleetObservation
    Parameters: ClassVar[type[Any]]
    State: ClassVar[type[Any]]

    def __init__(self, parameters: P) -> None:
        self.parameters = parameters

    @property
    def period_s(self) -> float:
        """The decision interval."""
        return self.parameters.decision_interval_s

    @abstractmethod
    def start_part(self) -> S:
        """The state of a fleet that was never asked about."""

    @abstractmethod
    def decide_part(self, part: FleetObservation, state: S, observation: FleetObservation) -> tuple[PartDecision, S]:
        """One decision for one fleet. ``observation`` is the whole that ``part`` belongs to, often the part itself."""

    def start(self, seed: int) -> FleetStates[S]:  # noqa: ARG002 - nothing is drawn
        """No fleet was seen yet."""
        states: FleetStates[S] = self.State()
        return states

    def decide(self, observation: FleetObservation, state: FleetStates[S]) -> tuple[Decision, FleetStates[S]]:
        """One decision for all parts together.

        The time is that of the whole observation, which the loop sets to the tick's. Up if any part goes up, else down
        if any goes down; hold only if all of them hold.
        """
        states, decisions = dict(state.by_fleet), dict[str, PartDecision]()
        for part in observation.parts():
            seen = msgspec.structs.replace(part, time_s=observation.time_s)
            before = states[part.fleet] if part.fleet in states else self.start_part()
            decisions[part.fleet], states[part.fleet] = self.decide_part(seen, before, observation)
        following: FleetStates[S] = self.State(by_fleet=states)
        if not decisions:
            return hold(observation.fleet, "no fleet is known that could be scaled"), following
        return merged(decisions), following


def merged(decisions: Mapping[str, PartDecision]) -> Decision:
    """One decision from one per fleet. Only fleets that change have a target. Raises ValueError for a scaler that goes
    up or down without saying to what.
    """
    actions = {decision.action for decision in decisions.values()}
    action: Action = next((a for a in ("up", "down") if a in actions), "hold" if actions == {"hold"} else "none")
    targets = {}
    for fleet, decision in decisions.items():
        if decision.action in ("up", "down"):
            if decision.target is None:
                raise ValueError(f"fleet {fleet}: action {decision.action} without a target")
            targets[fleet] = decision.target
    return Decision(action=action, targets=targets, why={fleet: decision.why for fleet, decision in decisions.items()})
