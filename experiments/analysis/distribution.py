"""Mean and percentiles of raw durations."""

from experiments.analysis.summary import Distribution
from penstock.measures import PERCENTILES, Floats, percentiles_s


def distribution(values_s: Floats) -> Distribution:
    """Mean and percentiles of raw durations."""
    if len(values_s) == 0:
        return Distribution()
    p50, p90, p95, p99, p99_9 = (float(value) for value in percentiles_s(values_s, PERCENTILES))
    return Distribution(
        mean_s=float(values_s.mean()),
        p50_s=p50,
        p90_s=p90,
        p95_s=p95,
        p99_s=p99,
        p99_9_s=p99_9,
        max_s=float(values_s.max()),
    )
