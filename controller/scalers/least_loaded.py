"""Least-Loaded packing at f_up each interval, without the second bin size: what hysteresis adds to Algorithm 1.

Packing: Ajiro and Tanaka 2007 as the bin-pack paper uses it (CLOSER 2024). Its order, ranking and mode can be set, to
study the readings B1 to B3.
"""

from dataclasses import dataclass
from typing import ClassVar

from controller.scalers.binpack import Flag, Scaling, carry_out, loads, violating_consumers
from controller.scalers.packing import Bin, Mode, Order, Rank, bin_size, least_loaded, pack
from controller.scalers.parameters import require_not_negative, require_positive, require_replicas, require_share
from controller.scalers.stream import CannotDecide, RateScaler, RateState, Tick, read
from penstock.contracts import Decision, StreamObservation, Term, hold


@dataclass(frozen=True)
class LeastLoadedParameters:
    """One bin size only. ``order`` sorts partitions, ``rank`` sorts bins, ``mode`` says what happens when one is full.

    Anything but rate, rate and restart runs the readable packing, which is slow beyond a few hundred partitions.
    """

    service_rate_per_s: float = 200.0
    slo_s: float = 0.5
    f_up: float = 0.9
    order: Order = "rate"
    rank: Rank = "rate"
    mode: Mode = "restart"
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
        require_share(f_up=self.f_up)
        require_replicas(self.max_replicas)
        if self.mode == "open" and self.max_replicas is not None:
            raise ValueError(
                f"max_replicas={self.max_replicas}: mode open packs without a limit; leave one of them out"
            )


class LeastLoaded(RateScaler[LeastLoadedParameters]):
    """As many replicas as the packing has bins, in both directions; a violated assignment is packed anew."""

    name: ClassVar[str] = "least-loaded"
    paper: ClassVar[str] = "Ajiro, Tanaka 2007, as used by Ezzeddine, Baude, Huet, CLOSER 2024"
    Parameters: ClassVar[type[LeastLoadedParameters]] = LeastLoadedParameters

    def decide(self, observation: StreamObservation, state: RateState) -> tuple[Decision, RateState]:
        """Pack at f_up and follow the packing."""
        p = self.parameters
        seen = RateState(state.offsets.updated(observation, p.decision_interval_s), state.skipped)
        try:
            tick = read(
                observation,
                state.offsets,
                interval_s=p.decision_interval_s,
                hold_s=p.hold_s,
                max_replicas=p.max_replicas,
            )
        except CannotDecide as reason:
            return hold(observation.fleet, str(reason)), seen
        up = bin_size(p.service_rate_per_s, p.slo_s, p.f_up)
        return carry_out(tick, self._scaling(tick, up), seen, {**loads(tick), "bin_up": list(up)})

    def _scaling(self, tick: Tick, up: Bin) -> Scaling:
        p = self.parameters
        if (p.order, p.rank, p.mode) == ("rate", "rate", "restart"):
            packing = pack(tick.load, up, most=tick.most)
            assert packing is not None
        else:
            most = None if p.mode == "open" else tick.most
            packing = least_loaded(tick.load, up, most=most, order=p.order, rank=p.rank, mode=p.mode)
        why: dict[str, Term] = {"replicas": tick.replicas, "LL_up": packing.bins, "LL_up_groups": list(packing.groups)}
        if packing.violates:
            why["capped"] = f"{tick.most} replicas are not enough"
        if packing.bins != tick.replicas:
            flag: Flag = "UP" if packing.bins > tick.replicas else "DOWN"
            return Scaling(flag, packing.bins, packing.groups, why | {"flag": flag})
        violating = violating_consumers(tick.load, tick.current, up)
        why["violating"] = [[index, lag, rate] for index, lag, rate in violating]
        if violating:
            return Scaling("REASS", tick.replicas, packing.groups, why | {"flag": "REASS"})
        return Scaling(None, tick.replicas, tick.current, why | {"flag": None})
