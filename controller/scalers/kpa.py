"""Knative's pod autoscaler: the average number of requests in the system over a stable and a panic window.

Read from Knative Serving's autoscaler, 2026, with its defaults. A window averages the samples of its ticks. The panic
threshold compares ⌈panic demand / target⌉ with the ready replicas, as the source does: few replicas panic early.
Windows, threshold, target and utilisation have the limits of Knative's own configuration.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, fsum
from typing import Annotated, ClassVar, NamedTuple

import msgspec

from controller.queueing.rounding import rounded_up
from controller.scalers.shared.base import TOLERANCE_S, resize
from controller.scalers.shared.demand import in_system
from controller.scalers.shared.parameters import (
    AboveOne,
    BoundedParameters,
    Candidates,
    Positive,
    PositiveShare,
    Range,
)
from controller.scalers.shared.single_fleet import SingleFleetScaler, Step, elapsed_s
from penstock.contracts import FleetObservation, ReplicaCounts, Term

Samples = tuple[tuple[float, float], ...]
"""(time in s, requests in the system), oldest first."""

StableWindow = Annotated[
    float, Range("whole seconds from 6 to 3600", lambda value: 6 <= value <= 3600 and value == round(value))
]
Percentage = Annotated[float, Range("a percentage from 1 to 100", lambda value: 1 <= value <= 100)]
Threshold = Annotated[float, Range("a number from 1.1 to 10", lambda value: 1.1 <= value <= 10)]
LEAST_TARGET = 0.01
"""Requests in the system."""
Concurrency = Annotated[float, Range(f"a number of at least {LEAST_TARGET}", lambda value: value >= LEAST_TARGET)]
LEAST_PANIC_WINDOW_S = 1.0
"""The length of a bucket of Knative's statistics: a panic window is no shorter, whatever its percentage."""


def average(samples: Samples, time_s: float, over_s: float) -> float:
    """Mean of the samples within the last ``over_s``; the newest one is always within."""
    values = [value for at_s, value in samples if time_s - at_s < over_s - TOLERANCE_S or at_s == time_s]
    return fsum(values) / len(values)


@dataclass(frozen=True)
class KpaParameters(BoundedParameters):
    """Knative's defaults. ``panic_window_percentage``: of the stable window; ``panic_threshold``: times the ready
    replicas. ``grace_s``: the last replica stays so long after the stable window is empty.
    """

    least_replicas: ClassVar[int] = 0
    candidates: ClassVar[Mapping[str, Candidates]] = {
        "target_concurrency": Candidates((0.02, 0.05, 0.1, 0.25, 0.5, 1.0), ("service_rate_per_s", "slo_s")),
        "stable_window_s": Candidates((6.0, 15.0, 30.0, 60.0, 120.0), step=1.0),
        "panic_window_percentage": Candidates((10.0, 40.0, 100.0)),
        "min_replicas": Candidates((0.0, 0.2, 0.4, 0.6), ("max_replicas",)),
    }
    target_concurrency: Concurrency = 100.0
    target_utilisation: PositiveShare = 0.7
    stable_window_s: StableWindow = 60.0
    panic_window_percentage: Percentage = 10.0
    panic_threshold: Threshold = 2.0
    max_scale_up_rate: AboveOne = 1000.0
    max_scale_down_rate: AboveOne = 2.0
    grace_s: Positive = 30.0
    decision_interval_s: Positive = 2.0
    min_replicas: int = 0

    @property
    def target(self) -> float:
        """Requests in the system per replica that are aimed at; at least 0.01."""
        return max(LEAST_TARGET, self.target_concurrency * self.target_utilisation)

    @property
    def panic_window_s(self) -> float:
        """The newest part of the stable window."""
        return max(LEAST_PANIC_WINDOW_S, self.panic_window_percentage / 100 * self.stable_window_s)


class KpaState(msgspec.Struct, frozen=True):
    """Samples of the stable window; since when panic (None: none) and the most replicas wanted in it; since when
    nothing is wanted. ``started``: the first decision is behind.
    """

    samples: Samples = ()
    started: bool = False
    panic_s: float | None = None
    most_in_panic: int = 0
    idle_s: float | None = None


class Demand(NamedTuple):
    """Replicas for the stable and the panic window: as demanded, and within the limits of one step."""

    stable: int
    panic: int
    stable_limited: int
    panic_limited: int


def demand(stable: float, panic: float, ready: int, p: KpaParameters) -> Demand:
    """⌈average / target⌉ of both windows, and each within the limits of one step."""
    least, most = step_limits(ready, p)
    for_stable, for_panic = (rounded_up(average / p.target) for average in (stable, panic))
    return Demand(for_stable, for_panic, *(min(max(each, least), most) for each in (for_stable, for_panic)))


def step_limits(ready: int, p: KpaParameters) -> tuple[int, int]:
    """⌊ready / 2⌋ and ⌈1000 · ready⌉: how far one decision may go."""
    return floor(ready / p.max_scale_down_rate), ceil(p.max_scale_up_rate * ready)


class Kpa(SingleFleetScaler[KpaParameters, KpaState]):
    """Concurrency-driven scaling with a panic mode, to zero and back."""

    name: ClassVar[str] = "kpa"
    paper: ClassVar[str] = "Knative Serving, pod autoscaler"
    emulates: ClassVar[str] = "Knative KPA"

    def decide_part(self, part: FleetObservation, state: KpaState, _: FleetObservation) -> Step[KpaState]:
        """Both windows, panic, then the bounds and the grace of the last replica."""
        p, now_s, concurrency = self.parameters, part.time_s, in_system(part)
        samples = (
            *(each for each in state.samples if 0 < now_s - each[0] < p.stable_window_s - TOLERANCE_S),
            (now_s, float(concurrency)),
        )
        state = msgspec.structs.replace(state, samples=samples)
        ready = max(1, part.replicas.joined)
        stable, panic = (average(samples, now_s, over_s) for over_s in (p.stable_window_s, p.panic_window_s))
        wants = demand(stable, panic, ready, p)
        state = self._panic(wants.panic / ready >= p.panic_threshold, ready, part.replicas, now_s, state)
        desired = wants.stable_limited
        if state.panic_s is not None:  # within panic the number only grows
            desired = max(desired, wants.panic_limited, state.most_in_panic)
            state = msgspec.structs.replace(state, most_in_panic=desired)
        wanted, state = self._bounded(desired, now_s, state)
        least, most = step_limits(ready, p)
        why: dict[str, Term] = {
            "in_system": concurrency,
            "stable_window_s": p.stable_window_s,
            "stable_average": stable,
            "panic_window_s": p.panic_window_s,
            "panic_average": panic,
            "target_concurrency": p.target_concurrency,
            "target_utilisation": p.target_utilisation,
            "target": p.target,
            "replicas": part.replicas.current,
            "ready": ready,
            "step_least": least,
            "step_most": most,
            **wants._asdict(),
            "panic_ratio": wants.panic / ready,
            "panic_threshold": p.panic_threshold,
            "in_panic": state.panic_s is not None,
            **({} if state.panic_s is None else {"panic_for_s": elapsed_s(state.panic_s, now_s)}),
            "desired": desired,
            "min_replicas": p.min_replicas,
            "max_replicas": p.max_replicas,
            "wanted": wanted,
        }
        return resize(part, wanted, why), state

    def _panic(self, over: bool, ready: int, replicas: ReplicaCounts, now_s: float, state: KpaState) -> KpaState:
        """Panic while demand is over the threshold and for one stable window after. An autoscaler that starts with
        several replicas starts in panic: it has no history to shrink on.
        """
        began, most = state.panic_s, state.most_in_panic
        if not state.started and replicas.joined > 1:
            began, most = now_s, ready
        if over:
            began = now_s
        elif began is not None and now_s - began > self.parameters.stable_window_s + TOLERANCE_S:
            began, most = None, 0
        return msgspec.structs.replace(state, started=True, panic_s=began, most_in_panic=most)

    def _bounded(self, desired: int, now_s: float, state: KpaState) -> tuple[int, KpaState]:
        """Minimum, maximum, and one replica during the grace period."""
        wanted = self.parameters.bounded(desired)
        if wanted > 0:
            return wanted, msgspec.structs.replace(state, idle_s=None)
        idle_s = now_s if state.idle_s is None else state.idle_s
        within_grace = now_s - idle_s < self.parameters.grace_s - TOLERANCE_S
        return int(within_grace), msgspec.structs.replace(state, idle_s=idle_s)
