"""Figures 2a and 3a to 3f and the story of Elastic Multi-M/M/s/K, drawn from its tables."""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

from experiments.multiqueue.experiments import MOST_CONTAINERS
from experiments.multiqueue.tables import HEADINGS, PRINTED_ROWS
from experiments.paper import Cells, PaperFigure, read_spread
from experiments.picture import PRINTED, Mark, Panel, Series

MARKS: Final[tuple[Mark, ...]] = ("line", "dashed")
"""Of the first and the second measure of a panel."""
RATE_OF_QUEUE: Final = {"single": 200, "multi": 100}
"""Arrivals per second of one queue."""
PANELS: Final = (
    ("3a: entered and lost per s", ("λ(1-P_K)", "λ P_K")),
    ("3c: waiting", ("L_q",)),
    ("3d: in the system", ("L",)),
    ("3e: times, s", ("W_q", "W")),
    ("3f: P_K", ("P_K",)),
)


def figure_3(rows: Sequence[Cells]) -> list[Panel]:
    """Simulated ramps as lines, the printed steady states as points."""
    panels = [
        Panel(title="3b: containers of a queue", x_title="time", y_title="s", series=[_containers(rows)]),
    ]
    for title, headings in PANELS:
        series = []
        for queue, some in groupby(rows, itemgetter("queue")):
            ramp = list(some)
            times = [row["time"] for row in ramp]
            printed = [PRINTED_ROWS[RATE_OF_QUEUE[queue]][min(row["s"], MOST_CONTAINERS) - 1] for row in ramp]
            for heading, mark in zip(headings, MARKS, strict=False):
                values = [row[heading]["simulated"] for row in ramp]
                series.append(Series(label=f"{queue} queue", x=times, y=values, mark=mark))
                column = HEADINGS.index(heading)
                series.append(Series(label=PRINTED, x=times, y=[row[column] for row in printed], mark="points"))
        panels.append(Panel(title=title, x_title="time", y_title=", dashed ".join(headings), series=series))
    return [panels[1], panels[0], *panels[2:]]


def _containers(rows: Sequence[Cells]) -> Series:
    single = [row for row in rows if row["queue"] == "single"]
    return Series(label="containers", x=[row["time"] for row in single], y=[row["s"] for row in single], mark="steps")


def figure_2a(rows: Sequence[Cells]) -> list[Panel]:
    """Load, and the containers that follow it."""
    seconds = [row["second"] for row in rows]
    panels = []
    for title, names in (("Load", ("arrived", "lost")), ("Containers", ("containers",)), ("Backlog", ("backlog",))):
        series = []
        for name in names:
            middle, low, high = zip(*(read_spread(row[name]) for row in rows), strict=True)
            series.append(Series(label=name, x=seconds, y=middle, low=low, high=high))
        panels.append(
            Panel(title=title, x_title="second", y_title="events" if title != "Containers" else "", series=series)
        )
    return panels


def story(rows: Sequence[Cells]) -> list[Panel]:
    """Lost events of each scaler on each experiment, in the second half of the run, with the range over the seeds."""
    panels = []
    for field, title, unit in (
        ("late_lost_share", "Lost in the second half", "share"),
        ("container_minutes", "Containers", "container-minutes"),
    ):
        series = []
        for scaler in dict.fromkeys(row["scaler"] for row in rows):
            some = [row for row in rows if row["scaler"] == scaler]
            middle, low, high = zip(*(read_spread(row[field]) for row in some), strict=True)
            names = [row["experiment"].removeprefix("multiqueue-").replace("multiqueue", "λ = 200") for row in some]
            series.append(Series(label=scaler, x=names, y=middle, low=low, high=high, mark="bars"))
        panels.append(Panel(title=title, x_title="experiment", y_title=unit, series=series))
    return panels


FIGURES: Final = (
    PaperFigure(
        "figure2a", "Figure 2a: containers by load, down to none; medians and ranges", "containers", figure_2a, 3
    ),
    PaperFigure("figure3", "Figures 3a to 3f: simulated ramp, and the printed steady states", "figure3", figure_3, 3),
    PaperFigure("story", "The story: who loses how much, for how many containers; medians and ranges", "story", story),
)
