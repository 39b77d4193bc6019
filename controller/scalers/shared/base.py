"""The base class of all scalers, and the exception by which a scaler holds."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, ClassVar, Generic, TypeVar, get_args

from msgspec import Struct

from controller.scalers.shared.parameters import Parameters
from penstock.contracts import Decision, FleetObservation, Groups, Term

TOLERANCE_S = 1e-6
"""Times on a grid of ticks are sums of doubles: two that differ by less than this are the same."""

JITTER = 0.1
"""A tick may be late by this share of the decision interval and still count as being on time."""


class CannotDecide(Exception):  # noqa: N818 - not an error: it becomes a decision to hold
    """The reason why a scaler holds, with the terms that are known already."""

    def __init__(self, reason: str, **terms: Term) -> None:
        super().__init__(reason)
        self.terms = terms


class NoState(Struct, frozen=True):
    """The state of a scaler that decides by the observation alone."""


P = TypeVar("P", bound=Parameters)
S = TypeVar("S", bound=Struct)


class BaseScaler(Generic[P, S]):
    """Parameters, state and decision interval of a scaler.

    ``Parameters`` (a dataclass) and ``State`` (a struct) come from the type arguments of a subclass:
    ``class Rps(SingleFleetScaler[RpsParameters, RpsState])`` names both.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    fleets: ClassVar[type[Any]] = FleetObservation
    Parameters: ClassVar[type[Any]]
    State: ClassVar[type[Any]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for argument in (each for base in vars(cls).get("__orig_bases__", ()) for each in get_args(base)):
            if isinstance(argument, type) and is_dataclass(argument):
                cls.Parameters = argument
            elif isinstance(argument, type) and issubclass(argument, Struct):
                cls.State = cls.state_type(argument)

    @classmethod
    def state_type(cls, argument: type[Any]) -> type[Any]:
        """``State`` for the struct among the type arguments."""
        return argument

    def __init__(self, parameters: P) -> None:
        self.parameters = parameters

    @property
    def period_s(self) -> float:
        """The decision interval."""
        return self.parameters.decision_interval_s

    def start(self, seed: int) -> S:  # noqa: ARG002 - nothing is drawn
        """The state before the first observation."""
        state: S = self.State()
        return state


def resize(
    fleet: FleetObservation, replicas: int, why: Mapping[str, Term], assignment: Groups | None = None
) -> Decision:
    """Scale a fleet up or down to ``replicas``, with the new groups of a stream; no action at its current number."""
    current = fleet.replicas.current
    if replicas == current:
        return Decision(action="none", why={fleet.fleet: {**why, "action": "none"}})
    action: Any = "up" if replicas > current else "down"
    targets, terms = {fleet.fleet: replicas}, {fleet.fleet: {**why, "action": action}}
    return Decision(action=action, targets=targets, assignment=assignment, why=terms)


def check_known(part: FleetObservation, *fields: str) -> None:
    """Raise CannotDecide, with the monitor's reason, if one of these fields could not be read."""
    for field in fields:
        if getattr(part, field) is None:
            raise CannotDecide(f"{field} is unknown{reason_of(part.unknown, field)}")


def seconds_since(last_s: float | None, now_s: float, interval_s: float, reading: str) -> float:
    """Seconds since the last ``reading`` of counters. Raises CannotDecide if there is none, or it is too recent.

    Arrivals come in bursts at whole seconds in some workloads: a tick that is little late covers whole intervals.
    """
    if last_s is None or now_s < last_s:
        raise CannotDecide(f"no rate yet: this is the first reading of the {reading}")
    elapsed = now_s - last_s
    if elapsed < interval_s / 2:
        raise CannotDecide(f"no rate yet: {elapsed:.3g} s since the last reading, decision interval {interval_s:g} s")
    whole = round(elapsed / interval_s) * interval_s
    return whole if abs(elapsed - whole) <= JITTER * interval_s else elapsed


def reason_of(unknown: Mapping[str, str], field: str) -> str:
    """Why the monitor could not read ``field``, in brackets; empty if it gives no reason."""
    return f" ({unknown[field]})" if field in unknown else ""


def all_reasons(unknown: Mapping[str, str]) -> str:
    """Reasons for all unknown fields, in brackets."""
    return f" ({'; '.join(f'{field}: {reason}' for field, reason in unknown.items())})" if unknown else ""
