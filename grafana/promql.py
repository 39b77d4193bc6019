"""PromQL of the boards: what Prometheus is asked, with the boards' variables in it."""

from typing import Final

RUN: Final = 'run="$run"'
FLEET: Final = 'run="$run", fleet=~"$fleet"'
"""Matchers: of what a run has once (sender, Spark), and of what each fleet has."""

WINDOW: Final = "$__rate_interval"
"""Grafana's: at least four scrapes, and never less than a pixel."""


def newest(metric: str, *by: str, where: str = FLEET) -> str:
    """A gauge. A process that was started again leaves its last value behind for a moment: the larger one counts."""
    return f"max by ({', '.join(by)}) ({metric}{{{where}}})"


def per_second(metric: str, *by: str, where: str = FLEET) -> str:
    """How fast a counter grows, summed over the processes that count."""
    return f"sum by ({', '.join(by)}) (rate({metric}{{{where}}}[{WINDOW}]))"


def quantile(share: float, histogram: str, *by: str, where: str = FLEET) -> str:
    """Of what a histogram took in within the window, interpolated within its bucket."""
    return f"histogram_quantile({share:g}, {per_second(f'{histogram}_bucket', *by, 'le', where=where)})"


def current_replicas() -> str:
    """Replicas that exist or were asked for, without those that drain."""
    phases = f'{FLEET}, phase=~"requested|started|joined"'
    return f"sum by (fleet) ({newest('penstock_replicas', 'fleet', 'phase', where=phases)})"
