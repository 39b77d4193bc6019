"""A scaler of consumer groups to start from: gives every replica about the same load, by the partitions it reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, fsum
from typing import ClassVar

from penstock.contracts import Decision, Groups, Term
from penstock.controller.scalers.shared.lpt import groups_of, lpt
from penstock.controller.scalers.shared.parameters import AboveOne, OpenShare, Positive
from penstock.controller.scalers.shared.stream_scaler import RateState, StreamParameters, StreamScaler, StreamTick


@dataclass(frozen=True, kw_only=True)
class EvenLoadParameters(StreamParameters):
    """Replicas are to be busy for a share ``rho`` of the time; a lag is to be gone after ``catch_up_s``.

    Partitions are grouped anew if the heaviest group has ``imbalance`` times the load that it would have then.
    """

    decision_interval_s: Positive = 2.0
    rho: OpenShare = 0.7
    catch_up_s: Positive = 5.0
    imbalance: AboveOne = 1.2


def heaviest(loads: Sequence[float], groups: Groups) -> float:
    """Load of the heaviest group."""
    return max((fsum(loads[each] for each in group) for group in groups), default=0.0)


class EvenLoad(StreamScaler[EvenLoadParameters, RateState]):
    """As many replicas as the total load needs, with groups of partitions of about the same load."""

    name: ClassVar[str] = "even-load"
    paper: ClassVar[str] = "none: the example of docs/your-own-scaler.md; groups: Graham 1969"

    def decide_tick(self, tick: StreamTick, state: RateState) -> tuple[Decision, RateState]:
        """Resize if the total asks for it; else regroup if the heaviest group is much too heavy."""
        p = self.parameters
        loads = [rate + lag / p.catch_up_s for rate, lag in zip(tick.load.rates_per_s, tick.load.lags, strict=True)]
        wanted = min(tick.most, max(1, ceil(fsum(loads) / (p.rho * p.service_rate_per_s))))
        groups = groups_of(lpt(loads, wanted), wanted)
        why: dict[str, Term] = {
            "partitions": list(tick.partitions),
            "load_per_s": loads,
            "service_rate_per_s": p.service_rate_per_s,
            "rho": p.rho,
            "replicas": tick.replicas,
            "wanted": wanted,
            "groups": [list(group) for group in groups],
        }
        if wanted != tick.replicas:
            return tick.resized(wanted, groups, why), state
        why["heaviest_now_per_s"] = now = heaviest(loads, tick.current)
        why["heaviest_regrouped_per_s"] = regrouped = heaviest(loads, groups)
        chosen = groups if now > p.imbalance * regrouped else tick.current
        return tick.reassigned(chosen, why), state
