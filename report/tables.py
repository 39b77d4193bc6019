"""The report's tables and the sentence on its top. Cells are text, or ``Markup`` whose values are escaped."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, Protocol

import msgspec
from markupsafe import Markup, escape

from controller.journal import TickRecord
from penstock.contracts import Term
from penstock.measures import Distribution
from penstock.rundir import Verdict
from report.analysis.decisions import STEPS, WHOLE, Step, hold_reason
from report.analysis.run_data import RunData
from report.analysis.summary import MeanSplit, RunSummary
from report.analysis.verdict import (
    MAX_CPU_SATURATION,
    MAX_CPU_STOLEN,
    MAX_LONGER_SERVICE,
    MAX_LONGER_SERVICE_S,
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
    recovered,
    share,
    times,
    written_interval,
)

MAX_DECISION_ROWS = 250
"""Of a run; fewer where the page has many scalers."""
MAX_DECISION_ROWS_OF_A_PAGE = 1000
MAX_REASONS = 20
WHY_LENGTH = 320


class Number(NamedTuple):
    """A figure as it is written, and its value for sorting and saving: seconds, shares from 0 to 1, counts."""

    shown: str | Markup
    value: float | None

    def __html__(self) -> str:
        """What the page shows."""
        return str(escape(self.shown))


Cell = str | Markup | Number


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
    """A table of the page with its title: columns from ``numeric_from`` on are set as numbers."""

    caption: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    kind: str = ""
    numeric_from: int | None = 1
    names: Sequence[str] = ()
    """Of the columns in a saved table, if not the headers."""

    @property
    def columns(self) -> list[tuple[str, str]]:
        """(header, name) of each column."""
        return list(zip(self.headers, self.names or self.headers, strict=True))


class Measure(NamedTuple):
    """A column of the comparison: its value in a summary, how it is written, and which end is better (if either)."""

    name: str
    title: str
    of: Callable[[RunSummary], float | None]
    write: Callable[[float | None], str]
    better: Callable[[Iterable[float]], float] | None = None

    def written(self, group: Group) -> tuple[str, str]:
        """The mean over the repetitions of a group, and its interval (empty without repetitions)."""
        interval = group.interval(self.of)
        return self.write(group.mean(self.of)), written_interval(self.write, interval) if interval else ""


MEASURES = (
    Measure("slo_share", "within SLO", lambda s: s.slo_share, share, max),
    Measure("rejected_share", "rejected", lambda s: rejected_share(s), share, min),
    Measure("p50_s", "p50", lambda s: s.latency.p50_s, duration, min),
    Measure("p95_s", "p95", lambda s: s.latency.p95_s, duration, min),
    Measure("p99_s", "p99", lambda s: s.latency.p99_s, duration, min),
    Measure("max_s", "slowest", lambda s: s.latency.max_s, duration, min),
    Measure("longest_recovery_s", "longest recovery", lambda s: s.longest_recovery_s, recovered, min),
    Measure("replica_minutes", "replica-minutes", lambda s: s.replica_minutes, one_decimal, min),
    Measure("up_actions", "ups (replicas)", lambda s: s.scale.up_actions, count),
    Measure("down_actions", "downs (replicas)", lambda s: s.scale.down_actions, count),
    Measure("rebalances", "rebalances", lambda s: s.rebalances, count),
    Measure("money", "cost", lambda s: s.money, money, min),
)
OPTIONAL = ("rejected_share", "rebalances", "longest_recovery_s")
"""Columns that are left out where every value is 0 or unknown."""

PRINTED = {
    "slo_share": ("slo_share", share),
    "replica_minutes": ("replica_minutes", one_decimal),
    "up_actions": ("ups", count),
    "down_actions": ("downs", count),
}
"""Columns for which a paper has values: their name there, how they are written."""


def rejected_share(summary: RunSummary) -> float | None:
    """Of the acknowledged events; queues of bounded length refuse some."""
    return summary.conservation.rejected / summary.acknowledged_events if summary.acknowledged_events else None


def headline(groups: Sequence[Group], wanted_share: float) -> str:
    """The answer: the cheapest scaler that kept the wanted share of events within the SLO, or that none did. Verdicts
    are part of it.
    """
    usable = [group for group in groups if group.verdict != "INVALID" and group.mean(_slo_share) is not None]
    keeping = sorted((group for group in usable if _kept(group) >= wanted_share), key=_minutes)
    slos = {group.first.slo_s for group in groups}
    limit = duration(min(slos)) if len(slos) == 1 else "their SLO"
    aim = f"{100 * wanted_share:.6g}{SPACE}% of events within {limit}"
    sentences = []
    if len(groups) == 1 and usable:
        kept = f"{groups[0].label} {'kept' if keeping else 'did not keep'} {aim}"
        sentences.append(f"{kept}: {_figures(groups[0], wanted_share)}.")
    elif keeping:
        first, *others = keeping
        sentences.append(f"{first.label} is the cheapest that kept {aim}: {_figures(first, wanted_share)}.")
        sentences += [f"Next: {_named(others[0], wanted_share)}."] if others else []
        missing = sorted((group for group in usable if group not in keeping), key=lambda group: -_kept(group))
        if missing:
            more = f"; {len(missing) - 1} more missed it" if len(missing) > 1 else ""
            sentences.append(f"Missed: {_named(missing[0], wanted_share)}{more}.")
        elif others:
            sentences.append(f"All {len(usable)} kept it.")
    elif usable:
        nearest = max(usable, key=_kept)
        what = "scalers" if len({group.first.scaler for group in usable}) == len(usable) else "runs"
        scalers = f"None of {len(usable)} {what}" if len(usable) > 1 else "No scaler"
        sentences.append(f"{scalers} kept {aim}. Nearest: {_named(nearest, wanted_share)}.")
    unusable = [f"{group.label} (INVALID)" for group in groups if group not in usable]
    if unusable:
        sentences.append(f"Not to be believed: {', '.join(unusable)}; see why below.")
    repetitions = max(len(group.summaries) for group in groups)
    if usable and repetitions > 1:
        sentences.append(f"Means of {repetitions} repetitions.")
    return " ".join(sentences)


def _slo_share(summary: RunSummary) -> float | None:
    return summary.slo_share


def _kept(group: Group) -> float:
    return group.mean(_slo_share) or 0.0


def _minutes(group: Group) -> float:
    return group.mean(lambda s: s.replica_minutes) or 0.0


def _named(group: Group, wanted_share: float) -> str:
    return f"{group.label}, {_figures(group, wanted_share)}"


def _figures(group: Group, wanted_share: float) -> str:
    """Share, cost and verdict; the share with so many digits that it lies on its side of the wanted one."""
    kept = _kept(group)
    written = share(kept)
    digits = 2
    while kept < wanted_share and digits < 6 and float(written.rpartition(SPACE)[0]) >= round(100 * wanted_share, 6):
        written, digits = f"{100 * kept:.{digits}f}{SPACE}%", digits + 1
    return f"{written} with {one_decimal(_minutes(group))} replica-minutes ({group.verdict})"


def swatch(group: Group) -> Markup:
    """A scaler's name with its colour."""
    return Markup('<b class="scaler" style="background-image:linear-gradient({0},{0})">{1}</b>').format(
        group.colour, group.label
    )


def _span(kind: str, text: str) -> Markup:
    return Markup('<span class="{}">{}</span>').format(kind, text)


def number(value: float | None, write: Callable[[float | None], str]) -> Number:
    """A figure that is written by ``write``."""
    return Number(write(value), value)


def _small(text: str) -> Markup:
    return Markup("<small>{}</small>").format(text)


def badge(verdict: Verdict) -> Markup:
    """A verdict in its colours."""
    return _span(f"badge {verdict.lower()}", verdict)


def ups_and_downs(group: Group) -> tuple[str, str]:
    """Scale-ups and scale-downs as "actions (replicas)", means over the repetitions."""
    ups, added = group.mean(lambda s: s.scale.up_actions), group.mean(lambda s: s.scale.replicas_added)
    downs, removed = group.mean(lambda s: s.scale.down_actions), group.mean(lambda s: s.scale.replicas_removed)
    return f"{count(ups)} ({count(added)})", f"{count(downs)} ({count(removed)})"


# --- comparison ------------------------------------------------------------------------------------------------------


def comparison(groups: Sequence[Group], published: Published) -> HtmlTable:
    """One row per scaler; the best value of each column among valid runs is marked."""
    measures = [m for m in MEASURES if m.name not in OPTIONAL or any(group.mean(m.of) for group in groups)]
    best = {measure.name: _best(groups, measure) for measure in measures}
    rows: list[list[Cell]] = []
    for group in groups:
        repetitions = f"{len(group.summaries)} repetitions" if len(group.summaries) > 1 else ""
        cells = [_measured(group, measure, best[measure.name]) for measure in measures]
        rows.append([swatch(group) + _small(repetitions), badge(group.verdict), *cells])
    rows += _published(groups, measures, published)
    headers = ["scaler", "verdict", *(measure.title for measure in measures)]
    names = ["scaler", "verdict", *(measure.name for measure in measures)]
    return HtmlTable("Result by scaler", headers, rows, "comparison", numeric_from=2, names=names)


def _measured(group: Group, measure: Measure, best: str | None) -> Number:
    written, interval = measure.written(group)
    shown = _span("best" if written == best and group.verdict == "VALID" else "", written)
    changed = {"up_actions": "replicas_added", "down_actions": "replicas_removed"}.get(measure.name)
    if changed is not None:
        shown += f" ({count(group.mean(lambda s: float(getattr(s.scale, changed))))})"
    return Number(shown + _small(interval) if interval else shown, group.mean(measure.of))


def _best(groups: Sequence[Group], measure: Measure) -> str | None:
    """The best value as it is written; None without a choice, or where all are written alike."""
    values = [group.mean(measure.of) for group in groups if group.verdict == "VALID"]
    known = [value for value in values if value is not None]
    alike = len({measure.write(value) for value in known}) < 2
    return None if alike or measure.better is None else measure.write(measure.better(known))


def _published(groups: Sequence[Group], measures: Sequence[Measure], published: Published) -> Iterator[list[Cell]]:
    """The paper's values, where the run covers the paper's whole workload."""
    for group in groups:
        experiment, scaler = published.get(group.first.experiment), group.first.scaler
        if experiment is None or group.first.duration_s * group.first.speed < experiment.seconds:
            continue
        if printed := experiment.printed.get(scaler):
            row: list[Cell] = [_span("muted", f"{scaler}, printed in the paper"), ""]
            for measure in measures:
                name, write = PRINTED.get(measure.name, ("", count))
                value = printed.get(name)
                row.append(Number(_span("muted", write(value)), value) if name else Number("", None))
            yield row


def costs(groups: Sequence[Group]) -> HtmlTable:
    """Replica time, how much of it was needed, and money."""
    rows: list[list[Cell]] = []
    for group in groups:
        cost = group.mean(lambda s: s.money)
        kept = group.mean(lambda s: s.acknowledged_events * s.slo_share if s.slo_share is not None else None)
        minutes, needed = group.mean(lambda s: s.replica_minutes), group.mean(lambda s: s.needed_replica_minutes)
        rows.append(
            [
                swatch(group),
                number(minutes, one_decimal),
                number(needed, one_decimal),
                number(minutes / needed if minutes is not None and needed else None, times),
                number(group.mean(lambda s: 60 * s.replica_minutes / s.duration_s), one_decimal),
                number(group.first.replica_price_per_hour, lambda value: f"{value:g}"),
                number(cost, money),
                number(1e6 * cost / kept if cost is not None and kept else None, money),
            ]
        )
    headers = ["scaler", "replica-minutes", "needed", "paid ÷ needed", "mean replicas", "price per replica-hour"]
    return HtmlTable("Costs", [*headers, "cost of the run", "cost per million events within SLO"], rows)


def recovery(groups: Sequence[Group]) -> HtmlTable:
    """How long events came late, and how often."""
    rows: list[list[Cell]] = [
        [
            swatch(group),
            number(group.mean(lambda s: s.missed_seconds), count),
            number(group.mean(lambda s: s.late_periods), count),
            number(group.mean(lambda s: s.longest_recovery_s), recovered),
        ]
        for group in groups
    ]
    return HtmlTable("Recovery", ["scaler", "seconds that missed the SLO", "late periods", "longest recovery"], rows)


def time_spent(groups: Sequence[Group]) -> HtmlTable:
    """Mean time in sending, queueing and service as a bar and as figures, of all events and of the slowest 1 %."""
    rows: list[list[Cell]] = []
    for events, split_of in (("all events", _mean_of_all), ("the slowest 1 %", _mean_of_slowest)):
        splits = [split_of(group.first) for group in groups]
        parts_s = [[s.send_delay_s or 0.0, s.queueing_s or 0.0, s.service_s or 0.0] for s in splits]
        longest_s = max(map(sum, parts_s)) or 1.0
        for group, split, parts in zip(groups, splits, parts_s, strict=True):
            bars = Markup("").join(
                Markup('<i class="part-{}" style="width:{}%"></i>').format(
                    i, round(100 * max(0.0, part) / longest_s, 2)
                )
                for i, part in enumerate(parts, start=1)
            )
            each = [number(value, duration) for value in (split.send_delay_s, split.queueing_s, split.service_s)]
            bar = Markup('<span class="bar" aria-hidden="true">{}</span>').format(bars)
            rows.append([swatch(group), events, bar, *each, number(sum(parts) or None, duration)])
    headers = ["scaler", "of", "", "sending", "queueing", "service", "in all"]
    return HtmlTable(
        "Mean time by part", headers, rows, "spent", numeric_from=3, names=[*headers[:2], "bar", *headers[3:]]
    )


def _mean_of_all(summary: RunSummary) -> MeanSplit:
    return summary.mean


def _mean_of_slowest(summary: RunSummary) -> MeanSplit:
    return summary.slowest_mean


# --- decisions -------------------------------------------------------------------------------------------------------


class Decisions(NamedTuple):
    """The decisions of a run: what the page shows, how many rows it leaves out, and the holds in words."""

    table: HtmlTable
    left_out: int
    holds: str


def decisions(group: Group, run: RunData, scalers: int) -> Decisions:
    """The acting scaler's decisions, their arithmetic, and the shadows' advice on the same observation. ``scalers``:
    number of them that share the page.
    """
    summary, headers = group.first, ["second", "action", "replicas", "why"]
    rows = sorted([*map(_step_row, run.steps), *_blind_rows(run.ticks)], key=lambda row: row[0])
    shown = [row[1] for row in rows[: min(MAX_DECISION_ROWS, MAX_DECISION_ROWS_OF_A_PAGE // scalers)]]
    if run.spec.shadows:
        headers.append("shadows advised")
    else:
        shown = [row[:-1] for row in shown]
    held = ", ".join(
        f"{count(ticks)} × {_shortened(readable(reason))}" for reason, ticks in list(summary.holds.items())[:6]
    )
    held_ticks = sum(summary.holds.values())
    return Decisions(
        HtmlTable(f"Decisions of {group.label}", headers, shown, "decisions", numeric_from=None),
        left_out=len(rows) - len(shown),
        holds=f"Held on {count(held_ticks)} {'tick' if held_ticks == 1 else 'ticks'}: {held}." if held else "",
    )


def _step_row(step: Step) -> tuple[float, list[Cell]]:
    record, action = step.record, step.decision.action
    replicas = f"{step.before} → {step.after}" if step.after != step.before else f"{step.after}"
    second = f"{record.time_s:.1f}"
    return record.time_s, [second, _span(f"action {action}", action), replicas, _why(step), _advice(record)]


def _why(step: Step) -> str:
    """The arithmetic of a decision in one line: of the fleet, or where it is about several, of the first one that it
    changed. Groupings of partitions do not fit a line.
    """
    terms = step.decision.why
    fleets = (step.record.observation.fleet, *step.decision.targets, *terms)
    name = next((fleet for fleet in fleets if fleet in terms), None)
    if name is None:
        return ""
    lines = why(step.record.acting, terms[name])
    if len(terms) > 1:
        others = len(step.changes) - 1
        lines = [f"fleet {name}", *lines, *([f"and {others} others"] if others else [])]
    text = "; ".join(lines)
    return _shortened(text)


def _shortened(text: str) -> str:
    """Without its middle, if it is long: arithmetic ends in its conclusion."""
    half = WHY_LENGTH // 2
    return text if len(text) <= WHY_LENGTH else f"{text[:half].rstrip()} … {text[-half:].lstrip()}"


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
            reason = _shortened(readable(ticks[0].note or hold_reason(ticks[0]) or ""))
            yield first, [when, _span("action hold", "hold"), UNKNOWN, reason, ""]


# --- validity --------------------------------------------------------------------------------------------------------


def verdicts(groups: Sequence[Group], runs: Sequence[RunData]) -> HtmlTable:
    """Each run's verdict with every reason."""
    rows = []
    for group, summary, run in by_group(groups, runs):
        reasons = Markup("").join(Markup("<li>{}</li>").format(reason) for reason in summary.reasons)
        text = Markup("<ul>{}</ul>").format(reasons) if reasons else "every check below held"
        rows.append([swatch(group), run.name, badge(summary.verdict), text])
    return HtmlTable("Verdicts", ["scaler", "run", "verdict", "why"], rows, "text", numeric_from=None)


LONGER_SERVICE = f"{100 * MAX_LONGER_SERVICE:g}{SPACE}% + {1000 * MAX_LONGER_SERVICE_S:g}{SPACE}ms"
CHECKS: Mapping[str, Callable[[RunSummary], Cell]] = {
    f"issued (at least {100 * MIN_ISSUED_SHARE:g}{SPACE}%)": lambda s: number(s.issued_share, share),
    f"send delay p99 (at most {100 * MAX_SEND_DELAY_OF_SLO:g}{SPACE}% of SLO)": lambda s: number(
        s.send_delay.p99_s, duration
    ),
    "negative latencies": lambda s: number(s.negative_latencies, count),
    f"tick phase off at p99 (at most {1000 * MAX_TICK_PHASE_ERROR_S:g}{SPACE}ms)": (
        lambda s: number(s.tick_phase_error_p99_s, duration)
    ),
    f"decided (at least {100 * MIN_DECIDED_SHARE:g}{SPACE}%)": (
        lambda s: f"{count(s.decisions)} of {count(s.due_decisions)}"
    ),
    "ticks missed": lambda s: f"{count(s.missed_ticks)} of {count(s.ticks + s.missed_ticks)}",
    f"seconds with all cores > 90{SPACE}% busy (at most {100 * MAX_CPU_SATURATION:g}{SPACE}%)": (
        lambda s: number(s.cpu_saturation, share)
    ),
    f"mean service (consumers: at most {LONGER_SERVICE} above the floor)": lambda s: number(s.mean.service_s, duration),
    f"stolen by the machine's host (at most {100 * MAX_CPU_STOLEN:g}{SPACE}%)": lambda s: number(s.cpu_stolen, share),
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
    rows: list[list[Cell]] = [
        [swatch(group), *(figure(summary) for figure in CHECKS.values())] for group, summary in _summaries(groups)
    ]
    return HtmlTable("Checks of each run", ["scaler", *CHECKS], rows)


def _summaries(groups: Sequence[Group]) -> list[tuple[Group, RunSummary]]:
    return [(group, summary) for group in groups for summary in group.summaries]


def starts(groups: Sequence[Group]) -> HtmlTable | None:
    """Duration of each step of new replicas to their first event (median, longest); None if none was started."""
    measured = [(group, summary.starts) for group, summary in _summaries(groups) if summary.starts]
    steps = [step for step in (*STEPS, WHOLE) if any(step in taken for _, taken in measured)]

    def cell(each: Distribution | None) -> Number:
        if each is None:
            return Number(UNKNOWN, None)
        return Number(f"{duration(each.p50_s)} ({duration(each.max_s)})", each.p50_s)

    rows: list[list[Cell]] = [[swatch(group), *(cell(taken.get(step)) for step in steps)] for group, taken in measured]
    return HtmlTable("From decision to first event", ["scaler", *steps], rows) if rows else None


def conservation(groups: Sequence[Group]) -> HtmlTable:
    """Where every scheduled event ended."""
    rows: list[list[Cell]] = []
    for group, summary in _summaries(groups):
        agree = _span("good", "agree") if summary.conservation.agree else _span("bad", "disagree")
        counts = (number(getattr(summary.conservation, name), count) for name in BALANCE.values())
        rows.append([swatch(group), agree, *counts])
    return HtmlTable("Conservation of events", ["scaler", "three counts", *BALANCE], rows, numeric_from=2)


def unsuccessful(groups: Sequence[Group]) -> HtmlTable | None:
    """Events that ended otherwise than completed, by reason; None if there are none."""
    rows: list[list[Cell]] = [
        [swatch(group), reason, number(results, count)]
        for group, summary in _summaries(groups)
        for reason, results in list(summary.unsuccessful_by_reason.items())[:MAX_REASONS]
    ]
    headers = ["scaler", "how and why", "results"]
    return HtmlTable("Results that were no completions", headers, rows, numeric_from=2) if rows else None


def faults(groups: Sequence[Group], runs: Sequence[RunData]) -> HtmlTable | None:
    """The faults that were injected, with time to recover and cost, and those only planned; None without any."""
    rows: list[list[Cell]] = []
    for group, summary, run in by_group(groups, runs):
        for fault in summary.faults:
            lasting = duration(fault.seconds) if fault.seconds else "at once"
            row: list[Cell] = [swatch(group), fault.kind, fault.detail, number(fault.at_s, one_decimal), lasting]
            if fault.hit:
                taken = (_recovery(fault.slo_recovery_s), _recovery(fault.replicas_recovery_s))
                late = number(fault.late_events, count)
                row += [*taken, late, number(fault.missing_replica_s, one_decimal)]
            else:
                row += ["no effect", *[UNKNOWN] * 3]
            rows.append(row)
        rows += [
            [swatch(group), planned.kind, "not injected", number(planned.at_s, one_decimal), *[UNKNOWN] * 5]
            for planned in run.spec.faults[len(summary.faults) :]
        ]
    title = ["scaler", "fault", "what", "second", "lasting", "within SLO again", "wanted replicas again"]
    headers = [*title, "late events", "replica-seconds missing"]
    return HtmlTable("Faults", headers, rows, numeric_from=3) if rows else None


def _recovery(taken_s: float | None) -> Number:
    return Number("not within the run" if taken_s is None else duration(taken_s) if taken_s else "always", taken_s)


# --- set-up ----------------------------------------------------------------------------------------------------------


OF_A_RUN = ("run", "seed", "finished at", "machine: started_at", "manifest")
"""Facts in which repetitions differ."""


def facts_of(run: RunData, summary: RunSummary) -> dict[str, str]:
    """The conditions of a run and its environment by name, as text; nothing that is not set."""
    facts: dict[str, Any] = {"run": run.name, "seed": run.spec.seed, **summary.conditions}
    if (manifest := run.manifest) is None:
        facts["manifest"] = "not written: the run did not come to its end"
    else:
        facts |= {"finished at": manifest.finished_at, "git revision": manifest.git_revision}
        facts |= {f"version of {name}": version for name, version in manifest.versions.items()}
        facts |= {f"machine: {name}": value for name, value in manifest.machine.items() if name != "world"}
    if run.spec.world == "sim":  # its clock is virtual
        facts.pop("machine: started_at", None)
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in facts.items()
        if value not in ("", None, [], ())
    }


def differences(groups: Sequence[Group], runs: Sequence[RunData]) -> HtmlTable | None:
    """The settings in which the scalers' runs differ, without the parameters that only some of them have; None if
    there are none.
    """
    facts = [facts_of(runs[group.members[0]], group.first) for group in groups]
    rows: list[list[Cell]] = []
    for name in dict.fromkeys(name for each in facts for name in each):
        values = [each.get(name) for each in facts]
        own = name.startswith("scaler.") and None in values
        if name not in (*OF_A_RUN, "scaler.name") and not own and len(set(values)) > 1:
            rows.append([_setting(name), *(value or UNKNOWN for value in values)])
    headers = ["setting", *(group.label for group in groups)]
    return HtmlTable("What differs between the runs", headers, rows, "text named", numeric_from=None) if rows else None


def parameters(groups: Sequence[Group], runs: Sequence[RunData]) -> HtmlTable:
    """The parameters of each scaler."""
    rows: list[list[Cell]] = []
    for group in groups:
        facts = facts_of(runs[group.members[0]], group.first)
        own = [f"{_setting(name)} {value}" for name, value in facts.items() if name.startswith("scaler.parameters.")]
        rows.append([swatch(group), ", ".join(own) or "none"])
    return HtmlTable("Parameters of the scalers", ["scaler", "parameters"], rows, "text named", numeric_from=None)


def shared_facts(groups: Sequence[Group], runs: Sequence[RunData]) -> HtmlTable:
    """Settings and environment that are the same in all runs."""
    first, *others = [facts_of(runs[group.members[0]], group.first) for group in groups]
    rows: list[list[Cell]] = [
        [name, value]
        for name, value in first.items()
        if name not in OF_A_RUN and not name.startswith("scaler.") and all(each.get(name) == value for each in others)
    ]
    return HtmlTable("The same in all runs", ["setting", "value"], rows, "text", numeric_from=None)


def run_list(groups: Sequence[Group], runs: Sequence[RunData], links: Mapping[str, str]) -> HtmlTable:
    """The runs with their seeds; ``links`` has the address of the report of each."""
    rows: list[list[Cell]] = []
    for group, summary, run in by_group(groups, runs):
        facts = facts_of(run, summary)
        name = Markup('<a href="{}">{}</a>').format(links[run.name], run.name) if run.name in links else run.name
        finished = facts.get("finished at") or facts.get("manifest", "")
        rows.append([name, swatch(group), number(run.spec.seed, count), badge(summary.verdict), finished])
    return HtmlTable("Runs", ["run", "scaler", "seed", "verdict", "finished at"], rows, "text", numeric_from=None)


def _setting(name: str) -> str:
    return name.removeprefix("scaler.parameters.")


def by_group(groups: Sequence[Group], runs: Sequence[RunData]) -> Iterator[tuple[Group, RunSummary, RunData]]:
    """Every run with its summary and its group."""
    for group in groups:
        for summary, member in zip(group.summaries, group.members, strict=True):
            yield group, summary, runs[member]
