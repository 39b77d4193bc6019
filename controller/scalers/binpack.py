"""Algorithm 1 of the bin-pack autoscaler: replicas and assignment from Least-Loaded packing at two bin sizes.

Ezzeddine, Baude and Huet, "Tail-Latency Aware and Resource-Efficient Bin Pack Autoscaling for Distributed Event
Queues", CLOSER 2024, section 4; readings B1 to B18.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from controller.queueing.rounding import TOLERANCE
from controller.scalers.shared.pack import pack
from controller.scalers.shared.packing import Bin, Load, Packing, bin_size
from controller.scalers.shared.parameters import Candidates, Positive
from controller.scalers.shared.stream_scaler import RateState, StreamParameters, StreamScaler, StreamTick, in_partitions
from penstock.contracts import Decision, Groups, Term

Flag = Literal["UP", "DOWN", "REASS"]


class BinpackState(RateState, frozen=True):
    """``skipped``: reassignments to the grouping in force, left out (B18)."""

    skipped: int = 0


class Scaling(NamedTuple):
    """The result of an algorithm: its flag (None: no action), |G|, the groups of positions, and the arithmetic."""

    flag: Flag | None
    replicas: int
    groups: Groups
    why: dict[str, Term]


def scale_event_consumer(
    load: Load, current: Groups, replicas: int, up: Bin, down: Bin, most: int | None = None
) -> Scaling:
    """Algorithm 1 as printed. ``up`` and ``down`` are the bins at f_up and f_down, ``most`` limits them (B16).

    REASS may use fewer groups than there are replicas (B9): the spare ones get nothing.
    """
    needed = pack(load, up, most=most)  # line 2
    assert needed is not None
    why: dict[str, Term] = {"replicas": replicas}  # line 1
    why |= packing_terms("LL_up", needed, most)
    if needed.bins > replicas:  # line 3
        return Scaling("UP", needed.bins, needed.groups, why | {"flag": "UP"})  # line 4
    reassigned = needed  # line 6
    enough = pack(load, down, most=most, fewer_than=replicas)  # line 7
    why |= {"LL_down": f"≥ {replicas}"} if enough is None else packing_terms("LL_down", enough)
    if enough is not None and enough.bins < replicas:  # line 8
        return Scaling("DOWN", enough.bins, enough.groups, why | {"flag": "DOWN"})  # line 9
    violating = violating_consumers(load, current, up)
    why["violating"] = [list(each) for each in violating]
    if violating:  # line 11
        return Scaling("REASS", replicas, reassigned.groups, why | {"flag": "REASS"})  # line 12
    return Scaling(None, replicas, current, why | {"flag": None})


def packing_terms(name: str, packing: Packing, most: int | None = None) -> dict[str, Term]:
    """The number of bins and the groups of a packing; with a limit also whether it was too low."""
    why: dict[str, Term] = {name: packing.bins, f"{name}_groups": list(packing.groups)}
    if most and packing.violates:
        why["capped"] = f"{most} replicas are not enough"
    return why


def violating_consumers(load: Load, current: Groups, up: Bin) -> list[tuple[int, float, float]]:
    """The consumers for which assignmentViolatesTheSLA(f_up) is true, as (index, lag, rate): Equation 4 at f_up.

    Strictly above a limit, and on loads as they are: truncation is for packing only (B5, B10, B18).
    """
    lags, rates = load
    violating = []
    for index, group in enumerate(current):
        lag, rate = sum(lags[p] for p in group), sum(rates[p] for p in group)
        if lag > up.lag + TOLERANCE or rate > up.rate_per_s + TOLERANCE:
            violating.append((index, lag, rate))
    return violating


def decision_for(
    tick: StreamTick, scaling: Scaling, state: BinpackState, before: dict[str, Term]
) -> tuple[Decision, BinpackState]:
    """The decision for the result of an algorithm. ``before`` is the arithmetic that led to it."""
    why: dict[str, Term] = {
        "partitions": list(tick.partitions),
        "lag": list(tick.load.lags),
        "rate_per_s": list(tick.load.rates_per_s),
        "current": list(in_partitions(tick.current, tick.partitions)),
        "current_from": tick.assignment,
        **before,
    }
    for name, value in scaling.why.items():
        if name.endswith("_groups") and isinstance(value, list):
            value = list(in_partitions(tuple(value), tick.partitions))
        why[name] = value
    if scaling.flag != "REASS":
        return tick.resized(scaling.replicas, scaling.groups, why), state
    decision = tick.reassigned(scaling.groups, why)
    return decision, BinpackState(state.offsets, state.skipped + (decision.action == "none"))


@dataclass(frozen=True)
class BinpackParameters(StreamParameters):
    """Constants of the paper's experiments: the SLO w, and the shares f_up and f_down of a consumer's capacity."""

    candidates: ClassVar[Mapping[str, Candidates]] = {
        "f_up": Candidates((0.5, 0.7, 0.9)),
        "f_down": Candidates((0.2, 0.4, 0.6)),
        "hold_s": Candidates((0.0, 10.0, 30.0)),
        "decision_interval_s": Candidates((1.0, 5.0)),
    }
    slo_s: Positive = 0.5
    f_up: float = 0.9
    f_down: float = 0.4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.f_down < self.f_up < 1:
            raise ValueError(f"f_up={self.f_up:g}, f_down={self.f_down:g}: expected 0 < f_down < f_up < 1")

    def bins(self) -> tuple[Bin, Bin]:
        """The bins at f_up and at f_down."""
        mu, w = self.service_rate_per_s, self.slo_s
        return bin_size(mu, w, self.f_up), bin_size(mu, w, self.f_down)


class Binpack(StreamScaler[BinpackParameters, BinpackState]):
    """Algorithm 1, scaleEventConsumer."""

    name: ClassVar[str] = "binpack"
    paper: ClassVar[str] = "Ezzeddine, Baude, Huet, CLOSER 2024, Algorithm 1"

    def decide_tick(self, tick: StreamTick, state: BinpackState) -> tuple[Decision, BinpackState]:
        """Scale up, down, reassign or leave alone, by Algorithm 1."""
        up, down = self.parameters.bins()
        scaling = scale_event_consumer(tick.load, tick.current, tick.replicas, up, down, tick.most)
        return decision_for(tick, scaling, state, {"bin_up": list(up), "bin_down": list(down)})
