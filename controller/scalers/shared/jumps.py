"""Loads that jump without warning and come back: how often, how far, and the price at which that keeps a contract.

All times are in decision intervals; docs/newsvendor.md explains the principle.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Final

import msgspec

from controller.scalers.shared.newsvendor import AIM, clip, first_price

MEMORY_TICKS: Final = 7200.0
"""After so long, a peak and what was counted have faded to 1/e."""
REMEMBERED: Final = 9
"""Jumps, falls or scale-ins that count."""
FIRST_TICKS: Final = 10
"""Intervals in which nothing is a jump yet."""
AGAIN_TICKS: Final = 5
"""Intervals after a start-up until the next jump is another one."""
JUMP: Final = 0.3
"""Of the peak: an error of the forecast that is a jump or a fall."""
FIRST_JUMP: Final = 3.0
"""Times the largest load: how far a load is expected to jump that has not changed yet."""
FIRST_JUMP_TICKS: Final = 1100
"""Intervals in which one jump is expected before any was seen: to an announced peak, or of a load that has not changed
yet.
"""
STEADY_TICKS: Final = 1800
"""Intervals after which a load that has not changed yet is not expected to jump."""
LEVEL_GAIN, VARIANCE_GAIN = 0.1, 0.05
BEGINNING: Final = 20
"""Intervals in which a new level is still being learned."""
SHIFT: Final = 5.0
"""Standard deviations from the last or the forecast ones at which arrivals are a new level."""
LEAST_VARIANCE: Final = 16.0
MOVED: Final = 0.2
"""Of the highest level: a load that has moved by this part changes gradually."""
BEYOND_NOISE: Final = 10.0
"""Standard deviations of the level, which such a move exceeds, too."""
STEPS: Final[tuple[float, ...]] = tuple(1.4**step for step in range(-3, 10))
"""Prices that are compared, as multiples of the first one: from about the least to about the largest one."""
MEAN_TICKS: Final = 60
"""Intervals over which expected late events and arrivals are averaged: loads come back within minutes."""
JUMP_AIM: Final = 0.75
"""Of the late events that the contract allows, the part that jumps may use."""
UNUSED: Final = 0.5
"""Of the late events that the contract allows, the part from which on their use sets a least price, too: it rises to
the first price, which it has at ``AIM``.
"""
LEAST_PART: Final = 0.1
"""Of that part, what jumps may use however much is owed."""
SPENT_TICKS: Final = 1200
"""Late events that are left over of the contract count over so many intervals, or over half of all intervals so far if
that is longer.
"""
REPAID_TICKS: Final = 300
"""Late events beyond the contract count over so many intervals, or over all intervals so far if that is longer."""


def is_shift(change: float, variance: float, level: float) -> bool:
    """Whether arrivals that differ by so much are a new level, and no noise."""
    return change**2 > SHIFT**2 * max(variance, level, LEAST_VARIANCE)


class Level(msgspec.Struct, frozen=True):
    """The level of a load, and whether it has moved without a jump. ``last``: arrivals of the last interval;
    ``mean``: smoothed ones; ``variance``: of single ones, from their differences, which a gradual change leaves small.
    ``ticks``: intervals since the last shift to a new level, ``low``, ``high``: limits of the mean since then.
    """

    ticks: int = 0
    last: float = 0.0
    mean: float = 0.0
    variance: float = 0.0
    low: float = 0.0
    high: float = 0.0

    @property
    def moved(self) -> bool:
        """The load has changed gradually: by a part of its level, and beyond noise."""
        noise = sqrt(max(self.variance, self.mean) * LEVEL_GAIN / (2 - LEVEL_GAIN))
        return self.high - self.low > max(MOVED * self.high, BEYOND_NOISE * noise)

    def updated(self, arrived: float) -> "Level":
        """With the arrivals of one more interval. The first one at the start is a part of an interval."""
        change = arrived - self.last
        if self.ticks < 2 or is_shift(change, self.variance, self.mean):
            variance = max(self.variance, arrived)
            return Level(min(2, self.ticks + 1), arrived, arrived, variance, arrived, arrived)
        ticks = self.ticks + 1
        mean = self.mean + max(LEVEL_GAIN, 1 / self.ticks) * (arrived - self.mean)
        variance = self.variance + VARIANCE_GAIN * (change**2 / 2 - self.variance)
        if ticks <= BEGINNING:
            return Level(ticks, arrived, mean, variance, mean, mean)
        return Level(ticks, arrived, mean, variance, min(self.low, mean), max(self.high, mean))


class Jumps(msgspec.Struct, frozen=True):
    """Jumps of a load, in events and intervals.

    ``peak``: the largest load. ``heights``: the loads to which it jumped, or from which it fell, the last ones.
    ``rises``: jumps, and one more from the first jump or fall on, expected in as many intervals as it took. ``below``:
    intervals of a load that could still jump so far, with those. ``calm_until``: until when errors count as the same
    jump or fall. ``jumped``: in the last interval. ``peak``, ``rises`` and ``below`` fade. ``announced``: a load that
    may come at any time; 0 for none. ``unknown``: the load has neither jumped nor changed gradually yet, so that
    nothing says how it will change. ``level``: until then, whether it changes gradually.
    """

    peak: float = 0.0
    heights: tuple[float, ...] = ()
    rises: float = 0.0
    below: float = 0.0
    calm_until: int = 0
    jumped: bool = False
    announced: float = 0.0
    level: Level = Level()
    unknown: bool = True

    @property
    def first(self) -> float:
        """The load that a jump may reach while nothing says how the load changes; 0 otherwise."""
        return FIRST_JUMP * self.peak if self.unknown and not self.announced else 0.0

    @property
    def reach(self) -> float:
        """The load that a jump is expected to reach."""
        return max(self.announced, self.first, *self.heights)

    @property
    def rate(self) -> float:
        """Expected jumps per interval of a load below the reach. After a fall, the load is expected to come back."""
        if self.heights:
            return self.rises / self.below
        return 1 / FIRST_JUMP_TICKS if self.announced or self.unknown else 0.0

    def updated(self, arrived: float, error: float | None, ticks: int, ahead: int) -> "Jumps":
        """With the arrivals of interval ``ticks`` and the error of its forecast, which was made ``ahead`` intervals
        before; None if there was none.
        """
        keep = 1 - 1 / MEMORY_TICKS
        peak, rises, heights = max(arrived, self.peak * keep), self.rises * keep, self.heights
        below = self.below * keep + (arrived < (1 - JUMP) * self.reach)
        if self.calm_until >= ticks:  # the last jump is not over
            heights = (*heights[:-1], max(heights[-1], arrived))
        level = self.level.updated(arrived) if self.unknown else self.level
        calm_until, jumped = self.calm_until, False
        least = max(JUMP * peak, 4 * sqrt(max(peak, 1.0)))
        if error is not None and abs(error) > least and ticks > max(FIRST_TICKS, calm_until):
            heights, jumped = (*heights, max(arrived, arrived - error))[-REMEMBERED:], error > 0
            if first := not self.heights:  # one that was expected is not expected more seldom from now on
                rises, below = 1.0, float(min(ticks, FIRST_JUMP_TICKS) if self.rate else ticks)
            if jumped:
                rises += 1
                if first:
                    below *= 2
                elif self.reach < (1 - JUMP) * max(heights):  # farther than before: all the time until now was below it
                    below = max(below, float(ticks))
            calm_until = ticks + ahead + AGAIN_TICKS
        unknown = self.unknown and not heights and not level.moved and ticks <= STEADY_TICKS
        return Jumps(peak, heights, rises, below, calm_until, jumped, self.announced, level, unknown)


class JumpPrice(msgspec.Struct, frozen=True):
    """The least price of a late event at which jumps are expected to make as few events late as a contract allows.

    ``late``: late events of jumps per interval, expected at each of the prices of ``STEPS``; ``arrived``: events per
    interval; both means of the last intervals. ``readings``: of them.
    """

    late: tuple[float, ...] = (0.0,) * len(STEPS)
    arrived: float = 0.0
    readings: int = 0

    def updated(self, expected: Sequence[float], arrived: float) -> "JumpPrice":
        """With those of one more interval."""
        readings = self.readings + 1
        step = max(1 / MEAN_TICKS, 1 / readings)
        late = tuple(each + step * (new - each) for each, new in zip(self.late, expected, strict=True))
        return JumpPrice(late, self.arrived + step * (arrived - self.arrived), readings)

    def least(self, slo_share: float, finished: int | None, late: int | None) -> float:
        """In replica-intervals; 0 where any price is low enough. What is left over of the contract is used, and what is
        owed is repaid, before the first reading at the largest price. The more of the contract is used, the less this
        price may be below the first one; where late events are owed, it is not.
        """
        allowed, used, first = JUMP_AIM * (1 - slo_share) * self.arrived, 0.0, first_price(slo_share)
        if finished and late is not None:
            so_far = (1 - slo_share) * finished
            left, used = JUMP_AIM * so_far - late, late / so_far
            if left < 0 and not self.readings:
                return first * STEPS[-1]
            over = max(SPENT_TICKS, self.readings / 2) if left > 0 else max(REPAID_TICKS, self.readings)
            allowed = max(LEAST_PART * allowed, allowed + left / over)
        return first * max(self._least_multiple(allowed), clip((used - UNUSED) / (AIM - UNUSED), 0.0, 1.0))

    def _least_multiple(self, allowed: float) -> float:
        """Of the first price, at which no more events are late; between two steps it is interpolated. 0 if no more are
        late at any of them.
        """
        enough = next((step for step, late in enumerate(self.late) if late <= allowed), None)
        if not enough:
            return STEPS[-1] if enough is None else 0.0
        more, fewer = self.late[enough - 1], self.late[enough]
        part = (more - allowed) / (more - fewer)
        return float(STEPS[enough - 1] * (STEPS[enough] / STEPS[enough - 1]) ** part)
