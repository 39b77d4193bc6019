"""The tick phase of a consumer group with bursts, by rule (docs/newsvendor.md): no load is tried."""

from typing import Final

EARLY_S: Final = 0.12
"""After the burst, while it can still be regrouped."""
SHORT_S: Final = 0.07
"""A rebalance up to this length costs less than a burst that is seen late."""
STEP_S: Final = 0.01


def tick_phase_s(*, slo_s: float, start_up_s: float, rebalance_s: float, stop_s: float) -> float:
    """Seconds after each burst. Early where rebalances are short; else where those that a decision causes (at once,
    after the start-up of a replica, after the stop of one) take the least time of a burst's limit.
    """
    after_s = (0.0, start_up_s, rebalance_s + stop_s)
    if rebalance_s <= SHORT_S:
        return EARLY_S
    phases_s = [round(step * STEP_S, 2) for step in range(round(1 / STEP_S))]

    def stopped_s(phase_s: float) -> float:
        return sum(_within_limit_s((phase_s + each) % 1.0, rebalance_s, slo_s) for each in after_s)

    least_s = min(map(stopped_s, phases_s))
    best_s = [phase_s for phase_s in phases_s if stopped_s(phase_s) <= least_s + 1e-9]
    return best_s[len(best_s) // 2]


def _within_limit_s(from_s: float, lasts_s: float, slo_s: float) -> float:
    """How much of a stop lies between a burst and its limit; bursts come at whole seconds."""
    until_s = from_s + lasts_s
    return sum(max(0.0, min(until_s, burst + slo_s) - max(from_s, burst)) for burst in range(int(until_s) + 2))
