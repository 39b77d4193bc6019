"""The autoscaler of the Flink Kubernetes operator: capacity for the input, the lag, and the backlog of a restart.

Read from its source with its defaults, 2026. It acts on a full metrics window, which begins a stabilisation interval
after each change. A scale-in takes the largest recommendation of an hour.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import ClassVar, NamedTuple

import msgspec

from controller.queueing.rounding import TOLERANCE, finite, rounded_up
from controller.scalers.shared.base import TOLERANCE_S, CannotDecide, check_known, resize
from controller.scalers.shared.demand import Windows, busy_s, input_rate, read_sources, sources, true_rate_per_s
from controller.scalers.shared.parameters import BoundedParameters, Candidates, NotNegative, Positive, Share
from controller.scalers.shared.single_fleet import SingleFleetScaler, Step, Window
from penstock.contracts import FleetObservation, StreamObservation, Term


@dataclass(frozen=True)
class FlinkParameters(BoundedParameters):
    """The operator's options with their defaults. ``max_scale_down``: largest share of replicas removed in one step.
    ``backlog_lag_s``: with a lag of more than that many seconds of its throughput a fleet works off a backlog and loses
    no replica. ``service_rate_per_s``: the true rate where none is measured.
    """

    candidates: ClassVar[Mapping[str, Candidates]] = {
        "target_utilisation": Candidates((0.3, 0.5, 0.7)),
        "utilisation_boundary": Candidates((0.1, 0.3)),
        "metrics_window_s": Candidates((15.0, 60.0, 900.0)),
        "stabilisation_s": Candidates((0.0, 60.0, 300.0)),
        "scale_down_interval_s": Candidates((60.0, 600.0, 3600.0)),
        "restart_s": Candidates((2.0, 300.0)),
        "decision_interval_s": Candidates((5.0, 15.0, 60.0)),
    }
    target_utilisation: Positive = 0.7
    utilisation_boundary: NotNegative = 0.3
    catch_up_s: Positive = 1800.0
    restart_s: NotNegative = 300.0
    metrics_window_s: Positive = 900.0
    stabilisation_s: NotNegative = 300.0
    scale_down_interval_s: NotNegative = 3600.0
    max_scale_down: Share = 0.6
    backlog_lag_s: NotNegative = 300.0
    service_rate_per_s: Positive | None = None
    decision_interval_s: Positive = 60.0
    max_replicas: int | None = 200


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


def capacities(
    now: float, lag: float, rate_per_s: float, p: FlinkParameters, *, in_backlog: bool = False
) -> Capacities:
    """The target includes the restart; the lower bound, at the highest utilisation, does not. ``in_backlog``: every
    utilisation up to 1 is within the boundary.
    """
    highest = 1.0 if in_backlog else p.target_utilisation + p.utilisation_boundary
    lowest = 0.0 if in_backlog else p.target_utilisation - p.utilisation_boundary
    return Capacities(
        now,
        capacity(lag, rate_per_s, p.target_utilisation, p, with_restart=True),
        capacity(lag, rate_per_s, highest, p, with_restart=False),
        capacity(lag, rate_per_s, lowest, p, with_restart=True),
    )


def parallelism(replicas: int, each: Capacities, p: FlinkParameters) -> int:
    """⌈replicas · target / now⌉, not below the share that one step must leave, and within the bounds."""
    factor = max(each.target / each.now, 1 - p.max_scale_down)
    return p.bounded(rounded_up(replicas * factor))


def aligned(wanted: int, replicas: int, partitions: int, p: FlinkParameters) -> int:
    """At most the partitions, and up to a divisor of them, so that each replica has as many (EVENLY_SPREAD).

    Where there is none within the bounds, or none up to ``replicas`` for a scale-in: the fewest with which the fullest
    replica has no more partitions. Never against the direction of ``wanted`` (JobVertexScaler.scale).
    """
    wanted = min(wanted, partitions)
    if wanted == replicas:
        return replicas
    up, most = wanted > replicas, min(partitions, p.max_replicas or partitions)
    for each in range(wanted, (most if up else min(replicas, most)) + 1):
        if partitions % each == 0:
            return each
    fewer = next((each for each in range(wanted, 0, -1) if partitions // each > partitions // wanted), 0)
    if fewer and partitions % fewer:
        fewer += 1
    fewer = max(fewer, p.min_replicas)
    return fewer if (fewer > replicas) == up and fewer != replicas else replicas


class FlinkState(msgspec.Struct, frozen=True):
    """The number of replicas, the time of its last change, and the readings since then. ``down``: recommendations to
    scale in, as (time in s, replicas, outside of the utilisation boundary?), the first at ``down_since_s``.
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

    def read(self, part: FleetObservation, state: FlinkState, observation: FleetObservation) -> FlinkState:
        """Begin anew when the number of replicas has changed; no readings within the stabilisation interval."""
        if state.replicas != part.replicas.current:
            state = FlinkState(part.replicas.current, part.time_s)
        if self._stabilises(part, state):
            return state
        now_s, over_s = part.time_s, self.parameters.metrics_window_s
        return msgspec.structs.replace(
            state,
            inputs=read_sources(state.inputs, sources(part, observation), now_s, over_s),
            completions=state.completions.add(now_s, part.completed, over_s),
            busy=state.busy.add(now_s, busy_s(part), over_s),
        )

    def _stabilises(self, part: FleetObservation, state: FlinkState) -> bool:
        return part.time_s - state.since_s < self.parameters.stabilisation_s - TOLERANCE_S

    def decide_part(self, part: FleetObservation, state: FlinkState, observation: FleetObservation) -> Step[FlinkState]:
        """Wait for a full window, compare capacities, delay a scale-in."""
        p, current, over_s = self.parameters, part.replicas.current, self.parameters.metrics_window_s
        if self._stabilises(part, state):
            raise CannotDecide("stabilisation interval", since_s=state.since_s, stabilisation_s=p.stabilisation_s)
        check_known(part, "backlog")
        reasons = {**observation.unknown, **part.unknown}
        rate = input_rate(state.inputs, sources(part, observation), over_s, reasons, whole=True)
        if current == 0:
            return resize(part, p.min_replicas, {"replicas": 0}), state
        true_rate, known_from = self._true_rate(part, state, rate)
        lag, done_per_s = float(part.backlog or 0), state.completions.rate_per_s(over_s)
        in_backlog = done_per_s is not None and lag > p.backlog_lag_s * done_per_s
        each = capacities(true_rate * current, lag, rate, p, in_backlog=in_backlog)
        recommended = wanted = parallelism(current, each, p)
        why: dict[str, Term] = {
            "lag": part.backlog,
            "input_rate_per_s": rate,
            "true_rate_per_s": finite(true_rate),
            "true_rate_from": known_from,
            "replicas": current,
            "capacity_per_s": finite(each.now),
            "target_capacity_per_s": each.target,
            "scale_up_below_per_s": each.lower,
            "scale_down_above_per_s": None if each.upper == float("inf") else each.upper,
            "outside": each.outside,
            "recommended": recommended,
        }
        if in_backlog:
            why["backlog_lag_s"] = p.backlog_lag_s
        if isinstance(part, StreamObservation) and part.partitions:
            why["partitions"] = partitions = len(part.partitions)
            why["aligned"] = wanted = aligned(recommended, current, partitions, p)
        if wanted >= current:
            state = msgspec.structs.replace(state, down_since_s=None, down=())
            return resize(part, wanted if each.outside else current, why), state
        return self._scale_in(part, wanted, each.outside, why, state)

    def _true_rate(self, part: FleetObservation, state: FlinkState, input_rate_per_s: float) -> tuple[float, str]:
        """As measured or given, and its origin. The operator takes it as infinite while nothing comes: so do we where
        it is unknown.
        """
        p = self.parameters
        fallback = inf if input_rate_per_s == 0 and p.service_rate_per_s is None else p.service_rate_per_s
        rate, known_from = true_rate_per_s(part, state.completions, state.busy, p.metrics_window_s, fallback)
        return rate, "nothing comes" if rate == inf else known_from

    def _scale_in(
        self, part: FleetObservation, wanted: int, outside: bool, why: dict[str, Term], state: FlinkState
    ) -> Step[FlinkState]:
        """The largest recommendation of the interval, when it has passed since the first one."""
        p, now_s = self.parameters, part.time_s
        first_s = now_s if state.down_since_s is None else state.down_since_s
        within = (each for each in state.down if now_s - each[0] < p.scale_down_interval_s - TOLERANCE_S)
        down = (*within, (now_s, wanted, outside))
        state = msgspec.structs.replace(state, down_since_s=first_s, down=down)
        # Of equal ones the latest counts, with its own utilisation.
        _, largest, largest_outside = max(down, key=lambda each: (each[1], each[0]))
        why |= {"scale_in_since_s": first_s, "largest_in_interval": largest}
        waits = now_s - first_s < p.scale_down_interval_s - TOLERANCE_S
        why["waits"] = waits
        stays = waits or not largest_outside
        return resize(part, part.replicas.current if stays else largest, why), state
