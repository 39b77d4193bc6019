"""From a scaler's decision to the value that makes the Horizontal Pod Autoscaler carry it out.

KEDA hands the value to the HPA as an average-value metric with target 1. The HPA leaves everything as it is while value
÷ replicas is within its tolerance of 1 (10 % unless ``behavior.*.tolerance`` says otherwise), and sets the replicas to
the value rounded up where it is not. So it ignores a value of 11 at 10 replicas.
"""

import math
from typing import Final

import msgspec

TARGET: Final = 1.0
"""Of the metric: the value is the number of replicas."""

MARGIN: Final = 0.002
"""How far beyond the edge of the tolerance a value is put: KEDA cuts values to thousandths."""


class MetricValue(msgspec.Struct, frozen=True):
    """``value`` for the HPA, and why it is not the number of replicas that the scaler wants (empty where it is)."""

    value: float
    nudged: str = ""


def metric_value(wanted: int, current: int, tolerance: float) -> MetricValue:
    """The value that brings the HPA from ``current`` replicas to ``wanted``, or as near as it can without oscillating.

    Down: a value between ``wanted`` - 1 and the edge of the tolerance rounds up to ``wanted``; without such a value the
    HPA keeps a few replicas too many. Up: any value that the HPA acts on rounds up to more than ``wanted``; the least
    such value is given, as too few replicas cost the SLO. A later value scales in where that is exact.
    """
    # At the edge itself the HPA's versions round differently: a value there counts as ignored.
    if current < 1 or wanted == current or abs(wanted - current) > tolerance * current + MARGIN:
        return MetricValue(float(wanted))
    ignored = f"{current} → {wanted} is within the HPA's tolerance of {tolerance:.0%}"
    if wanted > current:
        value = round(current * (1 + tolerance) + MARGIN, 3)
        made = math.ceil(value)
        return MetricValue(value, f"{ignored}: {value:.2f} is the least that it acts on, which makes {made} replicas")
    edge = current * (1 - tolerance)
    if wanted - 1 + MARGIN < edge - MARGIN:
        value = round((wanted - 1 + edge) / 2, 3)
        return MetricValue(value, f"{ignored}: {value:.2f} rounds up to it")
    return MetricValue(float(wanted), f"{ignored}: it stays at {current}")
