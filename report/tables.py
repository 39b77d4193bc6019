"""The report's tables and the sentence on its top. Cells are text, or ``Markup`` whose values are escaped."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, Protocol

import msgspec
from markupsafe import Markup

from controller.journal import TickRecord
from penstock.contracts import Term
from penstock.measures import Distribution
from penstock.rundir import Verdict
from report.analysis.decisions import STEPS, WHOLE, Step, hold_reason
from report.analysis.run_data import RunData
from report.analysis.summary import RunSummary
from report.analysis.verdict import (
    MAX_CPU_SATURATION,
    MAX_CPU_STOLEN,
    MAX_SEND_DELAY_OF_SLO,
    MAX_TICK_PHASE_ERROR_S,
    MIN_DECIDED_SHARE,
    MIN_ISSUED_SHARE,
)
from report.explain import body
from report.explanations.wording import readable
from report.groups import Group
from report.wording import (
    SPACE,
    UNKNOWN,
    count,
    duration,
    money,
    one_decimal,
    share,
    written_interval,
)

MAX_DECISION_ROWS = 250
MAX_REASONS = 20
WHY_LENGTH = 280
MOST_NAMED = 4
"""Scalers that a sentence names one by one."""

Cell = str | Markup


class PublishedExperiment(Protocol):
    """An experiment as its paper describes it: ``printed`` are the paper's values by scaler."""

    @property
    def title(self) -> str: ...  # noqa: D102

    @property
    def seconds(self) -> float: ...  # noqa: D102

    @property
    def printed(self) -> Mapping[str, Mapping[str, float]]: ...  # noqa: D102


Published = Mapping[str, PublishedExperiment]
"""Experiments by name, passed to the report by its caller."""


class HtmlTable(NamedTuple):
    """A table of the page: its columns from ``numeric_from`` on are set as numbers."""

    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    kind: str = ""
    numeric_from: int | None = 1


class Measure(NamedTuple):
    """A column of the comparison: its value in a summary, how it is written, and which end is better (if either)."""

    title: str
    of: Callable[[RunSummary], float | None]
    write: Callable[[float | None], str]
    better: Callable[[Iterable[float]], float] | None = None

    def written(self, group: Group) -> tuple[str, str]:
        """The mean over the repetitions of a group, and its interval (empty without repetitions)."""
        interval = group.interval(self.of)
        return self.write(group.mean(self.of)), written_interval(self.write, interval) if interval else ""


REBALANCES = "rebal\u00adances"
"""With a soft hyphen: the heading may break in a narrow window."""

MEASURES = (
    Measure("within SLO", lambda s: s.slo_share, share, max),
    Measure("p50", lambda s: s.latency.p50_s, duration, min),
    Measure("p95", lambda s: s.latency.p95_s, duration, min),
    Measure("p99", lambda s: s.latency.p99_s, duration, min),
    Measure("slowest", lambda s: s.latency.max_s, duration, min),
    Measure("replica-minutes", lambda s: s.replica_minutes, one_decimal, min),
    Measure(REBALANCES, lambda s: s.rebalances, count),
    Measure("cost", lambda s: s.money, money, min),
)

PRINTED = {
    "within SLO": ("slo_share", share),
    "replica-minutes": ("replica_minutes", one_decimal),
    "ups": ("ups", count),
    "downs": ("downs", count),
}
"""Columns for which a paper has values: their name there, how they are written."""


def headline(groups: Sequence[Group]) -> str:
    """The answer in one sentence: the share within the SLO of each scaler and its cost."""
    valid = [group for group in groups if group.verdict != "INVALID"]
    sentence = ""
    if len(valid) > MOST_NAMED:
        best = max(valid, key=lambda group: group.mean(lambda s: s.slo_share) or 0.0)
        cheapest = min(valid, key=lambda group: group.mean(lambda s: s.replica_minutes) or 0.0)
        sentence = (
            f"Of {len(valid)} scalers, {best.label} kept most events within {duration(best.first.slo_s)} "
            f"({_kept(best)} with {_minutes(best)} replica-minutes); {cheapest.label} used the fewest replicas "
            f"({_kept(cheapest)} with {_minutes(cheapest)})."
        )
    elif valid:
        first, *others = valid
        within = f"of events within {duration(first.first.slo_s)} with {_minutes(first)} replica-minutes"
        parts = [f"{first.label} kept {_kept(first)} {within}"]
        parts += [f"{group.label} {_kept(group)} with {_minutes(group)}" for group in others]
        sentence = "; ".join(parts) + "."
    invalid = [group.label for group in groups if group not in valid]
    return sentence + (f" Not to be believed: {', '.join(invalid)} (see why below)." if invalid else "")


def _kept(group: Group) -> str:
    return share(group.mean(lambda s: s.slo_share))


def _minutes(group: Group) -> str:
    return one_decimal(group.mean(lambda s: s.replica_minutes))


def swatch(group: Group) -> Markup:
    """A scaler's name with its colour."""
    return Markup('<i class="swatch" style="background:{}"></i><b>{}</b>').format(group.colour, group.label)


def _span(kind: str, text: str) -> Markup:
    return Markup('<span class="{}">{}</span>').format(kind, text)


def _small(text: str) -> Markup:
    return Markup("<small>{}</small>").format(text)


def _badge(verdict: Verdict) -> Markup:
    return _span(f"badge {verdict.lower()}", verdict)


def ups_and_downs(group: Group) -> tuple[str, str]:
    """Scale-ups and scale-downs as "actions (replicas)", means over the repetitions."""
    ups, added = group.mean(lambda s: s.scale.up_actions), group.mean(lambda s: s.scale.replicas_added)
    downs, removed = group.mean(lambda s: s.scale.down_actions), group.mean(lambda s: s.scale.replicas_removed)
    return f"{count(ups)} ({count(added)})", f"{count(downs)} ({count(removed)})"


# --- comparison ------------------------------------------------------------------------------------------------------


def comparison(groups: Sequence[Group], published: Published) -> HtmlTable:
    """One row per scaler; the best value of each column among valid runs is marked."""
    best = {measure.title: _best(groups, measure) for measure in MEASURES}
    titles = list(best)
    at = titles.index(REBALANCES)
    headers = ["scaler", "verdict", *titles[:at], "ups", "downs", *titles[at:]]
    rows: list[list[Cell]] = []
    for group in groups:
        cells = [_measured(group, measure, best[measure.title]) for measure in MEASURES]
        repetitions = f"{len(group.summaries)} repetitions" if len(group.summaries) > 1 else ""
        name = swatch(group) + _small(repetitions)
        rows.append([name, _badge(group.verdict), *cells[:at], *ups_and_downs(group), *cells[at:]])
    rows += _published(groups, headers, published)
    return HtmlTable(headers, rows, "comparison", numeric_from=2)


def _measured(group: Group, measure: Measure, best: str | None) -> Markup:
    written, interval = measure.written(group)
    value = _span("best" if written == best and group.verdict != "INVALID" else "", written)
    return value + _small(interval) if interval else value


def _best(groups: Sequence[Group], measure: Measure) -> str | None:
    """The best value as it is written; None without a choice, or where all are written alike."""
    values = [group.mean(measure.of) for group in groups if group.verdict != "INVALID"]
    known = [value for value in values if value is not None]
    alike = len({measure.write(value) for value in known}) < 2
    return None if alike or measure.better is None else measure.write(measure.better(known))


def _published(groups: Sequence[Group], headers: Sequence[str], published: Published) -> Iterator[list[Cell]]:
    """The paper's values, where the run covers the paper's whole workload."""
    for group in groups:
        experiment, scaler = published.get(group.first.experiment), group.first.scaler
        if experiment is None or group.first.duration_s * group.first.speed < experiment.seconds:
            continue
        if printed := experiment.printed.get(scaler):
            cells = {title: _span("muted", write(printed.get(name))) for title, (name, write) in PRINTED.items()}
            cells["scaler"] = _span("muted", f"{scaler}, printed in the paper")
            yield [cells.get(title, "") for title in headers]


def costs(groups: Sequence[Group]) -> HtmlTable:
    """Replica time and money."""
    rows = []
    for group in groups:
        cost = group.mean(lambda s: s.money)
        kept = group.mean(lambda s: s.acknowledged_events * s.slo_share if s.slo_share is not None else None)
        rows.append(
            [
                swatch(group),
                one_decimal(group.mean(lambda s: s.replica_minutes)),
                one_decimal(group.mean(lambda s: 60 * s.replica_minutes / s.duration_s)),
                f"{group.first.replica_price_per_hour:g}",
                money(cost),
                money(1e6 * cost / kept) if cost is not None and kept else UNKNOWN,
            ]
        )
    headers = ["scaler", "replica-minutes", "mean replicas", "price per replica-hour", "cost of the run"]
    return HtmlTable([*headers, "cost per million events within SLO"], rows)


# --- decisions -------------------------------------------------------------------------------------------------------


class Decisions(NamedTuple):
    """The decisions of a run: what the page shows, how many rows it leaves out, and the holds in words."""

    table: HtmlTable
    left_out: int
    holds: str


def decisions(run: RunData, summary: RunSummary) -> Decisions:
    """The acting scaler's decisions, their arithmetic, and the shadows' advice on the same observation."""
    rows = sorted([*map(_step_row, run.steps), *_blind_rows(run.ticks)], key=lambda row: row[0])
    shown = [row[1] for row in rows[:MAX_DECISION_ROWS]]
    held = ", ".join(f"{count(ticks)} × {readable(reason)}" for reason, ticks in list(summary.holds.items())[:6])
    return Decisions(
        HtmlTable(["second", "action", "replicas", "why", "shadows advised"], shown, "decisions", numeric_from=None),
        left_out=len(rows) - len(shown),
        holds=f"Held on {count(sum(summary.holds.values()))} ticks: {held}." if held else "",
    )


def _step_row(step: Step) -> tuple[float, list[Cell]]:
    record, action = step.record, step.decision.action
    replicas = f"{step.before} → {step.after}" if step.after != step.before else f"{step.after}"
    second = f"{record.time_s:.1f}"
    return record.time_s, [second, _span(f"action {action}", action), replicas, _why(step), _advice(record)]


def _why(step: Step) -> Markup:
    """The arithmetic of a decision in one line: of the fleet, or where it is about several, of the first one that it
    changed. Groupings of partitions do not fit a line.
    """
    terms = step.decision.why
    fleets = (step.record.observation.fleet, *step.decision.targets, *terms)
    name = next((fleet for fleet in fleets if fleet in terms), None)
    if name is None:
        return Markup("")
    lines = why(step.record.acting, terms[name])
    if len(terms) > 1:
        others = len(step.changes) - 1
        lines = [f"fleet {name}", *lines, *([f"and {others} others"] if others else [])]
    text = "; ".join(lines)
    short = text if len(text) <= WHY_LENGTH else text[: WHY_LENGTH - 1].rstrip() + "…"
    return Markup('<span title="{}">{}</span>').format("\n".join(lines), short)


def why(scaler: str, terms: Mapping[str, Term]) -> list[str]:
    """The terms of one fleet as ``penstock explain`` words them, without tables and groupings of partitions."""

    def grouping(value: Term) -> bool:
        return isinstance(value, list) and any(isinstance(item, list) for item in value)

    return body(scaler, {name: value for name, value in terms.items() if name != "partitions" and not grouping(value)})


def _advice(record: TickRecord) -> str:
    """The shadows' advice, those of one opinion together."""
    names: dict[str, list[str]] = {}
    for name, decision in record.decisions.items():
        target = decision.targets.get(record.observation.fleet) if decision.action in ("up", "down") else None
        if name != record.acting:
            names.setdefault(f"{decision.action} to {target}" if target else decision.action, []).append(name)
    shadows = sum(map(len, names.values()))
    if len(names) == 1 and shadows > 2:
        return f"all {shadows}: {next(iter(names))}"
    return "; ".join(f"{', '.join(who)}: {opinion}" for opinion, who in names.items())


def _blind_rows(records: Sequence[TickRecord]) -> Iterator[tuple[float, list[Cell]]]:
    """Stretches of ticks in which something was unknown or failed, one row each."""

    def trouble(record: TickRecord) -> bool:
        return bool(record.errors) or (hold_reason(record) is not None and bool(record.observation.unknown))

    for troubled, stretch in groupby(records, key=trouble):
        if troubled:
            ticks = list(stretch)
            first, last = ticks[0].time_s, ticks[-1].time_s
            when = f"{first:.1f}" if len(ticks) == 1 else f"{first:.1f} to {last:.1f}"
            reason = readable(ticks[0].note or hold_reason(ticks[0]) or "")
            yield first, [when, _span("action hold", "hold"), UNKNOWN, reason, ""]


# --- validity --------------------------------------------------------------------------------------------------------


def verdicts(groups: Sequence[Group], runs: Sequence[RunData]) -> HtmlTable:
    """Each run's verdict with every reason."""
    rows = []
    for group, summary, run in by_group(groups, runs):
        reasons = Markup("").join(Markup("<li>{}</li>").format(reason) for reason in summary.reasons)
        text = Markup("<ul>{}</ul>").format(reasons) if reasons else "every check below held"
        rows.append([swatch(group), run.name, _badge(summary.verdict), text])
    return HtmlTable(["scaler", "run", "verdict", "why"], rows, numeric_from=None)


CHECKS: Mapping[str, Callable[[RunSummary], str]] = {
    f"issued (at least {100 * MIN_ISSUED_SHARE:g}{SPACE}%)": lambda s: share(s.issued_share),
    f"send delay p99 (at most {100 * MAX_SEND_DELAY_OF_SLO:g}{SPACE}% of SLO)": lambda s: duration(s.send_delay.p99_s),
    "negative latencies": lambda s: count(s.negative_latencies),
    f"tick phase off at p99 (at most {1000 * MAX_TICK_PHASE_ERROR_S:g}{SPACE}ms)": (
        lambda s: duration(s.tick_phase_error_p99_s)
    ),
    f"decided (at least {100 * MIN_DECIDED_SHARE:g}{SPACE}%)": (
        lambda s: f"{count(s.decisions)} of {count(s.due_decisions)}"
    ),
    "ticks missed": lambda s: f"{count(s.missed_ticks)} of {count(s.ticks + s.missed_ticks)}",
    f"seconds with all cores > 90{SPACE}% busy (at most {100 * MAX_CPU_SATURATION:g}{SPACE}%)": (
        lambda s: share(s.cpu_saturation)
    ),
    f"stolen by the machine's host (at most {100 * MAX_CPU_STOLEN:g}{SPACE}%)": lambda s: share(s.cpu_stolen),
}
"""The figures behind a verdict, with their limits."""

BALANCE = {
    "scheduled": "scheduled",
    "never sent": "never_sent",
    "acknowledged": "acknowledged",
    "completed": "completed",
    "failed": "failed",
    "rejected": "rejected",
    "dead-lettered": "dead_lettered",
    "in flight": "in_flight",
    "lost": "lost",
    "booked in the ledger": "booked",
    "repeated results": "redelivered",
    "foreign results": "foreign",
}
"""Where every scheduled event ended: fields of ``Conservation``."""


def checks(groups: Sequence[Group]) -> HtmlTable:
    """The figures behind the verdicts, with their limits."""
    rows = [[swatch(group), *(figure(summary) for figure in CHECKS.values())] for group, summary in _summaries(groups)]
    return HtmlTable(["scaler", *CHECKS], rows)


def _summaries(groups: Sequence[Group]) -> list[tuple[Group, RunSummary]]:
    return [(group, summary) for group in groups for summary in group.summaries]


def starts(groups: Sequence[Group]) -> HtmlTable | None:
    """Duration of each step of new replicas to their first event (median, longest); None if none was started."""
    measured = [(group, summary.starts) for group, summary in _summaries(groups) if summary.starts]
    steps = [step for step in (*STEPS, WHOLE) if any(step in taken for _, taken in measured)]

    def cell(each: Distribution | None) -> str:
        return f"{duration(each.p50_s)} ({duration(each.max_s)})" if each is not None else UNKNOWN

    rows = [[swatch(group), *(cell(taken.get(step)) for step in steps)] for group, taken in measured]
    return HtmlTable(["scaler", *steps], rows) if rows else None


def conservation(groups: Sequence[Group]) -> HtmlTable:
    """Where every scheduled event ended."""
    rows = []
    for group, summary in _summaries(groups):
        agree = _span("good", "agree") if summary.conservation.agree else _span("bad", "disagree")
        rows.append([swatch(group), agree, *(count(getattr(summary.conservation, name)) for name in BALANCE.values())])
    return HtmlTable(["scaler", "three counts", *BALANCE], rows, numeric_from=2)


def unsuccessful(groups: Sequence[Group]) -> HtmlTable | None:
    """Events that ended otherwise than completed, by reason; None if there are none."""
    rows = [
        [swatch(group), reason, count(number)]
        for group, summary in _summaries(groups)
        for reason, number in list(summary.unsuccessful_by_reason.items())[:MAX_REASONS]
    ]
    return HtmlTable(["scaler", "how and why", "results"], rows, numeric_from=2) if rows else None


def faults(groups: Sequence[Group], runs: Sequence[RunData]) -> HtmlTable | None:
    """The faults that were injected, with time to recover and cost, and those only planned; None without any."""
    rows: list[list[Cell]] = []
    for group, summary, run in by_group(groups, runs):
        for fault in summary.faults:
            lasting = duration(fault.seconds) if fault.seconds else "at once"
            row: list[Cell] = [swatch(group), fault.kind, fault.detail, f"{fault.at_s:.1f}", lasting]
            if fault.hit:
                taken = (_recovery(fault.slo_recovery_s), _recovery(fault.replicas_recovery_s))
                row += [*taken, count(fault.late_events), one_decimal(fault.missing_replica_s)]
            else:
                row += ["no effect", *[UNKNOWN] * 3]
            rows.append(row)
        rows += [
            [swatch(group), planned.kind, "not injected", f"{planned.at_s:.1f}", *[UNKNOWN] * 5]
            for planned in run.spec.faults[len(summary.faults) :]
        ]
    title = ["scaler", "fault", "what", "second", "lasting", "within SLO again", "wanted replicas again"]
    return HtmlTable([*title, "late events", "replica-seconds missing"], rows, numeric_from=3) if rows else None


def _recovery(taken_s: float | None) -> str:
    return "not within the run" if taken_s is None else duration(taken_s) if taken_s else "always"


# --- set-up ----------------------------------------------------------------------------------------------------------


def setup(run: RunData, summary: RunSummary) -> HtmlTable:
    """The conditions of a run and its environment, as names and values."""
    facts: dict[str, Any] = {"run": run.name, "seed": run.spec.seed, **summary.conditions}
    if (manifest := run.manifest) is None:
        facts["manifest"] = "not written: the run did not come to its end"
    else:
        facts |= {"finished at": manifest.finished_at, "git revision": manifest.git_revision}
        facts |= {f"version of {name}": version for name, version in manifest.versions.items()}
        facts |= {f"machine: {name}": value for name, value in manifest.machine.items()}
    rows = [
        [name, value if isinstance(value, str) else msgspec.json.encode(value).decode()]
        for name, value in facts.items()
    ]
    return HtmlTable(["name", "value"], rows, "facts", numeric_from=None)


def by_group(groups: Sequence[Group], runs: Sequence[RunData]) -> Iterator[tuple[Group, RunSummary, RunData]]:
    """Every run with its summary and its group."""
    for group in groups:
        for summary, member in zip(group.summaries, group.members, strict=True):
            yield group, summary, runs[member]
