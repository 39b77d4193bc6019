"""report.html: one file that needs nothing else, for one run or a comparison of several."""

from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import msgspec
import numpy as np
from plotly.offline import get_plotlyjs

from experiments.catalogue import EXPERIMENTS
from experiments.report import charts, tables
from experiments.report.definitions import DEFINITIONS
from experiments.report.evidence import RunEvidence, read_run
from experiments.report.groups import Group, group_runs, is_emulated
from experiments.report.markup import Html, Text, element, join
from experiments.report.tables import MOST_NAMED
from experiments.report.wording import count, duration, one_decimal, share
from penstock import __version__
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory, slug
from penstock.runspec import RunSpec
from penstock.systems import FunctionSystem, NetworkSystem, QueueSystem, StreamSystem

ASSETS = files("experiments.report") / "assets"


def write_report(directories: Sequence[RunDirectory], out: Path) -> None:
    """Write the report of these runs. Raises PenstockError for none, or for an incomplete run directory."""
    if not directories:
        raise PenstockError("a report needs at least one run directory; `penstock run` makes them under runs/")
    runs = [read_run(directory) for directory in directories]
    groups = group_runs([run.summary for run in runs])
    partial = out.with_name(out.name + ".partial")
    partial.write_text(page(groups, runs), encoding="utf-8")
    partial.replace(out)


def page(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> str:
    """The whole document."""
    figures = {
        "cdf": charts.latency_cdf(groups, runs),
        "latency": charts.latency_over_time(groups, runs),
        "replicas": charts.replicas_over_time(groups, runs),
        "spent": charts.time_spent(groups),
        "lag": charts.lag_per_partition(groups, runs),
        "tail": charts.tail_axis(max(run.summary.completed_events for run in runs)),
        "even": charts.linear_axis(),
    }
    return Template((ASSETS / "page.html").read_text("utf-8")).substitute(
        title=escape(_title(groups)),
        style=(ASSETS / "style.css").read_text("utf-8"),
        body=_body(groups, runs),
        figures=_script_json(figures),
        plotly=get_plotlyjs(),
        script=(ASSETS / "charts.js").read_text("utf-8"),
    )


def _script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return msgspec.json.encode(value).decode().replace("<", "\\u003c")


def _body(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> Html:
    sections = [
        ("Result", "Result", _result(groups)),
        ("Latency", "Latency of all events", _latency(groups)),
        ("Over time", "Latency over time", _latency_over_time(groups, runs)),
        ("Replicas", "Arrivals and replicas", _replicas(groups, runs)),
        ("Time spent", "Where the time went", _spent(groups)),
        *([("Lag", "Lag per partition", _lag(groups, runs))] if _has_partitions(runs) else []),
        ("Decisions", "Decisions", _decisions(groups, runs)),
        ("Costs", "Costs", _costs(groups)),
        ("Validity", "Can this be believed?", _validity(groups, runs)),
        ("Set-up", "Set-up", _setup(groups, runs)),
        ("Definitions", "Definitions", _definitions()),
    ]
    header = element(
        "header",
        element("p", _kicker(groups), class_="kicker"),
        element("h1", _title(groups)),
        element("p", tables.headline(groups), class_="answer"),
        *_context(groups, runs),
        element("nav", *(element("a", name, href=f"#{slug(name)}") for name, _, _ in sections)),
    )
    main = element(
        "main", *(element("section", element("h2", title), text, id=slug(name)) for name, title, text in sections)
    )
    made = f"Made by Penstock {__version__} from the run directories alone."
    zoom = "In a chart: drag to zoom, double-click to go back."
    return join([header, main, element("footer", f"{made} {zoom}")])


# --- top -------------------------------------------------------------------------------------------------------------


def _title(groups: Sequence[Group]) -> str:
    names = [group.label for group in groups]
    if len(names) <= MOST_NAMED:
        return " against ".join(names) if len(names) > 1 else f"{names[0]} on {groups[0].first.experiment}"
    return f"{len(names)} scalers on {groups[0].first.experiment}"


def _kicker(groups: Sequence[Group]) -> str:
    names = dict.fromkeys(summary.experiment for group in groups for summary in group.summaries)
    texts = [f"{name}: {EXPERIMENTS[name].title}" if name in EXPERIMENTS else name for name in names]
    return "Penstock · " + "; ".join(texts)


def _parts(spec: RunSpec) -> str:
    """What the events went through."""
    match spec.system:
        case FunctionSystem(functions=functions):
            return f"through {len(functions)} functions"
        case NetworkSystem(topics=topics, jobs=jobs):
            return f"as {len(jobs)} job types through {len(topics)} topics"
        case QueueSystem():
            return "through queues of bounded length"
    return f"on {spec.partitions} partitions"


def _context(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> list[Html]:
    first = groups[0].first
    worlds = {"local": "real processes on real services", "sim": "simulated, in virtual time", "kubernetes": "pods"}
    text = (
        f"{count(first.scheduled_events)} events in {first.duration_s:g} s {_parts(runs[0].spec)}, "
        f"{one_decimal(first.arrival_rate_mean_per_s)} a second on average, "
        f"{count(first.arrival_rate_peak_per_s)} at the peak. "
        f"World: {first.world} ({worlds.get(first.world, 'unknown')})."
    )
    begin_s = runs[0].spec.workload.get("from_s") or 0
    if begin_s:
        text += f" Second 0 of the run is second {begin_s:g} of the workload."
    if first.speed != 1:
        text += f" Played at speed {first.speed:g}: rates times {first.speed:g}, every duration divided by it."
    parts = [element("p", text, class_="context")]
    if any(is_emulated(name) for run in runs for name in (run.spec.scaler.name, *(s.name for s in run.spec.shadows))):
        note = "Scalers marked as emulated are our own versions of another system's scaler, not that system."
        parts.append(element("p", note, class_="context"))
    return parts


# --- sections --------------------------------------------------------------------------------------------------------


def _result(groups: Sequence[Group]) -> Html:
    price = groups[0].first.replica_price_per_hour
    note = "Best values are underlined. " if len(groups) > 1 else ""
    note += (
        "Ups and downs are scale actions, with the replicas that they added or removed in brackets. "
        f"Cost at {price:g} per replica and hour."
    )
    if any(len(group.summaries) > 1 for group in groups):
        note += " Repetitions: the mean, and below it the 95 % bootstrap interval of the mean."
    return join([tables.comparison(groups), element("p", note, class_="muted")])


def _latency(groups: Sequence[Group]) -> Html:
    done_within = _each(groups, lambda g: duration(g.first.latency.p99_s))
    finding = f"99 % of events were done within{':' if len(groups) > 1 else ''} {done_within}."
    buttons = element(
        "span",
        element("button", "Tail", type="button", data_figure="cdf", data_axis="tail", aria_pressed="true"),
        element("button", "Even scale", type="button", data_figure="cdf", data_axis="even", aria_pressed="false"),
        class_="switch",
    )
    caption = (
        "Each curve tells which share of events (left) was done within a latency (bottom). Further left is faster. The "
        "vertical axis stretches the tail: each step up is ten times rarer; a curve ends at the slowest event."
    )
    return join([buttons, _chart("cdf", finding, caption + _faint(groups))])


def _latency_over_time(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> Html:
    def above(group: Group) -> str:
        series = runs[group.members[0]].latency
        return f"{int(np.count_nonzero(series.p99_s > group.first.slo_s))}"

    finding = f"Seconds with p99 above the SLO, of {runs[0].spec.duration_s:.0f}: " + _each(groups, above) + "."
    caption = (
        "Latency of the events that finished in each second: solid p99, dotted p50, dashed red the SLO. "
        + _source(groups, runs)
        + _faint(groups)
        + (" Shaded: injected faults." if any(run.spec.faults for run in runs) else "")
    )
    return _chart("latency", finding, caption)


def _source(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> str:
    raw = [group.label for group in groups for member in group.members if runs[member].latency.source != "Spark"]
    delays_s = np.concatenate([run.latency.publish_delay_s for run in runs])
    spark = "Computed by Spark while the run went on" + (
        f", each second's figures out {duration(float(np.median(delays_s)))} after its end (median)."
        if len(delays_s)
        else "."
    )
    if not raw:
        return spark
    if len(raw) == len(runs):
        why = "" if groups[0].first.world == "sim" else ": Spark's figures are missing or do not cover it"
        return f"Computed from the raw results after the run{why}."
    names = ", ".join(dict.fromkeys(raw))
    return f"{spark} Computed from the raw results, because Spark's are missing or incomplete: {names}."


def _replicas(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> Html:
    def most(group: Group) -> str:
        return f"{int(runs[group.members[0]].replicas.max(initial=0))}"

    arrivals = runs[0].arrivals_per_s
    finding = (
        f"Arrivals went between {count(arrivals.min())} and {count(arrivals.max())} events a second; "
        f"most replicas at once: {_each(groups, most)}."
    )
    caption = (
        "Steps: replicas that exist, from requested to gone. ▲ scale-up, ▼ scale-down, ◆ reassignment of partitions, "
        "each at the number of replicas then wanted."
    )
    return _chart("replicas", finding, caption + _faint(groups))


def _spent(groups: Sequence[Group]) -> Html:
    def queueing(group: Group) -> str:
        split, total_s = group.first.slowest_mean, group.first.slowest_mean
        parts = [total_s.send_delay_s, total_s.queueing_s, total_s.service_s]
        whole_s = sum(part or 0.0 for part in parts)
        return share((split.queueing_s or 0.0) / whole_s) if whole_s else "–"

    finding = "Share of queueing in the time of the slowest 1 %: " + _each(groups, queueing) + "."
    caption = (
        "Mean time from the intended to the actual sending, from there to the start of the service, and in service. "
        "The three add up to the mean latency of the same events (in bold). Left: all events. Right: the slowest 1 %."
    )
    return _chart("spent", finding, caption)


def _has_partitions(runs: Sequence[RunEvidence]) -> bool:
    return any(isinstance(run.spec.system, StreamSystem) for run in runs)


def _lag(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> Html:
    def highest(group: Group) -> str:
        lag = runs[group.members[0]].lag.lag
        known = lag[np.isfinite(lag)]
        return count(known.max()) if known.size else "unknown"

    if not any(runs[group.members[0]].lag.lag.size for group in groups):
        return element("p", "The controller never saw the lag of a partition.")
    finding = "Most events waiting in one partition: " + _each(groups, highest) + "."
    caption = (
        "What the controller saw at each tick: one row a partition; the stronger the colour, the more events that no "
        "consumer had committed. Gaps: the lag was unknown."
    )
    return _chart("lag", finding, caption)


def _decisions(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> Html:
    parts: list[Text] = [
        element(
            "p",
            "What the acting scaler did, with the terms of its arithmetic. Shadows advise only: they saw the system as "
            "the acting scaler drove it, which is not what would have happened under them.",
        )
    ]
    folded = len(groups) > MOST_NAMED
    for group in groups:
        first, *others = (tables.decisions(runs[member]) for member in group.members)
        name = tables.swatch(group)
        parts += [element("details", element("summary", name), first)] if folded else [element("h3", name), first]
        parts += [
            element("details", element("summary", f"repetition {order}"), other)
            for order, other in enumerate(others, start=2)
        ]
    return join(parts)


def _costs(groups: Sequence[Group]) -> Html:
    return join(
        [
            tables.costs(groups),
            element("p", "Money is replica time at the price per replica-hour that the run was given.", class_="muted"),
        ]
    )


def _validity(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> Html:
    parts: list[Text] = [
        tables.verdicts(groups, runs),
        element("h3", "Checks"),
        tables.checks(groups, runs),
        element("h3", "Conservation of events"),
        element(
            "p",
            "scheduled = acknowledged + never sent; acknowledged = completed + failed + rejected + "
            "dead-lettered + in flight + lost. Counted by distinct id in delivery reports, ledger and results.",
        ),
        tables.conservation(groups, runs),
    ]
    other = tables.unsuccessful(groups, runs)
    if other:
        parts += [element("h3", "Results that were no completions"), other]
    begun = tables.starts(groups, runs)
    if begun:
        parts += [
            element("h3", "From decision to first event"),
            element(
                "p",
                "New replicas, step by step, each from the step before it: median, longest in brackets. The first step "
                "is from when the tick was due.",
            ),
            begun,
        ]
    done = tables.faults(groups, runs)
    parts += [element("h3", "Faults"), done or element("p", "None was injected.")]
    return join(parts)


def _setup(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> Html:
    return join(
        element(
            "details",
            element("summary", tables.swatch(group), f" · {runs[member].directory.name}"),
            tables.setup(runs[member]),
        )
        for group in groups
        for member in group.members
    )


def _definitions() -> Html:
    return element("dl", *(join([element("dt", term), element("dd", text)]) for term, text in DEFINITIONS.items()))


# --- parts -----------------------------------------------------------------------------------------------------------


def _chart(name: str, finding: str, caption: str) -> Html:
    return element(
        "figure",
        element("p", finding, class_="finding"),
        element("div", "", class_="chart", data_figure=name),
        element("figcaption", caption),
    )


def _each(groups: Sequence[Group], figure: Callable[[Group], str]) -> str:
    """A figure for each scaler: "binpack-tail 535 ms, linear 678 ms"."""
    if len(groups) == 1:
        return figure(groups[0])
    named = ", ".join(f"{group.label} {figure(group)}" for group in groups[:MOST_NAMED])
    return named + (f" and {len(groups) - MOST_NAMED} more" if len(groups) > MOST_NAMED else "")


def _faint(groups: Sequence[Group]) -> str:
    repeated = any(len(group.members) > 1 for group in groups)
    return " The first repetition is bold, the others are faint." if repeated else ""
