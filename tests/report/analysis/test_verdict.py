"""The rules of the verdict, each on both sides of its limit, and the list of them in the docs."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from penstock.measures import Conservation, Distribution, ScaleCounts
from penstock.runspec import Fault, RunSpec, ScalerSpec, WorkerSpec
from penstock.systems import QueueSystem
from report.analysis.summary import MeanSplit, RunSummary
from report.analysis.verdict import RULES, judge

DOC = Path(__file__).parents[3] / "docs" / "measurement.md"
BALANCE = Conservation(
    scheduled=1000, acknowledged=1000, never_sent=0, completed=1000, failed=0, rejected=0, dead_lettered=0,
    in_flight=0, lost=0, booked=1000, redelivered=0, foreign=0, agree=True,
)  # fmt: skip
GOOD = RunSummary(
    run="r", experiment="e", world="local", scaler="linear", seed=1, speed=1.0, slo_s=0.5, duration_s=100.0,
    verdict="VALID", scheduled_events=1000, acknowledged_events=1000, completed_events=1000, issued_share=1.0,
    slo_share=1.0, latency=Distribution(p99_s=0.1), send_delay=Distribution(p99_s=0.001), queueing=Distribution(),
    service=Distribution(), mean=MeanSplit(), slowest_mean=MeanSplit(), negative_latencies=0,
    arrival_rate_mean_per_s=10.0, arrival_rate_peak_per_s=10.0, replica_minutes=1.0, replica_price_per_hour=1.0,
    money=0.0, scale=ScaleCounts(), rebalances=0, ticks=100, missed_ticks=0, tick_phase_p50_s=0.1,
    tick_phase_p99_s=0.1, tick_phase_error_p99_s=0.001, holds={}, conservation=BALANCE, unsuccessful_by_reason={},
    cpu_saturation=0.0, cpu_stolen=0.0, decisions=100, due_decisions=100,
)  # fmt: skip
KILLED = Fault("kill-controller", 5.0)
BROKEN = Fault("stop-broker", 5.0, 2.0)


def judged(
    *faults: Fault, phase_s: float = 0.1, given: Mapping[str, Any] = MappingProxyType({}), **changed: Any
) -> tuple[str, tuple[str, ...]]:
    """``given``: fields of the run's specification; ``changed``: of its summary."""
    spec = RunSpec(
        run="r",
        experiment="e",
        world="local",
        scaler=ScalerSpec(name="linear"),
        duration_s=100,
        faults=faults,
        tick_phase_s=phase_s,
    )
    return judge(msgspec.structs.replace(GOOD, **changed), msgspec.structs.replace(spec, **given))


def balance(**changed: Any) -> Conservation:
    return msgspec.structs.replace(BALANCE, **changed)


VALID = ("VALID", ())


def test_a_run_with_nothing_against_it_is_valid() -> None:
    assert judged() == VALID
    unknown: dict[str, Any] = dict.fromkeys(("cpu_saturation", "cpu_stolen", "tick_phase_error_p99_s"))
    assert judged(**unknown, send_delay=Distribution()) == VALID


def test_all_reasons_are_told_and_the_worst_verdict_counts() -> None:
    verdict, reasons = judged(completed_events=0, negative_latencies=2)
    assert (verdict, len(reasons)) == ("INVALID", 2)
    assert reasons[0] == "no event completed"


def test_events_that_do_not_add_up_make_a_run_invalid() -> None:
    assert judged(conservation=balance(lost=1, agree=False, disagreements=("x", "y"))) == (
        "INVALID",
        ("events do not add up: 1 lost; x; y",),
    )
    assert judged(conservation=balance(agree=False, disagreements=("x",)))[1] == ("events do not add up: x",)
    assert judged(conservation=balance(lost=1))[0] == "INVALID"


def test_a_run_in_which_nothing_completed_is_invalid() -> None:
    assert judged(completed_events=0) == ("INVALID", ("no event completed",))
    assert judged(completed_events=1) == VALID


def test_a_run_without_a_decision_or_with_few_is_invalid() -> None:
    assert judged(phase_s=199.0, decisions=0, due_decisions=0, ticks=0) == (
        "INVALID",
        ("linear never decided: with a tick phase of 199 s no tick was due in 100 s",),
    )
    assert judged(decisions=0) == ("INVALID", ("linear decided on 0 of 100 ticks that were due",))
    assert judged(decisions=49) == ("INVALID", ("linear decided on 49 of 100 ticks that were due",))
    assert judged(decisions=50) == VALID


def test_a_scaler_that_held_on_every_tick_makes_a_run_invalid_but_for_faults() -> None:
    holds = {"no target": 99, "rate unknown": 1}
    reason = ("linear held on all of its 100 ticks, so that nothing was scaled: no target",)
    assert judged(holds=holds) == ("INVALID", reason)
    assert len(judged(holds=holds, scaler_failures=1, first_failure="x")[1]) == 1
    assert judged(holds={"no target": 99}) == judged(BROKEN, holds=holds) == judged(holds={}) == VALID
    one = judged(holds={"first reading": 1}, decisions=1, due_decisions=1)
    assert one == ("INVALID", ("linear held on its only tick, so that nothing was scaled: first reading",))


def test_a_scaler_that_failed_on_a_tick_makes_a_run_invalid() -> None:
    assert judged(scaler_failures=1, first_failure="ValueError: -5 replicas") == (
        "INVALID",
        ("linear failed on 1 of 100 ticks and held instead; first: ValueError: -5 replicas",),
    )


def test_a_load_that_falls_short_is_invalid_and_with_a_fault_degraded() -> None:
    reason = ("the generator issued 99.80 % of the schedule, less than 99.9 %",)
    assert judged(issued_share=0.998) == ("INVALID", reason)
    assert judged(BROKEN, issued_share=0.998) == ("DEGRADED", reason)
    assert judged(issued_share=0.999) == judged(BROKEN, issued_share=0.999) == VALID


def test_a_sender_that_is_late_degrades_a_run() -> None:
    assert judged(send_delay=Distribution(p99_s=0.05)) == VALID
    assert judged(send_delay=Distribution(p99_s=0.051)) == (
        "DEGRADED",
        ("the generator sent late: send-delay p99 51.0 ms is more than 10 % of the SLO",),
    )


def test_a_negative_latency_degrades_a_run() -> None:
    assert judged(negative_latencies=1) == (
        "DEGRADED",
        ("1 latencies are negative: the clocks of the machines disagree",),
    )


def test_a_busy_machine_degrades_a_run() -> None:
    assert judged(cpu_saturation=0.1) == VALID
    assert judged(cpu_saturation=0.11)[0] == "DEGRADED"
    assert judged(cpu_saturation=0.6)[1] == ("all cores were more than 90 % busy in 60 % of the seconds",)


def test_stolen_time_degrades_a_run() -> None:
    assert judged(cpu_stolen=0.1) == VALID
    assert judged(cpu_stolen=0.11)[0] == "DEGRADED"
    assert judged(cpu_stolen=0.6)[1] == ("the machine's host gave 60 % of the cores' time to others",)


@pytest.mark.parametrize("floor_s", [0.005, 0.02, 0.0005])
def test_services_that_take_longer_than_their_floor_degrade_a_run(floor_s: float) -> None:
    most_s = (1 + 0.05) * floor_s + 0.0002

    def of(service_s: float | None, *faults: Fault, **given: Any) -> tuple[str, tuple[str, ...]]:
        fields = {"worker": WorkerSpec(service_time_s=floor_s), **given}
        return judged(*faults, given=fields, mean=MeanSplit(service_s=service_s))

    assert of(most_s) == of(None) == VALID
    verdict, reasons = of(most_s + 1e-5)
    assert verdict == "DEGRADED"
    said = f"events took {1000 * (most_s + 1e-5):.3g} ms on a replica on average instead of {1000 * floor_s:.3g} ms"
    assert [reason.partition(":")[0] for reason in reasons] == [said]
    assert of(1.0, world="kubernetes")[0] == "DEGRADED"
    # A service of another length is drawn, is what the fault does, or is the work itself.
    assert of(1.0, world="sim") == of(1.0, BROKEN) == VALID
    assert of(1.0, system=QueueSystem(service_rate_per_s=1.0)) == VALID
    assert of(1.0, worker=WorkerSpec(service_time_s=floor_s, service_law="exponential")) == VALID
    assert of(1.0, worker=WorkerSpec(service_time_s=0.0)) == VALID


def test_events_that_were_given_up_degrade_a_run() -> None:
    assert judged(conservation=balance(in_flight=1)) == (
        "DEGRADED",
        ("1 events were still waiting when the run was given up",),
    )


def test_ticks_off_their_phase_degrade_a_run() -> None:
    assert judged(tick_phase_error_p99_s=0.02) == VALID
    assert judged(tick_phase_error_p99_s=0.021)[0] == "DEGRADED"
    assert judged(phase_s=0.8, tick_phase_error_p99_s=0.6)[1] == (
        "ticks were off their phase of 800 ms by 600 ms at p99, more than 20 ms",
    )


def test_a_record_that_begins_late_makes_a_run_invalid() -> None:
    """As after the controller's pod was deleted in overlay `cluster`, whose runs are in an emptyDir."""
    assert judged(record_from_s=5.0) == judged(KILLED, record_from_s=-3.0) == VALID
    assert judged(record_from_s=5.1)[0] == "INVALID"
    verdict, (reason,) = judged(KILLED, record_from_s=52.0)
    assert verdict == "INVALID"
    assert "the record of decisions and replicas begins at 52 s of 100 s" in reason
    spec = RunSpec(
        run="r", experiment="e", world="local", scaler=ScalerSpec(name="linear"), duration_s=100, initial_replicas=0
    )
    assert judge(msgspec.structs.replace(GOOD, record_from_s=52.0), spec) == VALID


def test_missed_ticks_degrade_a_run_unless_the_controller_was_killed() -> None:
    assert judged(ticks=99, missed_ticks=1) == VALID
    assert judged(ticks=98, missed_ticks=2) == ("DEGRADED", ("the controller missed 2 of 100 ticks",))
    assert judged(KILLED, ticks=98, missed_ticks=2) == VALID
    assert judged(BROKEN, ticks=98, missed_ticks=2)[0] == "DEGRADED"


def test_slow_decisions_degrade_a_run_and_name_the_scaler() -> None:
    assert judged(slow_decisions={"linear": 1}) == VALID
    assert judged(slow_decisions={"linear": 1, "hpa": 2, "kpa": 3}) == (
        "DEGRADED",
        ("decisions took longer than the decision interval: hpa on 2 of 100 ticks, kpa on 3 of 100 ticks",),
    )
    # A decision every 15 s beside a shadow that decides every second: its own decisions count.
    assert judged(ticks=600, decisions_of={"hpa": 40}, slow_decisions={"hpa": 1}) == (
        "DEGRADED",
        ("decisions took longer than the decision interval: hpa on 1 of 40 ticks",),
    )


def test_decisions_that_could_not_be_carried_out_degrade_a_run() -> None:
    reason = ("decisions could not be carried out on 1 of 100 ticks; see decisions.jsonl",)
    assert judged(failed_actions=1) == ("DEGRADED", reason)
    assert judged(BROKEN, failed_actions=1) == VALID


def documented() -> dict[str, tuple[str, str, str]]:
    """Condition, verdict and test of each rule in the docs."""
    section = DOC.read_text("utf-8").split("## Verdict", 1)[1]
    rows = re.findall(r"^\| `([a-z-]+)` \| (.+) \| (INVALID|DEGRADED) \| `(\w+)` \|$", section, flags=re.MULTILINE)
    return {name: (condition, verdict, test) for name, condition, verdict, test in rows}


def test_the_docs_list_every_rule_with_its_condition_and_verdict() -> None:
    rules = {name: (str(rule.check.__doc__).rstrip("."), rule.verdict) for name, rule in RULES.items()}
    assert {name: row[:2] for name, row in documented().items()} == rules
    assert list(documented()) == list(RULES)


@pytest.mark.parametrize("rule", documented())
def test_the_test_that_the_docs_name_is_one_of_these(rule: str) -> None:
    assert documented()[rule][2] in globals()
