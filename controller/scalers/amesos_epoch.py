"""One epoch of a pipeline: its arrival rate, the forecast of it, and the replicas that every function needs for that.

Tsenos, Peri, Kalogeraki, DEBS 2022, Algorithm 1 without the decision itself, which is what AMESoS and DwP differ in;
readings A1, A2, A3, A12, H1 to H5.
"""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from controller.queueing.holt import Init, smooth
from controller.scalers.packing import TOLERANCE
from controller.scalers.parameters import require_positive
from controller.scalers.single_fleet import PartDecision, elapsed_s, hold_part, merged, unknown_part
from controller.scalers.stream import CannotDecide
from penstock.contracts import Decision, FunctionObservation, FunctionStatus, Term, hold


def replicas_needed(lambda_pred_per_s: float, avg_process_time_s: float, rho: float) -> int:
    """c' = ⌈μ · avgProcessTime⌉ with μ = λ_pred / ρ (A2), at least one (A3)."""
    mu = lambda_pred_per_s / rho
    return max(1, ceil(mu * avg_process_time_s - TOLERANCE))


@dataclass(frozen=True)
class EpochParameters:
    """``rho`` is the utilisation aimed at (A13). The paper prints neither the smoothing factors nor N, the number of
    epochs that the forecast looks back on (H3, H4): these are ours. ``init`` is the trend at the first of them (H2).
    """

    decision_interval_s: float = 2.5
    rho: float = 0.7
    epochs: int = 20
    alpha: float = 0.5
    gamma: float = 0.3
    init: Init = "zero"

    def __post_init__(self) -> None:
        require_positive(decision_interval_s=self.decision_interval_s)
        if not 0 < self.rho <= 1:
            raise ValueError(f"rho={self.rho:g}: expected a number above 0 and up to 1")
        if self.epochs < 1:
            raise ValueError(f"epochs={self.epochs}: expected at least 1")
        for name, factor in (("alpha", self.alpha), ("gamma", self.gamma)):
            if not 0 <= factor <= 1:
                raise ValueError(f"{name}={factor:g}: expected a number from 0 to 1")


class FunctionMemory(msgspec.Struct, frozen=True):
    """Of one function: its counters at the end of the last epoch, and its last known mean processing time."""

    completed: int | None = None
    busy_s: float | None = None
    avg_process_time_s: float | None = None


class EpochState(msgspec.Struct, frozen=True):
    """The pipeline's counters at the end of the last epoch, the rates of the last N epochs, and its functions."""

    time_s: float | None = None
    arrived: int | None = None
    finished: int | None = None
    missed: int | None = None
    rates_per_s: tuple[float, ...] = ()
    functions: dict[str, FunctionMemory] = msgspec.field(default_factory=dict)


class Epoch(NamedTuple):
    """What a closed epoch says: λ, S, tr and λ_pred of the pipeline (per s; S and tr as they are, λ_pred never below
    zero), and the share of the messages that left it in this epoch after their deadline (None: not known).
    """

    arrival_rate_per_s: float
    level_per_s: float
    trend_per_s: float
    forecast_per_s: float
    missed_share: float | None

    def terms(self) -> dict[str, Term]:
        """The forecast in the order in which it is computed."""
        return {
            "lambda_per_s": self.arrival_rate_per_s,
            "S_per_s": self.level_per_s,
            "tr_per_s": self.trend_per_s,
            "S_plus_tr_per_s": self.level_per_s + self.trend_per_s,
            "lambda_pred_per_s": self.forecast_per_s,
        }


def close_epoch(observation: FunctionObservation, state: EpochState, p: EpochParameters) -> tuple[Epoch, EpochState]:
    """λ of the epoch from the arrivals at the first node (A12), and its forecast one epoch ahead.

    Raises CannotDecide without an earlier reading to compare with; ``opened`` has the state to go on with then.
    """
    if observation.arrived is None:
        raise CannotDecide(f"arrived is unknown{_said(observation, 'arrived')}")
    if state.time_s is None or state.arrived is None:
        raise CannotDecide("no rate yet: this is the first reading of the arrivals")
    elapsed = elapsed_s(state.time_s, observation.time_s)
    if elapsed <= 0 or observation.arrived < state.arrived:
        raise CannotDecide(
            f"no rate: {observation.arrived} arrivals at {observation.time_s:g} s after {state.arrived} at "
            f"{state.time_s:g} s (was the pipeline started anew?)"
        )
    rate = (observation.arrived - state.arrived) / elapsed
    rates = (*state.rates_per_s, rate)[-p.epochs :]
    smoothed = smooth(rates, p.alpha, p.gamma, p.init)
    assert smoothed.level is not None and smoothed.trend is not None  # the series has a value at least
    epoch = Epoch(rate, smoothed.level, smoothed.trend, smoothed.rate_ahead(), _missed_share(observation, state))
    return epoch, msgspec.structs.replace(opened(observation, state), rates_per_s=rates)


def opened(observation: FunctionObservation, state: EpochState) -> EpochState:
    """The state at the beginning of the next epoch. Counters that are unknown now keep their last reading."""
    if observation.arrived is None:
        return msgspec.structs.replace(state, functions=_functions(observation, state))
    anew = state.arrived is not None and observation.arrived < state.arrived
    return EpochState(
        time_s=observation.time_s,
        arrived=observation.arrived,
        finished=observation.finished if observation.finished is not None else state.finished,
        missed=observation.missed if observation.missed is not None else state.missed,
        rates_per_s=() if anew else state.rates_per_s,
        functions=_functions(observation, state),
    )


def avg_process_time_s(function: FunctionStatus, before: FunctionMemory) -> float | None:
    """Mean processing time of the requests that finished in the epoch, the last known value if none did.

    Before the first one finishes it is the service time that the monitor knows of, or None.
    """
    if (
        function.completed is not None
        and function.busy_s is not None
        and before.completed is not None
        and before.busy_s is not None
        and function.completed > before.completed
        and function.busy_s >= before.busy_s
    ):
        return (function.busy_s - before.busy_s) / (function.completed - before.completed)
    if before.avg_process_time_s is not None:
        return before.avg_process_time_s
    return 1 / function.service_rate_per_s if function.service_rate_per_s else None


def _functions(observation: FunctionObservation, state: EpochState) -> dict[str, FunctionMemory]:
    memory = dict(state.functions)
    for function in observation.functions:
        before = memory.get(function.fleet, FunctionMemory())
        known = function.completed is not None and function.busy_s is not None
        memory[function.fleet] = FunctionMemory(
            function.completed if known else before.completed,
            function.busy_s if known else before.busy_s,
            avg_process_time_s(function, before),
        )
    return memory


def _missed_share(observation: FunctionObservation, state: EpochState) -> float | None:
    """Share of this epoch's finished messages that missed their deadline; 0 of an epoch in which none finished."""
    if None in (observation.finished, observation.missed, state.finished, state.missed):
        return None
    assert observation.finished is not None and observation.missed is not None
    assert state.finished is not None and state.missed is not None
    finished, missed = observation.finished - state.finished, observation.missed - state.missed
    if finished < 0 or missed < 0:
        return None
    return missed / finished if finished > 0 else 0.0


def _said(observation: FunctionObservation, field: str) -> str:
    return f" ({observation.unknown[field]})" if field in observation.unknown else ""


P = TypeVar("P", bound=EpochParameters)


class EpochScaler(Generic[P]):
    """Scalers that forecast once per pipeline and decide about all of its functions in the same epoch."""

    fleets: ClassVar[type[FunctionObservation]] = FunctionObservation
    State: ClassVar[type[EpochState]] = EpochState

    def __init__(self, parameters: P) -> None:
        self.parameters = parameters

    @property
    def period_s(self) -> float:
        """The epoch."""
        return self.parameters.decision_interval_s

    def start(self, seed: int) -> EpochState:  # noqa: ARG002 - nothing is drawn
        """No reading yet."""
        return EpochState()

    def check(self, observation: FunctionObservation, epoch: Epoch) -> dict[str, Term]:
        """What the decision needs to know of the pipeline, as terms. Raises CannotDecide where that is missing."""
        raise NotImplementedError

    def decide_function(
        self, function: FunctionStatus, needed: int, observation: FunctionObservation, epoch: Epoch
    ) -> PartDecision:
        """The decision for one function that needs c' replicas."""
        raise NotImplementedError

    def decide(self, observation: FunctionObservation, state: EpochState) -> tuple[Decision, EpochState]:
        """Close the epoch, forecast, and decide about every function of the pipeline."""
        p = self.parameters
        following = opened(observation, state)
        try:
            epoch, following = close_epoch(observation, state, p)
            pipeline = self.check(observation, epoch)
        except CannotDecide as reason:
            return hold(observation.fleet, str(reason)), following
        if not observation.functions:
            return hold(observation.fleet, "no function is known that could be scaled"), following
        decisions: dict[str, PartDecision] = {}
        for function in observation.functions:
            average = following.functions[function.fleet].avg_process_time_s
            if average is None:
                said = unknown_part(function, "busy_s", "completed")
                decisions[function.fleet] = said or hold_part("avgProcessTime is unknown: no request has finished yet")
                continue
            needed = replicas_needed(epoch.forecast_per_s, average, p.rho)
            decision = self.decide_function(function, needed, observation, epoch)
            decisions[function.fleet] = decision._replace(
                why={
                    **epoch.terms(),
                    **pipeline,
                    "mu_per_s": epoch.forecast_per_s / p.rho,
                    "avgProcessTime_s": average,
                    "c": function.replicas.current,
                    "c_new": needed,
                    **decision.why,
                }
            )
        return merged(decisions), following
