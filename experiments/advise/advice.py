"""The answer: the cheapest scaler that is proven, why, and what to type; or what would be needed."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from statistics import mean
from typing import Any, Final

import msgspec
from rich.markup import escape
from rich.table import Table

from experiments.advise.manifests import manifest
from experiments.advise.needs import ConstantFleet, Needs
from experiments.advise.request import AdviceRequest
from experiments.advise.search import Proof
from experiments.advise.settings import TICK_PHASE
from experiments.advise.trials import Trials
from experiments.replay.plan import SHARED, HotPartition, TracePlan
from penstock.durations import duration_text
from penstock.parameters import parse_settings
from penstock.registry import find_scaler, groups_partitions, parse_scaler, reads_arrivals
from report.groups import is_emulated
from report.terminal import plain_table
from report.wording import duration, money, one_decimal, share

DURATIONS: Final = ("service_time", "start_up")
"""Options of a trace, beside the SLO, that are times."""
MARKS: Final = {"kept": "[green]✓", "close": "[yellow]≈", "missed": "[red]✗"}
CLOSE_MEANS: Final = (
    "keeps the share, but not with a tenth of the allowed late events to spare on the mean of the seeds"
)
NEARLY: Final = 1.1
"""A scaler of Kubernetes that costs at most so many times the cheapest is worth its YAML."""
ALIKE: Final = 5e-4
"""Difference of two costs, as a part of one, that would be written as 0.0 %."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One scaler: its cheapest proven setting, or the one that came closest. Shares of events within the SLO and
    costs: means over so many ``seeds``; ``replica_minutes`` and ``money`` of the rest of the trace.
    """

    scaler: str
    published: bool
    setting: dict[str, Any]
    met: bool
    first_share: float
    rest_share: float
    p99_s: float | None
    replica_minutes: float
    replica_minutes_range: tuple[float, float]
    money: float
    seeds: int

    @property
    def lower_share(self) -> float:
        """Of both parts of the trace."""
        return min(self.first_share, self.rest_share)

    def outcome(self, wanted_share: float) -> str:
        """``kept``: proven. ``close``: what was tried keeps the share, without the margin or not by every seed."""
        return "kept" if self.met else "close" if self.lower_share >= wanted_share else "missed"


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """``sentence`` says all of it. ``best`` and ``best_published``: None where none is proven. ``saved``: share of the
    constant fleet's cost. ``replay`` plays the whole trace under the advised setting, ``control`` deploys it, and
    ``deployed`` says where a deployment differs from what was simulated. ``manifests``: YAML by the scaler that
    Kubernetes has itself.
    """

    sentence: str
    best: Row | None
    best_published: Row | None
    closest: Row | None
    constant_fleet: ConstantFleet | None
    saved: float | None
    needs: Needs | None
    replay: str = ""
    control: str = ""
    deployed: str = ""
    manifests: dict[str, str] = {}


def rows_of(proofs: Sequence[Proof], price_per_hour: float) -> tuple[list[Row], list[Row]]:
    """The best row of each scaler, and of each with its published setting; ``proofs`` have the best one first."""
    rows = [
        Row(
            scaler=proof.scaler,
            published=not proof.setting,
            setting=dict(proof.setting),
            met=proof.met,
            first_share=mean(proof.first_shares),
            rest_share=mean(proof.rest_shares),
            p99_s=proof.p99_s,
            replica_minutes=proof.cost,
            replica_minutes_range=(min(proof.replica_minutes), max(proof.replica_minutes)),
            money=proof.cost / 60 * price_per_hour,
            seeds=len(proof.rest_shares),
        )
        for proof in proofs
    ]
    best = {row.scaler: row for row in reversed(rows)}
    published = [row for row in rows if row.published]
    return [row for row in rows if row is best[row.scaler]], published


def advise(
    plan: TracePlan,
    request: AdviceRequest,
    trials: Trials,
    proofs: Sequence[Proof],
    constant: ConstantFleet | None,
    needs: Needs | None,
) -> Advice:
    """The advice on proven settings; ``needs`` where there are none."""
    rows, published = rows_of(proofs, request.price)
    met = [row for row in rows if row.met]
    if not met:
        closest = rows[0] if rows else None
        return Advice(
            sentence=_unmet(plan, request, closest, needs or Needs()),
            best=None,
            best_published=None,
            closest=closest,
            constant_fleet=constant,
            saved=None,
            needs=needs,
        )
    best = met[0]
    best_published = next((row for row in published if row.met), None)
    saved = None if constant is None else 1 - best.replica_minutes / constant.replica_minutes
    parameters = {row.scaler: trials.parameters(row.scaler, _setting(row)) for row in met}
    limit = plan.experiment.max_replicas
    manifests = {
        row.scaler: text
        for row in met
        if row.replica_minutes <= NEARLY * best.replica_minutes and (text := manifest(parameters[row.scaler], limit))
    }
    fixed = parse_settings(request.settings or ())
    given = _settings_line(best, parameters[best.scaler].parameters, fixed)
    phase = f"--tick-phase {duration_text(best.setting.get(TICK_PHASE, plan.experiment.tick_phase_s))}"
    return Advice(
        sentence=_met(request, best, best_published, met[1:], constant),
        best=best,
        best_published=best_published,
        closest=None,
        constant_fleet=constant,
        saved=saved,
        needs=None,
        replay=f"{_replay(request, best, fixed)} {phase} {given}".rstrip(),
        control=f"penstock control --kafka HOST:PORT --topic TOPIC --group GROUP --scaler {shlex.quote(best.scaler)} "
        f"{given} {phase} --max-replicas {limit} --slo {duration_text(request.slo)} -- YOUR COMMAND",
        deployed=_deployed(best.scaler),
        manifests=manifests,
    )


def _deployed(scaler: str) -> str:
    """Where ``penstock control`` with one's own consumers differs from the simulation; empty: nowhere."""
    spec = parse_scaler(scaler)
    kind, said = find_scaler(spec), list[str]()
    if groups_partitions(kind):
        said.append(
            f"{spec.name} also decides which partitions a consumer reads: these figures hold for consumers with "
            "Penstock's assignor (docs/examples/own-consumers/consumer.py); others get the number of replicas only"
        )
    if reads_arrivals([spec]):
        said.append(
            f"your consumers report no late events and no busy time to {spec.name}: it keeps the price and the "
            "service rate that it begins with"
        )
    return "; ".join(said)


def _met(
    request: AdviceRequest, best: Row, best_published: Row | None, others: Sequence[Row], constant: ConstantFleet | None
) -> str:
    kept = (
        f"keeps {share(best.rest_share)} of the events within {duration(request.slo)} on the part of the trace that "
        f"did not choose its settings ({share(request.share)} wanted, mean of {best.seeds} seeds; "
        f"{share(best.first_share)} where it was chosen) for {_cost(best)}"
    )
    parts = [
        f"cheapest that meets the SLO: {best.scaler}{' as published' if best.published else ''}, because it {kept}"
    ]
    if constant is None:
        parts.append("no constant fleet that is allowed meets it")
    else:
        saved = 1 - best.replica_minutes / constant.replica_minutes
        less = "as much as" if abs(saved) < ALIKE else f"{share(abs(saved))} {'less' if saved > 0 else 'more'} than"
        needless = ", so that no scaler is needed" if abs(saved) < ALIKE else ""
        parts.append(f"{less} a constant fleet of {constant.replicas}{needless}")
    if others:
        parts.append(f"the next, {others[0].scaler}, costs {_more(others[0], best)}")
    if best_published is None:
        parts.append("with published settings none is proven to meet it")
    elif not best.published:
        parts.append(
            f"with published settings the cheapest is {best_published.scaler}, {_cost(best_published)}, "
            f"{_more(best_published, best)}"
        )
    return "; ".join(parts)


def _unmet(plan: TracePlan, request: AdviceRequest, closest: Row | None, needs: Needs) -> str:
    parts = ["none meets the SLO"]
    if closest is not None:
        parts.append(
            f"closest is {closest.scaler}, which keeps {share(closest.lower_share)} of the events "
            f"within {duration(request.slo)} ({share(request.share)} wanted"
            f"{', by every seed' if closest.lower_share >= request.share else ''})"
        )
    parts += map(_hot, sorted(plan.hot, key=lambda each: -each.rate_per_s)[:1])
    experiment = plan.experiment
    rate_per_s = 1 / experiment.worker.service_time_s
    remedies = []
    if needs.replicas is not None:
        largest = min(experiment.max_replicas, experiment.partitions)
        remedies.append(
            f"{needs.replicas} replicas (as many partitions; now {largest})"
            if needs.replicas > largest
            else f"a constant fleet of {needs.replicas} replicas"
        )
    if needs.service_rate_per_s is not None and needs.service_rate_per_s > rate_per_s:
        remedies.append(
            f"{needs.service_rate_per_s:g} events/s a replica (now {rate_per_s:g}), "
            f"{duration(1 / needs.service_rate_per_s)} an event"
        )
    if needs.start_up_s is not None:
        remedies.append(f"a start-up of {duration(needs.start_up_s)} (now {duration(plan.facts['start_up_s'])})")
    parts.append(f"any one of these would be enough: {'; or '.join(remedies)}" if remedies else "no number of replicas "
                 "and no service rate that was tried would be enough")  # fmt: skip
    return "; ".join(parts)


def _hot(hot: HotPartition) -> str:
    return (
        f"partition {hot.partition} with up to {hot.rate_per_s:.0f} events/s is more than one replica serves "
        f"({hot.service_rate_per_s:.0f} events/s)"
    )


def _more(row: Row, best: Row) -> str:
    more = row.replica_minutes / best.replica_minutes - 1
    return "as much" if abs(more) < ALIKE else f"{share(more)} more"


def _cost(row: Row) -> str:
    return f"{one_decimal(row.replica_minutes)} replica-minutes (cost {money(row.money)})"


def _setting(row: Row) -> tuple[tuple[str, Any], ...]:
    return tuple(row.setting.items())


def _settings_line(row: Row, parameters: Mapping[str, Any], fixed: Mapping[str, Mapping[str, str]]) -> str:
    """``--set`` of every parameter that is not the scaler's own default or was chosen, and of what the request set, in
    ``fixed``.
    """
    spec = parse_scaler(row.scaler)
    defaults = {
        field.name: field.default for field in fields(find_scaler(spec).Parameters) if field.default is not MISSING
    }
    given = {
        name: _written(value)
        for name, value in parameters.items()
        if isinstance(value, bool | int | float | str) and (name in row.setting or value != defaults.get(name, MISSING))
    }
    given = {**fixed.get(spec.name, {}), **given}
    return " ".join(f"--set {shlex.quote(f'{spec.name}.{name}={value}')}" for name, value in given.items())


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _replay(request: AdviceRequest, best: Row, fixed: Mapping[str, Mapping[str, str]]) -> str:
    """The command that plays the whole trace; options and settings of the load and the fleet as they were given."""
    words = ["penstock", "replay", str(request.trace), "--slo", duration_text(request.slo)]
    for field in fields(type(request).__mro__[1]):
        value = getattr(request, field.name)
        if field.name in ("trace", "slo", "settings") or value == field.default:
            continue
        option = f"--{field.name.replace('_', '-')}"
        if value is True:
            words.append(option)
        else:
            number = duration_text if field.name in DURATIONS else "{:g}".format
            words += [option, number(value) if isinstance(value, float) else str(value)]
    for target in SHARED:
        for name, value in fixed.get(target, {}).items():
            words += ["--set", f"{target}.{name}={value}"]
    return shlex.join([*words, "--scaler", best.scaler])


def conditions(plan: TracePlan, request: AdviceRequest, minutes: float, best: Row | None) -> str:
    """What the figures assume; those of the ``best`` row are confirmed by further seeds."""
    facts = plan.facts
    confirmed = f", the advised setting by {best.seeds}" if best is not None else ""
    return (
        f"chosen on the first {share(request.chosen_on)} of the trace, proven on the last {one_decimal(minutes)} min "
        f"by {request.seeds} seeds{confirmed}; assumed: start-up of a replica "
        f"{duration(facts['start_up_s'])}, rebalance {duration(facts['rebalance_time_s'])}, "
        f"{duration(plan.experiment.worker.service_time_s)} an event"
    )


def why_yaml(name: str, advice: Advice) -> str:
    """Why the YAML of a scaler is there."""
    if advice.best is not None and name == advice.best.scaler:
        return f"{name}, the advised scaler, with exactly these settings"
    return f"{name} keeps the share, too, and costs at most a tenth more"


def setting_text(row: Row) -> str:
    """The values that were chosen for a scaler."""
    return ", ".join(f"{name.lstrip('-')} {_written(value)}" for name, value in row.setting.items()) or "as published"


def table_of(rows: Sequence[Row], wanted_share: float) -> Table:
    """One row for each scaler, and what the stars mean."""
    table = plain_table("")
    table.add_column("scaler", no_wrap=True)
    for name in ("% within\nSLO", "margin", "p99", "repl.-\nmin.", "cost"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("setting", overflow="fold")
    for row in rows:
        table.add_row(
            escape(row.scaler) + ("*" if is_emulated(row.scaler) else ""),
            f"{MARKS[row.outcome(wanted_share)]} {share(row.rest_share, unit=False)}[/]",
            f"{100 * (row.lower_share - wanted_share):+.2f}",
            duration(row.p99_s),
            one_decimal(row.replica_minutes),
            money(row.money),
            escape(setting_text(row)),
        )
    notes = ["margin: points between the lower share of both parts and the wanted one"]
    if any(row.outcome(wanted_share) == "close" for row in rows):
        notes.append(f"≈: {CLOSE_MEANS}")
    if any(is_emulated(row.scaler) for row in rows):
        notes.append("* emulated: our own version of another system's scaler")
    table.caption = "\n".join(notes)
    return table
