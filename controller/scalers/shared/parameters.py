"""Ranges of parameters as types of fields: a wrong value is an error when a scaler is built, not during a run."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import Annotated, Any, ClassVar, NamedTuple, get_args, get_type_hints


class Range(NamedTuple):
    """The finite values that a parameter may have, in words and as a test."""

    expected: str
    holds: Callable[[float], bool]


Positive = Annotated[float, Range("a number above 0", lambda value: value > 0)]
NotNegative = Annotated[float, Range("a number of at least 0", lambda value: value >= 0)]
AboveOne = Annotated[float, Range("a number above 1", lambda value: value > 1)]
OpenShare = Annotated[float, Range("a number between 0 and 1", lambda value: 0 < value < 1)]
PositiveShare = Annotated[float, Range("a number above 0 and up to 1", lambda value: 0 < value <= 1)]
Share = Annotated[float, Range("a number from 0 to 1", lambda value: 0 <= value <= 1)]
Finite = Annotated[float, Range("a finite number", isfinite)]
Count = Annotated[int, Range("at least 1", lambda value: value >= 1)]
CountOrZero = Annotated[int, Range("at least 0", lambda value: value >= 0)]


class Candidates(NamedTuple):
    """Values of a parameter from which ``penstock advise`` starts. With ``of`` they are multiples of the product of
    these facts (``service_rate_per_s``, ``slo_s``, ``max_replicas`` …). ``step``: every value is a multiple of it,
    where the system that is emulated can take no others; 0 for any value.
    """

    values: tuple[Any, ...]
    of: tuple[str, ...] = ()
    step: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Parameters of a scaler. Raises ValueError for a value outside the range of its type; None is not set."""

    candidates: ClassVar[Mapping[str, Candidates]] = {}
    decision_interval_s: Positive = 1.0

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, within in _ranges_of(kind):
            for entry, value in _entries(name, getattr(self, name)):
                if value is not None and not (isfinite(value) and within.holds(value)):
                    raise ValueError(f"{entry}={value:g}: expected {within.expected}")


@dataclass(frozen=True, kw_only=True)
class BoundedParameters(Parameters):
    """With limits of the scaler's own. ``max_replicas`` None: no limit."""

    least_replicas: ClassVar[int] = 1
    min_replicas: int = 1
    max_replicas: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_replicas < self.least_replicas:
            raise ValueError(f"min_replicas={self.min_replicas}: expected at least {self.least_replicas}")
        if self.max_replicas is not None and self.max_replicas < max(1, self.min_replicas):
            raise ValueError(f"max_replicas={self.max_replicas}: expected at least {max(1, self.min_replicas)}")

    def bounded(self, replicas: int) -> int:
        """The number within the limits."""
        return max(self.min_replicas, min(replicas, self.max_replicas or replicas))


def in_range(kind: type, name: str, value: float) -> bool:
    """Whether a parameter may have a value, as far as the range of its type tells."""
    return all(within.holds(value) for each, within in _ranges_of(kind) if each == name)


@cache
def _ranges_of(kind: type) -> tuple[tuple[str, Range], ...]:
    """The parameters that have a range, each with it."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple((name, within) for name, hint in hints.items() for within in _ranges_in(hint))


def _ranges_in(hint: Any) -> Iterator[Range]:
    """The range that a type names, also beside ``None`` and for the values of a mapping or tuple."""
    yield from (each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Range))
    for argument in get_args(hint):
        yield from _ranges_in(argument)


def _entries(name: str, value: Any) -> list[tuple[str, Any]]:
    """The values of a parameter, each under its own name."""
    if isinstance(value, Mapping):
        return [(f"{name}.{key}", each) for key, each in value.items()]
    return [(f"{name}[{i}]", each) for i, each in enumerate(value)] if isinstance(value, tuple) else [(name, value)]
