"""Algorithm 1 of Elastic Multi-M/M/s/K with ratios that settle: from P_K averaged over several cycles, and an equal
share for a queue without history.

Kathirvel and Parasuraman, "Elastic Multi-M/M/s/K", 2019, reading Q12. Averages alone do not settle: around full load
P_K changes by more than twenty times the relative change of the rate (s = 10, K = 50; forty times at ρ = 0.8), and a
loop through a moving average of N cycles swings unless that gain is below N. ``damping_p_k`` is therefore added to
every average: with 0.1 the gain is 5 at most, and losses of 1e-9 against 1e-6 steer nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import ClassVar

from controller.scalers.bank_scaler import BankScaler, BankState, MultiqueueParameters
from controller.scalers.parameters import require_not_negative, require_positive
from controller.scalers.queue_bank import Ratios, SubQueue, lambda_ratios


@dataclass(frozen=True, kw_only=True)
class MultiqueueDampedParameters(MultiqueueParameters):
    """Those of the printed algorithm, and the damping. ``settled_scale_in``: a scale-in needs the averages below minPk
    as well, since a queue near full load has cycles in which it loses nothing.
    """

    averaged_cycles: int = 10
    damping_p_k: float = 0.1
    settled_scale_in: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(averaged_cycles=self.averaged_cycles)
        require_not_negative(damping_p_k=self.damping_p_k)


def mean(values: Sequence[float]) -> float:
    """Of at least one value."""
    return fsum(values) / len(values)


def damped_ratios(p_ks: Sequence[Sequence[float]], damping: float) -> list[float]:
    """Share of each queue from the P_K of its last cycles: 1/n without any, the rest by the averages.

    ``damping`` is added to each average.
    """
    n = len(p_ks)
    known = [mean(values) + damping for values in p_ks if values]
    ratios = iter(lambda_ratios(known))
    return [next(ratios) * len(known) / n if values else 1 / n for values in p_ks]


class MultiqueueDamped(BankScaler):
    """Algorithms 1 and 3 with damped ratios, and a scale-in that waits until the losses have settled."""

    name: ClassVar[str] = "multiqueue-damped"
    paper: ClassVar[str] = "Kathirvel, Parasuraman, Elastic Multi-M/M/s/K 2019, Algorithms 1 to 3, damped (reading Q12)"
    Parameters: ClassVar[type[MultiqueueDampedParameters]] = MultiqueueDampedParameters

    def __init__(self, parameters: MultiqueueDampedParameters) -> None:
        self.parameters = parameters

    def remembered(self, queues: Sequence[SubQueue], state: BankState) -> dict[str, tuple[float, ...]]:
        """P_K of the last cycles, of the queues that are there."""
        most = self.parameters.averaged_cycles
        return {q.queue: (*state.history.get(q.queue, ()), q.p_k)[-most:] for q in queues}

    def settled_p_k(self, history: Mapping[str, tuple[float, ...]]) -> float | None:
        """The mean over the queues of their averages."""
        return mean([mean(values) for values in history.values()]) if self.parameters.settled_scale_in else None

    def ratios(self, history: Mapping[str, tuple[float, ...]]) -> Ratios:
        """Ratios from that history."""
        damping = self.parameters.damping_p_k

        def damped(queues: Sequence[SubQueue]) -> list[float]:
            return damped_ratios([history.get(q.queue, ()) for q in queues], damping)

        return damped
