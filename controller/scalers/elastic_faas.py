"""Elastic-FaaS as intended: more functions when containers would come too late, fewer when fewer suffice.

Kathirvel and Parasuraman, "Elastic-FaaS", IJITEE 8(10), 2019, Algorithm 1 with the readings F1 to F13.
"""

from typing import ClassVar

from controller.queueing.rounding import rounded_up
from controller.scalers.shared.elastic_faas_formulas import FunctionScaler, Monitored, exceeds_both, iterations


def monitor(
    q: float, np: int, *, spc: float, c: float, mnsp: int, latency: float, provision: float, t_iter: float
) -> Monitored:
    """Algorithm 1, Monitor. ``latency`` L, ``provision`` PPT and ``t_iter`` are in one unit of time."""
    nsp = q / spc  # lines 2 to 7: (5), in which the current number cancels (F1, F2, F4, F5)
    n = iterations(nsp, c)  # line 8: the inverse of (2) (F3)
    triggered = exceeds_both(n * t_iter, latency, provision)  # lines 9 and 10: n as a time (F8)
    want = max(1, rounded_up(nsp / mnsp))  # line 11: (7) by the containers of one function (F6, F7)
    expected = want if triggered or want < np else np  # L and PPT hold back scale-out only (F9)
    return Monitored(nsp, n, triggered, max(1, expected))


class ElasticFaas(FunctionScaler):
    """Algorithm 1, intent."""

    name: ClassVar[str] = "elastic-faas"
    paper: ClassVar[str] = "Kathirvel, Parasuraman, Elastic-FaaS, IJITEE 8(10) 2019, Algorithm 1 (intent)"

    run_monitor = staticmethod(monitor)
