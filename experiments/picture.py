"""Charts as SVG text: panels of lines, steps, points and bars, side by side, with one legend.

The pictures of the papers' figures are made of it. ``report.html`` draws its charts in the
browser; a picture that a README shows has to be a small file that is the same on each machine.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from math import ceil, floor, isfinite, log10
from typing import Final, Literal

Mark = Literal["line", "dashed", "steps", "points", "bars"]
Point = tuple[float, float]
Place = Callable[[float], float]

PRINTED: Final = "printed"
"""Label of values that a paper printed: black in each panel."""
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#7F7F7F")
"""Of Okabe and Ito, which colour-blind readers can tell apart, and two more; by order of labels."""
WIDTH, HEIGHT = 330, 200
LEFT, RIGHT, TOP, BOTTOM = 54, 10, 26, 40
AREA: Final = f"M{LEFT - 3} {TOP - 3}H{WIDTH - RIGHT + 3}V{HEIGHT - BOTTOM + 3}H{LEFT - 3}Z"
"""Where a panel's values are drawn."""
LEGEND_WIDTH_PER_LETTER: Final = 6.3
STYLE: Final = (
    "text{font:11px sans-serif;fill:#333}.title{font-weight:600}.grid{stroke:#e3e3e3;fill:none}"
    ".axis{stroke:#888;fill:none}.mid{text-anchor:middle}.end{text-anchor:end}"
)


@dataclass(frozen=True, kw_only=True)
class Series:
    """Values over numbers or over names. ``low`` and ``high``: a range around each value. A value that is not finite is
    left out.
    """

    label: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[float]
    mark: Mark = "line"
    low: Sequence[float] = ()
    high: Sequence[float] = ()


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One diagram. ``y_range``: where the axis of y begins and ends, else at 0 and above the largest value."""

    title: str
    x_title: str
    y_title: str
    series: Sequence[Series]
    y_range: tuple[float, float] | None = None
    x_range: tuple[float, float] | None = None


def draw(panels: Sequence[Panel], columns: int = 2) -> str:
    """The panels as one SVG document. A label has the same colour in all of them."""
    columns = min(columns, len(panels))
    labels = dict.fromkeys(series.label for panel in panels for series in panel.series)
    free = iter(COLOURS * len(labels))
    colours = {label: "#000000" if label == PRINTED else next(free) for label in labels}
    width, rows = columns * WIDTH, ceil(len(panels) / columns)
    legend, legend_height = _legend(colours, width)
    height = legend_height + rows * HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f'<style>{STYLE}</style><clipPath id="area"><path d="{AREA}"/></clipPath>',
        '<rect width="100%" height="100%" fill="#fff"/>',
        *legend,
    ]
    for number, panel in enumerate(panels):
        x, y = number % columns * WIDTH, legend_height + number // columns * HEIGHT
        parts += [f'<g transform="translate({x} {y})">', *_panel(panel, colours), "</g>"]
    return "\n".join([*parts, "</svg>\n"])


def _legend(colours: dict[str, str], width: int) -> tuple[list[str], int]:
    """The names of the colours in as many lines as they need, and the height of these."""
    parts, x, y = [], 10.0, 14
    for label, colour in colours.items():
        space = 22 + LEGEND_WIDTH_PER_LETTER * len(label)
        if x > 10 and x + space > width:
            x, y = 10.0, y + 17
        parts.append(f'<rect x="{x:.0f}" y="{y - 8}" width="10" height="10" fill="{colour}"/>')
        parts.append(_text(x + 14, y, label))
        x += space
    return parts, y + 8


def _panel(panel: Panel, colours: dict[str, str]) -> list[str]:
    names = list(dict.fromkeys(x for series in panel.series for x in series.x if isinstance(x, str)))
    positions = {name: float(index) for index, name in enumerate(names)}
    placed = [[positions[x] if isinstance(x, str) else float(x) for x in series.x] for series in panel.series]
    if panel.x_range is not None:
        low, high = panel.x_range
    else:
        low, high = (min(map(min, placed)), max(map(max, placed))) if not names else (-0.5, len(names) - 0.5)
    bottom, top = panel.y_range or _reach(panel)
    right, floor_y = WIDTH - RIGHT, HEIGHT - BOTTOM

    def across(value: float) -> float:
        return LEFT + (value - low) / ((high - low) or 1) * (right - LEFT)

    def up(value: float) -> float:
        return floor_y - (min(max(value, bottom), top) - bottom) / ((top - bottom) or 1) * (floor_y - TOP)

    parts = [_text(LEFT, 16, panel.title, "title"), _text((LEFT + right) / 2, HEIGHT - 6, panel.x_title, "mid")]
    parts.append(
        f'<text class="mid" transform="translate(13 {(TOP + floor_y) / 2:.0f}) rotate(-90)">'
        f"{escape(panel.y_title)}</text>"
    )
    for value in _ticks(bottom, top):
        parts.append(f'<path class="grid" d="M{LEFT} {up(value):.1f}H{right}"/>')
        parts.append(_text(LEFT - 5, up(value) + 4, f"{value:g}", "end"))
    ticks = [(position, name) for name, position in positions.items()] or [(x, f"{x:g}") for x in _ticks(low, high)]
    parts += [_text(across(position), floor_y + 15, name, "mid") for position, name in ticks]
    parts.append('<g clip-path="url(#area)">')
    bars = [series.label for series in panel.series if series.mark == "bars"]
    for series, xs in zip(panel.series, placed, strict=True):
        colour = colours[series.label]
        if series.mark == "bars":
            parts += _bars(series, xs, bars.index(series.label), len(bars), across, up, colour, floor_y)
        else:
            parts += _curve(series, xs, across, up, colour)
    return [*parts, f'</g><path class="axis" d="M{LEFT} {TOP}V{floor_y}H{right}"/>']


def _curve(series: Series, xs: Sequence[float], across: Place, up: Place, colour: str) -> Iterable[str]:
    def run(xs: Sequence[float], ys: Sequence[float]) -> list[Point]:
        return [(across(x), up(y)) for x, y in zip(xs, ys, strict=True)]

    if series.mark == "points":
        shown = [(x, y) for x, y in zip(xs, series.y, strict=True) if isfinite(y)]
        places = dict.fromkeys((round(x), round(y)) for x, y in (run(*zip(*shown, strict=True)) if shown else ()))
        dots = "".join(f"M{x} {y}h0" for x, y in places)
        yield f'<path d="{dots}" stroke="{colour}" stroke-width="3.6" stroke-linecap="round"/>'
        return
    for finite, group in groupby(range(len(xs)), key=lambda i: isfinite(series.y[i])):
        if not finite:
            continue
        some = list(group)
        if series.low and len(some) > 1:
            here = [xs[i] for i in some]
            edge = run(here, [series.high[i] for i in some]) + run(here, [series.low[i] for i in some])[::-1]
            yield f'<path d="{_path(edge)}Z" fill="{colour}" opacity=".18"/>'
        dash = ' stroke-dasharray="5 4"' if series.mark == "dashed" else ""
        d = _path(run([xs[i] for i in some], [series.y[i] for i in some]), steps=series.mark == "steps")
        yield f'<path d="{d}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>'


def _bars(
    series: Series, xs: Sequence[float], index: int, count: int, across: Place, up: Place, colour: str, floor_y: int
) -> Iterable[str]:
    """One of ``count`` bars side by side at each place, with its range."""
    width = 0.8 * (across(1) - across(0)) / count
    for i, (x, y) in enumerate(zip(xs, series.y, strict=True)):
        left = across(x) + (index - count / 2) * width
        if isfinite(y):
            size = f'width="{0.9 * width:.1f}" height="{floor_y - up(y):.1f}"'
            yield f'<rect x="{left:.1f}" y="{up(y):.1f}" {size} fill="{colour}"/>'
        if series.low:
            middle = left + 0.45 * width
            yield f'<path class="axis" d="M{middle:.1f} {up(series.low[i]):.1f}V{up(series.high[i]):.1f}"/>'


def _path(points: Sequence[Point], *, steps: bool = False) -> str:
    """SVG path data without points that change nothing at a tenth of a pixel."""
    x, y = (round(each, 1) for each in points[0])
    parts = [f"M{x:g} {y:g}"]
    for index, (next_x, next_y) in enumerate(points[1:], 1):
        to = (round(next_x, 1), round(next_y, 1))
        level = to[1] == y and index + 1 < len(points) and round(points[index + 1][1], 1) == y
        if level or to == (x, y):
            continue
        parts.append(f"H{to[0]:g}V{to[1]:g}" if steps else f"L{to[0]:g} {to[1]:g}")
        x, y = to
    return "".join(parts)


def _reach(panel: Panel) -> tuple[float, float]:
    values = [v for series in panel.series for v in (*series.y, *series.low, *series.high) if isfinite(v)]
    largest = max([*values, 0.0]) or 1.0
    return min(0.0, *values), 1.05 * largest


def _ticks(low: float, high: float, most: int = 6) -> list[float]:
    rough = (high - low) / most or 1
    power = 10.0 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return [round(step * number, 10) for number in range(ceil(low / step), floor(high / step + 1e-9) + 1)]


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    chosen = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y:.0f}"{chosen}>{escape(text)}</text>'
