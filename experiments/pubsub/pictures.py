"""Figures 4 to 8 of the pub/sub paper, drawn from its tables."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from experiments.paper import Cells, PaperFigure, read_spread
from experiments.picture import PRINTED, Panel, Series
from experiments.pubsub.experiments import DYNAMIC_CHANGE_S, LIMIT_S

JOBS: Final = (1, 2, 3)
PRINTED_ITERATIONS: Final = 5
"""After which MinCost keeps the limit."""
SHOWN_S: Final = 200.0
"""Largest response in figures 6 and 7: with an overloaded topic it grows with the run."""
WINDOW_S: Final = 60.0
"""Width of the intervals of figure 8."""


def _spread(label: str, rows: Sequence[Cells], column: str, x: Sequence[float]) -> Series:
    middle, low, high = zip(*(read_spread(row[column]) for row in rows), strict=True)
    return Series(label=label, x=x, y=middle, low=low, high=high)


def figure_4(rows: Sequence[Cells]) -> list[Panel]:
    """Work in progress; an allocation that overloads a topic has none."""
    x = [row["iteration"] for row in rows]
    columns = {"MinTime": "mintime_wip", "Random, median": "random_wip_median", "Random, best": "random_wip_best"}
    marks = {"Random, best": "dashed"}
    work = [
        Series(label=label, x=x, y=[row[column] for row in rows], mark=marks.get(label, "line"))  # type: ignore[arg-type]
        for label, column in columns.items()
    ]
    overloaded = Series(
        label="Random, share that overloads a topic", x=x, y=[row["random_overloaded_share"] for row in rows]
    )
    return [
        Panel(title="4: work in progress", x_title="iteration", y_title="requests", series=work),
        Panel(title="4: draws that overload a topic", x_title="iteration", y_title="share", series=[overloaded]),
    ]


def figure_5(rows: Sequence[Cells]) -> list[Panel]:
    """Response of each job type, simulated, and by the formulas as a dashed line."""
    x = [row["rate_per_min"] for row in rows]
    series = []
    for job in JOBS:
        series.append(_spread(f"job {job}", rows, f"range_{job}_s", x))
        model = [row[f"model_{job}_s"] for row in rows]
        series.append(Series(label=f"job {job}", x=x, y=model, mark="dashed"))
    return [
        Panel(title="5: response", x_title="jobs of each type a minute", y_title="s", series=series, y_range=(0, 400))
    ]


def _responses(rows: Sequence[Cells], name: str, scaler: str) -> tuple[Panel, list[float]]:
    x = [float(row["iteration"]) for row in rows]
    series = [
        _spread(scaler, rows, "range_s", x),
        Series(label=scaler, x=x, y=[row["model_s"] for row in rows], mark="dashed"),
        _spread("Random", rows, "random_s", x),
        Series(label="Random", x=x, y=[row["random_best_s"] for row in rows], mark="dashed"),
    ]
    y_range = (0.0, SHOWN_S)
    return Panel(title=f"{name}: response", x_title="iteration", y_title="s", series=series, y_range=y_range), x


def figure_6(rows: Sequence[Cells]) -> list[Panel]:
    """All jobs against Random, and MinTime by job type."""
    all_jobs, x = _responses(rows, "6a", "MinTime")
    by_type = [_spread(f"job {job}", rows, f"range_{job}_s", x) for job in JOBS]
    return [
        all_jobs,
        Panel(title="6b: by job type", x_title="iteration", y_title="s", series=by_type, y_range=(0, SHOWN_S)),
    ]


def figure_7(rows: Sequence[Cells]) -> list[Panel]:
    """Response after each iteration, with the limit and the printed number of iterations."""
    panel, x = _responses(rows, "7", "MinCost")
    limit = Series(label="limit of 50 s", x=[x[0], x[-1]], y=[LIMIT_S, LIMIT_S], mark="dashed")
    printed = Series(label=PRINTED, x=[PRINTED_ITERATIONS], y=[LIMIT_S], mark="points")
    random = [float(row["random_within_limit"].split(" of ")[0]) for row in rows]
    greedy = [float(row["within_limit"].split(" of ")[0]) for row in rows]
    kept = [Series(label=name, x=x, y=y) for name, y in (("MinCost", greedy), ("Random", random))]
    return [
        Panel(**{**vars(panel), "series": [*panel.series, limit, printed]}),
        Panel(title="7: runs that keep the limit", x_title="iteration", y_title="runs", series=kept),
    ]


def figure_8(rows: Sequence[Cells]) -> list[Panel]:
    """Every request of the first seed, and the mean response in each minute over all seeds."""
    first = rows[0]["seed"]
    some = [row for row in rows if row["seed"] == first]
    at_s, response_s = (np.asarray([row[name] for row in rows]) for name in ("intended_s", "response_s"))
    part = (at_s / WINDOW_S).astype(int)
    places = np.unique(part)
    spreads = np.asarray([np.percentile(response_s[part == place], (50, 5, 95)) for place in places])
    middle, low, high = spreads.T.tolist()
    x = ((places + 0.5) * WINDOW_S).tolist()
    change = Series(label="change of rates", x=[DYNAMIC_CHANGE_S] * 2, y=[0.0, max(high)], mark="dashed")
    series = [
        Series(label="all seeds: median, 5 to 95 %", x=x, y=middle, low=low, high=high),
        Series(
            label=f"requests of seed {first}",
            x=[row["intended_s"] for row in some],
            y=[row["response_s"] for row in some],
            mark="points",
        ),
        change,
    ]
    return [Panel(title="8: response of requests", x_title="s", y_title="s", series=series)]


FIGURES: Final = (
    PaperFigure("figure4", "Figure 4: MinTime against Random by the formulas, M = 10", "figure4", figure_4),
    PaperFigure(
        "figure5",
        "Figure 5: response by job type under growing rates; medians and ranges, dashed: by the formulas",
        "figure5",
        figure_5,
    ),
    PaperFigure(
        "figure6",
        "Figures 6a and 6b: MinTime (dashed: by the formulas) against Random (dashed: its best draw); by job type",
        "figure6",
        figure_6,
    ),
    PaperFigure(
        "figure7",
        "Figure 7: MinCost against Random, limit 50 s (printed: five iterations); dashed as in figure 6",
        "figure7",
        figure_7,
    ),
    PaperFigure("figure8", "Figure 8: change of rates after 30 minutes", "figure8-requests", figure_8),
)
