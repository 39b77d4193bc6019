"""Figures 3a to 3d of Elastic-FaaS and its story, drawn from its tables."""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from controller.fleets.queue.container_ramp import timeline
from experiments.elastic_faas.experiments import FUNCTIONS
from experiments.elastic_faas.tables import STARTS
from experiments.paper import Cells, PaperFigure, read_spread
from experiments.picture import PRINTED, Panel, Series

NEARLY_SIXTY, LESS_THAN_THIRTY = 60.0, 30.0
"""Units of time that the paper prints for 30 containers, of one function and of three."""


def figures_3a_3b(rows: Sequence[Cells]) -> list[Panel]:
    """Containers of each function and of all, simulated as steps and printed as points."""
    times = [row["time"] for row in rows]
    names = [name for name in rows[0] if name not in ("time", "live")]
    panels = []
    for title, chosen in (("3a: containers of each function", names[:-1]), ("3b: containers of all", names[-1:])):
        series = []
        for name in chosen:
            series.append(Series(label=name, x=times, y=[row[name]["simulated"] for row in rows], mark="steps"))
            series.append(Series(label=PRINTED, x=times, y=[row[name]["printed"] for row in rows], mark="points"))
        panels.append(Panel(title=title, x_title="time", y_title="containers", series=series))
    return panels


def figure_3c(rows: Sequence[Cells]) -> list[Panel]:
    """Containers over time of one function and of three, and when the paper has thirty."""
    times = list(range(0, 61, 2))
    one, three = ([sum(timeline(FUNCTIONS, starts, time)) for time in times] for starts in ((0.0,), STARTS))
    series = [
        Series(label="one function", x=times, y=one, mark="steps"),
        Series(label="three, 10 units apart", x=times, y=three, mark="steps"),
        Series(label=PRINTED, x=[LESS_THAN_THIRTY, NEARLY_SIXTY], y=[30.0, 30.0], mark="points"),
    ]
    bars = [row for row in rows if row["printed"] != "-"]
    names, units = ([row[name] for row in bars] for name in ("functions", "formula"))
    needed = [Series(label="by formula", x=names, y=units, mark="bars")]
    return [
        Panel(title="3c: containers", x_title="time", y_title="containers", series=series, y_range=(0, 60)),
        Panel(title="3c: time to 30 containers", x_title="", y_title="units of time", series=needed),
    ]


def figure_3d(rows: Sequence[Cells]) -> list[Panel]:
    """Events that come, are served and are shed, medians and ranges."""
    panels = []
    for scaler, some in groupby(rows, itemgetter("scaler")):
        moments = list(some)
        times = [row["time_s"] for row in moments]
        series = []
        for name in ("arrived", "served", "shed"):
            middle, low, high = zip(*(read_spread(row[name]) for row in moments), strict=True)
            series.append(Series(label=name, x=times, y=middle, low=low, high=high))
        panels.append(Panel(title=f"3d: {scaler}", x_title="time", y_title="events in 2 units", series=series))
    return panels


FIGURES: Final = (
    PaperFigure("figures3a-3b", "Figures 3a and 3b: Table 1 as curves, simulated and printed", "table1", figures_3a_3b),
    PaperFigure("figure3c", "Figure 3c: time to 30 containers (printed: nearly 60, less than 30)", "thirty", figure_3c),
    PaperFigure("figure3d", "Figure 3d: ingestion against throughput; medians and ranges", "figure3d", figure_3d),
)
