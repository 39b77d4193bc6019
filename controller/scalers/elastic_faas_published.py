"""Elastic-FaaS as printed, with the repairs that it needs to run.

Kathirvel and Parasuraman, "Elastic-FaaS", IJITEE 8(10), 2019, Algorithm 1; readings F1, F2, F4, F5, F7, F10. Line 11
divides by the containers of all functions (F6): under a steady load it scales out and in, tick after tick. Under little
load n is small, and it cannot scale in (F9).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from controller.queueing.rounding import rounded_up
from controller.scalers.shared.elastic_faas_formulas import (
    ElasticFaasParameters,
    FunctionScaler,
    Monitored,
    exceeds_both,
    iterations_as_printed,
)
from controller.scalers.shared.parameters import Positive


def monitor_as_printed(
    q: float, np: int, *, spc: float, c: float, mnsp: int, latency: float, provision: float, t_iter: float = 1.0
) -> Monitored:
    """Algorithm 1, Monitor. ``t_iter`` 1 compares the number of iterations with L and PPT, as printed (F8)."""
    nsp = q / spc  # lines 2 to 5 and 7: (5) (F1, F2, F4, F5)
    n = iterations_as_printed(nsp, c)  # line 8
    triggered = exceeds_both(n * t_iter, latency, provision)  # lines 9 and 10
    tmnsp = max(1, np) * mnsp  # line 6
    expected = max(1, rounded_up(nsp / tmnsp)) if triggered else np  # line 11
    return Monitored(nsp, n, triggered, max(1, expected))


@dataclass(frozen=True, kw_only=True)
class ElasticFaasPublishedParameters(ElasticFaasParameters):
    """As those of the intent, but an iteration is one unit of time: n itself is compared with L and PPT."""

    iteration_s: Positive = 1.0


class ElasticFaasPublished(FunctionScaler):
    """Algorithm 1 as printed."""

    name: ClassVar[str] = "elastic-faas-published"
    paper: ClassVar[str] = "Kathirvel, Parasuraman, Elastic-FaaS, IJITEE 8(10) 2019, Algorithm 1 (as printed)"
    Parameters: ClassVar[type[Any]] = ElasticFaasPublishedParameters

    run_monitor = staticmethod(monitor_as_printed)
