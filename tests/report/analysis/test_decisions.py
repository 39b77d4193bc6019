"""The steps from a decision to the first event, on a journal that is written here."""

import msgspec
import pytest

from controller.journal import TickRecord
from penstock.contracts import Accepted, Decision, Phase, ReplicaCounts, ReplicaEvent, StreamObservation
from report.analysis.decisions import WHOLE, guarded_ticks, start_steps

START_NS = 1_000_000_000_000


def tick(number: int, *, acted: bool = True) -> TickRecord:
    """Due 0.1 s after each second, over 20 ms later."""
    return TickRecord(
        tick=number,
        time_s=number + 0.1,
        at_ns=START_NS + round((number + 0.12) * 1e9),
        phase_s=0.12,
        observation=StreamObservation(time_s=number + 0.1, fleet="pay", replicas=ReplicaCounts()),
        decisions={},
        acting="linear",
        accepted=Accepted({"pay": 2}) if acted else None,
    )


def event(replica: str, phase: Phase, at_s: float, reason: str = "") -> ReplicaEvent:
    return ReplicaEvent("pay", replica, phase, START_NS + round(at_s * 1e9), reason)


def test_a_pods_steps_are_told_apart_and_add_up() -> None:
    life: tuple[tuple[Phase, float], ...] = (
        *(("requested", 1.13), ("created", 1.2), ("scheduled", 1.25)),
        *(("started", 2.0), ("joined", 3.0), ("first-event", 3.4)),
    )
    steps = start_steps([tick(0), tick(1)], [event("pay-2", phase, at_s) for phase, at_s in life], START_NS)
    order = [*(phase for phase, _ in life), WHOLE]
    assert set(steps) == set(order)
    assert [steps[step].p50_s for step in order] == pytest.approx([0.03, 0.07, 0.05, 0.75, 1.0, 0.4, 2.3])


def test_a_process_is_neither_created_nor_scheduled() -> None:
    events = [event("pay-2", "requested", 1.13), event("pay-2", "started", 1.4), event("pay-2", "joined", 2.0)]
    assert set(start_steps([tick(1)], events, START_NS)) == {"requested", "started", "joined"}


def test_replicas_that_no_tick_asked_for_are_left_out() -> None:
    before = [event("pay-1", "requested", -5.0), event("pay-1", "started", -4.0)]
    respawned = [event("pay-1", "requested", 2.0, "respawned"), event("pay-1", "started", 2.5)]
    assert start_steps([tick(1)], [*before, *respawned], START_NS) == {}
    assert start_steps([tick(1, acted=False)], [event("pay-2", "requested", 1.13)], START_NS) == {}


def test_ticks_count_as_guarded_on_which_the_acting_scalers_decision_has_a_note() -> None:
    noted = Decision(action="none", why={"pay": {"guard": "no scale-in to 1: backlog is unknown"}})
    plain = Decision(action="none", why={"pay": {"wanted": 1}})
    decided = [{"linear": noted}, {"linear": plain}, {"linear": plain, "hpa": noted}, {"hpa": plain}, {"linear": noted}]
    assert guarded_ticks(msgspec.structs.replace(tick(0), decisions=each) for each in decided) == 2
