"""Whether a run may be believed: the design's measurement rules (section 5)."""

from experiments.analysis.summary import Summary
from penstock.rundir import Verdict
from penstock.runspec import RunSpec

MIN_ISSUED_SHARE = 0.999
MAX_TICK_PHASE_ERROR_S = 0.020
BUSY_CPU_SHARE = 0.90
MAX_CPU_SATURATION = 0.10
"""Share of the run's seconds in which all cores together may be busier than ``BUSY_CPU_SHARE``."""
MAX_CPU_STOLEN = 0.10
MAX_MISSED_TICK_SHARE = 0.01
MAX_SEND_DELAY_OF_SLO = 0.10
"""Above this share of the SLO, the sender's own lateness (p99) shapes the latencies that are measured."""


def judge(summary: Summary, spec: RunSpec) -> tuple[Verdict, tuple[str, ...]]:
    """Whether the run may be believed, and every reason against it.

    INVALID: the count of events does not add up, the generator fell short, nothing completed, or the acting scaler
    failed. DEGRADED: measured,
    but something other than the scaler shaped the figures. With a fault injected on purpose, a generator that falls
    short is DEGRADED.
    """
    invalid: list[str] = []
    degraded: list[str] = []
    if not summary.conservation.exact:
        lost = f"{summary.conservation.lost} lost; " if summary.conservation.lost else ""
        invalid.append(f"events do not add up: {lost}{'; '.join(summary.conservation.disagreements)}")
    if summary.completed_events == 0:
        invalid.append("no event completed")
    if summary.scaler_failures:
        invalid.append(
            f"{spec.scaler.name} failed on {summary.scaler_failures} of {summary.ticks} ticks and held instead: "
            "the log and decisions.jsonl have the error"
        )
    if summary.issued_share < MIN_ISSUED_SHARE:
        (degraded if spec.faults else invalid).append(
            f"the generator issued {100 * summary.issued_share:.2f} % of the schedule, "
            f"less than {100 * MIN_ISSUED_SHARE:g} %"
        )
    late_s = summary.send_delay.p99_s
    if late_s is not None and late_s > MAX_SEND_DELAY_OF_SLO * summary.slo_s:
        degraded.append(
            f"the generator sent late: send-delay p99 {1000 * late_s:.1f} ms is more than "
            f"{100 * MAX_SEND_DELAY_OF_SLO:g} % of the SLO"
        )
    if summary.negative_latencies:
        degraded.append(f"{summary.negative_latencies} latencies are negative: the clocks of the machines disagree")
    if summary.cpu_saturation is not None and summary.cpu_saturation > MAX_CPU_SATURATION:
        degraded.append(f"all cores were more than 90 % busy in {100 * summary.cpu_saturation:.0f} % of the seconds")
    if summary.cpu_stolen is not None and summary.cpu_stolen > MAX_CPU_STOLEN:
        degraded.append(f"the machine's host gave {100 * summary.cpu_stolen:.0f} % of the cores' time to others")
    if summary.conservation.in_flight:
        degraded.append(f"{summary.conservation.in_flight} events were still waiting when the run was given up")
    degraded += _tick_reasons(summary, spec)
    return ("INVALID" if invalid else "DEGRADED" if degraded else "VALID"), (*invalid, *degraded)


def _tick_reasons(summary: Summary, spec: RunSpec) -> list[str]:
    reasons = []
    error_s = summary.tick_phase_error_p99_s
    if error_s is not None and error_s > MAX_TICK_PHASE_ERROR_S:
        reasons.append(
            f"ticks were off their phase of {1000 * spec.tick_phase_s:g} ms by {1000 * error_s:.0f} ms at p99, "
            f"more than {1000 * MAX_TICK_PHASE_ERROR_S:g} ms"
        )
    controller_was_killed = any(fault.kind == "kill-controller" for fault in spec.faults)
    due = summary.ticks + summary.missed_ticks
    if summary.missed_ticks > MAX_MISSED_TICK_SHARE * due and not controller_was_killed:
        reasons.append(f"the controller missed {summary.missed_ticks} of {due} ticks")
    return reasons
