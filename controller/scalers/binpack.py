"""Algorithm 1 of the bin-pack autoscaler: replicas and assignment from Least-Loaded packing at two bin sizes.

Ezzeddine, Baude and Huet, "Tail-Latency Aware and Resource-Efficient Bin Pack Autoscaling for Distributed Event
Queues", CLOSER 2024, section 4; readings B1 to B18.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from controller.scalers.packing import TOLERANCE, Bin, Load, bin_size, pack
from controller.scalers.parameters import (
    require_not_negative,
    require_positive,
    require_replicas,
    require_thresholds,
)
from controller.scalers.stream import (
    CannotDecide,
    EndOffsets,
    RateScaler,
    RateState,
    Tick,
    in_partitions,
    read,
    reassign,
    resize,
)
from penstock.contracts import Decision, Groups, StreamObservation, Term, hold

Flag = Literal["UP", "DOWN", "REASS"]


class Scaling(NamedTuple):
    """What an algorithm wants: its flag (None: nothing), |G| and the groups, and the arithmetic on the way there."""

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
    why: dict[str, Term] = {"replicas": replicas}  # line 1
    needed = pack(load, up, most=most)  # line 2
    assert needed is not None
    why |= {"LL_up": needed.bins, "LL_up_groups": list(needed.groups)}
    if needed.violates:
        why["capped"] = f"{most} replicas are not enough"
    if needed.bins > replicas:  # line 3
        return Scaling("UP", needed.bins, needed.groups, why | {"flag": "UP"})  # line 4
    reassigned = needed  # line 6
    enough = pack(load, down, most=most, fewer_than=replicas)  # line 7
    why |= (
        {"LL_down": f"≥ {replicas}"}
        if enough is None
        else {"LL_down": enough.bins, "LL_down_groups": list(enough.groups)}
    )
    if enough is not None and enough.bins < replicas:  # line 8
        return Scaling("DOWN", enough.bins, enough.groups, why | {"flag": "DOWN"})  # line 9
    violating = violating_consumers(load, current, up)
    why["violating"] = [[index, lag, rate] for index, lag, rate in violating]
    if violating:  # line 11
        return Scaling("REASS", replicas, reassigned.groups, why | {"flag": "REASS"})  # line 12
    return Scaling(None, replicas, current, why | {"flag": None})


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


def carry_out(tick: Tick, scaling: Scaling, state: RateState, before: dict[str, Term]) -> tuple[Decision, RateState]:
    """The decision for what an algorithm wants. ``before`` is the arithmetic that led up to it."""
    why = before | {
        name: list(in_partitions(tuple(value), tick.partitions))
        if name.endswith("_groups") and isinstance(value, list)
        else value
        for name, value in scaling.why.items()
    }
    if scaling.flag is None:
        return Decision(action="none", why={tick.fleet: {**why, "action": "none"}}), state
    if scaling.flag != "REASS":
        return resize(tick, scaling.replicas, scaling.groups, why), state
    decision = reassign(tick, scaling.groups, why)
    skipped = state.skipped + (decision.action == "none")
    return decision, RateState(state.offsets, skipped)


def loads(tick: Tick) -> dict[str, Term]:
    """The terms every explanation begins with: lag and rate per partition and who holds what."""
    return {
        "partitions": list(tick.partitions),
        "lag": list(tick.load.lags),
        "rate_per_s": list(tick.load.rates_per_s),
        "current": list(in_partitions(tick.current, tick.partitions)),
        "current_from": tick.assignment,
    }


def sizes(up: Bin, down: Bin) -> dict[str, Term]:
    """The bins at f_up and f_down as (lag, rate)."""
    return {"bin_up": list(up), "bin_down": list(down)}


@dataclass(frozen=True)
class BinpackParameters:
    """Constants of the paper's experiments. ``hold_s``: strictly more must pass after a scale-up or -down (B13); the
    authors' controller has 10 s, the printed algorithm none. ``max_replicas`` None: as many as partitions (B16).
    """

    service_rate_per_s: float = 200.0
    slo_s: float = 0.5
    f_up: float = 0.9
    f_down: float = 0.4
    hold_s: float = 0.0
    decision_interval_s: float = 1.0
    max_replicas: int | None = None

    def __post_init__(self) -> None:
        require_positive(
            service_rate_per_s=self.service_rate_per_s,
            slo_s=self.slo_s,
            decision_interval_s=self.decision_interval_s,
        )
        require_not_negative(hold_s=self.hold_s)
        require_thresholds(self.f_up, self.f_down)
        require_replicas(self.max_replicas)

    def bins(self) -> tuple[Bin, Bin]:
        """The bins at f_up and at f_down."""
        return (
            bin_size(self.service_rate_per_s, self.slo_s, self.f_up),
            bin_size(self.service_rate_per_s, self.slo_s, self.f_down),
        )


class Binpack(RateScaler[BinpackParameters]):
    """Algorithm 1, scaleEventConsumer."""

    name: ClassVar[str] = "binpack"
    paper: ClassVar[str] = "Ezzeddine, Baude, Huet, CLOSER 2024, Algorithm 1"
    Parameters: ClassVar[type[BinpackParameters]] = BinpackParameters

    def decide(self, observation: StreamObservation, state: RateState) -> tuple[Decision, RateState]:
        """Scale up, down, reassign or leave alone, by Algorithm 1."""
        p = self.parameters
        seen = RateState(state.offsets.updated(observation, p.decision_interval_s), state.skipped)
        try:
            tick = read_for(p, observation, state.offsets)
        except CannotDecide as reason:
            return hold(observation.fleet, str(reason)), seen
        up, down = p.bins()
        scaling = scale_event_consumer(tick.load, tick.current, tick.replicas, up, down, tick.most)
        return carry_out(tick, scaling, seen, {**loads(tick), **sizes(up, down)})


def read_for(parameters: BinpackParameters, observation: StreamObservation, last: EndOffsets) -> Tick:
    """The start of a decision under these parameters."""
    return read(
        observation,
        last,
        interval_s=parameters.decision_interval_s,
        hold_s=parameters.hold_s,
        max_replicas=parameters.max_replicas,
    )
