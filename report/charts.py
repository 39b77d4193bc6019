"""The charts as plotly.js figures (plain JSON objects; a test validates them against plotly's schema).

Colours that depend on light or dark are written as ``var(--name)`` and resolved from the style sheet in the browser.
Every text that comes from a run is escaped: plotly reads a little HTML in labels.
"""

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np

from penstock.contracts import Action
from penstock.measures import Floats
from report.analysis.run_data import RunData
from report.groups import Group
from report.wording import duration, short_duration

Figure = dict[str, Any]
Trace = dict[str, Any]

INK, FAINT, GRID, SLO, FAULT = "var(--ink)", "var(--muted)", "var(--grid)", "var(--slo)", "var(--fault)"
PARTS = (("sending", "var(--part-1)"), ("queueing", "var(--part-2)"), ("service", "var(--part-3)"))
FAINT_OPACITY = 0.35
FASTEST_LEFT_OUT = 0.995
"""The logarithmic axis of the CDF begins where the share of slower events falls below this."""
MARKS: dict[Action, tuple[str, str]] = {
    "up": ("triangle-up", "scale-up"),
    "down": ("triangle-down", "scale-down"),
    "reassign": ("diamond", "reassignment"),
}
TOP_PX, BOTTOM_PX, GAP_PX, TITLE_PX = 12, 52, 16, 24
CLEAR = "rgba(0,0,0,0)"
AXIS = {
    "gridcolor": GRID,
    "zeroline": False,
    "linecolor": GRID,
    "tickfont": {"color": FAINT, "size": 12},
    "title": {"standoff": 8, "font": {"size": 13, "color": FAINT}},
}
TEMPLATE = {
    "layout": {
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 13, "color": INK},
        "hoverlabel": {"bgcolor": "var(--paper)", "bordercolor": GRID, "font": {"color": INK}},
        "legend": {"orientation": "h", "x": 0, "yanchor": "bottom", "font": {"size": 13}},
        "xaxis": AXIS,
        "yaxis": AXIS,
    }
}
"""What all figures have in common."""


class Panel(NamedTuple):
    """A strip of a figure with a title of its own: traces share the x axis with the other strips."""

    title: str
    colour: str
    traces: list[Trace]
    yaxis: dict[str, Any]
    height_px: int


# --- latency ---------------------------------------------------------------------------------------------------------


def latency_cdf(groups: Sequence[Group], runs: Sequence[RunData]) -> Figure:
    """Share of events by latency; the vertical axis is drawn on the tail's own scale (1 − share, logarithmic)."""
    traces = []
    for group in groups:
        for order, member in enumerate(group.members):
            tail, bold, shares = runs[member].tail, order == 0, [1.0, *runs[member].tail.slower_share]
            curve = _curve(
                escape(group.label),
                _numbers([*tail.latency_s[:1], *tail.latency_s], 6),
                _numbers(shares, 7),
                "%{customdata} % within %{x:.3f} s<extra>%{fullData.name}</extra>",
                line={"color": group.colour, "width": 2.6 if bold else 1.2, "shape": "hv"},
                customdata=[f"{100 * (1 - share):.4g}" for share in shares],
                legendgroup=escape(group.label),
                showlegend=bold,
            )
            traces.append(curve | {"opacity": 1 if bold else FAINT_OPACITY})
    low_s, high_s = _latency_range(run.tail.latency_s[run.tail.slower_share < FASTEST_LEFT_OUT] for run in runs)
    slos, beside = _distinct_slos(runs), {"xref": "x", "yanchor": "bottom", "xshift": 5}
    layout = _layout(440, left_px=88, top_px=40, showlegend=True, hovermode="closest") | {
        "legend": {"y": 1.02},
        "xaxis": _latency_axis(low_s, max(high_s, *slos), most=14) | {"title": {"text": "latency (log scale)"}},
        "yaxis": tail_axis(most_events(groups)) | {"title": {"text": "share of events at least this fast"}},
        "shapes": [_slo_line("x", slo_s) for slo_s in slos],
        "annotations": [
            _note(f"SLO {duration(slo_s)}", math.log10(slo_s), 0.02, SLO, size=12, **beside) for slo_s in slos
        ],
    }
    return {"data": traces, "layout": layout}


def most_events(groups: Sequence[Group]) -> int:
    """Completed events of the longest run."""
    return max(summary.completed_events for group in groups for summary in group.summaries)


def tail_axis(events: int) -> dict[str, Any]:
    """Axis of 1 − share: each step of the ticks is ten times rarer, so that the tail can be seen."""
    decades = max(2, math.ceil(math.log10(max(events, 10))))
    shares = [1.0, 0.5, *(10.0**-decade for decade in range(1, decades + 1))]
    return {"type": "log", "range": [0, -decades], **_share_ticks(shares)}


def linear_axis() -> dict[str, Any]:
    """Axis of 1 − share on an even scale."""
    return {"type": "linear", "range": [1.0, -0.01], **_share_ticks([1.0, 0.75, 0.5, 0.25, 0.0])}


def _share_ticks(shares: Sequence[float]) -> dict[str, Any]:
    return {"tickvals": shares, "ticktext": [f"{100 * (1 - share):.10g} %" for share in shares]}


def latency_over_time(groups: Sequence[Group], runs: Sequence[RunData]) -> Figure:
    """p50 and p99 of the events that finished in each second; one strip a scaler, all on the same scale."""
    slos = _distinct_slos(runs)
    measured = [values_s for run in runs for values_s in (run.latency.p50_s, run.latency.p99_s)]
    axis = _latency_axis(*_latency_range([*measured, np.array(slos)]), most=8) | {"title": {"text": "latency"}}
    panels = []
    for group in groups:
        traces: list[Trace] = []
        for run, bold in _members(group, runs):
            series = run.latency
            shown = (("p99", series.p99_s, "solid"), ("p50", series.p50_s, "dot"))
            traces += [
                _curve(
                    name,
                    _numbers(series.second + 0.5, 1),
                    _numbers(values_s, 5),
                    f"{name} %{{customdata}}<extra></extra>",
                    bold=bold,
                    line={"color": group.colour, "width": 2 if bold else 1, "dash": dash},
                    customdata=[duration(value) for value in values_s],
                )
                for name, values_s, dash in (shown if bold else shown[:1])
            ]
        panels.append(Panel(group.label, group.colour, traces, axis, height_px=170))
    figure = _strips(panels, runs)
    figure["layout"]["shapes"] += [_slo_line("y", slo_s, axis=index) for index in range(len(panels)) for slo_s in slos]
    return figure


def time_spent(groups: Sequence[Group]) -> Figure:
    """Mean time in sending, queueing and service, for all events and for the slowest 1 % of them."""
    labels = [escape(group.label) for group in groups]
    layout = _layout(
        110 + 46 * len(groups),
        left_px=min(260, 24 + 8 * max((len(group.label) for group in groups), default=8)),
        top_px=40,
        showlegend=True,
        hovermode="closest",
    )
    traces: list[Trace] = []
    notes: list[dict[str, Any]] = []
    for events, axis, domain, splits in (
        ("all events", "x", [0, 0.46], [group.first.mean for group in groups]),
        ("the slowest 1 %", "x2", [0.54, 1], [group.first.slowest_mean for group in groups]),
    ):
        parts_s = np.array([[s.send_delay_s or 0.0, s.queueing_s or 0.0, s.service_s or 0.0] for s in splits])
        totals_s = parts_s.sum(axis=1)
        longest_s = float(totals_s.max(initial=0.0)) or 0.001
        unit, scale = ("s", 1) if longest_s >= 1 else ("ms", 1000)
        traces += [
            {
                "type": "bar",
                "orientation": "h",
                "name": part,
                "legendgroup": part,
                "showlegend": axis == "x",
                "xaxis": axis,
                "yaxis": "y",
                "y": labels,
                "x": _numbers(scale * parts_s[:, index], 4),
                "customdata": [duration(value) for value in parts_s[:, index]],
                "marker": {"color": colour},
                "hovertemplate": f"{part} %{{customdata}}, {events}<extra>%{{y}}</extra>",
            }
            for index, (part, colour) in enumerate(PARTS)
        ]
        notes += [
            _note(f"<b>{duration(total_s)}</b>", scale * total_s, label, INK, xref=axis, yref="y", xshift=5)
            for label, total_s in zip(labels, totals_s.tolist(), strict=True)
        ]
        layout[axis.replace("x", "xaxis")] = {
            "range": [0, 1.25 * scale * longest_s],  # a quarter more than the longest bar, for the total behind it
            "nticks": 6,
            "zeroline": True,
            "zerolinecolor": GRID,
            "title": {"text": f"{unit}, mean of {events}"},
            "domain": domain,
            "anchor": "y",
        }
    layout |= {
        "barmode": "stack",
        "bargap": 0.35,
        "legend": {"y": 1, "traceorder": "normal"},
        "yaxis": {"autorange": "reversed", "showgrid": False, "ticklabelstandoff": 6},
        "annotations": notes,
    }
    return {"data": traces, "layout": layout}


# --- over time -------------------------------------------------------------------------------------------------------


def replicas_over_time(groups: Sequence[Group], runs: Sequence[RunData]) -> Figure:
    """The arrival rate of the schedule, and below it the replicas of each scaler with its actions."""
    rates = runs[groups[0].members[0]].arrivals_per_s
    arrivals = _curve(
        "arrivals",
        list(range(len(rates) + 1)),
        _numbers([*rates, *rates[-1:]], 0),
        "%{y} events/s<extra></extra>",
        line={"color": FAINT, "width": 1.5, "shape": "hv"},
        fill="tozeroy",
        fillcolor="var(--area)",
    )
    axis: dict[str, Any] = {"rangemode": "tozero", "title": {"text": "events/s"}, "nticks": 5}
    panels = [Panel("arrival rate of the schedule", INK, [arrivals], axis, height_px=120)]
    most = max((int(run.replica_counts[1].max(initial=1)) for run in runs), default=1)
    axis = {"range": [0, most + 0.6], "dtick": max(1, math.ceil(most / 5)), "title": {"text": "replicas"}}
    for group in groups:
        traces = [each for run, bold in _members(group, runs) for each in _replica_traces(run, group, bold=bold)]
        panels.append(Panel(group.label, group.colour, traces, axis, height_px=120))
    return _strips(panels, runs)


def _replica_traces(run: RunData, group: Group, *, bold: bool) -> list[Trace]:
    since_s, replicas = run.replica_counts
    before, inside = replicas[since_s <= 0], (since_s > 0) & (since_s <= run.spec.duration_s)
    counts = [int(before[-1]) if len(before) else 0, *replicas[inside]]
    line = _curve(
        "replicas",
        _numbers([0.0, *since_s[inside], run.spec.duration_s], 2),
        _numbers([*counts, counts[-1]], 0),
        "%{y} replicas<extra></extra>",
        bold=bold,
        line={"color": group.colour, "width": 2.4 if bold else 1, "shape": "hv"},
    )
    marks = []
    for action, (symbol, name) in MARKS.items() if bold else ():
        if found := [step for step in run.steps if step.decision.action == action]:
            edge = {"color": "var(--paper)", "width": 1.5}
            mark = _curve(
                name,
                _numbers([step.record.time_s for step in found], 2),
                [step.after for step in found],
                f"{name} %{{customdata}}<extra></extra>",
                customdata=[f"{step.before} → {step.after}" for step in found],
                marker={"symbol": symbol, "size": 12, "color": group.colour, "line": edge},
                cliponaxis=False,
            )
            marks.append(mark | {"mode": "markers"})
    return [line, *marks]


def lag_per_partition(groups: Sequence[Group], runs: Sequence[RunData]) -> Figure:
    """Lag of each partition at each tick: one strip a scaler, the colour is the number of waiting events."""
    axis = {"type": "category", "autorange": "reversed", "showgrid": False, "ticks": ""}
    panels, highest = [], 1.0
    for group in groups:
        lag = runs[group.members[0]].lag
        highest = max(highest, float(np.nanmax(lag.lag, initial=1.0)) if lag.lag.size else 1.0)
        trace = {
            "type": "heatmap",
            "x": _numbers(lag.time_s, 2),
            "y": [f"p{partition}" for partition in lag.partitions],
            "z": [_numbers(row, 0) for row in lag.lag.T],
            "coloraxis": "coloraxis",
            "hovertemplate": "partition %{y}: %{z} waiting<extra></extra>",
            "hoverongaps": False,
        }
        height_px = min(260, max(70, 24 * len(lag.partitions)))
        panels.append(Panel(group.label, group.colour, [trace], axis, height_px))
    figure = _strips(panels, runs, right_px=96, layer="above")
    figure["layout"]["hovermode"] = "closest"
    figure["layout"]["coloraxis"] = {
        "cmin": 0,
        "cmax": highest,
        "colorscale": [[0, "var(--heat-0)"], [0.25, "var(--heat-1)"], [0.6, "var(--heat-2)"], [1, "var(--heat-3)"]],
        "colorbar": {
            "title": {"text": "events<br>waiting", "font": {"size": 12}},
            "thickness": 12,
            "outlinewidth": 0,
            "lenmode": "pixels",
            "len": 190,
            "y": 1,
            "yanchor": "top",
        },
    }
    return figure


# --- layout ----------------------------------------------------------------------------------------------------------


def _strips(panels: Sequence[Panel], runs: Sequence[RunData], *, right_px: int = 16, layer: str = "below") -> Figure:
    """Panels one below the other over one time axis, faults shaded through all of them."""
    inner_px = sum(TITLE_PX + panel.height_px for panel in panels) + GAP_PX * (len(panels) - 1)
    layout = _layout(TOP_PX + inner_px + BOTTOM_PX, left_px=80, top_px=TOP_PX, hovermode="x unified")
    layout["margin"]["r"] = right_px
    traces, annotations = [], []
    below_px = float(inner_px)
    for index, panel in enumerate(panels):
        top_px = below_px - TITLE_PX
        bottom_px = top_px - panel.height_px
        number = str(index + 1) if index else ""
        layout[f"yaxis{number}"] = {**panel.yaxis, "domain": [max(0.0, bottom_px / inner_px), top_px / inner_px]}
        traces += [{**trace, "xaxis": "x", "yaxis": f"y{number}", "showlegend": False} for trace in panel.traces]
        title = f"<b>{escape(panel.title)}</b>"
        annotations.append(_note(title, 0, top_px / inner_px, panel.colour, yanchor="bottom", yshift=1))
        below_px = bottom_px - GAP_PX
    faults = {(fault.at_s, fault.seconds) for run in runs for fault in run.spec.faults}
    shade = {"type": "rect", "fillcolor": FAULT, "opacity": 0.18, "line": {"width": 0}, "layer": layer}
    layout |= {
        "annotations": annotations,
        "shapes": [
            {**shade, "xref": "x", "yref": "paper", "x0": at_s, "x1": at_s + max(seconds, 0.5), "y0": 0, "y1": 1}
            for at_s, seconds in sorted(faults)
        ],
        "xaxis": {
            "range": [0, max(run.spec.duration_s for run in runs)],
            "anchor": f"y{len(panels)}" if len(panels) > 1 else "y",
            "title": {"text": "seconds into the run"},
            "nticks": 14,
        },
    }
    return {"data": traces, "layout": layout}


def _members(group: Group, runs: Sequence[RunData]) -> list[tuple[RunData, bool]]:
    """The group's runs in the order in which they are drawn, and whether a run is the bold one: the last."""
    return [(runs[member], order == 0) for order, member in reversed(list(enumerate(group.members)))]


def _curve(name: str, x: Sequence[Any], y: Sequence[Any], hover: str, *, bold: bool = True, **more: Any) -> Trace:
    """A line; faint and without hover text unless it is bold."""
    shown = {"opacity": 1, "hovertemplate": hover} if bold else {"opacity": FAINT_OPACITY, "hoverinfo": "skip"}
    return {"type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, **shown, **more}


def _note(text: str, x: float, y: float | str, colour: str, *, size: int = 13, **more: Any) -> dict[str, Any]:
    """An annotation to the right of a point; by default of the whole figure's coordinates."""
    place = {"x": x, "y": y, "xref": "paper", "yref": "paper", "xanchor": "left"}
    return {"text": text, "showarrow": False, "font": {"color": colour, "size": size}, **place, **more}


def _slo_line(along: str, slo_s: float, axis: int = 0) -> dict[str, Any]:
    """A line across the axis ``along`` (of strip ``axis``)."""
    across = "y" if along == "x" else "x"
    return {
        "type": "line",
        "line": {"color": SLO, "width": 1.5, "dash": "dash"},
        f"{along}ref": f"{along}{axis + 1 if axis else ''}",
        f"{along}0": slo_s,
        f"{along}1": slo_s,
        f"{across}ref": "paper",
        f"{across}0": 0,
        f"{across}1": 1,
    }


def _layout(height_px: int, *, left_px: int, top_px: int, showlegend: bool = False, hovermode: str) -> dict[str, Any]:
    margin = {"l": left_px, "r": 16, "t": top_px, "b": BOTTOM_PX}
    shared = {"template": TEMPLATE, "showlegend": showlegend, "hovermode": hovermode, "dragmode": "zoom"}
    return {"height": height_px, "margin": margin, **shared}


def _latency_axis(low_s: float, high_s: float, *, most: int) -> dict[str, Any]:
    """Logarithmic axis with ticks at 1, 2, 5 (or at decades only, where that would be more than ``most``)."""
    decades = range(math.floor(math.log10(low_s)), math.ceil(math.log10(high_s)) + 1)
    for steps in ((1, 2, 5), (1,)):
        ticks = [step * 10.0**decade for decade in decades for step in steps if low_s <= step * 10.0**decade <= high_s]
        if len(ticks) <= most:
            break
    bounds = [math.log10(low_s), math.log10(high_s)]
    return {"type": "log", "range": bounds, "tickvals": ticks, "ticktext": [short_duration(tick) for tick in ticks]}


def _latency_range(values: Iterable[Floats]) -> tuple[float, float]:
    """What a logarithmic latency axis must show, with a margin; not below 0.1 ms."""
    known = np.concatenate([np.asarray(part, dtype=np.float64) for part in values])
    known = known[np.isfinite(known) & (known > 1e-4)]
    return (float(known.min()) / 1.15, float(known.max()) * 1.15) if len(known) else (1e-3, 1.0)


def _distinct_slos(runs: Sequence[RunData]) -> list[float]:
    return sorted({run.spec.slo_s for run in runs})


def _numbers(values: Iterable[Any], digits: int) -> list[float | None]:
    """Plain numbers for JSON, rounded to what a chart can show; None for the unknown."""
    return [round(float(value), digits) if math.isfinite(value) else None for value in values]
