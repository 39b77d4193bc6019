"""Laxity of the messages of a pipeline: how much time is left beyond what the rest of the pipeline is going to take.

Tsenos, Peri, Kalogeraki, DEBS 2022, Equation (2) and section 5; readings A4 to A7. Times in seconds. Monitors and
simulators take the samples with these functions, the scaler takes their 90th percentile.
"""

from collections.abc import Sequence
from math import floor, inf
from typing import Literal

Estimate = Literal["cumulative", "recursive"]
Direction = Literal["guarantee", "literal"]
Method = Literal["nearest", "linear"]


def estimate_after(total_s: float, before_s: float, progress: float, variant: Estimate = "cumulative") -> float:
    """estimate_m after a node: what the rest of the pipeline will take, without any queueing.

    ``total_s`` is totalEstimate_p, ``before_s`` the estimate so far, ``progress`` the share of the pipeline's
    processing that is done, in [0, 1]. As printed, the progress is applied again to what is left already
    (``recursive``); it is a share of the whole, so that counts every node several times (A4).
    """
    if not 0 <= progress <= 1:
        raise ValueError(f"progress={progress:g}: expected a number from 0 to 1")
    return (1 - progress) * (total_s if variant == "cumulative" else before_s)


def laxity(deadline_s: float, age_s: float, estimate_s: float) -> float:
    """laxity_m = timeToDeadline_m - estimate_m, with the time to the deadline counted from the producer's timestamp
    (A11). Negative when the deadline cannot be met any more.
    """
    return deadline_s - age_s - estimate_s


def laxity_90(samples_s: Sequence[float], direction: Direction = "guarantee", method: Method = "nearest") -> float:
    """laxity_{i,90} of one epoch; +inf without any sample, so that only a scale-down can follow (A7).

    ``guarantee``: what 90 % of the messages reach or exceed, the 10th percentile in ascending order (A5). ``literal``:
    the 90th in ascending order. ``nearest`` rank or ``linear`` interpolation between ranks (A6).
    """
    if not samples_s:
        return inf
    ascending, n = sorted(samples_s), len(samples_s)
    tenths = 1 if direction == "guarantee" else 9
    if method == "nearest":
        return ascending[max(1, -(-tenths * n // 10)) - 1]  # element ⌈q·n⌉, counted from 1, in whole numbers
    position = (n - 1) * tenths / 10
    below = floor(position)
    above = min(below + 1, n - 1)
    # Equal neighbours must give their own value exactly, so add to the lower one instead of weighing both.
    return ascending[below] + (position - below) * (ascending[above] - ascending[below])
