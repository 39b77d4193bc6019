"""The linear ramp of containers inside one function (Elastic-FaaS, Table 1; reading F14)."""

from collections.abc import Sequence

from controller.queueing.rounding import rounded_down


def ramp(starts: Sequence[float], time: float, per: float, limit: int | None = None, step: int = 1) -> list[int]:
    """Containers of each function at ``time``: one at the function's start and ``step`` more every ``per``."""
    return [
        0 if time < start else min(1 + step * rounded_down((time - start) / per), limit or 10**9) for start in starts
    ]
