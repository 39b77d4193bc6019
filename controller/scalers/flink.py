"""The autoscaler of the Flink Kubernetes operator: processing capacity for the input, for the lag, and for what gathers
while the job restarts.

Read from its source with its default options, 2026. It acts on a full metrics window only, which begins a
stabilisation interval after each change, and a scale-in waits for the largest recommendation of an hour.
"""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar, NamedTuple

import msgspec

from controller.scalers.demand import Windows, busy_s, input_rate, read_sources, sources, true_rate_per_s
from controller.scalers.packing import TOLERANCE
from controller.scalers.parameters import require_bounds, require_not_negative, require_positive
from controller.scalers.single_fleet import (
    TOLERANCE_S,
    FleetStates,
    PartDecision,
    SingleFleetScaler,
    Window,
    hold_part,
    resize_part,
    states_by_fleet,
    unknown_part,
)
from penstock.contracts import FleetObservation, Term


@dataclass(frozen=True)
class FlinkParameters:
    """The operator's options with their defaults. ``max_scale_down``: the share of the replicas that one step may take
    away. ``service_rate_per_s`` is the true rate where neither busy time nor a measured rate tell it.
    """

    target_utilisation: float = 0.7
    utilisation_boundary: float = 0.3
    catch_up_s: float = 1800.0
    restart_s: float = 300.0
    metrics_window_s: float = 900.0
    stabilisation_s: float = 300.0
    scale_down_interval_s: float = 3600.0
    max_scale_down: float = 0.6
    service_rate_per_s: float | None = None
    decision_interval_s: float = 60.0
    min_replicas: int = 1
    max_replicas: int | None = 200

    def __post_init__(self) -> None:
        require_positive(
            target_utilisation=self.target_utilisation,
            catch_up_s=self.catch_up_s,
            metrics_window_s=self.metrics_window_s,
            decision_interval_s=self.decision_interval_s,
        )
        require_not_negative(
            utilisation_boundary=self.utilisation_boundary,
            restart_s=self.restart_s,
            stabilisation_s=self.stabilisation_s,
            scale_down_interval_s=self.scale_down_interval_s,
        )
        if self.service_rate_per_s is not None:
            require_positive(service_rate_per_s=self.service_rate_per_s)
        if not 0 <= self.max_scale_down <= 1:
            raise ValueError(f"max_scale_down={self.max_scale_down:g}: expected a share, 0 to 1")
        require_bounds(self.min_replicas, self.max_replicas, least=1)


def capacity(lag: float, rate_per_s: float, utilisation: float, p: FlinkParameters, *, with_restart: bool) -> float:
    """lag / catch-up + λ · restart / catch-up + λ / utilisation; no bound at a utilisation of zero."""
    utilisation = min(1.0, max(0.0, utilisation))
    if utilisation == 0:
        return float("inf")
    restart = rate_per_s * p.restart_s / p.catch_up_s if with_restart else 0.0
    return lag / p.catch_up_s + restart + rate_per_s / utilisation


class Capacities(NamedTuple):
    """Events per second: the fleet's own now, what it should be, and the bounds within which it is left alone."""

    now: float
    target: float
    lower: float
    upper: float

    @property
    def outside(self) -> bool:
        """Whether the capacity is beyond what the utilisation boundary allows."""
        return not self.lower - TOLERANCE <= self.now <= self.upper + TOLERANCE


def capacities(now: float, lag: float, rate_per_s: float, p: FlinkParameters) -> Capacities:
    """The target with the restart; the lower bound at the highest utilisation, for which no restart is reckoned."""
    return Capacities(
        now,
        capacity(lag, rate_per_s, p.target_utilisation, p, with_restart=True),
        capacity(lag, rate_per_s, p.target_utilisation + p.utilisation_boundary, p, with_restart=False),
        capacity(lag, rate_per_s, p.target_utilisation - p.utilisation_boundary, p, with_restart=True),
    )


def parallelism(replicas: int, each: Capacities, p: FlinkParameters) -> int:
    """⌈replicas · target / now⌉, not below the share that one step must leave, and within the bounds."""
    factor = max(each.target / each.now, 1 - p.max_scale_down)
    wanted = max(p.min_replicas, ceil(replicas * factor - TOLERANCE))
    return min(wanted, p.max_replicas or wanted)


class FlinkState(msgspec.Struct, frozen=True):
    """The number of replicas and since when it is that; the readings since then; the recommendations to scale in, as
    (time in s, replicas, whether outside of the utilisation boundary), and when the first of them was.
    """

    replicas: int | None = None
    since_s: float = 0.0
    inputs: Windows = msgspec.field(default_factory=dict)
    completions: Window = Window()
    busy: Window = Window()
    down_since_s: float | None = None
    down: tuple[tuple[float, int, bool], ...] = ()


class Flink(SingleFleetScaler[FlinkParameters, FlinkState]):
    """Slow and steady: a target utilisation over a long window."""

    name: ClassVar[str] = "flink"
    paper: ClassVar[str] = "Flink Kubernetes operator, autoscaler"
    emulates: ClassVar[str] = "Flink's autoscaler"
    Parameters: ClassVar[type[FlinkParameters]] = FlinkParameters
    State: ClassVar[type[FleetStates[FlinkState]]] = states_by_fleet(FlinkState)

    def start_part(self) -> FlinkState:
        """No reading yet."""
        return FlinkState()

    def decide_part(
        self, part: FleetObservation, state: FlinkState, observation: FleetObservation
    ) -> tuple[PartDecision, FlinkState]:
        """Wait for a full window, compare capacities, delay a scale-in."""
        p, now_s, current = self.parameters, part.time_s, part.replicas.current
        if state.replicas != current:
            state = FlinkState(current, now_s)
        if now_s - state.since_s < p.stabilisation_s - TOLERANCE_S:
            return hold_part("stabilisation interval", since_s=state.since_s, stabilisation_s=p.stabilisation_s), state
        of, over_s = sources(part, observation), p.metrics_window_s
        state = msgspec.structs.replace(
            state,
            inputs=read_sources(state.inputs, of, now_s, over_s),
            completions=state.completions.add(now_s, part.completed, over_s),
            busy=state.busy.add(now_s, busy_s(part), over_s),
        )
        unknown = unknown_part(part, "backlog")
        rate = unknown or input_rate(state.inputs, of, over_s, {**observation.unknown, **part.unknown}, whole=True)
        if isinstance(rate, PartDecision):
            return rate, state
        if current == 0:
            return resize_part(part, p.min_replicas, {"replicas": 0}), state
        true_rate, known_from = true_rate_per_s(part, state.completions, state.busy, over_s, p.service_rate_per_s)
        if true_rate is None:
            return hold_part("true rate is unknown: no busy time, no measured rate; set service_rate_per_s"), state
        each = capacities(true_rate * current, float(part.backlog or 0), rate, p)
        wanted = parallelism(current, each, p)
        why: dict[str, Term] = {
            "lag": part.backlog,
            "input_rate_per_s": rate,
            "true_rate_per_s": true_rate,
            "true_rate_from": known_from,
            "replicas": current,
            "capacity_per_s": each.now,
            "target_capacity_per_s": each.target,
            "scale_up_below_per_s": each.lower,
            "scale_down_above_per_s": None if each.upper == float("inf") else each.upper,
            "outside": each.outside,
            "recommended": wanted,
        }
        if wanted >= current:
            state = msgspec.structs.replace(state, down_since_s=None, down=())
            return resize_part(part, wanted if each.outside else current, why), state
        return self._scale_in(part, wanted, each.outside, why, state)

    def _scale_in(
        self, part: FleetObservation, wanted: int, outside: bool, why: dict[str, Term], state: FlinkState
    ) -> tuple[PartDecision, FlinkState]:
        """The largest recommendation of the interval, when it has passed since the first one."""
        p, now_s = self.parameters, part.time_s
        first_s = now_s if state.down_since_s is None else state.down_since_s
        within = (each for each in state.down if now_s - each[0] < p.scale_down_interval_s - TOLERANCE_S)
        down = (*within, (now_s, wanted, outside))
        state = msgspec.structs.replace(state, down_since_s=first_s, down=down)
        _, largest, largest_outside = max(down, key=lambda each: each[1])
        why |= {"scale_in_since_s": first_s, "largest_in_interval": largest}
        waits = now_s - first_s < p.scale_down_interval_s - TOLERANCE_S
        why["waits"] = waits
        stays = waits or not largest_outside
        return resize_part(part, part.replicas.current if stays else largest, why), state
