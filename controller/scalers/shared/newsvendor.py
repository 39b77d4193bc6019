"""The arithmetic that newsvendors share: the price of a late event, the mean of what exceeds a capacity, the forecast.

The loss function is that of Arrow, Harris and Marschak, "Optimal Inventory Policy", Econometrica 19 (1951);
docs/newsvendor.md explains the principle.
"""

from functools import lru_cache
from math import erfc, exp, log, pi, sqrt
from typing import Final

import msgspec

from controller.scalers.shared.base import TOLERANCE_S

SETTLING_TICKS: Final = 50
"""Ticks in which estimates take larger steps, 1/t."""
FIRST_PRICE: Final = 0.0025
PRICE_GAIN: Final = 0.012
SETTLED_TICKS: Final = 600
"""Ticks after which the steps of a cumulative price fall with the square root of time, for as long as its contract is
kept with some late events to spare: that is about a longer time than what was late just now.
"""
LEAST_GAIN: Final = 0.25
"""Of the gain at the beginning: a price can follow what changes after hours."""
LEAST_PRICE: Final = 0.03
LARGEST_PRICE: Final = 5.0
AIM: Final = 0.9
"""Of the late events that the contract allows, the part that the price aims at."""
LEVEL_GAIN: Final = 0.1
TREND_GAIN: Final = 0.1
DISPERSION_GAIN: Final = 0.05
SPARE_DEVIATIONS: Final = 2.0
"""Late events that are left over in the end, in standard deviations of a count of all that are allowed."""
LEAST_AIM: Final = 0.7
LEFT_OVER_TICKS: Final = 300
"""Late events that are left over of a cumulative contract may come over so many intervals, or with half as many events
as have finished, if those are more.
"""
MOST_RAISED: Final = 100.0
"""Intervals by which late events that come together raise a cumulative price at most: a clump of them says little about
the next ones. For as many intervals as they owe beyond these, the price does not fall.
"""
RAISED_TICKS: Final = 60
"""Intervals after which as many may raise it again."""
OUTAGE_TICKS: Final = 900
"""More late events than a contract allows in so many intervals, and has allowed so far, are an outage, and no clump."""
LEAST_PART: Final = 0.25
"""A cumulative price does not fall below this part of the first one. A small load has no late events at any price. If
its price fell without a limit, too few replicas would be ready when the load rises again.
"""
LEAST_PART_STARTING: Final = 0.5
"""That part where a start-up is long: then late events come before any answer to them. Half as much at
``LONG_START_UP`` intervals.
"""
LONG_START_UP: Final = 3.0
LARGEST_PART: Final = 20.0
"""Times the first price, which a cumulative price does not exceed: of late events that a jump made, a still larger one
repays little more in the same time.
"""
RARITY: Final = 1.3
"""The price at the beginning is the first, divided by this power of the share of late events that is allowed."""
REMOVAL: Final = 0.15
"""Of what a replica or a queue costs until it is of use, what its removal costs: it may be wanted again."""
PATIENCE: Final = 0.2
"""Of the time until a new one is of use, how long fewer have to be the better choice."""
MOST_KEPT: Final = 512
ROUNDING: Final = 0.25
"""Variance of a count that is known, in requests²: services begin one by one."""


class Price(msgspec.Struct, frozen=True):
    """λ, found while the contract is kept or missed. ``value``: replica-intervals per late event; None at the start.

    ``finished``, ``late``: the last counts. ``usual``: finished events per interval, smoothed. ``owed``: steps that
    were too large for one interval, so that late events in a clump raise the price as much as single ones.
    """

    value: float | None = None
    usual: float = 0.0
    readings: int = 0
    owed: float = 0.0
    finished: int | None = None
    late: int | None = None

    def beginning(self, first: float, allowed: float) -> "Price":
        """With a first value, within the limits; ``allowed``: share of late events."""
        return msgspec.structs.replace(self, value=clip(first / allowed**RARITY, LEAST_PRICE, LARGEST_PRICE))

    def updated(self, finished: int | None, late: int | None, slo_share: float, gain: float = PRICE_GAIN) -> "Price":
        """With new counts; unknown ones leave the price as it is. ``gain``: relative change per interval and step."""
        allowed = AIM * (1 - slo_share)
        value = self.value if self.value is not None else first_price(slo_share)
        if finished is None or late is None or self.finished is None or self.late is None:
            return msgspec.structs.replace(self, value=value, finished=finished, late=late)
        done, missed = max(0, finished - self.finished), max(0, late - self.late)
        usual = self.usual + 0.02 * (done - self.usual)
        if self.readings < SETTLING_TICKS:
            usual = max(usual, done)
        excess = self.owed + (missed / allowed - done) / max(1.0, usual)
        step = clip(excess, -1.5, 25.0)
        value = clip(value * exp(gain * step), LEAST_PRICE, LARGEST_PRICE)
        owed = max(0.0, excess - step) if value < LARGEST_PRICE else 0.0
        return Price(value, usual, self.readings + 1, owed, finished, late)


class Clump(msgspec.Struct, frozen=True):
    """Late events that come together, in intervals that have to be in time for them. ``raised``: those that raised a
    price, which fade; ``held``: those for which it does not fall.
    """

    raised: float = 0.0
    held: float = 0.0

    def updated(self, owed: float, elapsed: float, *, limited: bool) -> tuple[float, "Clump"]:
        """(Intervals that the price is changed by, the new state), when late events owe so many more intervals.
        ``elapsed``: intervals that were in time. Without a limit, all of them raise the price.
        """
        if not limited:
            return self.held + owed, Clump()
        raised = max(0.0, self.raised - MOST_RAISED / RAISED_TICKS)
        raises = min(owed, MOST_RAISED - raised)
        held = self.held + owed - raises
        holds = min(held, elapsed)
        return raises + holds, Clump(raised + raises, held - holds)


class CumulativePrice(msgspec.Struct, frozen=True):
    """λ of a contract on all events since the start: what has been late is repaid, however long it takes.

    ``value``: replica-intervals per late event; None at the start. ``usual``: finished events per interval, smoothed.
    ``owed``: events that have to be in time before the price falls. ``finished``, ``late``: the last known counts.
    ``clump``: late events that come together, beyond those that are owed.
    """

    value: float | None = None
    usual: float = 0.0
    readings: int = 0
    owed: float = 0.0
    finished: int = 0
    late: int = 0
    clump: Clump = Clump()

    def updated(
        self,
        finished: int | None,
        late: int | None,
        slo_share: float,
        start_up: float = 0.0,
        *,
        smallest: bool = False,
        together: float = 1.0,
        part: float = 1.0,
        noise: bool = True,
    ) -> "CumulativePrice":
        """With new counts; unknown ones leave the price as it is. ``start_up``: of a replica, in intervals.
        ``smallest``: the fleet has one replica, where no late events say little about the price that a larger load
        needs; the longer a start-up, the slower it falls. ``together``: late events that come together, of which the
        more are left over in the end. ``part``: of the late events that are allowed, those that this price may use; if
        it is all, it may also use what is left over of them so far. ``noise``: late events that come together say
        little about the next ones.
        """
        first = first_price(slo_share)
        value = self.value if self.value is not None else first
        if finished is None or late is None:
            return msgspec.structs.replace(self, value=value)
        done, missed, readings = max(0, finished - self.finished), max(0, late - self.late), self.readings + 1
        usual = self.usual
        if self.readings:  # the first counts are of a time that is not known
            usual += max(1 / SETTLING_TICKS, 1 / self.readings) * (done - usual)
        unit = max(1.0, usual)
        so_far = (1 - slo_share) * finished
        spare = SPARE_DEVIATIONS * sqrt(so_far)
        allowed = part * part_to_use(so_far / together) * (1 - slo_share)
        if part == 1:
            allowed += max(0.0, so_far - spare - late) / max(LEFT_OVER_TICKS * unit, finished / 2)
        limited = noise and self.readings > 1 and late <= max(so_far, (1 - slo_share) * (OUTAGE_TICKS * usual))
        intervals, clump = self.clump.updated(missed / allowed / unit, done / unit, limited=limited)
        owed = self.owed + intervals * unit - done
        step = clip(owed / unit, -1.5, 25.0)
        if smallest and step < 0:
            step *= LONG_START_UP / (start_up + LONG_START_UP)
        largest = min(LARGEST_PRICE, LARGEST_PART * first)
        part_of_first = max(LEAST_PART, LEAST_PART_STARTING * start_up / (start_up + LONG_START_UP))
        least = max(LEAST_PRICE, part_of_first * first)
        kept = late <= so_far - spare
        gain = clip(sqrt(SETTLED_TICKS / readings), LEAST_GAIN, 1.0) if kept else 1.0
        value = clip(value * exp(PRICE_GAIN * gain * step), least, largest)
        if value < largest:
            owed -= step * unit
        return CumulativePrice(value, usual, readings, max(0.0, owed), finished, late, clump)


class Forecast(msgspec.Struct, frozen=True):
    """Arrivals: ``readings`` as (time in s, count), and Holt's level and trend of their rate.

    ``dispersion``: squared error over mean of the counts between readings, 1 for Poisson arrivals. ``noise``: variance
    of the level over that of the rate between two readings.
    """

    readings: tuple[tuple[float, int], ...] = ()
    level_per_s: float | None = None
    trend: float = 0.0
    dispersion: float = 1.0
    noise: float = 1.0

    def updated(self, time_s: float, arrived: int, keep_s: float) -> "Forecast":
        """With one more reading, without those that are older than ``keep_s`` and not needed to interpolate.

        A count or a time that fell is of a pipeline that was started anew.
        """
        if self.readings and (time_s < self.readings[-1][0] - TOLERANCE_S or arrived < self.readings[-1][1]):
            return Forecast(((time_s, arrived),))
        if not self.readings or time_s <= self.readings[-1][0] + TOLERANCE_S:
            return msgspec.structs.replace(self, readings=(*self.readings[:-1], (time_s, arrived)))
        before_s, before = self.readings[-1]
        elapsed_s, count = time_s - before_s, arrived - before
        old = sum(at_s <= time_s - keep_s for at_s, _ in self.readings)
        readings = (*self.readings[max(0, old - 1) :], (time_s, arrived))
        if self.level_per_s is None:
            return Forecast(readings, count / elapsed_s)
        expected_per_s = self.rate_at(elapsed_s)
        error_per_s = count / elapsed_s - expected_per_s
        relative = (error_per_s * elapsed_s) ** 2 / max(1.0, expected_per_s * elapsed_s)
        level_per_s = max(0.0, expected_per_s + LEVEL_GAIN * error_per_s)
        return Forecast(
            readings,
            level_per_s,
            max(-level_per_s, self.trend + TREND_GAIN * LEVEL_GAIN * error_per_s / elapsed_s),
            self.dispersion + DISPERSION_GAIN * (relative - self.dispersion),
            (1 - LEVEL_GAIN) ** 2 * self.noise + LEVEL_GAIN**2,
        )

    @property
    def rate_per_s(self) -> float:
        """The level; 0 before two readings."""
        return self.level_per_s or 0.0

    def rate_at(self, after_s: float) -> float:
        """Arrivals per second that are expected ``after_s`` seconds after the last reading."""
        return max(0.0, self.rate_per_s + self.trend * after_s)

    def count_at(self, after_s: float) -> float:
        """Requests that have arrived ``after_s`` seconds after the last reading: expected ones, or before it (below 0)
        those that were read, interpolated.
        """
        later_s, later = self.readings[-1]
        if after_s > 0:
            return later + after_s * (self.rate_per_s + self.rate_at(after_s)) / 2
        at_s = later_s + after_s
        for before_s, before in reversed(self.readings):
            if before_s <= at_s:
                part = (at_s - before_s) / (later_s - before_s) if later_s > before_s else 0.0
                return before + (later - before) * part
            later_s, later = before_s, before
        return float(later)

    def level_variance(self, every_s: float) -> float:
        """Of the level, in 1/s², with a reading every so many seconds: the first one counts alone, and fades."""
        return self.noise * max(1.0, self.dispersion) * self.rate_per_s / every_s

    def variance(self, over_s: float) -> float:
        """Of the requests that arrive within ``over_s`` seconds from now: their own, and that of the level."""
        if over_s <= 0:
            return ROUNDING
        own = max(1.0, self.dispersion) * self.rate_per_s * over_s
        return ROUNDING + own * (1 + over_s * LEVEL_GAIN / (2 - LEVEL_GAIN))


def first_price(slo_share: float) -> float:
    """λ before anything is known, in replica-intervals per late event."""
    return float(FIRST_PRICE / (AIM * (1 - slo_share)) ** 0.75)


def part_to_use(allowed: float) -> float:
    """Of the next late events that a contract allows, the part that the price aims at, when ``allowed`` were allowed
    so far: the derivative of allowed − ``SPARE_DEVIATIONS`` · √allowed.
    """
    return max(LEAST_AIM, 1 - SPARE_DEVIATIONS / (2 * sqrt(max(allowed, 1.0))))


def clip(value: float, least: float, most: float) -> float:
    """The number within the limits."""
    return max(least, min(value, most))


def expected_above(mean: float, variance: float, capacity: float) -> float:
    """E[(D − C)⁺] of a normal demand D: σ·(φ(z) − z·(1 − Φ(z))) with z = (C − mean)/σ."""
    deviation = sqrt(max(variance, 1e-9))
    z = (capacity - mean) / deviation
    return deviation * max(0.0, exp(-z * z / 2) / sqrt(2 * pi) - z * erfc(z / sqrt(2)) / 2)


def gamma_above(mean: float, variance: float, limit: float) -> float:
    """P(X > limit) of a gamma-distributed X of this mean above 0, by its cube root, which is nearly normal.

    Wilson and Hilferty, "The distribution of chi-square", PNAS 17 (1931).
    """
    if limit <= 0:
        return 1.0
    ninth = max(variance, 1e-9 * mean * mean) / (9 * mean * mean)
    return erfc(((limit / mean) ** (1 / 3) - 1 + ninth) / sqrt(2 * ninth)) / 2


def normal_below(limit: float, mean: float, variance: float) -> float:
    """P(X < limit) of a normal distribution, which may have no variance."""
    return erfc((mean - limit) / sqrt(2 * variance)) / 2 if variance > 0 else float(mean < limit)


@lru_cache(maxsize=MOST_KEPT)
def at_least(mean: float, variance: float, most: int) -> tuple[float, ...]:
    """P(N ≥ k), k = 1 to ``most``, of a count: Poisson, or negative binomial where the variance is above the mean."""
    if mean <= 0:
        return (0.0,) * most
    excess = max(variance / mean - 1, 0.0)
    probability = exp(-mean if excess < 1e-6 else -mean / excess * log(1 + excess))
    left, found = 1.0, list[float]()
    for k in range(most):
        left -= probability
        found.append(max(0.0, left))
        probability *= (mean + excess * k) / ((1 + excess) * (k + 1))
    return tuple(found)
