"""Algorithm 1 of Elastic Multi-M/M/s/K with damped ratios: P_K averaged over cycles, equal shares for new queues.

Kathirvel and Parasuraman, "Elastic Multi-M/M/s/K", 2019, reading Q12. Averages alone do not settle: around full load
P_K changes by more than twenty times the relative change of the rate (s = 10, K = 50; forty times at ρ = 0.8), and a
loop through a moving average of N cycles swings unless that gain is below N. ``damping_p_k`` is therefore added to
every average: with 0.1 the gain is 5 at most, and losses of 1e-9 against 1e-6 steer nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import ClassVar

from controller.scalers.shared.multiqueue_algorithms import SubQueue, lambda_ratios
from controller.scalers.shared.parameters import Count, NotNegative
from controller.scalers.shared.queue_scaler import Damping, MultiqueueParameters, QueueScaler, QueueState


@dataclass(frozen=True, kw_only=True)
class MultiqueueDampedParameters(MultiqueueParameters):
    """The printed algorithm's and the damping. ``settled_scale_in``: a scale-in needs the averages below minPk as well,
    since a queue near full load has cycles without any loss.
    """

    averaged_cycles: Count = 10
    damping_p_k: NotNegative = 0.1
    settled_scale_in: bool = True


def mean(values: Sequence[float]) -> float:
    """The mean of at least one value."""
    return fsum(values) / len(values)


def damped_ratios(p_ks: Sequence[Sequence[float]], damping: float) -> list[float]:
    """Share of each queue from the P_K of its last cycles: 1/n without any, the rest by the averages.

    ``damping`` is added to each average.
    """
    n = len(p_ks)
    known = [mean(values) + damping for values in p_ks if values]
    ratios = iter(lambda_ratios(known))
    return [next(ratios) * len(known) / n if values else 1 / n for values in p_ks]


class MultiqueueDamped(QueueScaler[MultiqueueDampedParameters]):
    """Algorithms 1 and 3 with damped ratios, and a scale-in that waits until the losses have settled."""

    name: ClassVar[str] = "multiqueue-damped"
    paper: ClassVar[str] = "Kathirvel, Parasuraman, Elastic Multi-M/M/s/K 2019, Algorithms 1 to 3, damped (reading Q12)"

    def damping(self, queues: Sequence[SubQueue], state: QueueState) -> Damping:
        """By P_K of the last cycles, of the queues that exist."""
        p = self.parameters
        history = {q.queue: (*state.history.get(q.queue, ()), q.p_k)[-p.averaged_cycles :] for q in queues}

        def ratios(queues: Sequence[SubQueue]) -> list[float]:
            return damped_ratios([history.get(q.queue, ()) for q in queues], p.damping_p_k)

        settled = mean([mean(values) for values in history.values()]) if p.settled_scale_in else None
        return Damping(ratios, history, settled)
