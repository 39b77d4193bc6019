"""Whether the figures of a run can be used: one function a rule. docs/measurement.md lists them, each with its test."""

from collections.abc import Callable
from typing import NamedTuple

from penstock.rundir import Verdict
from penstock.runspec import RunSpec
from penstock.systems import StreamSystem
from report.analysis.summary import RunSummary

MIN_ISSUED_SHARE = 0.999
MIN_DECIDED_SHARE = 0.5
MAX_RECORD_FROM_S = 5.0
"""The initial replicas are on record before the schedule begins."""
MAX_TICK_PHASE_ERROR_S = 0.020
BUSY_CPU_SHARE = 0.90
MAX_CPU_SATURATION = 0.10
"""Share of the run's seconds in which all cores together may be busier than ``BUSY_CPU_SHARE``."""
MAX_CPU_STOLEN = 0.10
MAX_MISSED_TICK_SHARE = 0.01
MAX_SLOW_DECISION_SHARE = 0.01
MAX_SEND_DELAY_OF_SLO = 0.10
"""Above this share of the SLO, the sender's own lateness (p99) shapes the latencies that are measured."""

MAX_LONGER_SERVICE, MAX_LONGER_SERVICE_S = 0.05, 0.0002
"""Of the service floor and in seconds, by which events may take longer on a replica: timers wake up late on a machine
that has time, too.
"""

Check = Callable[[RunSummary, RunSpec], str | None]


class Rule(NamedTuple):
    """``check`` gives the reason against a run, None if there is none; its docstring is the condition."""

    verdict: Verdict
    check: Check


RULES: dict[str, Rule] = {}
"""All rules by name, INVALID ones first."""


def judge(summary: RunSummary, spec: RunSpec) -> tuple[Verdict, tuple[str, ...]]:
    """Whether the run can be believed, and every reason against it.

    INVALID: the figures are not those of this scaler under this load: events do not add up, the load was not the
    schedule's, or the scaler did not decide. DEGRADED: measured, and something other than the scaler shaped the
    figures.
    """
    found = [(rule.verdict, reason) for rule in RULES.values() if (reason := rule.check(summary, spec)) is not None]
    verdicts = {verdict for verdict, _ in found}
    worst: Verdict = "INVALID" if "INVALID" in verdicts else "DEGRADED" if verdicts else "VALID"
    return worst, tuple(reason for _, reason in found)


def _rule(verdict: Verdict) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        RULES[check.__name__.strip("_").replace("_", "-")] = Rule(verdict, check)
        return check

    return add


# --- INVALID ---------------------------------------------------------------------------------------------------------


@_rule("INVALID")
def _conservation(run: RunSummary, _: RunSpec) -> str | None:
    """The three counts disagree, or an event is lost."""
    lost = f"{run.conservation.lost} lost; " if run.conservation.lost else ""
    said = f"events do not add up: {lost}{'; '.join(run.conservation.disagreements)}"
    return None if run.conservation.exact else said


@_rule("INVALID")
def _nothing_completed(run: RunSummary, _: RunSpec) -> str | None:
    """No event completed."""
    return "no event completed" if run.completed_events == 0 else None


@_rule("INVALID")
def _too_few_decisions(run: RunSummary, spec: RunSpec) -> str | None:
    """The acting scaler decided on none or fewer than 50 % of the ticks on which it was due."""
    if run.due_decisions == 0:
        phase = f"with a tick phase of {spec.tick_phase_s:g} s no tick was due in {run.duration_s:g} s"
        return f"{run.scaler} never decided: {phase}"
    few = run.decisions < MIN_DECIDED_SHARE * run.due_decisions
    return f"{run.scaler} decided on {run.decisions} of {run.due_decisions} ticks that were due" if few else None


@_rule("INVALID")
def _held(run: RunSummary, spec: RunSpec) -> str | None:
    """The acting scaler held on every tick, without a fault injected."""
    held = sum(run.holds.values())
    if spec.faults or run.scaler_failures or not held or held < run.decisions:
        return None  # the rule scaler-failed says more
    ticks = "its only tick" if held == 1 else f"all of its {held} ticks"
    return f"{run.scaler} held on {ticks}, so that nothing was scaled: {next(iter(run.holds))}"


@_rule("INVALID")
def _record_lost(run: RunSummary, spec: RunSpec) -> str | None:
    """Decisions and replicas are on record from more than 5 s after the start only, with initial replicas."""
    from_s = run.record_from_s
    if from_s is None or from_s <= MAX_RECORD_FROM_S or spec.initial_replicas == 0:
        return None
    said = f"the record of decisions and replicas begins at {from_s:.0f} s of {run.duration_s:g} s"
    return f"{said}: a controller that began again without the files of the one before it"


@_rule("INVALID")
def _scaler_failed(run: RunSummary, _: RunSpec) -> str | None:
    """The acting scaler raised an error or answered a decision that no fleet could carry out, on any tick."""
    said = f"{run.scaler} failed on {run.scaler_failures} of {run.ticks} ticks and held instead; first: "
    return said + run.first_failure if run.scaler_failures else None


@_rule("INVALID")
def _load_too_small(run: RunSummary, spec: RunSpec) -> str | None:
    """Less than 99.9 % of the schedule was issued, without a fault injected."""
    return None if spec.faults else _short(run)


# --- DEGRADED --------------------------------------------------------------------------------------------------------


@_rule("DEGRADED")
def _load_too_small_in_a_fault(run: RunSummary, spec: RunSpec) -> str | None:
    """Less than 99.9 % of the schedule was issued, with a fault injected."""
    return _short(run) if spec.faults else None


def _short(run: RunSummary) -> str | None:
    share = f"{100 * run.issued_share:.2f} % of the schedule, less than {100 * MIN_ISSUED_SHARE:g} %"
    return f"the generator issued {share}" if run.issued_share < MIN_ISSUED_SHARE else None


@_rule("DEGRADED")
def _late_sender(run: RunSummary, _: RunSpec) -> str | None:
    """Send delay p99 > 10 % of the SLO."""
    late_s = run.send_delay.p99_s
    if late_s is None or late_s <= MAX_SEND_DELAY_OF_SLO * run.slo_s:
        return None
    limit = f"{100 * MAX_SEND_DELAY_OF_SLO:g} % of the SLO"
    return f"the generator sent late: send-delay p99 {1000 * late_s:.1f} ms is more than {limit}"


@_rule("DEGRADED")
def _negative_latencies(run: RunSummary, _: RunSpec) -> str | None:
    """A latency is negative."""
    found = run.negative_latencies
    return f"{found} latencies are negative: the clocks of the machines disagree" if found else None


@_rule("DEGRADED")
def _busy_machine(run: RunSummary, _: RunSpec) -> str | None:
    """All cores > 90 % busy in more than 10 % of the seconds; processes at a lower priority count."""
    if run.cpu_saturation is None or run.cpu_saturation <= MAX_CPU_SATURATION:
        return None
    return f"all cores were more than 90 % busy in {100 * run.cpu_saturation:.0f} % of the seconds"


@_rule("DEGRADED")
def _stolen_time(run: RunSummary, _: RunSpec) -> str | None:
    """The machine's host took more than 10 % of the cores' time."""
    if run.cpu_stolen is None or run.cpu_stolen <= MAX_CPU_STOLEN:
        return None
    return f"the machine's host gave {100 * run.cpu_stolen:.0f} % of the cores' time to others"


@_rule("DEGRADED")
def _slow_replicas(run: RunSummary, spec: RunSpec) -> str | None:
    """A mean service on live consumers > 1.05 × their fixed service floor + 0.2 ms, without a fault injected."""
    floor_s, took_s = spec.worker.service_time_s, run.mean.service_s
    known = isinstance(spec.system, StreamSystem) and spec.worker.service_law == "deterministic" and floor_s > 0
    if not known or spec.world == "sim" or spec.faults or took_s is None:
        return None
    if took_s <= (1 + MAX_LONGER_SERVICE) * floor_s + MAX_LONGER_SERVICE_S:
        return None
    said = f"events took {1000 * took_s:.3g} ms on a replica on average instead of {1000 * floor_s:.3g} ms"
    return f"{said}: the machine was busy for moments, or the work takes longer than worker.service_time_s"


@_rule("DEGRADED")
def _given_up(run: RunSummary, _: RunSpec) -> str | None:
    """Events still waited when the run was given up."""
    waiting = run.conservation.in_flight
    return f"{waiting} events were still waiting when the run was given up" if waiting else None


@_rule("DEGRADED")
def _tick_phase(run: RunSummary, spec: RunSpec) -> str | None:
    """Tick phase off by more than 20 ms at p99."""
    error_s = run.tick_phase_error_p99_s
    if error_s is None or error_s <= MAX_TICK_PHASE_ERROR_S:
        return None
    off = f"{1000 * error_s:.0f} ms at p99, more than {1000 * MAX_TICK_PHASE_ERROR_S:g} ms"
    return f"ticks were off their phase of {1000 * spec.tick_phase_s:g} ms by {off}"


@_rule("DEGRADED")
def _missed_ticks(run: RunSummary, spec: RunSpec) -> str | None:
    """More than 1 % of the ticks missed, also after the last one, without `kill-controller`."""
    due = run.ticks + run.missed_ticks
    if any(fault.kind == "kill-controller" for fault in spec.faults) or run.missed_ticks <= MAX_MISSED_TICK_SHARE * due:
        return None
    return f"the controller missed {run.missed_ticks} of {due} ticks"


@_rule("DEGRADED")
def _slow_decisions(run: RunSummary, _: RunSpec) -> str | None:
    """More than 1 % of the decisions of a scaler, acting or shadow, took longer than its decision interval."""
    due = {name: run.decisions_of.get(name, run.ticks) for name in run.slow_decisions}
    slow = [
        f"{name} on {ticks} of {due[name]} ticks"
        for name, ticks in run.slow_decisions.items()
        if ticks > MAX_SLOW_DECISION_SHARE * due[name]
    ]
    return f"decisions took longer than the decision interval: {', '.join(slow)}" if slow else None


@_rule("DEGRADED")
def _failed_actions(run: RunSummary, spec: RunSpec) -> str | None:
    """A decision could not be carried out, without a fault injected."""
    said = f"decisions could not be carried out on {run.failed_actions} of {run.ticks} ticks; see decisions.jsonl"
    return said if run.failed_actions and not spec.faults else None
