"""Elastic-FaaS as printed, repaired only as far as it has to be to run at all.

Kathirvel and Parasuraman, "Elastic-FaaS", IJITEE 8(10), 2019, Algorithm 1; readings F1, F2, F4, F5, F7, F10. Line 11
divides by the containers of all functions (F6): the more functions there are the fewer it asks for, so that under a
steady load it goes out and in, tick after tick. And it cannot scale in under little load (F9), since n is small then.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from controller.scalers.elastic_faas_formulas import (
    ElasticFaasParameters,
    FunctionScaler,
    Monitored,
    exceeds_both,
    iterations_as_printed,
    rounded_up,
)


def monitor_as_printed(
    q: float, np: int, *, spc: float, c: float, mnsp: int, latency: float, provision: float, t_iter: float = 1.0
) -> Monitored:
    """Algorithm 1, Monitor. ``t_iter`` 1 compares the number of iterations with L and PPT, as printed (F8)."""
    nsp = q / spc  # lines 2 to 5 and 7: (5) (F1, F2, F4, F5)
    n = iterations_as_printed(nsp, c)  # line 8
    triggered = exceeds_both(n * t_iter, latency, provision)  # lines 9 and 10
    tmnsp = max(1, np) * mnsp  # line 6
    expected = rounded_up(nsp / tmnsp) if triggered else np  # line 11
    return Monitored(nsp, n, triggered, max(1, expected))


@dataclass(frozen=True, kw_only=True)
class ElasticFaasPublishedParameters(ElasticFaasParameters):
    """As those of the intent, but an iteration is one unit of time: n itself is compared with L and PPT."""

    iteration_s: float = 1.0


class ElasticFaasPublished(FunctionScaler):
    """Algorithm 1 as printed."""

    name: ClassVar[str] = "elastic-faas-published"
    paper: ClassVar[str] = "Kathirvel, Parasuraman, Elastic-FaaS, IJITEE 8(10) 2019, Algorithm 1 (as printed)"
    Parameters: ClassVar[type[Any]] = ElasticFaasPublishedParameters

    def monitor(self, q: float, np: int, spc: float) -> Monitored:
        """As above, with these parameters."""
        p = self.parameters
        return monitor_as_printed(
            q,
            np,
            spc=spc,
            c=p.containers_per_iteration,
            mnsp=p.max_containers,
            latency=p.latency_s,
            provision=p.provision_s,
            t_iter=p.iteration_s,
        )
