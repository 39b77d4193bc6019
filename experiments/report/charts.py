"""The charts as plotly.js figures (plain JSON objects; a test validates them against plotly's schema).

Colours that depend on light or dark are written as ``var(--name)`` and resolved from the style sheet in the browser.
Every text that comes from a run is escaped: plotly reads a little HTML in labels.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from experiments.analysis.summary import MeanSplit
from experiments.report.evidence import RunEvidence
from experiments.report.groups import Group
from experiments.report.wording import duration
from penstock.contracts import Action
from penstock.measures import Floats, Ints

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


@dataclass(frozen=True, slots=True)
class Panel:
    """A strip of a figure with a title of its own: traces share the x axis with the other strips."""

    title: str
    colour: str
    traces: list[Trace]
    yaxis: dict[str, Any]
    height_px: int = 150


# --- latency ---------------------------------------------------------------------------------------------------------


def latency_cdf(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> Figure:
    """Share of events by latency; the vertical axis is drawn on the tail's own scale (1 − share, logarithmic)."""
    traces = []
    for group in groups:
        for order, member in enumerate(group.members):
            tail = runs[member].tail
            bold = order == 0
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": escape(group.label),
                    "legendgroup": escape(group.label),
                    "showlegend": bold,
                    "x": _numbers([*tail.latency_s[:1], *tail.latency_s], 6),
                    "y": _numbers([1.0, *tail.slower_share], 7),
                    "customdata": [f"{100 * (1 - share):.4g}" for share in (1.0, *tail.slower_share)],
                    "line": {"color": group.colour, "width": 2.6 if bold else 1.2, "shape": "hv"},
                    "opacity": 1 if bold else FAINT_OPACITY,
                    "hovertemplate": "%{customdata} % within %{x:.3f} s<extra>%{fullData.name}</extra>",
                }
            )
    low_s, high_s = _latency_range(run.tail.latency_s[run.tail.slower_share < FASTEST_LEFT_OUT] for run in runs)
    most = max((run.summary.completed_events for run in runs), default=1)
    slos = _distinct_slos(runs)
    return {
        "data": traces,
        "layout": {
            **_layout(440, left_px=88, top_px=40),
            "hovermode": "closest",
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 13}},
            "showlegend": True,
            "xaxis": {**_latency_axis(low_s, max(high_s, *slos), most=14), "title": _title("latency (log scale)")},
            "yaxis": {**tail_axis(most), "title": _title("share of events at least this fast")},
            "shapes": [_slo_line("x", slo_s) for slo_s in slos],
            "annotations": [
                {
                    "x": math.log10(slo_s),
                    "y": 0.02,
                    "xref": "x",
                    "yref": "paper",
                    "text": f"SLO {duration(slo_s)}",
                    "showarrow": False,
                    "xanchor": "left",
                    "yanchor": "bottom",
                    "xshift": 5,
                    "font": {"color": SLO, "size": 12},
                }
                for slo_s in slos
            ],
        },
    }


def tail_axis(events: int) -> dict[str, Any]:
    """Axis of 1 − share: each step of the ticks is ten times rarer, so that the tail can be seen."""
    decades = max(2, math.ceil(math.log10(max(events, 10))))
    shares = [1.0, 0.5, *(10.0**-decade for decade in range(1, decades + 1))]
    return {
        "type": "log",
        "range": [0, -decades],
        "tickvals": shares,
        "ticktext": [f"{100 * (1 - share):.10g} %" for share in shares],
        **_axis(),
    }


def linear_axis() -> dict[str, Any]:
    """Axis of 1 − share on an even scale."""
    shares = [1.0, 0.75, 0.5, 0.25, 0.0]
    return {
        "type": "linear",
        "range": [1.0, -0.01],
        "tickvals": shares,
        "ticktext": [f"{100 * (1 - share):g} %" for share in shares],
    }


def latency_over_time(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> Figure:
    """p50 and p99 of the events that finished in each second; one strip a scaler, all on the same scale."""
    slos = _distinct_slos(runs)
    low_s, high_s = _latency_range(
        [*(run.latency.p50_s for run in runs), *(run.latency.p99_s for run in runs), np.array(slos)]
    )
    axis = {**_latency_axis(low_s, high_s, most=8), "title": _title("latency")}
    panels = []
    for group in groups:
        traces: list[Trace] = []
        for order, member in reversed(list(enumerate(group.members))):
            series, bold = runs[member].latency, order == 0
            traces.append(_time_line("p99", series.second, series.p99_s, group.colour, bold=bold))
            if bold:
                traces.append(_time_line("p50", series.second, series.p50_s, group.colour, bold=True, dash="dot"))
        panels.append(Panel(group.label, group.colour, traces, axis, height_px=170))
    figure = _strips(panels, runs)
    figure["layout"]["shapes"] += [_slo_line("y", slo_s, axis=index) for index in range(len(panels)) for slo_s in slos]
    return figure


def _time_line(name: str, second: Ints, values_s: Floats, colour: str, *, bold: bool, dash: str = "solid") -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": _numbers(second + 0.5, 1),
        "y": _numbers(values_s, 5),
        "customdata": [duration(value) for value in values_s],
        "line": {"color": colour, "width": 2 if bold else 1, "dash": dash},
        "opacity": 1 if bold else FAINT_OPACITY,
        "hovertemplate": f"{name} %{{customdata}}<extra></extra>" if bold else None,
        **({} if bold else {"hoverinfo": "skip"}),
    }


def time_spent(groups: Sequence[Group]) -> Figure:
    """Mean time in sending, queueing and service, for all events and for the slowest 1 % of them."""
    labels = [escape(group.label) for group in groups]
    everything = _stacked_bars("all events", "x", labels, [group.first.mean for group in groups])
    slowest = _stacked_bars("the slowest 1 %", "x2", labels, [group.first.slowest_mean for group in groups])
    longest = max((len(group.label) for group in groups), default=8)
    return {
        "data": everything.traces + slowest.traces,
        "layout": {
            **_layout(110 + 46 * len(groups), left_px=min(260, 24 + 8 * longest), top_px=40),
            "barmode": "stack",
            "bargap": 0.35,
            "hovermode": "closest",
            "showlegend": True,
            "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
            "xaxis": {**everything.axis, "domain": [0, 0.46]},
            "xaxis2": {**slowest.axis, "domain": [0.54, 1], "anchor": "y"},
            "yaxis": {**_axis(), "autorange": "reversed", "showgrid": False, "ticklabelstandoff": 6},
            "annotations": everything.totals + slowest.totals,
        },
    }


@dataclass(frozen=True, slots=True)
class StackedBars:
    """One side of the figure: a bar a scaler, its total written behind it."""

    traces: list[Trace]
    totals: list[dict[str, Any]]
    axis: dict[str, Any]


def _stacked_bars(events: str, axis: str, labels: Sequence[str], splits: Sequence[MeanSplit]) -> StackedBars:
    parts_s = np.array([[s.send_delay_s or 0.0, s.queueing_s or 0.0, s.service_s or 0.0] for s in splits])
    totals_s = parts_s.sum(axis=1)
    longest_s = float(totals_s.max(initial=0.0)) or 0.001
    unit, scale = ("s", 1) if longest_s >= 1 else ("ms", 1000)
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": part,
            "legendgroup": part,
            "showlegend": axis == "x",
            "xaxis": axis,
            "yaxis": "y",
            "y": list(labels),
            "x": _numbers(scale * parts_s[:, index], 4),
            "customdata": [duration(value) for value in parts_s[:, index]],
            "marker": {"color": colour},
            "hovertemplate": f"{part} %{{customdata}}, {events}<extra>%{{y}}</extra>",
        }
        for index, (part, colour) in enumerate(PARTS)
    ]
    totals = [
        {
            "x": scale * float(total_s),
            "y": label,
            "xref": axis,
            "yref": "y",
            "text": f"<b>{duration(float(total_s))}</b>",
            "showarrow": False,
            "xanchor": "left",
            "xshift": 5,
            "font": {"color": INK, "size": 13},
        }
        for label, total_s in zip(labels, totals_s, strict=True)
    ]
    # A quarter more than the longest bar: room for the total behind it.
    bounds = {"range": [0, 1.25 * scale * longest_s], "nticks": 6, "zeroline": True, "zerolinecolor": GRID}
    return StackedBars(traces, totals, {**_axis(), **bounds, "title": _title(f"{unit}, mean of {events}")})


# --- over time -------------------------------------------------------------------------------------------------------


def replicas_over_time(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> Figure:
    """The arrival rate of the schedule, and below it the replicas of each scaler with its actions."""
    first = runs[groups[0].members[0]]
    arrivals = {
        "type": "scatter",
        "mode": "lines",
        "name": "arrivals",
        "x": _numbers(np.arange(len(first.arrivals_per_s) + 1), 0),
        "y": _numbers([*first.arrivals_per_s, *first.arrivals_per_s[-1:]], 0),
        "line": {"color": FAINT, "width": 1.5, "shape": "hv"},
        "fill": "tozeroy",
        "fillcolor": "var(--area)",
        "hovertemplate": "%{y} events/s<extra></extra>",
    }
    panels = [
        Panel(
            "arrival rate of the schedule",
            INK,
            [arrivals],
            {**_axis(), "rangemode": "tozero", "title": _title("events/s"), "nticks": 5},
            height_px=120,
        )
    ]
    most = max((int(run.replicas.max(initial=1)) for run in runs), default=1)
    axis = {
        **_axis(),
        "range": [0, most + 0.6],
        "dtick": max(1, math.ceil(most / 5)),
        "title": _title("replicas"),
    }
    for group in groups:
        traces: list[Trace] = []
        for order, member in reversed(list(enumerate(group.members))):
            traces += _replica_traces(runs[member], group, bold=order == 0)
        panels.append(Panel(group.label, group.colour, traces, axis, height_px=120))
    return _strips(panels, runs)


def _replica_traces(run: RunEvidence, group: Group, *, bold: bool) -> list[Trace]:
    inside = run.replica_time_s <= run.spec.duration_s
    before = run.replicas[run.replica_time_s <= 0]
    time_s = [0.0, *run.replica_time_s[inside & (run.replica_time_s > 0)], run.spec.duration_s]
    counts = [int(before[-1]) if len(before) else 0, *run.replicas[inside & (run.replica_time_s > 0)]]
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": "replicas",
        "x": _numbers(time_s, 2),
        "y": _numbers([*counts, counts[-1]], 0),
        "line": {"color": group.colour, "width": 2.4 if bold else 1, "shape": "hv"},
        "opacity": 1 if bold else FAINT_OPACITY,
        "hovertemplate": "%{y} replicas<extra></extra>" if bold else None,
        **({} if bold else {"hoverinfo": "skip"}),
    }
    return [line, *_marks(run, group)] if bold else [line]


def _marks(run: RunEvidence, group: Group) -> list[Trace]:
    traces = []
    for action, (symbol, name) in MARKS.items():
        found = [step for step in run.steps if step.decision.action == action]
        if found:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": name,
                    "x": _numbers([step.record.time_s for step in found], 2),
                    "y": [step.after for step in found],
                    "customdata": [f"{step.before} → {step.after}" for step in found],
                    "marker": {
                        "symbol": symbol,
                        "size": 12,
                        "color": group.colour,
                        "line": {"color": "var(--paper)", "width": 1.5},
                    },
                    "cliponaxis": False,
                    "hovertemplate": f"{name} %{{customdata}}<extra></extra>",
                }
            )
    return traces


def lag_per_partition(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> Figure:
    """Lag of each partition at each tick: one strip a scaler, the colour is the number of waiting events."""
    seen = [(group, runs[group.members[0]]) for group in groups]
    highest = max((float(np.nanmax(run.lag.lag, initial=1.0)) for _, run in seen if run.lag.lag.size), default=1.0)
    panels = []
    for group, run in seen:
        lag = run.lag
        trace = {
            "type": "heatmap",
            "x": _numbers(lag.time_s, 2),
            "y": [f"p{partition}" for partition in lag.partitions],
            "z": [_numbers(row, 0) for row in lag.lag.T],
            "coloraxis": "coloraxis",
            "hovertemplate": "partition %{y}: %{z} waiting<extra></extra>",
            "hoverongaps": False,
        }
        axis = {**_axis(), "type": "category", "autorange": "reversed", "showgrid": False, "ticks": ""}
        height_px = min(260, max(70, 24 * len(lag.partitions)))
        panels.append(Panel(group.label, group.colour, [trace], axis, height_px=height_px))
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


def _strips(
    panels: Sequence[Panel], runs: Sequence[RunEvidence], *, right_px: int = 16, layer: str = "below"
) -> Figure:
    """Panels one below the other over one time axis, faults shaded through all of them."""
    height_px = TOP_PX + BOTTOM_PX + sum(TITLE_PX + panel.height_px for panel in panels) + GAP_PX * (len(panels) - 1)
    inner_px = height_px - TOP_PX - BOTTOM_PX
    layout = _layout(height_px, left_px=80, top_px=TOP_PX)
    layout["margin"]["r"] = right_px
    traces, annotations = [], []
    below_px = float(inner_px)
    for index, panel in enumerate(panels):
        top_px = below_px - TITLE_PX
        bottom_px = top_px - panel.height_px
        number = str(index + 1) if index else ""
        layout[f"yaxis{number}"] = {**panel.yaxis, "domain": [max(0.0, bottom_px / inner_px), top_px / inner_px]}
        traces += [{**trace, "xaxis": "x", "yaxis": f"y{number}", "showlegend": False} for trace in panel.traces]
        annotations.append(
            {
                "text": f"<b>{escape(panel.title)}</b>",
                "x": 0,
                "y": top_px / inner_px,
                "xref": "paper",
                "yref": "paper",
                "xanchor": "left",
                "yanchor": "bottom",
                "yshift": 1,
                "showarrow": False,
                "font": {"color": panel.colour, "size": 13},
            }
        )
        below_px = bottom_px - GAP_PX
    layout["xaxis"] = {
        **_axis(),
        "range": [0, max(run.spec.duration_s for run in runs)],
        "anchor": f"y{len(panels)}" if len(panels) > 1 else "y",
        "title": _title("seconds into the run"),
        "nticks": 14,
    }
    layout |= {"annotations": annotations, "shapes": _fault_shades(runs, layer), "hovermode": "x unified"}
    return {"data": traces, "layout": layout}


def _fault_shades(runs: Sequence[RunEvidence], layer: str) -> list[dict[str, Any]]:
    faults = {(fault.at_s, fault.seconds) for run in runs for fault in run.spec.faults}
    return [
        {
            "type": "rect",
            "xref": "x",
            "yref": "paper",
            "x0": at_s,
            "x1": at_s + max(seconds, 0.5),
            "y0": 0,
            "y1": 1,
            "fillcolor": FAULT,
            "opacity": 0.18,
            "line": {"width": 0},
            "layer": layer,
        }
        for at_s, seconds in sorted(faults)
    ]


def _slo_line(along: str, slo_s: float, axis: int = 0) -> dict[str, Any]:
    line = {"color": SLO, "width": 1.5, "dash": "dash"}
    if along == "x":
        return {"type": "line", "xref": "x", "yref": "paper", "x0": slo_s, "x1": slo_s, "y0": 0, "y1": 1, "line": line}
    yref = f"y{axis + 1}" if axis else "y"
    return {"type": "line", "xref": "paper", "yref": yref, "x0": 0, "x1": 1, "y0": slo_s, "y1": slo_s, "line": line}


def _title(text: str) -> dict[str, Any]:
    return {"text": text, "standoff": 8, "font": {"size": 13, "color": FAINT}}


def _layout(height_px: int, *, left_px: int, top_px: int) -> dict[str, Any]:
    return {
        "height": height_px,
        "margin": {"l": left_px, "r": 16, "t": top_px, "b": BOTTOM_PX},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 13, "color": INK},
        "hoverlabel": {"bgcolor": "var(--paper)", "bordercolor": GRID, "font": {"color": INK}},
        "showlegend": False,
        "dragmode": "zoom",
    }


def _axis() -> dict[str, Any]:
    return {
        "gridcolor": GRID,
        "zeroline": False,
        "linecolor": GRID,
        "tickfont": {"color": FAINT, "size": 12},
        "automargin": False,
        "fixedrange": False,
    }


def _latency_axis(low_s: float, high_s: float, *, most: int) -> dict[str, Any]:
    """Logarithmic axis with ticks at 1, 2, 5 (or at decades only, where that would be more than ``most``)."""
    decades = range(math.floor(math.log10(low_s)), math.ceil(math.log10(high_s)) + 1)
    for steps in ((1, 2, 5), (1,)):
        ticks = [step * 10.0**decade for decade in decades for step in steps if low_s <= step * 10.0**decade <= high_s]
        if len(ticks) <= most:
            break
    return {
        "type": "log",
        "range": [math.log10(low_s), math.log10(high_s)],
        "tickvals": ticks,
        "ticktext": [duration_tick(tick) for tick in ticks],
        **_axis(),
    }


def duration_tick(seconds: float) -> str:
    """A tick's latency, without digits that it does not need."""
    return f"{1000 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


def _latency_range(values: Iterable[Floats]) -> tuple[float, float]:
    """What a logarithmic latency axis must show, with a margin; not below 0.1 ms."""
    parts = [np.asarray(part, dtype=np.float64) for part in values]
    known = np.concatenate([part[np.isfinite(part) & (part > 1e-4)] for part in parts] or [np.empty(0)])
    if len(known) == 0:
        return 1e-3, 1.0
    return float(known.min()) / 1.15, float(known.max()) * 1.15


def _distinct_slos(runs: Sequence[RunEvidence]) -> list[float]:
    return sorted({run.spec.slo_s for run in runs})


def _numbers(values: Iterable[Any], digits: int) -> list[float | None]:
    """Plain numbers for JSON, rounded to what a chart can show; None for the unknown."""
    return [round(float(value), digits) if math.isfinite(value) else None for value in values]
