"""BinScale, the successor that the bin-pack authors published as code: Algorithm 2 with other constants.

Read from the public sources of that controller, 2026: first-fit decreasing by arrival rate, into the bin with most
remaining rate that has room in both dimensions; if an item fits nowhere, all are packed again into one bin more. That
is Least-Loaded, the packing of ``binpack``. Different are f_up and f_down, the decision interval of half a second, and
the lag added during a rebalance: each partition gets an equal share of the total instead of its own rate.

The published controller truncates hot partitions in place, so that its second packing gets truncated loads; here every
packing begins with the measured loads.
"""

from dataclasses import dataclass
from math import fsum
from typing import ClassVar

from controller.scalers.binpack_tail import BinpackTail, BinpackTailParameters
from controller.scalers.shared.packing import Load
from controller.scalers.shared.parameters import Positive


def gathered_lag(load: Load, rebalance_time_s: float) -> list[float]:
    """The tail pass: lag_p + λ_total · t_r / P, the same addition for every partition."""
    share = fsum(load.rates_per_s) * rebalance_time_s / len(load.rates_per_s)
    return [lag + share for lag in load.lags]


@dataclass(frozen=True)
class BinscaleParameters(BinpackTailParameters):
    """Constants of the published controller; ``slo_s`` is its wsla, ``rebalance_time_s`` its rebalance time."""

    f_up: float = 0.8
    f_down: float = 0.3
    decision_interval_s: Positive = 0.5


class Binscale(BinpackTail):
    """Decide on the lag as it is, pack the lag after the rebalance."""

    name: ClassVar[str] = "binscale"
    paper: ClassVar[str] = "BinScale, after Ezzeddine, Baude, Huet (published code)"
    Parameters: ClassVar[type[BinscaleParameters]] = BinscaleParameters

    def total_lags(self, load: Load) -> list[float]:
        """The lag of each partition after the rebalance, with equal shares of what arrives."""
        return gathered_lag(load, self.parameters.rebalance_time_s)
