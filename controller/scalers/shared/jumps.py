"""Loads that jump without warning and come back: how often, how far, and the price at which that keeps a contract.

All times are in decision intervals; docs/newsvendor.md explains the principle.
"""

from collections.abc import Sequence
from math import inf, sqrt
from typing import Final

import msgspec

from controller.scalers.shared.newsvendor import AIM, clip, first_price

MEMORY_TICKS: Final = 7200.0
"""After so long, a peak and what was counted have faded to 1/e."""
FIRST_TICKS: Final = 10
"""Intervals in which nothing is a jump yet."""
AGAIN_TICKS: Final = 5
"""Intervals after a start-up until the next jump is another one."""
JUMP: Final = 0.3
"""Of the peak: an error of the forecast that is a jump or a fall."""
ANNOUNCED_TICKS: Final = 800
"""Intervals in which one jump to an announced peak is expected, until the load jumps or falls for the first time."""
STEPS: Final[tuple[float, ...]] = tuple(1.4**step for step in range(10))
"""Prices that are compared, as multiples of the first one."""
MEAN_TICKS: Final = 60
"""Intervals over which expected late events and arrivals are averaged: loads come back within minutes."""
JUMP_AIM: Final = 0.75
"""Of the late events that the contract allows, the part that jumps may use."""
UNUSED: Final = 0.5
"""Of the late events that the contract allows, the part up to which jumps have no least price: from there on it rises
to the first price, which it has at ``AIM``.
"""
LEAST_PART: Final = 0.1
"""Of that part, what jumps may use however much is owed."""
REPAID_TICKS: Final = 300
"""Late events beyond the contract, and those that are left over, count over so many intervals, or over half of all
intervals so far if that is longer.
"""


class Jumps(msgspec.Struct, frozen=True):
    """Jumps of a load, in events and intervals.

    ``peak``: the largest load. ``reach``: the largest one to which it jumped or from which it fell. ``rises``: jumps,
    and one more from the first jump or fall on, expected in as many intervals as it took. ``below``: intervals of a
    load that could still jump so far, with those. ``calm_until``: until when errors count as the same jump or fall.
    ``jumped``: in the last interval. The first four fade. ``announced``: a load that may come at any time, below which
    ``reach`` does not fade; 0 for none.
    """

    peak: float = 0.0
    reach: float = 0.0
    rises: float = 0.0
    below: float = 0.0
    calm_until: int = 0
    jumped: bool = False
    announced: float = 0.0

    def announce(self, peak: float) -> "Jumps":
        """With a load that may come at any time, before any jump; 0 for none."""
        if peak == self.announced:
            return self
        known = msgspec.structs.replace(self, announced=peak, reach=max(peak, self.reach))
        return known if self.rises else msgspec.structs.replace(known, rises=1.0, below=float(ANNOUNCED_TICKS))

    @property
    def rate(self) -> float:
        """Jumps per interval of a load below the reach; 0 before the first jump or fall. After a fall, the load is
        expected to come back.
        """
        return self.rises / self.below if self.rises else 0.0

    def updated(self, arrived: float, error: float | None, ticks: int, ahead: int) -> "Jumps":
        """With the arrivals of interval ``ticks`` and the error of its forecast, which was made ``ahead`` intervals
        before; None if there was none.
        """
        keep = 1 - 1 / MEMORY_TICKS
        peak, reach, rises = max(arrived, self.peak * keep), max(self.announced, self.reach * keep), self.rises * keep
        below = self.below * keep + (arrived < (1 - JUMP) * reach)
        if self.calm_until >= ticks:  # a jump goes on
            reach = max(reach, arrived)
        least = max(JUMP * peak, 4 * sqrt(max(peak, 1.0)))
        if error is None or abs(error) <= least or ticks <= max(FIRST_TICKS, self.calm_until):
            return Jumps(peak, reach, rises, below, self.calm_until, announced=self.announced)
        reach = max(reach, arrived, arrived - error)
        first = not self.calm_until
        if first:  # an announced one is not expected more seldom from now on
            rises, below = 1.0, min(float(ticks), below if self.rises else inf)
        if error > 0:
            rises += 1
            if first:
                below *= 2
            elif self.reach < (1 - JUMP) * reach:  # farther than before: all the time until now was below it
                below = max(below, float(ticks))
        calm_until = ticks + ahead + AGAIN_TICKS
        return Jumps(peak, reach, rises, below, calm_until, jumped=error > 0, announced=self.announced)


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
        owed is repaid. The more of the contract is used, the nearer is the first price, which is the least where late
        events are owed.
        """
        allowed, used, first = JUMP_AIM * (1 - slo_share) * self.arrived, 0.0, first_price(slo_share)
        if finished and late is not None:
            so_far = (1 - slo_share) * finished
            left, used = JUMP_AIM * so_far - late, late / so_far
            allowed = max(LEAST_PART * allowed, allowed + left / max(REPAID_TICKS, self.readings / 2))
        multiple = self._least_multiple(allowed)
        return first * (multiple if multiple > 1 else clip((used - UNUSED) / (AIM - UNUSED), 0.0, 1.0))

    def _least_multiple(self, allowed: float) -> float:
        """Of the first price, at which no more events are late; between two steps it is interpolated."""
        enough = next((step for step, late in enumerate(self.late) if late <= allowed), None)
        if not enough:
            return STEPS[-1 if enough is None else 0]
        more, fewer = self.late[enough - 1], self.late[enough]
        part = (more - allowed) / (more - fewer)
        return float(STEPS[enough - 1] * (STEPS[enough] / STEPS[enough - 1]) ** part)
