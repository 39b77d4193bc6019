"""Figures 4 to 12 of AMESoS, drawn from its tables."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from experiments.amesos.experiments import PIPELINES
from experiments.amesos.figures import SCALERS
from experiments.paper import Cells, PaperFigure, read_spread
from experiments.picture import Mark, Panel, Series


def figure_4(rows: Sequence[Cells]) -> list[Panel]:
    """The three rates."""
    times = [row["time_s"] for row in rows]
    marks: tuple[Mark, ...] = ("line", "line", "dashed")  # the last two are the same
    series = [
        Series(label=name, x=times, y=[row[f"{name}_per_s"] for row in rows], mark=mark)
        for name, mark in zip(PIPELINES, marks, strict=True)
    ]
    return [Panel(title="4: rates", x_title="s", y_title="requests/s", series=series)]


def by_function(pipeline: str, column: str, rows: Sequence[Cells]) -> list[Panel]:
    """Queue or replicas of each function of a pipeline over time, a panel for each scaler. Replicas have one scale,
    queues their own: they differ by a factor of ten.
    """
    here = [row for row in rows if row["pipeline"] == pipeline]
    y_range = (0.0, 1.05 * max(row[column] for row in here)) if column == "replicas" else None
    panels = []
    for scaler in SCALERS:
        series = []
        for function in dict.fromkeys(row["function"] for row in here):
            some = [row for row in here if (row["scaler"], row["function"]) == (scaler, function)]
            values = [row[column] for row in some]
            series.append(Series(label=function, x=[row["time_s"] for row in some], y=values))
        panels.append(Panel(title=scaler, x_title="s", y_title=column, series=series, y_range=y_range))
    return panels


def bars(column: str, title: str, rows: Sequence[Cells]) -> list[Panel]:
    """A measure of each scaler with its range, a panel for each pipeline. RPS with its target at saturation."""
    panels = []
    for pipeline in PIPELINES:
        some = [row for row in rows if row["pipeline"] == pipeline and row["scaler"] in SCALERS]
        middle, low, high = zip(*(read_spread(row[column]) for row in some), strict=True)
        names = [row["scaler"] for row in some]
        series = [Series(label=title, x=names, y=middle, low=low, high=high, mark="bars")]
        panels.append(Panel(title=pipeline, x_title="", y_title=title, series=series))
    return panels


def _functions(number: int, pipeline: str, column: str, what: str) -> PaperFigure:
    return PaperFigure(
        f"figure{number}",
        f"Figure {number}: {what} of each function of {pipeline}, means over the seeds",
        "figures5-10",
        partial(by_function, pipeline, column),
        4,
    )


def _bars(number: int, column: str, title: str, what: str) -> PaperFigure:
    panels: Callable[[Sequence[Cells]], list[Panel]] = partial(bars, column, title)
    return PaperFigure(f"figure{number}", f"Figure {number}: {what}; medians and ranges", "summary", panels, 3)


FIGURES: Final = (
    PaperFigure("figure4", "Figure 4: rates, our knots", "figure4", figure_4),
    *(_functions(number, each, "replicas", "replicas") for number, each in enumerate(PIPELINES, 5)),
    *(_functions(number, each, "waiting", "queue") for number, each in enumerate(PIPELINES, 8)),
    _bars(11, "missed, %", "missed, %", "deadline misses"),
    _bars(12, "replica_minutes", "replica-minutes", "resources"),
)
