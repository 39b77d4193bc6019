"""A workload: a rate over time, in events per second.

A schedule takes one value per second, the rate in its middle; that suits curves and stepwise traces.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from penstock.errors import PenstockError
from penstock.runspec import Arrivals

Floats = npt.NDArray[np.float64]


class Workload(Protocol):
    """A frozen dataclass whose fields are its parameters, units in their names. Impossible values raise ValueError.

    ``arrivals`` is how its events arrive within a second unless the schedule overrides it, which
    ``arrivals_fixed`` forbids.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    arrivals: ClassVar[Arrivals] = "uniform"
    arrivals_fixed: ClassVar[bool] = False

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        ...

    def rate_at(self, time_s: npt.ArrayLike) -> Floats:
        """Events per second at each time (seconds from the workload's start, 0 ≤ time < duration); same shape."""
        ...


@dataclass(frozen=True, slots=True)
class Playback:
    """A workload as a run uses it: ``seconds`` of it from ``from_s`` on, ``speed`` times as fast.

    Times of this class are the run's: rates are multiplied and durations divided by ``speed``. ``from_s`` and
    ``seconds`` are in the workload's own time; ``seconds`` None means to its end. Raises PenstockError for a part that
    the workload does not have.
    """

    workload: Workload
    from_s: float = 0.0
    seconds: float | None = None
    speed: float = 1.0

    def __post_init__(self) -> None:
        name, length_s = self.workload.name, self.workload.duration_s
        if not (np.isfinite(self.speed) and self.speed > 0):
            raise PenstockError(f"speed {self.speed:g}: has to be above 0; 1 leaves the workload as it is")
        if not 0 <= self.from_s < length_s:
            raise PenstockError(f"from {self.from_s:g} s: {name} runs from 0 to {length_s:g} s; start inside it")
        if self.seconds is None:
            return
        if not self.seconds > 0:
            raise PenstockError(f"seconds {self.seconds:g}: has to be above 0; leave it out to use {name} to its end")
        if self.from_s + self.seconds > length_s:
            raise PenstockError(
                f"{self.seconds:g} s from {self.from_s:g} s: {name} ends at {length_s:g} s; "
                f"ask for {length_s - self.from_s:g} s or less"
            )

    @property
    def played_s(self) -> float:
        """Seconds of the workload's own time that are used."""
        return self.workload.duration_s - self.from_s if self.seconds is None else self.seconds

    @property
    def duration_s(self) -> float:
        """How long the run lasts."""
        return self.played_s / self.speed

    def step_rates(self) -> Floats:
        """Events per second of the workload's own time, one value for each of its seconds, shape (ceil(played_s),)."""
        middles = self.from_s + np.arange(int(np.ceil(self.played_s))) + 0.5
        last_s = np.nextafter(self.workload.duration_s, 0.0)
        return self.workload.rate_at(np.minimum(middles, last_s))

    def rate_at(self, time_s: npt.ArrayLike) -> Floats:
        """Events per second of the run at each time of the run; same shape."""
        own_s = self.from_s + np.asarray(time_s, dtype=np.float64) * self.speed
        return self.speed * self.workload.rate_at(own_s)


def rates_per_s(workload: Workload) -> Floats:
    """The whole workload at one value a second, shape (ceil(duration_s),)."""
    return Playback(workload).step_rates()


def positive(**values: float) -> None:
    """Raise ValueError that names the first of ``values`` which is not a finite number above 0."""
    for name, value in values.items():
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name} has to be a number above 0, not {value:g}")


def not_negative(**values: float) -> None:
    """Raise ValueError that names the first of ``values`` which is not a finite number of at least 0."""
    for name, value in values.items():
        if not (np.isfinite(value) and value >= 0):
            raise ValueError(f"{name} has to be a number of at least 0, not {value:g}")
