"""Figures 2 to 12 of the bin-pack paper, drawn from its tables. Points are what the paper prints of them: the share of
events within the SLO, at the SLO.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

import numpy as np

from experiments.binpack.experiments import printed
from experiments.binpack.live import place
from experiments.binpack.tables import (
    BOTH,
    BY_NAME,
    IN_CDF,
    IN_FIGURE_5,
    IN_FIGURES_4_TO_8,
    Case,
    notified,
)
from experiments.paper import Cells, PaperFigure, read_spread
from experiments.picture import PRINTED, Panel, Series


def loads(rows: Sequence[Cells]) -> list[Panel]:
    """Events per second of both workloads; of NYC the mean of each 12 s."""
    panels = []
    for name, width in zip(BOTH, (1, 12), strict=True):
        rates = [row[name] for row in rows if row[name] is not None]
        rates = rates[: len(rates) // width * width]
        means = np.reshape(rates, (-1, width)).mean(axis=1)
        series = [Series(label="events/s", x=(width * np.arange(len(means))).tolist(), y=means.tolist())]
        panels.append(Panel(title=place(name), x_title="s", y_title="events/s", series=series))
    return panels


def latencies(rows: Sequence[Cells]) -> list[Panel]:
    """The longest latency in each part of a run, a panel for each run."""
    panels = []
    for case in IN_FIGURES_4_TO_8:
        some = [row for row in rows if row["run"] == str(case)]
        values = {name: [row[name] for row in some] for name in ("time s", "longest s", "highest")}
        x = values["time s"]
        series = [
            Series(label="median of the seeds", x=x, y=values["longest s"]),
            Series(label="highest", x=x, y=values["highest"], mark="points"),
        ]
        title = f"{case.scaler}, {place(case.experiment)}"
        title += "" if case.heartbeat_s is None else f", heartbeat {case.heartbeat_s:g} s"
        panels.append(Panel(title=title, x_title="s", y_title="longest latency, s", series=series))
    return panels


def consumers(rows: Sequence[Cells]) -> list[Panel]:
    """The longest latency of each consumer over time."""
    names = [name for name in rows[0] if name.startswith("consumer")]
    x = [row["time s"] for row in rows]
    series = [Series(label=name, x=x, y=[row[name] for row in rows], mark="points") for name in names]
    (case,) = IN_FIGURE_5
    title = f"{case.scaler}, {place(case.experiment)}, heartbeat {case.heartbeat_s:g} s"
    return [Panel(title=title, x_title="s", y_title="longest latency, s", series=series)]


def distributions(cases: Sequence[Case], rows: Sequence[Cells], longest_s: float) -> list[Panel]:
    """Share of the events below each latency, a panel for each experiment and t_r."""
    percentiles = [row["percentile"] for row in rows]
    panels: dict[str, list[Series]] = {}
    for case in cases:
        t_r = "" if case.rebalance_time_s is None else f", t_r {case.rebalance_time_s:g} s"
        label = case.scaler if case.heartbeat_s is None else f"{case.scaler}, {notified(case)}"
        series = panels.setdefault(f"{place(case.experiment)}{t_r}", [])
        series.append(Series(label=label, x=[row[str(case)] for row in rows], y=percentiles))
        as_printed = printed(case.experiment, case.rebalance_time_s, None if t_r else case.heartbeat_s)
        if (share := as_printed.get(case.scaler, {}).get("slo_share")) is not None:
            slo_s = BY_NAME[case.experiment].slo_s
            series.append(Series(label=PRINTED, x=[slo_s], y=[100 * share], mark="points"))
    return [
        Panel(
            title=title,
            x_title="latency, s",
            y_title="% of the events",
            series=series,
            x_range=(0, longest_s),
            y_range=(60, 100),
        )
        for title, series in panels.items()
    ]


def costs(rows: Sequence[Cells]) -> list[Panel]:
    """Share within the SLO and cost of each policy, simulated with range beside print."""
    panels = []
    for measure, y_range in (("SLO share", (80.0, 100.0)), ("replica-minutes", None)):
        some = [row for row in rows if row["measure"] == measure and "," not in row["scaler"]]
        names = [row["scaler"] for row in some]
        middle, low, high = zip(*(read_spread(row["simulated"]) for row in some), strict=True)
        as_printed = [read_spread(row["printed"])[0] for row in some]
        series = [
            Series(label="simulated", x=names, y=middle, low=low, high=high, mark="bars"),
            Series(label=PRINTED, x=names, y=as_printed, mark="bars"),
        ]
        unit = "%" if measure == "SLO share" else ""
        panels.append(Panel(title=measure, x_title="", y_title=unit, series=series, y_range=y_range))
    return panels


def _cdf(name: str, title: str, cases: Iterable[Case], longest_s: float = 1.0) -> PaperFigure:
    some = list(cases)
    return PaperFigure(name, title, "cdf-curves", partial(distributions, some, longest_s=longest_s))


FIGURES: Final = (
    PaperFigure("figures2-3", "Figures 2 and 3: events per second", "workloads", loads),
    PaperFigure("table2", "Table 2: workload 1, simulated and printed", "table2", costs),
    PaperFigure("table3", "Table 3: NYC, simulated and printed", "table3", costs),
    PaperFigure("figures4-8", "Figures 4, 6 and 8: longest latency over time, by heartbeat", "latency", latencies),
    PaperFigure("figure5", "Figure 5: longest latency of each consumer, one run", "consumers", consumers, 1),
    _cdf("figure7", "Figure 7: latency under skew", (case for case in IN_CDF if "skewed" in case.experiment)),
    _cdf(
        "figure9",
        "Figure 9: latency by heartbeat",
        (case for case in IN_CDF if case.heartbeat_s is not None and case.rebalance_time_s is None),
        3.0,
    ),
    _cdf(
        "figures10-12",
        "Figures 10 to 12: latency by rebalance time, Algorithm 1 against 2, heartbeat of 3 s",
        (case for case in IN_CDF if case.rebalance_time_s is not None and case.heartbeat_s is not None),
        3.0,
    ),
)
