"""Queries of panels: PromQL expressions with the boards' variables."""

import re
from typing import Final, NamedTuple

from penstock import metrics

RUN: Final = 'run="$run"'
FLEET: Final = 'run="$run", fleet=~"$fleet"'
"""Matchers of a run's series (sender, Spark) and of each fleet's series."""

WINDOW: Final = "$__rate_interval"
"""Grafana's: at least four scrapes, and never less than a pixel."""
STEP: Final = "$__interval"
"""From one point that is drawn to the next."""


RANGE: Final = "$__range"
"""The board's time range."""
SHIFT: Final = "${shift}ms"
"""Milliseconds from the start of the second run to that of the first, and one more: Prometheus refuses 0."""


class Query(NamedTuple):
    """One query of a panel; ``legend`` is a template over the labels of its series. As text it is its expression."""

    expr: str
    legend: str

    def __str__(self) -> str:
        return self.expr

    def named(self, legend: str) -> "Query":
        """The same with another legend."""
        return self._replace(legend=legend)


def newest(metric: str, *by: str, where: str = FLEET, name: str = "") -> Query:
    """A gauge. A restarted process leaves its last value for a moment: the larger value counts."""
    return Query(f"max by ({', '.join(by)}) ({metric}{{{where}}})", _legend(by, name))


def per_second(metric: str, *by: str, where: str = FLEET, name: str = "") -> Query:
    """Rate of a counter, summed over processes."""
    return Query(f"sum by ({', '.join(by)}) (rate({metric}{{{where}}}[{WINDOW}]))", _legend(by, name))


def increase(metric: str, *by: str, where: str = FLEET) -> Query:
    """Increase of a counter since the point before, summed over processes: whole numbers, which PromQL's ``increase``
    extrapolates. A new process counts from 0.
    """
    now = f"{metric}{{{where}}}"
    return Query(f"sum by ({', '.join(by)}) (clamp_min({now} - ({now} offset {STEP} or 0 * {now}), 0))", _legend(by))


def ratio(part: Query, whole: Query, most: float | None = 1) -> Query:
    """Quotient, while the whole is above 0. A share is at most 1: two rates may be of different scrapes."""
    expr = f"{part} / ({whole} > 0)"
    return Query(expr if most is None else f"clamp_max({expr}, {most:g})", whole.legend)


def percentiles(
    histogram: str, *by: str, where: str = FLEET, percents: tuple[int, ...] = (50, 99)
) -> tuple[Query, ...]:
    """Of a histogram within the window, interpolated within its buckets; a gap (not NaN) where it
    counted nothing.
    """
    rate = per_second(f"{histogram}_bucket", *by, "le", where=where)
    return tuple(
        Query(f"histogram_quantile({percent / 100:g}, {rate}) >= 0", _legend(by, f"p{percent}")) for percent in percents
    )


def last_within_range(query: Query) -> Query:
    """The newest value within the time range, asked for at its end: also of a series that has ended."""
    return query._replace(expr=f"last_over_time(({query})[{RANGE}:1s])")


def beside(query: Query) -> Query:
    """The same of the board's second run, moved so that both begin at one point."""
    of_other = query.expr.replace('run="$run"', 'run="$beside"')
    expr = re.sub(r"(\{[^{}]*\}(?:\[[^]]*\])?)", rf"\1 offset {SHIFT}", of_other)
    return Query(expr, f"beside: {query.legend}")


def _legend(by: tuple[str, ...], name: str = "") -> str:
    """The series' labels and ``name``; a board is of one run, whose label says nothing."""
    return " ".join((*(f"{{{{{label}}}}}" for label in by if label != "run"), *([name] if name else ())))


def replicas(phases: str) -> Query:
    """Replicas in these phases, a regular expression."""
    found = newest(metrics.REPLICAS, "fleet", "phase", where=f'{FLEET}, phase=~"{phases}"')
    return Query(f"sum by (fleet) ({found})", "{{fleet}}")


_HELD: Final = replicas("requested|started|joined|draining")
_CONTAINERS: Final = f"sum by (fleet) ({newest(metrics.QUEUE_SERVERS, 'fleet', 'queue')})"
PAID_REPLICAS: Final = Query(f"({_CONTAINERS} > {_HELD}) or {_HELD}", "{{fleet}}")
"""Those that cost: of a bank whose replicas are queues, the containers, of which each queue has at least one."""
CURRENT_REPLICAS: Final = replicas("requested|started|joined")
"""Replicas that exist or are requested, without those that drain."""
ARRIVALS_AND_COMPLETIONS: Final = (
    per_second(metrics.FLEET_ARRIVED, "fleet", name="arrive"),
    per_second(metrics.FLEET_COMPLETED, "fleet", name="complete"),
)
