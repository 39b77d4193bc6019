"""The charts as plain JSON objects, which ``assets/charts.js`` draws.

A figure has one axis ``x`` and panels below each other, each with an axis ``y`` and lines, marks or a heat map. An axis
has a scale: linear, log, tail (shares of slower events, each step up is ten times rarer) or even (the same shares).
Colours are ``var(--name)`` of the style sheet.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from penstock.contracts import Action
from penstock.measures import Floats
from report.analysis.run_data import RunData
from report.groups import Group
from report.series import MOST_POINTS, thinned
from report.wording import count, duration, one_decimal, share

Figure = dict[str, Any]
Json = dict[str, Any]

MUTED, SLO = "var(--muted)", "var(--slo)"
FASTEST_LEFT_OUT = 0.995
"""The logarithmic axis of the CDF begins where the share of slower events falls below this."""
MARKS: dict[Action, tuple[str, str]] = {"up": ("up", "scale-up"), "down": ("down", "scale-down"),
                                        "reassign": ("reassign", "reassignment")}  # fmt: skip
DASHES = ("", "7 3", "2 3", "9 3 2 3")
"""Beside the colour, so that lines can be told apart without it."""
MOST_CURVES = 60
"""Repetitions that the CDF shows, of all scalers together."""
MOST_CELLS = 60_000
"""Of the heat maps of lag."""
LEAST_MISS = 1e-4
"""Late share at the upper edge if every event is wanted within the SLO."""


def cost_and_share(groups: Sequence[Group], wanted_share: float, bound_minutes: float | None = None) -> Figure:
    """Cost against the share of events that were late: means over the repetitions with their ranges, the wanted share,
    the Pareto front of the runs that can be used, and the least cost at which the share is possible.
    """
    known = [(group, *place) for group in groups if (place := _cost_and_miss(group)) is not None]
    misses = [miss for group, _, _ in known for miss in (1 - (s.slo_share or 0.0) for s in group.summaries)]
    floor = min([(1 - wanted_share) / 10 or LEAST_MISS, *(miss / 2 for miss in misses if miss > 0)])
    top = max([10 * floor, 3 * (1 - wanted_share), *(1.6 * miss for miss in misses)])
    front = [(cost, max(miss, floor)) for _, cost, miss in pareto_front(known)]
    points: list[Json] = []
    for group, cost, miss in known:
        costs = [s.replica_minutes for s in group.summaries]
        lates = [max(1 - s.slo_share, floor) for s in group.summaries if s.slo_share is not None]
        usable = group.verdict != "INVALID"
        points.append(
            {
                "name": group.label,
                "label": group.label + ("" if group.verdict == "VALID" else f", {group.verdict}"),
                "sign": "dot" if usable else "cross",
                "open": group.verdict != "VALID",
                "colour": group.colour,
                "x": [cost],
                "y": [max(miss, floor)],
                "text": [f"{group.label}: {share(1 - miss)} with {one_decimal(cost)} replica-minutes, {group.verdict}"],
                **({"across": [[min(costs), max(costs)], [max(lates), min(lates)]]} if len(costs) > 1 else {}),
            }
        )
    costs = [s.replica_minutes for group in groups for s in group.summaries]
    costs += [] if bound_minutes is None else [bound_minutes]
    low, high = min(costs), max(costs)
    margin = 0.08 * (high - low) or 0.2 * high or 1.0
    rules = [_rule("y", 1 - wanted_share, f"{_per_cent(wanted_share)} wanted", SLO)] if wanted_share < 1 else []
    if bound_minutes is not None:
        rules.append(_rule("x", bound_minutes, f"lower bound for {_per_cent(wanted_share)}", MUTED))
    line = {
        "name": "Pareto front",
        "colour": MUTED,
        "dash": "2 4",
        "width": 1.5,
        "step": True,
        "x": [cost for cost, _ in front],
        "y": [miss for _, miss in front],
    }
    y = {"scale": "tail", "min": min(top, 1.0), "max": floor, "full": 0.0 in misses, "title": "events within the SLO"}
    panel = {"title": "", "y": y, "height": 270, "lines": [line], "marks": points}
    x = {"scale": "linear", "min": max(0.0, low - margin), "max": high + margin, "title": "cost, replica-minutes"}
    label = "Cost against the share of events within the SLO. " + "; ".join(point["text"][0] for point in points)
    return {"label": label, "x": x, "panels": [panel], "rules": rules, "pick": True}


def pareto_front(known: Sequence[tuple[Group, float, float]]) -> list[tuple[Group, float, float]]:
    """Of (group, cost, late share): those that can be used and that no other one beats in both, by cost."""
    front: list[tuple[Group, float, float]] = []
    for each in sorted(known, key=lambda place: (place[1], place[2])):
        if each[0].verdict != "INVALID" and (not front or each[2] < front[-1][2]):
            front.append(each)
    return front


def _cost_and_miss(group: Group) -> tuple[float, float] | None:
    cost, kept = group.mean(lambda s: s.replica_minutes), group.mean(lambda s: s.slo_share)
    return None if cost is None or kept is None else (cost, 1 - kept)


# --- latency ---------------------------------------------------------------------------------------------------------


def latency_cdf(groups: Sequence[Group], runs: Sequence[RunData]) -> Figure:
    """Share of events by latency; the vertical axis is drawn on the tail's own scale (1 − share, logarithmic)."""
    most = max(1, MOST_CURVES // len(groups))
    lines = []
    for index, group in enumerate(groups):
        for order, member in enumerate(group.members[:most]):
            tail = runs[member].tail
            latency_s = _significant([*tail.latency_s[:1], *tail.latency_s])
            line = _line(group.label, group.colour, latency_s, _significant([1.0, *tail.slower_share]), index)
            lines.append(line | ({"faint": True, "width": 1} if order else {}))
    low_s, high_s = _latency_range(run.tail.latency_s[run.tail.slower_share < FASTEST_LEFT_OUT] for run in runs)
    slos = _distinct_slos(runs)
    decades = max(2, math.ceil(math.log10(max(10, *(s.completed_events for g in groups for s in g.summaries)))))
    x = _latency_axis(low_s, max(high_s, *slos)) | {"title": "latency (log scale)"}
    y = {"scale": "tail", "min": 1.0, "max": 10.0**-decades, "title": "share of events at least this fast"}
    return {
        "label": "Share of events by latency. " + _each(groups, lambda g: f"p99 {duration(g.first.latency.p99_s)}"),
        "x": x,
        "panels": [{"title": "", "y": y, "height": 340, "lines": lines}],
        "rules": [_rule("x", slo_s, f"SLO {duration(slo_s)}", SLO) for slo_s in slos],
        "legend": True,
    }


def latency_over_time(groups: Sequence[Group], runs: Sequence[RunData]) -> Figure:
    """p50 and p99 of the events that finished in each second; one panel a scaler, all on the same scale."""
    firsts = [runs[group.members[0]] for group in groups]
    slos = _distinct_slos(runs)
    measured = [values_s for run in firsts for values_s in (run.latency.p50_s, run.latency.p99_s)]
    axis = _latency_axis(*_latency_range([*measured, np.array(slos)])) | {"title": "latency"}
    panels = []
    for group, run in zip(groups, firsts, strict=True):
        series = run.latency
        lines = []
        for name, values_s, dash in (("p99", series.p99_s, ""), ("p50", series.p50_s, "2 3")):
            second, shown = thinned(series.second + 0.5, values_s)
            lines.append(_line(name, group.colour, _numbers(second, 1), _significant(shown)) | {"dash": dash})
        for line in lines:
            line["step"] = False
        panels.append({"title": group.label, "colour": group.colour, "y": axis, "height": 150, "lines": lines})
    rules = [_rule("y", slo_s, f"SLO {duration(slo_s)}", SLO) for slo_s in slos]
    what = "Latency of the events that finished in each second, one panel a scaler. "
    missed = _each(groups, lambda g: f"{count(g.first.missed_seconds)} seconds above the SLO")
    return _over_time(what + missed, panels, runs) | {"rules": rules}


# --- over time -------------------------------------------------------------------------------------------------------


def replicas_together(groups: Sequence[Group], runs: Sequence[RunData]) -> Figure:
    """The replicas of all scalers over each other, and those that were needed."""
    first = runs[groups[0].members[0]]
    second, needed = thinned(np.arange(len(first.needed_replicas)) * 1.0, first.needed_replicas)
    lines = []
    if len(needed):
        ends = [*_numbers(second, 1), first.spec.duration_s]
        lines.append(_line("needed", MUTED, ends, _numbers([*needed, needed[-1]], 0)) | {"fill": True, "width": 1})
    for index, group in enumerate(groups):
        line = _replica_line(runs[group.members[0]], group, index)
        lines.append(line | {"shift": 2 * (index - (len(groups) - 1) / 2)})
    most = max([1.0, *(value for line in lines for value in line["y"] if value is not None)])
    y = {"scale": "linear", "min": 0, "max": most + 0.6, "whole": True, "title": "replicas"}
    what = "Replicas over time against those that were needed. "
    label = what + _each(groups, lambda g: f"{one_decimal(g.first.replica_minutes)} replica-minutes")
    figure = _over_time(label, [{"title": "", "y": y, "height": 260, "lines": lines}], runs)
    return figure | {"legend": True}


def replicas_over_time(groups: Sequence[Group], runs: Sequence[RunData]) -> Figure:
    """The arrival rate of the schedule, and below it the replicas of each scaler with its actions."""
    rates = runs[groups[0].members[0]].arrivals_per_s
    second, shown = thinned(np.arange(len(rates)) * 1.0, rates)
    arrivals = _line("arrivals", MUTED, _numbers(second, 1), _numbers(shown, 0)) | {"fill": True, "width": 1.5}
    high = float(rates.max(initial=1))
    y: Json = {"scale": "linear", "min": 0, "max": 1.08 * high, "title": "events/s", "unit": "events/s"}
    panels: list[Json] = [{"title": "arrival rate of the schedule", "y": y, "height": 110, "lines": [arrivals]}]
    most = max((int(run.replica_counts[1].max(initial=1)) for run in runs), default=1)
    y = {"scale": "linear", "min": 0, "max": most + 0.6, "whole": True, "title": "replicas"}
    for group in groups:
        run = runs[group.members[0]]
        line = _replica_line(run, group)
        marks = []
        for action, (sign, name) in MARKS.items():
            if found := [step for step in run.steps if step.decision.action == action]:
                marks.append(
                    {
                        "name": name,
                        "sign": sign,
                        "colour": group.colour,
                        "x": _numbers((step.record.time_s for step in found), 2),
                        "y": [step.after for step in found],
                        "text": [
                            f"{name} at {step.record.time_s:.1f} s: {step.before} → {step.after}" for step in found
                        ],
                    }
                )
        panels.append(
            {"title": group.label, "colour": group.colour, "y": y, "height": 110, "lines": [line], "marks": marks}
        )
    label = "Arrivals, and the replicas of each scaler in a panel of its own. "
    return _over_time(label + _each(groups, lambda g: f"{count(g.first.scale.up_actions)} scale-ups"), panels, runs)


def _replica_line(run: RunData, group: Group, index: int = 0) -> Json:
    since_s, replicas = run.replica_counts
    before, inside = replicas[since_s <= 0], (since_s > 0) & (since_s <= run.spec.duration_s)
    counts = [int(before[-1]) if len(before) else 0, *replicas[inside]]
    times_s = _numbers([0.0, *since_s[inside], run.spec.duration_s], 2)
    return _line(group.label, group.colour, times_s, _numbers([*counts, counts[-1]], 0), index)


def lag_per_partition(groups: Sequence[Group], runs: Sequence[RunData]) -> Figure:
    """Lag of each partition at each tick: one panel a scaler, the colour is the number of waiting events."""
    found, panels = [(group, runs[group.members[0]].lag) for group in groups], []
    most = max([1.0, *(float(np.nanmax(lag.lag, initial=1.0)) for _, lag in found if lag.lag.size)])
    columns_each = max(60, min(MOST_POINTS, MOST_CELLS // max(1, sum(len(lag.partitions) for _, lag in found))))
    for group, lag in found:
        columns = [thinned(lag.time_s, column, columns_each) for column in lag.lag.T]
        times_s = columns[0][0] if columns else np.empty(0)
        heat = {
            "x": _numbers(times_s, 2),
            "rows": [_numbers(values, 0) for _, values in columns],
            "names": [f"p{partition}" for partition in lag.partitions],
            "most": most,
        }
        height_px = min(240, max(60, 22 * len(lag.partitions)))
        y = {"scale": "linear", "min": 0, "max": 1, "title": "events waiting by partition"}
        panels.append({"title": group.label, "colour": group.colour, "y": y, "height": height_px, "heat": heat})
    return _over_time(f"Lag of each partition over time, up to {count(most)} events.", panels, runs)


# --- parts -----------------------------------------------------------------------------------------------------------


def _over_time(label: str, panels: list[Json], runs: Sequence[RunData]) -> Figure:
    """Panels below each other over one time axis, faults shaded through all of them."""
    x = {"scale": "linear", "min": 0, "max": max(run.spec.duration_s for run in runs), "unit": "s"}
    faults = sorted({(fault.at_s, fault.at_s + max(fault.seconds, 0.5)) for run in runs for fault in run.spec.faults})
    return {"label": label, "x": x | {"title": "seconds of the run"}, "panels": panels, "bands": faults}


def _line(name: str, colour: str, x: Sequence[Any], y: Sequence[Any], index: int = 0) -> Json:
    """Steps, from each point to the right."""
    dash = DASHES[index % len(DASHES)]
    return {"name": name, "colour": colour, "step": True, "x": x, "y": y} | ({"dash": dash} if dash else {})


def _rule(axis: str, at: float, text: str, colour: str) -> Json:
    return {"axis": axis, "at": at, "text": text, "colour": colour}


def _each(groups: Sequence[Group], say: Any) -> str:
    return "; ".join(f"{group.label}: {say(group)}" for group in groups) + "."


def _per_cent(value: float) -> str:
    return f"{100 * value:.6g} %"


def _latency_axis(low_s: float, high_s: float) -> Json:
    return {"scale": "log", "min": low_s, "max": high_s, "unit": "duration"}


def _latency_range(values: Iterable[Floats]) -> tuple[float, float]:
    """What a logarithmic latency axis must show, with a margin; not below 0.1 ms."""
    known = np.concatenate([np.asarray(part, dtype=np.float64) for part in values])
    known = known[np.isfinite(known) & (known > 1e-4)]
    return (float(known.min()) / 1.15, float(known.max()) * 1.15) if len(known) else (1e-3, 1.0)


def _distinct_slos(runs: Sequence[RunData]) -> list[float]:
    return sorted({run.spec.slo_s for run in runs})


def _numbers(values: Iterable[Any], digits: int) -> list[float | None]:
    """Plain numbers for JSON, rounded to what a chart can show; None for the unknown."""
    rounded = (round(float(value), digits) if math.isfinite(value) else None for value in values)
    return [int(value) if value is not None and value.is_integer() else value for value in rounded]


def _significant(values: Iterable[Any]) -> list[float | None]:
    """Four digits each."""
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in values]
