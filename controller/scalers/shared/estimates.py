"""The load of a consumer group, learned from its arrivals: level and trend with their errors, jumps, the split over
partitions, and the shape of an interval.

All times are in decision intervals; docs/newsvendor.md explains what they are for.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import sqrt
from operator import add
from typing import Final

import msgspec

from controller.scalers.shared.jumps import Jumps, is_shift
from controller.scalers.shared.newsvendor import clip
from penstock.contracts import ARRIVAL_SLOTS

STEADY: Final = (0.35, 0.1)
QUICK: Final = (0.7, 0.5)
"""Gains of level and trend: for noisy loads, and for smooth ones, of which the trend is followed at once."""
QUICKER: Final = 0.5
"""The quick forecast is used where its variance over a start-up is at most this part of that of the steady one."""
VARIANCE_GAIN: Final = 0.1
AHEAD_VARIANCE_GAIN: Final = 0.05
SHARE_GAIN: Final = 0.03
SLOT_GAIN: Final = 0.1
SETTLED: Final = 5
"""Intervals at the start in which no error is a new level: the first level is still being learned."""
BEYOND: Final = 0.1
"""A load that exceeds forecast and peak by this part could not be foreseen."""
SETTLING: Final = 2
"""Intervals in which the events of such a load, or of a rebalance, are found to be late."""


class Smoothing(msgspec.Struct, frozen=True):
    """``level``, ``trend``, ``variance``: Holt's smoothing of the arrivals per interval, and of its squared errors.
    ``forecasts``: made in the last intervals, each for the time at which a replica requested then would serve;
    ``ahead_variance``: of their errors.
    """

    level: float = 0.0
    trend: float = 0.0
    variance: float = 1.0
    ahead_variance: float = 0.0
    forecasts: tuple[float, ...] = ()

    def forecast(self, ticks: int) -> float:
        """Events of the interval that begins ``ticks`` intervals from now."""
        return max(0.0, self.level + self.trend * (ticks + 1))

    def due(self, ahead: int) -> float | None:
        """The forecast for the interval that has ended; None if there was none."""
        kept = self.forecasts[-ahead:]
        return kept[0] if len(kept) == ahead else None

    def updated(
        self, arrived: float, ticks: int, ahead: int, gains: tuple[float, float], *, error_counts: bool
    ) -> "Smoothing":
        """With the arrivals of the interval after ``ticks`` others. ``error_counts``: the error of the forecast that
        was due says how large the next ones will be.
        """
        level, trend, variance = self._followed(arrived, ticks, gains)
        ahead_variance = self.ahead_variance
        if error_counts and (due := self.due(ahead)) is not None:
            # A constant load has no error for long: its first one is not the usual one.
            step = AHEAD_VARIANCE_GAIN if ahead_variance or ticks > ahead + SETTLED else 1.0
            ahead_variance += step * ((arrived - due) ** 2 - ahead_variance)
        made = Smoothing(level, trend, variance, ahead_variance)
        return msgspec.structs.replace(made, forecasts=(*self.forecasts, made.forecast(ahead - 1))[-ahead:])

    def _followed(self, arrived: float, ticks: int, gains: tuple[float, float]) -> tuple[float, float, float]:
        """(level, trend, variance) with these arrivals; a jump is a new level."""
        if not ticks:
            return arrived, 0.0, max(arrived, 1.0)
        before = max(0.0, self.level + self.trend)
        error = arrived - before
        if is_shift(error, self.variance, before) and ticks > SETTLED:
            return arrived, 0.0, max(self.variance, arrived)
        of_level, of_trend = gains
        variance = self.variance + VARIANCE_GAIN * (error**2 - self.variance)
        return max(0.0, before + of_level * error), self.trend + of_trend * of_level * error, variance


class Estimates(msgspec.Struct, frozen=True):
    """Everything that is learned, in events and intervals.

    ``steady``, ``quick``: forecasts with small and with large gains. ``jumps``: of the load, with its peak. ``peaks``:
    at the time of each forecast. ``surprised_until``: late events up to this tick are of a load that was beyond
    forecast and peak when a replica had to be requested for it. ``shares``: of the arrivals, by partition.
    ``profile``: of the arrivals, by slot of the interval.
    """

    ticks: int = 0
    steady: Smoothing = Smoothing()
    quick: Smoothing = Smoothing()
    jumps: Jumps = Jumps()
    peaks: tuple[float, ...] = ()
    surprised_until: int = 0
    shares: tuple[float, ...] = ()
    profile: tuple[float, ...] = (1 / ARRIVAL_SLOTS,) * ARRIVAL_SLOTS

    @property
    def better(self) -> Smoothing:
        """The forecast with the smaller errors; of the next interval alone, the steady one."""
        steady, quick = self.steady, self.quick
        far = len(steady.forecasts) > 1
        return quick if far and quick.ahead_variance < QUICKER * steady.ahead_variance else steady

    def forecast(self, ticks: int) -> float:
        """Events of the interval that begins ``ticks`` intervals from now."""
        return self.better.forecast(ticks)

    @property
    def variance(self) -> float:
        """Of the errors of forecasts for the next interval."""
        return self.better.variance

    @property
    def ahead_variance(self) -> float:
        """Of the errors of forecasts for the time at which a replica requested now would serve."""
        return self.better.ahead_variance

    def burstiness(self) -> float:
        """β: 0 for smooth arrivals, 1 for all of them in one instant of the interval."""
        return _burstiness(self.profile)

    def since_burst(self) -> float:
        """Time from the last burst to now."""
        return 1 - (self.profile.index(max(self.profile)) + 0.5) / ARRIVAL_SLOTS

    def announced(self, peak: float) -> "Estimates":
        """With a load that may come at any time; 0 for none."""
        if peak == self.jumps.announced:
            return self
        return msgspec.structs.replace(self, jumps=msgspec.structs.replace(self.jumps, announced=peak))

    def after_gap(self) -> "Estimates":
        """Without the forecasts that were made before a gap in the readings: their errors say nothing about jumps."""
        steady, quick = (msgspec.structs.replace(each, forecasts=()) for each in (self.steady, self.quick))
        return msgspec.structs.replace(self, steady=steady, quick=quick, peaks=(), surprised_until=0)

    def updated(self, slots: Sequence[Sequence[int]], ahead: int, *, in_time: bool = False) -> "Estimates":
        """With the arrivals of one more interval by partition and slot. ``ahead``: intervals until a replica serves.
        ``in_time``: a burst can still be answered when it is seen, so that the error of a jump says nothing about
        the next ones.
        """
        by_partition = [sum(each) for each in slots]
        arrived, ticks = sum(by_partition), self.ticks + 1
        surprised_until, missed_by = max(self.surprised_until, ahead), None
        if (due := self.steady.due(ahead)) is not None:
            missed_by, known = arrived - due, max(due, self.peaks[-ahead])
            if arrived > known + max(BEYOND * known, 4 * sqrt(max(known, 1.0))):
                surprised_until = ticks + SETTLING
        jumps = self.jumps.updated(float(arrived), missed_by, ticks, ahead)
        counts = not (in_time and ticks <= jumps.calm_until)
        steady, quick = (
            each.updated(float(arrived), self.ticks, ahead, gains, error_counts=counts)
            for each, gains in ((self.steady, STEADY), (self.quick, QUICK))
        )
        shares = self.shares if len(self.shares) == len(slots) else (1 / len(slots),) * len(slots)
        profile = self.profile
        if arrived:
            early = min(0.5, 1 / ticks)
            step = max(SHARE_GAIN, early) * min(1.0, arrived / 50)
            shares = tuple(
                share + step * (own / arrived - share) for share, own in zip(shares, by_partition, strict=True)
            )
            step = max(SLOT_GAIN, early) * min(1.0, arrived / 20)
            of_slot = [sum(each) / arrived for each in zip(*slots, strict=True)]
            profile = tuple(share + step * (own - share) for share, own in zip(profile, of_slot, strict=True))
        return Estimates(
            ticks=ticks,
            steady=steady,
            quick=quick,
            jumps=jumps,
            peaks=(*self.peaks, max(jumps.peak, jumps.announced))[-ahead:],
            surprised_until=surprised_until,
            shares=shares,
            profile=profile,
        )


@lru_cache(maxsize=1024)
def _burstiness(s: tuple[float, ...]) -> float:
    """Asked for several times in a decision."""
    most = max(map(add, s, (*s[1:], s[0])))
    return clip((most - 0.2) / 0.6, 0.0, 1.0)
