"""report.html: one file that loads nothing. Its wording is in ``assets/page.html``, its numbers come from here."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from penstock import __version__
from penstock.errors import PenstockError
from penstock.rundir import slug
from penstock.runspec import RunSpec
from penstock.systems import FunctionSystem, NetworkSystem, QueueSystem, StreamSystem
from report import charts, tables
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData
from report.analysis.summary import RunSummary
from report.groups import Group, group_runs, is_emulated
from report.tables import Cell, HtmlTable, Published
from report.wording import UNKNOWN, count, duration, one_decimal, share

ASSETS = Path(__file__).parent / "assets"
WORLDS = {"local": "real processes on real services", "sim": "simulated, in virtual time", "kubernetes": "pods"}
MOST_NAMED = 4
"""Scalers that a sentence names one by one, and whose figures it lists."""


def write_report(
    runs: Sequence[RunData],
    out: Path,
    published: Published = MappingProxyType({}),
    bound_minutes: float | None = None,
    *,
    apart: bool = False,
) -> None:
    """Write the report of these runs. ``bound_minutes``: least replica-minutes that keep the wanted share, if known.
    ``apart``: each run by itself, also repetitions. Raises PenstockError for no runs, or an incomplete run directory.
    """
    if not runs:
        raise PenstockError("a report needs at least one run directory; `penstock run` makes them under runs/")
    groups = group_runs([summary_of(run) for run in runs], apart=apart)
    links = {
        run.name: Path(os.path.relpath(run.directory.report_file, out.parent)).as_posix()
        for run in runs
        if run.directory.report_file.resolve() != out.resolve()
    }
    write_page(out, page(groups, runs, published, bound_minutes, links))


def write_index(rows: Sequence[Mapping[str, Any]], out: Path) -> None:
    """Write a page that lists runs: name, link ("" without a report), verdict or a note why it is missing, share within
    the SLO, bytes.
    """
    cells: list[list[Cell]] = []
    for row in rows:
        name = Markup('<a href="{}">{}</a>').format(row["link"], row["run"]) if row["link"] else row["run"]
        kept, size = tables.number(row["slo_share"], share), tables.number(row["bytes"] / 1e6, one_decimal)
        badges = Markup(" ").join(tables.badge(verdict) for verdict in row["verdict"].split(", ") if verdict)
        cells.append(
            [
                name,
                badges or Markup('<span class="muted word">{}</span>').format(row.get("note", "unfinished")),
                kept,
                size,
            ]
        )
    table = HtmlTable("Runs", ["run", "verdict", "within SLO", "MB"], cells, "text", numeric_from=2)
    write_page(out, _render("index.html", title="Runs", runs=table, figures="{}"))


def write_advice(
    out: Path,
    *,
    title: str,
    sentence: str,
    context: Sequence[str],
    scalers: HtmlTable,
    commands: Mapping[str, str],
    manifests: Mapping[str, tuple[str, str]],
    emulated: bool,
    close: str = "",
    deployed: str = "",
) -> None:
    """Write the page of an advice: its sentence, what it assumes, the scalers, commands by title, and by scaler why its
    YAML is there and the YAML. ``close``: what this outcome of a scaler means, where there is one; ``deployed``: where
    a deployment differs.
    """
    text = _render(
        "advice.html",
        title=title,
        sentence=sentence,
        context=context,
        scalers=scalers,
        commands=commands,
        manifests=manifests,
        emulated=emulated,
        close=close,
        deployed=deployed,
        figures="{}",
    )
    write_page(out, text)


def write_page(out: Path, text: str) -> None:
    """Write beside and move into place, so that a browser never reads half a page."""
    partial = out.with_name(out.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(out)


def page(
    groups: Sequence[Group],
    runs: Sequence[RunData],
    published: Published,
    bound_minutes: float | None = None,
    links: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """The whole document."""
    spec = runs[0].spec
    partitioned = any(isinstance(run.spec.system, StreamSystem) for run in runs)
    figures = {
        "cost": charts.cost_and_share(groups, spec.slo_share, bound_minutes),
        "together": charts.replicas_together(groups, runs),
        "replicas": charts.replicas_over_time(groups, runs),
        "cdf": charts.latency_cdf(groups, runs),
        "latency": charts.latency_over_time(groups, runs),
        "lag": charts.lag_per_partition(groups, runs) if partitioned else None,
    }
    return _render(
        "page.html",
        figures=_script_json(figures),
        labels={name: figure["label"] for name, figure in figures.items() if figure is not None},
        title=_title(groups),
        kicker="Penstock · " + "; ".join(_experiments(groups, published)),
        headline=tables.headline(groups, spec.slo_share),
        first=groups[0].first,
        spec=spec,
        world=WORLDS.get(groups[0].first.world, "unknown"),
        parts=_parts(spec),
        groups=groups,
        runs=runs,
        links=links,
        commands=list(dict.fromkeys(run.manifest.command for run in runs if run.manifest and run.manifest.command)),
        comparison=tables.comparison(groups, published),
        bound_minutes=bound_minutes,
        emulated=any(is_emulated(name) for run in runs for name in _scalers(run.spec)),
        conditions=len({group.first.scaler for group in groups}) < len(groups),
        repeated=any(len(group.members) > 1 for group in groups),
        partitioned=partitioned,
        lag_known=any(runs[group.members[0]].lag.lag.size for group in groups),
        faulted=any(run.spec.faults for run in runs),
        arrivals=runs[0].arrivals_per_s,
        source=_source(groups, runs),
        each=lambda figure: _each(groups, runs, *FIGURES[figure]),
        tables=tables,
    )


def _render(template: str, **values: Any) -> str:
    assets = {"style": _asset("style.css"), "scripts": [_asset("tables.js"), _asset("charts.js")]}
    return _environment().get_template(template).render(version=__version__, **assets, **values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"count": count, "one_decimal": one_decimal, "duration": duration, "slug": slug}
    return environment


@cache
def _asset(name: str) -> str:
    return (ASSETS / name).read_text("utf-8")


def _script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return msgspec.json.encode(value).decode().replace("<", "\\u003c")


def _scalers(spec: RunSpec) -> list[str]:
    return [spec.scaler.name, *(shadow.name for shadow in spec.shadows)]


def _title(groups: Sequence[Group]) -> str:
    names = [group.label for group in groups]
    if len(names) <= MOST_NAMED:
        if len(names) == 1:
            return f"{names[0]} on {groups[0].first.experiment}"
        return f"{', '.join(names[:-1])} and {names[-1]} compared"
    return f"{len(names)} scalers on {groups[0].first.experiment}"


def _experiments(groups: Sequence[Group], published: Published) -> list[str]:
    names = dict.fromkeys(summary.experiment for group in groups for summary in group.summaries)
    return [f"{name}: {published[name].title}" if name in published else name for name in names]


def _parts(spec: RunSpec) -> str:
    """The system that the events went through."""
    match spec.system:
        case FunctionSystem(functions=functions):
            return f"through {len(functions)} functions"
        case NetworkSystem(topics=topics, jobs=jobs):
            return f"as {len(jobs)} job types through {len(topics)} topics"
        case QueueSystem():
            return "through queues of bounded length"
    return f"on {spec.partitions} partitions"


def _source(groups: Sequence[Group], runs: Sequence[RunData]) -> str:
    """Where the latencies per second come from."""
    raw = [group.label for group, _, run in tables.by_group(groups, runs) if run.latency.source != "Spark"]
    if len(raw) == len(runs):
        why = "" if groups[0].first.world == "sim" else ": Spark's figures are missing or do not cover it"
        return f"Computed from the raw results after the run{why}."
    delays_s = np.concatenate([run.latency.publish_delay_s for run in runs])
    median = f", each second's figures out {duration(float(np.median(delays_s)))} after its end (median)"
    spark = f"Computed by Spark during the run{median if len(delays_s) else ''}."
    names = ", ".join(dict.fromkeys(raw))
    return (
        f"{spark} Computed from the raw results, because Spark's are missing or incomplete: {names}." if raw else spark
    )


# --- a figure of each scaler in a sentence ---------------------------------------------------------------------------


def _queueing_share(summary: RunSummary) -> float | None:
    split = summary.slowest_mean
    whole_s = sum(part or 0.0 for part in (split.send_delay_s, split.queueing_s, split.service_s))
    return (split.queueing_s or 0.0) / whole_s if whole_s else None


def _highest_lag(run: RunData) -> float | None:
    known = run.lag.lag[np.isfinite(run.lag.lag)]
    return float(known.max()) if known.size else None


Figure = tuple[Callable[[RunSummary, RunData], float | None], Callable[[float | None], str]]
FIGURES: dict[str, Figure] = {
    "p99": (lambda summary, run: summary.latency.p99_s, duration),  # noqa: ARG005
    "missed_seconds": (lambda summary, run: summary.missed_seconds, count),  # noqa: ARG005
    "most_replicas": (lambda summary, run: float(run.replica_counts[1].max(initial=0)), count),  # noqa: ARG005
    "queueing_share": (lambda summary, run: _queueing_share(summary), share),  # noqa: ARG005
    "highest_lag": (lambda summary, run: _highest_lag(run), count),  # noqa: ARG005
}


def _each(
    groups: Sequence[Group],
    runs: Sequence[RunData],
    of: Callable[[RunSummary, RunData], float | None],
    write: Callable[[float | None], str],
) -> str:
    """A figure of each scaler's first run: "binpack-tail 535 ms, linear 678 ms"; of many the least and the greatest."""
    values = [(of(group.first, runs[group.members[0]]), group.label) for group in groups]
    if len(groups) == 1:
        return write(values[0][0])
    if len(groups) <= MOST_NAMED:
        return ", ".join(f"{label} {write(value)}" for value, label in values)
    known = sorted((value, label) for value, label in values if value is not None)
    if not known:
        return UNKNOWN
    (low, lowest), (high, highest) = known[0], known[-1]
    return f"{lowest} {write(low)} to {highest} {write(high)}"
