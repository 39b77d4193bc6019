"""Knative's pod autoscaler: the average number of requests in the system over a stable and a panic window.

Read from Knative Serving's autoscaler, 2026, with its default configuration. Windows are averages of the samples of
every tick; the panic threshold compares ⌈panic demand / target⌉ with the ready replicas, as the source does, so that
few replicas panic early.
"""

from dataclasses import dataclass
from math import ceil, floor, fsum
from typing import ClassVar, NamedTuple

import msgspec

from controller.scalers.demand import in_system, unknown_in_system
from controller.scalers.packing import TOLERANCE
from controller.scalers.parameters import require_bounds, require_not_negative, require_positive
from controller.scalers.single_fleet import (
    TOLERANCE_S,
    FleetStates,
    PartDecision,
    SingleFleetScaler,
    elapsed_s,
    resize_part,
    states_by_fleet,
)
from penstock.contracts import FleetObservation, ReplicaCounts, Term

Samples = tuple[tuple[float, float], ...]
"""(time in s, requests in the system), oldest first."""


def average(samples: Samples, time_s: float, over_s: float) -> float:
    """Mean of the samples within the last ``over_s``; the newest one is always within."""
    values = [value for at_s, value in samples if time_s - at_s < over_s - TOLERANCE_S or at_s == time_s]
    return fsum(values) / len(values)


@dataclass(frozen=True)
class KpaParameters:
    """Knative's defaults: 100 requests at once per replica, of which 70 % are aimed at. ``grace_s`` is how long the
    last replica stays after the stable window has become empty. ``max_replicas`` None: no limit.
    """

    target_concurrency: float = 100.0
    target_utilisation: float = 0.7
    stable_window_s: float = 60.0
    panic_window_s: float = 6.0
    panic_threshold: float = 2.0
    max_scale_up_rate: float = 1000.0
    max_scale_down_rate: float = 2.0
    grace_s: float = 30.0
    decision_interval_s: float = 2.0
    min_replicas: int = 0
    max_replicas: int | None = None

    def __post_init__(self) -> None:
        require_positive(
            target_concurrency=self.target_concurrency,
            target_utilisation=self.target_utilisation,
            stable_window_s=self.stable_window_s,
            panic_window_s=self.panic_window_s,
            panic_threshold=self.panic_threshold,
            decision_interval_s=self.decision_interval_s,
        )
        require_not_negative(grace_s=self.grace_s)
        for name in ("max_scale_up_rate", "max_scale_down_rate"):
            if getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name):g}: expected a number above 1")
        require_bounds(self.min_replicas, self.max_replicas)

    @property
    def target(self) -> float:
        """Requests in the system per replica that are aimed at."""
        return self.target_concurrency * self.target_utilisation


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
    for_stable, for_panic = (ceil(average / p.target - TOLERANCE) for average in (stable, panic))
    return Demand(for_stable, for_panic, *(min(max(each, least), most) for each in (for_stable, for_panic)))


def step_limits(ready: int, p: KpaParameters) -> tuple[int, int]:
    """⌊ready / 2⌋ and ⌈1000 · ready⌉: how far one decision may go."""
    return floor(ready / p.max_scale_down_rate), ceil(p.max_scale_up_rate * ready)


class Kpa(SingleFleetScaler[KpaParameters, KpaState]):
    """Concurrency-driven scaling with a panic mode, to zero and back."""

    name: ClassVar[str] = "kpa"
    paper: ClassVar[str] = "Knative Serving, pod autoscaler"
    emulates: ClassVar[str] = "Knative KPA"
    Parameters: ClassVar[type[KpaParameters]] = KpaParameters
    State: ClassVar[type[FleetStates[KpaState]]] = states_by_fleet(KpaState)

    def start_part(self) -> KpaState:
        """No sample."""
        return KpaState()

    def decide_part(
        self,
        part: FleetObservation,
        state: KpaState,
        observation: FleetObservation,  # noqa: ARG002 - a part is enough
    ) -> tuple[PartDecision, KpaState]:
        """Both windows, panic, then the bounds and the grace of the last replica."""
        p, now_s = self.parameters, part.time_s
        unknown = unknown_in_system(part)
        if unknown is not None:
            return unknown, state
        samples = (
            *(each for each in state.samples if 0 < now_s - each[0] < p.stable_window_s - TOLERANCE_S),
            (now_s, float(in_system(part))),
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
            "in_system": in_system(part),
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
        return resize_part(part, wanted, why), state

    def _panic(self, over: bool, ready: int, replicas: ReplicaCounts, now_s: float, state: KpaState) -> KpaState:
        """Panic begins or is prolonged while demand is over the threshold; it ends a stable window after the last
        time. An autoscaler that starts with several replicas starts in panic: it has no history to shrink on.
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
        """Minimum, maximum, and one replica for the time of grace after nothing was wanted any more."""
        p = self.parameters
        wanted = max(desired, p.min_replicas)
        wanted = min(wanted, p.max_replicas or wanted)
        if wanted > 0:
            return wanted, msgspec.structs.replace(state, idle_s=None)
        idle_s = now_s if state.idle_s is None else state.idle_s
        within_grace = now_s - idle_s < p.grace_s - TOLERANCE_S
        return int(within_grace), msgspec.structs.replace(state, idle_s=idle_s)
