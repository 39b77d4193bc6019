"""What a scaler of a consumer group believes of its replicas: the configured values, until enough is measured.

Medians of the last measurements, so that a single slow start or a stalled replica moves nothing. No clock, no I/O.
"""

from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

import msgspec

from penstock.contracts import StreamObservation

RATES: Final = 15
"""Service rates that the median is of."""
LEAST_RATES: Final = 5
"""With fewer of them, the configured rate counts."""
LEAST_EVENTS: Final = 20
"""Finished events between two observations from which a service rate is computed."""
LEAST_TIMES: Final = 3
"""With fewer measured times, the configured one counts as one of them."""


class Believed(NamedTuple):
    """The values to decide with. ``measured``: how many measurements each is of, in this order; 0: configured."""

    service_rate_per_s: float
    start_up_s: float
    rebalance_time_s: float
    delivery_s: float = 0.0
    measured: tuple[int, int, int] = (0, 0, 0)


class Beliefs(msgspec.Struct, frozen=True):
    """``finished`` and ``busy_s``: the last counts. ``rates_per_s``: events per second of busy time between two counts.
    ``start_ups_s``, ``rebalances_s``, ``delivery_s``: as last observed.
    """

    finished: int | None = None
    busy_s: float | None = None
    rates_per_s: tuple[float, ...] = ()
    start_ups_s: tuple[float, ...] = ()
    rebalances_s: tuple[float, ...] = ()
    delivery_s: float = 0.0

    def updated(self, observed: StreamObservation) -> "Beliefs":
        """With one more observation; what it does not know stays as it was."""
        finished, busy_s, rates_per_s = observed.finished, observed.busy_s, self.rates_per_s
        if finished is None or busy_s is None:
            finished, busy_s = self.finished, self.busy_s
        elif self.finished is not None and self.busy_s is not None:
            events, took_s = finished - self.finished, busy_s - self.busy_s
            if 0 <= events < LEAST_EVENTS and took_s >= 0:
                finished, busy_s = self.finished, self.busy_s  # together with the next ones
            elif events > 0 and took_s > 0:
                rates_per_s = (*rates_per_s, events / took_s)[-RATES:]
        return Beliefs(
            finished,
            busy_s,
            rates_per_s,
            observed.start_ups_s or self.start_ups_s,
            observed.rebalances_s or self.rebalances_s,
            self.delivery_s if observed.delivery_s is None else observed.delivery_s,
        )

    def believed(self, configured: Believed) -> Believed:
        """The values to decide with."""
        rates = self.rates_per_s if len(self.rates_per_s) >= LEAST_RATES else ()
        return Believed(
            median(rates) if rates else configured.service_rate_per_s,
            typical(configured.start_up_s, self.start_ups_s),
            typical(configured.rebalance_time_s, self.rebalances_s),
            self.delivery_s,
            (len(rates), len(self.start_ups_s), len(self.rebalances_s)),
        )


def typical(configured: float, measured: Sequence[float]) -> float:
    """The median of the measured values; among few, the configured one counts as one."""
    return median(measured if len(measured) >= LEAST_TIMES else (configured, *measured))
