"""Results: one row per cell, the cheapest that meets the SLO, and why; as a table and as JSON."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict
from rich.markup import escape
from rich.table import Table

from experiments.replay.plan import HotPartition, ReplayPlan, Sweep
from penstock.registry import clairvoyant_scalers
from penstock.rundir import Verdict
from report.analysis.summary import RunSummary
from report.groups import group_runs, is_emulated
from report.terminal import plain_table
from report.wording import count, duration, money, one_decimal, share

CLOSE = 0.02
"""Costs this close may change places with another seed."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one cell. ``meets``: at least the wanted share of the events within the SLO; ``eligible``: the run is
    valid and the scaler is not clairvoyant. ``money`` is in the currency of the price. ``swept``: swept values by
    scaler.parameter.
    """

    label: str
    scaler: str
    swept: Mapping[str, Any] = {}
    meets: bool
    eligible: bool
    verdict: Verdict
    slo_share: float | None
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None
    p99_9_s: float | None
    replica_minutes: float
    money: float
    rebalances: int
    ups: int
    downs: int
    replicas_added: int
    replicas_removed: int
    run: str


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """``cell`` is the cheapest that meets the SLO, or without ``met`` the closest to it (None: no valid run)."""

    met: bool
    cell: str | None
    because: str

    def __str__(self) -> str:
        if self.cell is None:
            return self.because
        if self.met:
            return f"cheapest that meets the SLO: {self.cell}, because {self.because}"
        return f"none meets the SLO: closest is {self.cell}, {self.because}"


def rows_of(summaries: Sequence[RunSummary], wanted_share: float, sweeps: Sequence[Sweep] = ()) -> list[Row]:
    """Cells that meet the SLO first, by cost; then the others, by share."""
    clairvoyant = clairvoyant_scalers()
    rows = [
        _row(group.label, summaries[member], wanted_share, sweeps, clairvoyant)
        for group in group_runs(summaries)
        for member in group.members
    ]
    return sorted(rows, key=lambda row: (not row.meets, row.money if row.meets else -(row.slo_share or 0.0)))


def _row(
    label: str, summary: RunSummary, wanted_share: float, sweeps: Sequence[Sweep], clairvoyant: Collection[str]
) -> Row:
    conditions = {
        f"{target}.{parameter}": f"{'scaler.parameters' if target == summary.scaler else target}.{parameter}"
        for target, parameter, _ in sweeps
    }
    fields = {name: value for part in (summary.latency, summary.scale, summary) for name, value in asdict(part).items()}
    computed = {
        "label": label,
        "swept": {name: summary.conditions[key] for name, key in conditions.items() if key in summary.conditions},
        "meets": summary.slo_share is not None and summary.slo_share >= wanted_share,
        "eligible": summary.verdict != "INVALID" and summary.scaler not in clairvoyant,
        "ups": summary.scale.up_actions,
        "downs": summary.scale.down_actions,
    }
    return msgspec.convert(fields | computed, Row)


def advise(rows: Sequence[Row], *, slo_s: float, wanted_share: float, hot: Sequence[HotPartition] = ()) -> Advice:
    """The recommended cell, and why. Invalid runs and clairvoyant scalers are left out."""
    eligible = [row for row in rows if row.eligible]
    if not eligible:
        return Advice(met=False, cell=None, because="no run that may be believed: see the report for the reasons")
    meeting = sorted((row for row in eligible if row.meets), key=lambda row: (row.money, -(row.slo_share or 0.0)))
    if not meeting:
        return _closest(eligible, slo_s, wanted_share, hot)
    best, others = meeting[0], meeting[1:]
    parts = [f"it keeps {_kept(best, slo_s)} ({share(wanted_share)} wanted) for {_cost(best)}"]
    if others:
        parts.append(_next(best, others[0]))
    else:
        parts.append("no other meets it" if len(eligible) > 1 else "nothing else was tried")
    cheaper = [row for row in eligible if not row.meets and row.money < best.money]
    if cheaper:
        nearest = max(cheaper, key=lambda row: row.slo_share or 0.0)
        saved = share(1 - nearest.money / best.money)
        parts.append(f"{nearest.label} costs {saved} less but keeps only {share(nearest.slo_share)}")
    return Advice(met=True, cell=best.label, because="; ".join(parts))


def _next(best: Row, second: Row) -> str:
    if best.money == 0:
        return f"{second.label} meets it too"
    more = second.money / best.money - 1
    if more <= CLOSE:
        nearly = "as much" if more < 5e-4 else f"only {share(more)} more"
        return f"{second.label} costs {nearly}: another --seed may turn the two round"
    return f"the next, {second.label}, costs {share(more)} more"


def _closest(eligible: Sequence[Row], slo_s: float, wanted_share: float, hot: Sequence[HotPartition]) -> Advice:
    best = min(eligible, key=lambda row: (-(row.slo_share or 0.0), row.money))
    parts = [f"which keeps {_kept(best, slo_s)} ({share(wanted_share)} wanted) for {_cost(best)}"]
    if hot:
        hottest = max(hot, key=lambda each: each.rate_per_s)
        parts.append(
            f"partition {hottest.partition} with up to {hottest.rate_per_s:.0f} events/s is more than one replica "
            f"serves ({hottest.service_rate_per_s:.0f} events/s), whoever scales"
        )
    else:
        parts.append(f"its p99 is {duration(best.p99_s)}")
    return Advice(met=False, cell=best.label, because="; ".join(parts))


def _kept(row: Row, slo_s: float) -> str:
    return f"{share(row.slo_share)} of the events within {duration(slo_s)}"


def _cost(row: Row) -> str:
    return f"{one_decimal(row.replica_minutes)} replica-minutes ({money(row.money)})"


def results_table(rows: Sequence[Row], *, title: str) -> Table:
    """For a terminal of 80 columns (more with swept values); a cell that meets the SLO has a tick."""
    swept = list(dict.fromkeys(name for row in rows for name in row.swept))
    table = plain_table(escape(title))
    table.add_column("scaler", overflow="fold")
    for name in swept:
        table.add_column(escape(name.replace(".", ".\n")), justify="right", no_wrap=True)
    for name in ("% within\nSLO", "p50", "p95", "p99", "p99.9", "repl.-\nmin.", "cost", "rebal-\nances", "ups/\ndowns"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            escape(row.scaler) + ("*" if is_emulated(row.scaler) else ""),
            *(escape(str(row.swept.get(name, ""))) for name in swept),
            f"[{'green' if row.meets else 'red'}]{'✓' if row.meets else '✗'} {share(row.slo_share, unit=False)}[/]",
            *(duration(value) for value in (row.p50_s, row.p95_s, row.p99_s, row.p99_9_s)),
            one_decimal(row.replica_minutes),
            money(row.money),
            count(row.rebalances),
            f"{row.ups}/{row.downs}",
        )
    notes = [f"{row.label}: {row.verdict}, see the report" for row in rows if row.verdict != "VALID"]
    clairvoyant = clairvoyant_scalers()
    notes += [
        f"{row.label} knows all rates beforehand: to compare with, no choice"
        for row in rows
        if row.scaler in clairvoyant
    ]
    if any(is_emulated(row.scaler) for row in rows):
        notes.append("* emulated: our own version of another system's scaler, with that system's defaults")
    if notes:
        table.caption = escape("\n".join(notes))
    return table


def as_json(plan: ReplayPlan, rows: Sequence[Row], advice: Advice, *, directory: str, report: str) -> bytes:
    """The content of the terminal output as JSON; times in seconds, rates per second."""
    request, trace, experiment = plan.request, plan.trace, plan.experiment
    rate_per_s = trace.rate_per_s
    data: dict[str, Any] = {
        "trace": {
            "path": str(trace.path),
            "form": trace.form,
            "seconds": trace.seconds,
            "events": round(float(rate_per_s.sum())),
            "rate_mean_per_s": float(rate_per_s.mean()),
            "rate_peak_per_s": float(rate_per_s.max()),
        },
        "slo_s": experiment.slo_s,
        "share": request.share,
        "service_time_s": plan.service_time_s,
        "service_law": request.service_law,
        **{name: getattr(experiment, name) for name in ("partitions", "initial_replicas", "max_replicas")},
        "start_up_s": plan.start_up_s,
        "replica_price_per_hour": request.price,
        "arrivals": plan.arrivals,
        "seed": request.seed,
        "warnings": plan.warnings,
        "hot_partitions": plan.hot,
        "cells": rows,
        "advice": advice,
        "directory": directory,
        "report": report,
    }
    return msgspec.json.format(msgspec.json.encode(data), indent=2)
