"""Least-Loaded packing at f_up only: Algorithm 1 without its hysteresis.

Packing: Ajiro and Tanaka 2007 as the bin-pack paper uses it (CLOSER 2024). Order, ranking and mode are parameters, to
study the readings B1 to B3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from controller.scalers.binpack import BinpackState, Flag, Scaling, decision_for, packing_terms, violating_consumers
from controller.scalers.shared.pack import pack
from controller.scalers.shared.packing import Mode, Order, Rank, bin_size, least_loaded
from controller.scalers.shared.parameters import Candidates, OpenShare, Positive
from controller.scalers.shared.stream_scaler import StreamParameters, StreamScaler, StreamTick
from penstock.contracts import Decision, Term


@dataclass(frozen=True)
class LeastLoadedParameters(StreamParameters):
    """One bin size only. ``order`` sorts partitions, ``rank`` sorts bins, ``mode`` is the reaction to a full bin.

    Anything but rate, rate and restart runs the readable packing, which is slow beyond a few hundred partitions.
    """

    candidates: ClassVar[Mapping[str, Candidates]] = {
        "f_up": Candidates((0.3, 0.45, 0.6, 0.75, 0.9)),
        "hold_s": Candidates((0.0, 10.0, 30.0)),
        "decision_interval_s": Candidates((1.0, 5.0)),
    }
    slo_s: Positive = 0.5
    f_up: OpenShare = 0.9
    order: Order = "rate"
    rank: Rank = "rate"
    mode: Mode = "restart"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mode == "open" and self.max_replicas is not None:
            raise ValueError(
                f"max_replicas={self.max_replicas}: mode open packs without a limit; leave one of them out"
            )


class LeastLoaded(StreamScaler[LeastLoadedParameters, BinpackState]):
    """As many replicas as the packing has bins, in both directions; a violated assignment is packed again."""

    name: ClassVar[str] = "least-loaded"
    paper: ClassVar[str] = "Ajiro, Tanaka 2007, as used by Ezzeddine, Baude, Huet, CLOSER 2024"

    def decide_tick(self, tick: StreamTick, state: BinpackState) -> tuple[Decision, BinpackState]:
        """Pack at f_up and follow the packing."""
        p = self.parameters
        up = bin_size(p.service_rate_per_s, p.slo_s, p.f_up)
        if (p.order, p.rank, p.mode) == ("rate", "rate", "restart"):
            packing = pack(tick.load, up, most=tick.most)
            assert packing is not None
        else:
            most = None if p.mode == "open" else tick.most
            packing = least_loaded(tick.load, up, most=most, order=p.order, rank=p.rank, mode=p.mode)
        why: dict[str, Term] = {"replicas": tick.replicas, **packing_terms("LL_up", packing, tick.most)}
        flag: Flag | None = "UP" if packing.bins > tick.replicas else "DOWN" if packing.bins < tick.replicas else None
        if flag is None:
            violating = violating_consumers(tick.load, tick.current, up)
            why["violating"] = [list(each) for each in violating]
            flag = "REASS" if violating else None
        groups = packing.groups if flag else tick.current
        scaling = Scaling(flag, packing.bins, groups, why | {"flag": flag})
        return decision_for(tick, scaling, state, {"bin_up": list(up)})
