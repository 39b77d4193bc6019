"""One epoch of a pipeline: arrival rate, forecast, and the replicas that each function needs.

Tsenos, Peri, Kalogeraki, DEBS 2022, Algorithm 1 without its decision, in which AMESoS and DwP differ; readings A1, A2,
A3, A12, H1 to H5.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, TypeVar

import msgspec

from controller.queueing.holt import Init, smooth
from controller.queueing.rounding import rounded_up
from controller.scalers.shared.base import BaseScaler, CannotDecide, check_known, resize
from controller.scalers.shared.parameters import Count, Parameters, Positive, PositiveShare, Share
from controller.scalers.shared.single_fleet import elapsed_s, merged
from penstock.contracts import Decision, FunctionObservation, FunctionStatus, Term, hold


def replicas_needed(lambda_pred_per_s: float, avg_process_time_s: float, rho: float) -> int:
    """c' = ⌈μ · avgProcessTime⌉ with μ = λ_pred / ρ (A2), at least one (A3)."""
    mu = lambda_pred_per_s / rho
    return max(1, rounded_up(mu * avg_process_time_s))


@dataclass(frozen=True)
class EpochParameters(Parameters):
    """``rho`` is the target utilisation (A13). The smoothing factors and N, the number of epochs in the forecast, are
    ours, since the paper prints neither (H3, H4). ``init`` is the trend at the first epoch (H2).
    """

    decision_interval_s: Positive = 2.5
    rho: PositiveShare = 0.7
    epochs: Count = 20
    alpha: Share = 0.5
    gamma: Share = 0.3
    init: Init = "zero"


class FunctionMemory(msgspec.Struct, frozen=True):
    """A function's counters at the end of the last epoch, and its last known mean processing time."""

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
    """The result of an epoch: λ, S, tr and λ_pred of the pipeline (per s; λ_pred is never below zero), and the share of
    the messages that left it in this epoch after their deadline (0 if none left it, None: unknown).
    """

    arrival_rate_per_s: float
    level_per_s: float
    trend_per_s: float
    forecast_per_s: float
    missed_share: float | None


def close_epoch(observation: FunctionObservation, state: EpochState, p: EpochParameters) -> tuple[Epoch, EpochState]:
    """λ of the epoch from the arrivals at the first node (A12), and its forecast one epoch ahead.

    Raises CannotDecide without an earlier reading to compare with; the next state is ``opened`` then.
    """
    check_known(observation, "arrived")
    assert observation.arrived is not None
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
    finished, missed = _grown(observation.finished, state.finished), _grown(observation.missed, state.missed)
    share = None if finished is None or missed is None else missed / finished if finished > 0 else 0.0
    epoch = Epoch(rate, smoothed.level, smoothed.trend, smoothed.rate_ahead(), share)
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
    completed, busy_s = _grown(function.completed, before.completed), _grown(function.busy_s, before.busy_s)
    if completed and busy_s is not None:
        return busy_s / completed
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


def _grown(now: float | None, before: float | None) -> float | None:
    """The growth of a counter; None if it fell or a reading is missing."""
    return None if now is None or before is None or now < before else now - before


P = TypeVar("P", bound=EpochParameters)


class EpochScaler(ABC, BaseScaler[P, EpochState]):
    """Scalers that forecast once per pipeline and decide about all of its functions in the same epoch."""

    fleets: ClassVar[type[FunctionObservation]] = FunctionObservation

    @abstractmethod
    def check(self, observation: FunctionObservation, epoch: Epoch, /) -> dict[str, Term]:
        """The terms of the decision that hold for the whole pipeline. Raises CannotDecide if one is missing."""

    @abstractmethod
    def decide_function(
        self, function: FunctionStatus, needed: int, observation: FunctionObservation, epoch: Epoch, /
    ) -> tuple[int, dict[str, Term]]:
        """Replicas of one function that needs c' of them, and its own terms. Raises CannotDecide to hold."""

    def decide(self, observation: FunctionObservation, state: EpochState) -> tuple[Decision, EpochState]:
        """Close the epoch, forecast, and decide about every function of the pipeline."""
        p, following = self.parameters, opened(observation, state)
        try:
            epoch, following = close_epoch(observation, state, p)
            pipeline = self.check(observation, epoch)
            if not observation.functions:
                raise CannotDecide("no function is known that could be scaled")
        except CannotDecide as reason:
            return hold(observation.fleet, str(reason)), following
        decisions: dict[str, Decision] = {}
        for function in observation.functions:
            why: dict[str, Term] = {}
            average = following.functions[function.fleet].avg_process_time_s
            try:
                if average is None and epoch.forecast_per_s > 0:
                    check_known(function, "busy_s", "completed")
                    raise CannotDecide("avgProcessTime is unknown: no request has finished yet")
                # c'(0) is 1 for any processing time.
                needed = replicas_needed(epoch.forecast_per_s, average or 0.0, p.rho)
                why = {
                    "lambda_per_s": epoch.arrival_rate_per_s,
                    "S_per_s": epoch.level_per_s,
                    "tr_per_s": epoch.trend_per_s,
                    "S_plus_tr_per_s": epoch.level_per_s + epoch.trend_per_s,
                    "lambda_pred_per_s": epoch.forecast_per_s,
                    **pipeline,
                    "mu_per_s": epoch.forecast_per_s / p.rho,
                    **({} if average is None else {"avgProcessTime_s": average}),
                    "c": function.replicas.current,
                    "c_new": needed,
                }
                target, own = self.decide_function(function, needed, observation, epoch)
                decisions[function.fleet] = resize(function, target, why | own)
            except CannotDecide as reason:
                decisions[function.fleet] = hold(function.fleet, str(reason), **why)
        return merged(decisions), following
