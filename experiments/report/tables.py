"""The report's tables and the sentence on its top."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import msgspec

from controller.explanations.wording import readable
from controller.journal import TickRecord
from experiments.analysis.decisions import Step, hold_reason
from experiments.analysis.starts import STEPS, WHOLE
from experiments.analysis.summary import Distribution, Summary
from experiments.analysis.verdict import (
    MAX_CPU_SATURATION,
    MAX_CPU_STOLEN,
    MAX_SEND_DELAY_OF_SLO,
    MAX_TICK_PHASE_ERROR_S,
    MIN_ISSUED_SHARE,
)
from experiments.catalogue import EXPERIMENTS
from experiments.report.evidence import RunEvidence
from experiments.report.groups import Group
from experiments.report.markup import Html, Text, element, join, table
from experiments.report.wording import (
    SPACE,
    UNKNOWN,
    all_terms,
    count,
    duration,
    mean_count,
    money,
    one_decimal,
    share,
    why,
    written_interval,
)
from penstock.contracts import Decision, Term
from penstock.rundir import Verdict

MAX_DECISION_ROWS = 250
MOST_NAMED = 4
"""Scalers that a sentence names one by one."""
WORST_FIRST: tuple[Verdict, ...] = ("INVALID", "DEGRADED", "VALID")


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of the comparison: how to read it off a summary, how to write it, which end is better (if either)."""

    title: str
    of: Callable[[Summary], float | None]
    write: Callable[[float | None], str]
    better: Callable[[Iterable[float]], float] | None = None


REBALANCES = "rebal\u00adances"
"""With a soft hyphen: the heading may break in a narrow window."""

MEASURES = (
    Measure("within SLO", lambda s: s.slo_share, share, max),
    Measure("p50", lambda s: s.latency.p50_s, duration, min),
    Measure("p95", lambda s: s.latency.p95_s, duration, min),
    Measure("p99", lambda s: s.latency.p99_s, duration, min),
    Measure("slowest", lambda s: s.latency.max_s, duration, min),
    Measure("replica-minutes", lambda s: s.replica_minutes, one_decimal, min),
    Measure(REBALANCES, lambda s: s.rebalances, mean_count),
    Measure("cost", lambda s: s.money, money, min),
)


def headline(groups: Sequence[Group]) -> str:
    """The answer in one sentence: what each kept within the SLO, and at what cost."""
    believed = [group for group in groups if verdict_of(group) != "INVALID"]
    sentence = _extremes(believed) if len(believed) > MOST_NAMED else _one_by_one(believed)
    invalid = [group.label for group in groups if group not in believed]
    return sentence + (f" Not to be believed: {', '.join(invalid)} (see why below)." if invalid else "")


def _one_by_one(groups: Sequence[Group]) -> str:
    if not groups:
        return ""
    first, *others = groups
    within = f"of events within {duration(first.first.slo_s)} with {_minutes(first)} replica-minutes"
    parts = [f"{first.label} kept {_kept(first)} {within}"]
    parts += [f"{group.label} {_kept(group)} with {_minutes(group)}" for group in others]
    return "; ".join(parts) + "."


def _extremes(groups: Sequence[Group]) -> str:
    best = max(groups, key=lambda group: group.mean(lambda s: s.slo_share) or 0.0)
    cheapest = min(groups, key=lambda group: group.mean(lambda s: s.replica_minutes) or 0.0)
    return (
        f"Of {len(groups)} scalers, {best.label} kept most events within {duration(best.first.slo_s)} "
        f"({_kept(best)} with {_minutes(best)} replica-minutes); {cheapest.label} used the fewest replicas "
        f"({_kept(cheapest)} with {_minutes(cheapest)})."
    )


def _kept(group: Group) -> str:
    return share(group.mean(lambda s: s.slo_share))


def _minutes(group: Group) -> str:
    return one_decimal(group.mean(lambda s: s.replica_minutes))


def verdict_of(group: Group) -> Verdict:
    """The worst verdict of the repetitions."""
    found = {summary.verdict for summary in group.summaries}
    return next(verdict for verdict in WORST_FIRST if verdict in found)


def badge(verdict: Verdict) -> Html:
    """A verdict as a coloured word."""
    return element("span", verdict, class_=f"badge {verdict.lower()}")


def swatch(group: Group) -> Html:
    """A scaler's name with its colour."""
    return join([element("i", "", class_="swatch", style=f"background:{group.colour}"), element("b", group.label)])


def ups_and_downs(group: Group) -> tuple[str, str]:
    """Scale-ups and scale-downs as "actions (replicas)", means over the repetitions."""

    def text(actions: Callable[[Summary], float], replicas: Callable[[Summary], float]) -> str:
        return f"{mean_count(group.mean(actions))} ({mean_count(group.mean(replicas))})"

    return (
        text(lambda s: s.scale.up_actions, lambda s: s.scale.replicas_added),
        text(lambda s: s.scale.down_actions, lambda s: s.scale.replicas_removed),
    )


# --- comparison ------------------------------------------------------------------------------------------------------


def comparison(groups: Sequence[Group]) -> Html:
    """One row a scaler; the best value of each column is marked, among runs that may be believed."""
    best = {measure.title: _best(groups, measure) for measure in MEASURES}
    titles = [measure.title for measure in MEASURES]
    at = titles.index(REBALANCES)
    headers = ["scaler", "verdict", *titles[:at], "ups", "downs", *titles[at:]]
    rows: list[list[Text]] = []
    for group in groups:
        cells = [_measured(group, measure, best[measure.title]) for measure in MEASURES]
        repetitions = f"{len(group.summaries)} repetitions" if len(group.summaries) > 1 else ""
        name = join([swatch(group), element("small", repetitions)])
        rows.append([name, badge(verdict_of(group)), *cells[:at], *ups_and_downs(group), *cells[at:]])
    rows += _published(groups, headers)
    return table(headers, rows, kind="comparison", numeric_from=2)


def _measured(group: Group, measure: Measure, best: str | None) -> Html:
    written = measure.write(group.mean(measure.of))
    interval = group.interval(measure.of)
    spread = element("small", written_interval(measure.write, interval)) if interval else Html("")
    is_best = best is not None and written == best and verdict_of(group) != "INVALID"
    return join([element("span", written, class_="best" if is_best else ""), spread])


def _best(groups: Sequence[Group], measure: Measure) -> str | None:
    """How the best value is written; None where there is nothing to choose, or all are written alike."""
    if measure.better is None:
        return None
    values = [group.mean(measure.of) for group in groups if verdict_of(group) != "INVALID"]
    known = [value for value in values if value is not None]
    if len({measure.write(value) for value in known}) < 2:
        return None
    return measure.write(measure.better(known))


def _published(groups: Sequence[Group], headers: Sequence[str]) -> list[list[Text]]:
    """What the paper printed, where the whole of its workload was played."""
    rows: list[list[Text]] = []
    for group in groups:
        experiment = EXPERIMENTS.get(group.first.experiment)
        whole = experiment is not None and group.first.duration_s * group.first.speed >= experiment.seconds
        printed = experiment.printed.get(group.first.scaler) if experiment and whole else None
        if printed:
            row: list[Text] = [element("span", f"{group.first.scaler}, printed in the paper", class_="muted")]
            row += [""] * (len(headers) - 1)
            for title, name, write in (
                ("within SLO", "slo_share", share),
                ("replica-minutes", "replica_minutes", one_decimal),
                ("ups", "ups", mean_count),
                ("downs", "downs", mean_count),
            ):
                row[headers.index(title)] = element("span", write(printed.get(name)), class_="muted")
            rows.append(row)
    return rows


def costs(groups: Sequence[Group]) -> Html:
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
    return table([*headers, "cost per million events within SLO"], rows)


# --- decisions -------------------------------------------------------------------------------------------------------


def decisions(run: RunEvidence) -> Html:
    """What the acting scaler did, why, and what the shadows advised on the same observation."""
    rows = sorted([*_step_rows(run.steps), *_blind_rows(run.records)], key=lambda row: row[0])
    shown = [row[1] for row in rows[:MAX_DECISION_ROWS]]
    more = len(rows) - len(shown)
    parts: list[Text] = []
    if shown:
        headers = ["second", "action", "replicas", "why", "shadows advised"]
        parts.append(table(headers, shown, kind="decisions", numeric_from=9))
    else:
        parts.append(element("p", "The number of replicas was never changed."))
    if more > 0:
        parts.append(element("p", f"{more} later rows are in decisions.jsonl only.", class_="muted"))
    if run.summary.holds:
        held = ", ".join(
            f"{count(ticks)} × {readable(reason)}" for reason, ticks in list(run.summary.holds.items())[:6]
        )
        parts.append(element("p", f"Held on {count(sum(run.summary.holds.values()))} ticks: {held}.", class_="muted"))
    return join(parts)


def _step_rows(steps: Iterable[Step]) -> Iterator[tuple[float, list[Text]]]:
    for step in steps:
        record = step.record
        terms = _terms(step)
        replicas = f"{step.before} → {step.after}" if step.after != step.before else f"{step.after}"
        row: list[Text] = [
            f"{record.time_s:.1f}",
            element("span", step.decision.action, class_=f"action {step.decision.action}"),
            replicas,
            element("span", why(terms), title=all_terms(terms)),
            _advice(record),
        ]
        yield record.time_s, row


def _terms(step: Step) -> Mapping[str, Term]:
    """The arithmetic of a decision: of the fleet, or where it is about several, of the first one that it changed."""
    told = step.decision.why
    fleets = (step.record.observation.fleet, *step.decision.targets, *told)
    name = next((fleet for fleet in fleets if fleet in told), None)
    if name is None:
        return {}
    others = len(step.changes) - 1
    return told[name] if len(told) == 1 else {"fleet": name, **told[name], **({"and_others": others} if others else {})}


def _advice(record: TickRecord) -> str:
    """What the shadows wanted, those of one opinion together."""
    fleet = record.observation.fleet
    names: dict[str, list[str]] = {}
    for name, decision in record.decisions.items():
        if name != record.acting:
            names.setdefault(_opinion(decision, fleet), []).append(name)
    shadows = sum(map(len, names.values()))
    if len(names) == 1 and shadows > 2:
        return f"all {shadows}: {next(iter(names))}"
    return "; ".join(f"{', '.join(who)}: {opinion}" for opinion, who in names.items())


def _opinion(decision: Decision, fleet: str) -> str:
    target = decision.targets.get(fleet)
    return f"{decision.action} to {target}" if decision.action in ("up", "down") and target else decision.action


def _blind_rows(records: Sequence[TickRecord]) -> Iterator[tuple[float, list[Text]]]:
    """Stretches of ticks in which something was unknown or failed, one row each."""

    def trouble(record: TickRecord) -> bool:
        return bool(record.errors) or (hold_reason(record) is not None and bool(record.observation.unknown))

    for troubled, stretch in groupby(records, key=trouble):
        if troubled:
            ticks = list(stretch)
            first, last = ticks[0].time_s, ticks[-1].time_s
            when = f"{first:.1f}" if len(ticks) == 1 else f"{first:.1f} to {last:.1f}"
            reason = readable(ticks[0].note or hold_reason(ticks[0]) or "")
            yield first, [when, element("span", "hold", class_="action hold"), UNKNOWN, reason, ""]


# --- validity --------------------------------------------------------------------------------------------------------


def verdicts(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> Html:
    """Each run's verdict with every reason."""
    rows: list[list[Text]] = []
    for group, run in _by_group(groups, runs):
        reasons = run.summary.reasons
        text = element("ul", *(element("li", reason) for reason in reasons)) if reasons else "every check below held"
        rows.append([swatch(group), run.directory.name, badge(run.summary.verdict), text])
    return table(["scaler", "run", "verdict", "why"], rows, numeric_from=9)


def checks(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> Html:
    """The figures behind the verdicts, with their limits."""
    headers = [
        "scaler",
        f"issued (at least {100 * MIN_ISSUED_SHARE:g}{SPACE}%)",
        f"send delay p99 (at most {100 * MAX_SEND_DELAY_OF_SLO:g}{SPACE}% of SLO)",
        "negative latencies",
        f"tick phase off at p99 (at most {1000 * MAX_TICK_PHASE_ERROR_S:g}{SPACE}ms)",
        "ticks missed",
        f"seconds with all cores > 90{SPACE}% busy (at most {100 * MAX_CPU_SATURATION:g}{SPACE}%)",
        f"stolen by the machine's host (at most {100 * MAX_CPU_STOLEN:g}{SPACE}%)",
    ]
    rows: list[list[Text]] = [
        [
            swatch(group),
            share(run.summary.issued_share),
            duration(run.summary.send_delay.p99_s),
            count(run.summary.negative_latencies),
            duration(run.summary.tick_phase_error_p99_s),
            f"{count(run.summary.missed_ticks)} of {count(run.summary.ticks + run.summary.missed_ticks)}",
            share(run.summary.cpu_saturation),
            share(run.summary.cpu_stolen),
        ]
        for group, run in _by_group(groups, runs)
    ]
    return table(headers, rows)


def starts(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> Html:
    """How long new replicas took for each step to their first event; nothing if none came."""
    steps = [step for step in (*STEPS, WHOLE) if any(step in run.summary.starts for _, run in _by_group(groups, runs))]
    rows: list[list[Text]] = []
    for group, run in _by_group(groups, runs):
        if run.summary.starts:
            found = [run.summary.starts.get(step) for step in steps]
            rows.append([swatch(group), *(_median_and_most(each) for each in found)])
    return table(["scaler", *steps], rows, numeric_from=1) if rows else Html("")


def _median_and_most(each: Distribution | None) -> str:
    if each is None or each.p50_s is None or each.max_s is None:
        return "–"
    return f"{duration(each.p50_s)} ({duration(each.max_s)})"


def conservation(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> Html:
    """Where every scheduled event ended."""
    headers = ["scaler", "three counts", "scheduled", "never sent", "acknowledged", "completed", "failed", "rejected"]
    headers += ["dead-lettered", "in flight", "lost", "booked in the ledger", "repeated results", "foreign results"]
    rows: list[list[Text]] = []
    for group, run in _by_group(groups, runs):
        balance = run.summary.conservation
        numbers = [balance.scheduled, balance.never_sent, balance.acknowledged, balance.completed, balance.failed]
        numbers += [balance.rejected, balance.dead_lettered, balance.in_flight, balance.lost, balance.booked]
        numbers += [balance.redelivered, balance.foreign]
        agree = element("span", "agree" if balance.agree else "disagree", class_="good" if balance.agree else "bad")
        rows.append([swatch(group), agree, *(count(number) for number in numbers)])
    return table(headers, rows, numeric_from=2)


def unsuccessful(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> Html:
    """Events that ended otherwise than completed, by reason; nothing if there are none."""
    rows: list[list[Text]] = [
        [swatch(group), reason, count(number)]
        for group, run in _by_group(groups, runs)
        for reason, number in list(run.summary.unsuccessful_by_reason.items())[:20]
    ]
    return table(["scaler", "how and why", "results"], rows, numeric_from=2) if rows else Html("")


def faults(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> Html:
    """What was done on purpose, planned and as it happened; nothing if nothing was."""
    rows: list[list[Text]] = []
    for group, run in _by_group(groups, runs):
        rows += [
            [swatch(group), fault.kind, f"planned for {fault.at_s:g}", _lasting(fault.seconds), ""]
            for fault in run.spec.faults
        ]
        rows += [
            [swatch(group), done.kind, f"done at {run.second_of(done.at_ns):.1f}", _lasting(done.seconds), done.detail]
            for done in run.faults
        ]
    return table(["scaler", "fault", "second", "lasting", "what"], rows, numeric_from=9) if rows else Html("")


def _lasting(seconds: float) -> str:
    return duration(seconds) if seconds else "at once"


# --- set-up ----------------------------------------------------------------------------------------------------------


def setup(run: RunEvidence) -> Html:
    """What was asked for and what it ran on, as names and values."""
    facts: dict[str, Any] = {"run": run.directory.name, "seed": run.spec.seed, **run.summary.conditions}
    if run.manifest is None:
        facts["manifest"] = "not written: the run did not come to its end"
    else:
        manifest = run.manifest
        facts |= {"finished at": manifest.finished_at, "git revision": manifest.git_revision}
        facts |= {f"version of {name}": version for name, version in manifest.versions.items()}
        facts |= {f"machine: {name}": value for name, value in manifest.machine.items()}
    rows: list[list[Text]] = [[name, _value(value)] for name, value in facts.items()]
    return table(["name", "value"], rows, kind="facts", numeric_from=9)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _by_group(groups: Sequence[Group], runs: Sequence[RunEvidence]) -> Iterator[tuple[Group, RunEvidence]]:
    for group in groups:
        for member in group.members:
            yield group, runs[member]
