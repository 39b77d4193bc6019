"""report.html: one file that loads nothing. Its wording is in ``assets/page.html``, its numbers come from here."""

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
from jinja2 import Environment, StrictUndefined, Template
from plotly.offline import get_plotlyjs

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
from report.tables import MOST_NAMED, Published
from report.wording import count, duration, one_decimal, share

ASSETS = files("report") / "assets"
WORLDS = {"local": "real processes on real services", "sim": "simulated, in virtual time", "kubernetes": "pods"}


def write_report(runs: Sequence[RunData], out: Path, published: Published = MappingProxyType({})) -> None:
    """Write the report of these runs. Raises PenstockError for none, or for an incomplete run directory."""
    if not runs:
        raise PenstockError("a report needs at least one run directory; `penstock run` makes them under runs/")
    groups = group_runs([summary_of(run) for run in runs])
    partial = out.with_name(out.name + ".partial")
    partial.write_text(page(groups, runs, published), encoding="utf-8")
    partial.replace(out)


def page(groups: Sequence[Group], runs: Sequence[RunData], published: Published) -> str:
    """The whole document."""
    figures = {
        "cdf": charts.latency_cdf(groups, runs),
        "latency": charts.latency_over_time(groups, runs),
        "replicas": charts.replicas_over_time(groups, runs),
        "spent": charts.time_spent(groups),
        "lag": charts.lag_per_partition(groups, runs),
        "tail": charts.tail_axis(charts.most_events(groups)),
        "even": charts.linear_axis(),
    }
    return _template().render(
        style=_asset("style.css"),
        script=_asset("charts.js"),
        plotly=get_plotlyjs(),
        figures=_script_json(figures),
        version=__version__,
        title=_title(groups),
        kicker="Penstock · " + "; ".join(_experiments(groups, published)),
        headline=tables.headline(groups),
        first=groups[0].first,
        spec=runs[0].spec,
        world=WORLDS.get(groups[0].first.world, "unknown"),
        parts=_parts(runs[0].spec),
        groups=groups,
        runs=runs,
        comparison=tables.comparison(groups, published),
        emulated=any(is_emulated(name) for run in runs for name in _scalers(run.spec)),
        repeated=any(len(group.members) > 1 for group in groups),
        partitioned=any(isinstance(run.spec.system, StreamSystem) for run in runs),
        lag_known=any(runs[group.members[0]].lag.lag.size for group in groups),
        faulted=any(run.spec.faults for run in runs),
        arrivals=runs[0].arrivals_per_s,
        source=_source(groups, runs),
        each=lambda figure: _each(groups, runs, FIGURES[figure]),
        folded=len(groups) > MOST_NAMED,
        tables=tables,
    )


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    environment.filters |= {"count": count, "one_decimal": one_decimal, "duration": duration, "slug": slug}
    return environment.from_string(_asset("page.html"))


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
        return " against ".join(names) if len(names) > 1 else f"{names[0]} on {groups[0].first.experiment}"
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


def _queueing_share(summary: RunSummary) -> str:
    split = summary.slowest_mean
    whole_s = sum(part or 0.0 for part in (split.send_delay_s, split.queueing_s, split.service_s))
    return share((split.queueing_s or 0.0) / whole_s) if whole_s else "–"


def _highest_lag(run: RunData) -> str:
    known = run.lag.lag[np.isfinite(run.lag.lag)]
    return count(known.max()) if known.size else "unknown"


FIGURES: dict[str, Callable[[RunSummary, RunData], str]] = {
    "p99": lambda summary, run: duration(summary.latency.p99_s),  # noqa: ARG005
    "missed_seconds": lambda summary, run: count(summary.missed_seconds),  # noqa: ARG005
    "most_replicas": lambda summary, run: str(run.replica_counts[1].max(initial=0)),  # noqa: ARG005
    "queueing_share": lambda summary, run: _queueing_share(summary),  # noqa: ARG005
    "highest_lag": lambda summary, run: _highest_lag(run),  # noqa: ARG005
}


def _each(groups: Sequence[Group], runs: Sequence[RunData], figure: Callable[[RunSummary, RunData], str]) -> str:
    """A figure of each scaler's first run: "binpack-tail 535 ms, linear 678 ms"."""
    values = [figure(group.first, runs[group.members[0]]) for group in groups[:MOST_NAMED]]
    if len(groups) == 1:
        return values[0]
    named = ", ".join(f"{group.label} {value}" for group, value in zip(groups, values, strict=False))
    return named + (f" and {len(groups) - MOST_NAMED} more" if len(groups) > MOST_NAMED else "")
