"""The loop in virtual time: ticks, phases, shadows, failures, restarts."""

import contextlib
import math
import re

import msgspec
import pytest

from controller.journal import TickRecord
from controller.loop import Grid, LoopState, check_decision, check_kinds
from penstock.contracts import Decision, FleetObservation, PartitionObservation, ReplicaCounts, StreamObservation
from penstock.errors import PenstockError
from tests.controller.timelines import FLEET, StepParameters, StepScaler, Timeline, VirtualClock, named


def raises(*_: object) -> tuple[Decision, object]:
    raise ZeroDivisionError("rho is\n1")


def blind(count: int) -> FleetObservation:
    return FleetObservation(
        time_s=0, fleet=FLEET, replicas=ReplicaCounts(joined=1), unknown={"arrived": f"broker away {count}"}
    )


# --- when it ticks ---------------------------------------------------------------------------------------------------


def test_ticks_are_at_whole_seconds_of_the_run_plus_the_phase() -> None:
    line = Timeline(StepScaler(StepParameters()), clock=VirtualClock(1000.0), origin_s=1000.0)
    records = line.run(4)
    assert line.clock.slept_until == [1000.1, 1001.1, 1002.1, 1003.1]
    assert [record.time_s for record in records] == [0.1, 1.1, 2.1, 3.1]
    assert [record.tick for record in records] == [0, 1, 2, 3]


def test_lateness_is_recorded_and_does_not_add_up() -> None:
    line = Timeline(StepScaler(StepParameters()), clock=VirtualClock(late_s={0: 0.003, 1: 0.25, 2: 0.001}))
    records = line.run(4)
    assert [record.phase_s for record in records] == [0.103, 0.35, 0.101, 0.1]
    assert [record.skipped for record in records] == [0, 0, 0, 0]
    assert line.clock.slept_until == [0.1, 1.1, 2.1, 3.1]


def test_scalers_reckon_with_the_scheduled_time_so_that_jitter_does_not_shorten_a_hold() -> None:
    late = dict.fromkeys(range(0, 40, 2), 0.05)
    scaler = StepScaler(StepParameters(every=1, hold_s=3.0))
    line = Timeline(scaler, clock=VirtualClock(late_s=late))
    ups = [record.tick for record in line.run(9) if record.decisions["step"].action == "up"]
    assert ups == [0, 4, 8]  # strictly more than 3 s: on 1 s ticks the fourth


def test_a_missed_tick_is_skipped_and_counted_not_made_up() -> None:
    line = Timeline(StepScaler(StepParameters()))
    line.run(2)
    line.clock.pass_time(2.5)  # from 1.1 to 3.6: the tick at 2.1 is missed, that of 3.1 is late
    records = line.run(2)
    assert [(record.tick, record.skipped) for record in records] == [(0, 0), (1, 0), (3, 1), (4, 0)]
    assert records[2].phase_s == pytest.approx(0.6)


def test_a_loop_that_starts_early_waits_for_the_first_tick() -> None:
    line = Timeline(StepScaler(StepParameters()), clock=VirtualClock(-3.0))
    assert line.run(1)[0].phase_s == pytest.approx(0.1)


def test_each_scaler_decides_at_its_own_period_on_one_grid() -> None:
    scalers = [named(f"every-{period}", period_s=period) for period in (1.0, 2.0, 2.5, 5.0)]
    records = Timeline(*scalers).run(8)
    due = {record.time_s: [name.removeprefix("every-") for name in record.decisions] for record in records}
    assert due == {
        0.1: ["1.0", "2.0", "2.5", "5.0"],
        1.1: ["1.0"],
        2.1: ["1.0", "2.0"],
        2.6: ["2.5"],
        3.1: ["1.0"],
        4.1: ["1.0", "2.0"],
        5.1: ["1.0", "2.5", "5.0"],
        6.1: ["1.0", "2.0"],
    }


@pytest.mark.parametrize(
    ("periods", "step"), [([1, 2, 2.5, 5, 15, 30], 0.5), ([15, 30], 15), ([1 / 3, 2 / 3], 1 / 3), ([0.25, 0.1], 0.05)]
)
def test_the_grid_is_the_finest_that_is_needed(periods: list[float], step: float) -> None:
    assert float(Grid(periods, 0.0).step) == pytest.approx(step, abs=1e-12)


@pytest.mark.parametrize("periods", [[], [0.0], [-1.0], [1 / 997, 1 / 991]])
def test_periods_without_a_grid_are_refused(periods: list[float]) -> None:
    with pytest.raises(PenstockError, match="decision periods"):
        Grid(periods, 0.0)


# --- who acts --------------------------------------------------------------------------------------------------------


def test_only_the_acting_scaler_is_carried_out_and_shadows_see_its_fleet() -> None:
    line = Timeline(named("acting", every=2), named("shadow", every=1))
    records = line.run(3)
    assert [decision.targets[FLEET] for decision in line.actuator.applied] == [2]
    assert [record.decisions["shadow"].targets[FLEET] for record in records] == [2, 2, 3]
    assert [record.accepted is not None for record in records] == [False, True, False]


def test_a_clamped_decision_is_journaled_and_starts_no_hold_if_nothing_changed() -> None:
    records = Timeline(named("greedy", every=1)).run(5)
    assert [record.accepted.targets[FLEET] for record in records if record.accepted] == [2, 3, 4, 4, 4]
    assert records[3].accepted is not None
    assert records[3].accepted.clamped == {FLEET: "5 → 4: cap 4"}
    assert [record.observation.last_scale_s for record in records] == [None, 0.1, 1.1, 2.1, 2.1]


def test_a_scaler_may_be_there_once_only() -> None:
    with pytest.raises(PenstockError, match="step, step"):
        Timeline(StepScaler(StepParameters()), StepScaler(StepParameters()))


def test_a_scaler_of_another_kind_of_fleet_is_refused_in_one_line() -> None:
    streams = named("streams")
    type(streams).fleets = StreamObservation
    check_kinds([streams], StreamObservation)
    with pytest.raises(PenstockError, match=r"'streams' reads StreamObservation, this run's fleet gives Fleet"):
        check_kinds([streams], FleetObservation)


# --- what fails ------------------------------------------------------------------------------------------------------


def test_a_failing_shadow_holds_with_the_error_as_reason_and_the_acting_one_goes_on() -> None:
    line = Timeline(named("acting", every=1), named("broken", decide=raises))
    records = line.run(2)
    shadow = records[0].decisions["broken"]
    assert shadow.action == "hold"
    assert shadow.why[FLEET]["reason"] == "scaler failed: ZeroDivisionError: rho is 1"
    assert records[0].errors == {"broken": "ZeroDivisionError: rho is 1"}
    assert [decision.targets[FLEET] for decision in line.actuator.applied] == [2, 3]


def test_a_failing_acting_scaler_holds_loudly() -> None:
    line = Timeline(named("broken", decide=raises), named("shadow", every=1))
    (record,) = line.run(1)
    assert record.decisions["broken"].action == "hold"
    assert record.note == "broken: ZeroDivisionError: rho is 1"
    assert line.actuator.applied == []
    assert record.decisions["shadow"].action == "up"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (-1, "ValueError: -1 replicas for payments: a target is a whole number, at least 0"),
        (-5, "ValueError: -5 replicas for payments: a target is a whole number, at least 0"),
        (math.nan, "ValueError: nan replicas for payments: a target is a whole number, at least 0"),
        (2.5, "ValueError: 2.5 replicas for payments: a target is a whole number, at least 0"),
        (True, "ValueError: True replicas for payments: a target is a whole number, at least 0"),
    ],
)
def test_a_target_that_is_no_number_of_replicas_is_a_failure_and_changes_nothing(target: float, said: str) -> None:
    def decide(_: object, __: FleetObservation, state: object) -> tuple[Decision, object]:
        return Decision(action="down", targets={FLEET: target}), state  # type: ignore[dict-item]

    line = Timeline(named("mad", decide=decide))
    (record,) = line.run(1)
    assert record.errors == {"mad": said}
    assert (record.decisions["mad"].action, line.actuator.applied) == ("hold", [])
    assert msgspec.json.decode(msgspec.json.encode(record), type=TickRecord) == record


def grouped(*groups: tuple[int, ...]) -> Decision:
    return Decision(action="up", targets={FLEET: len(groups)}, assignment=groups)


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (
            Decision(action="up", targets={"paymentz": 4}),
            f"4 replicas for paymentz: there is no such fleet, but {FLEET}",
        ),
        (grouped((0, 1), (1, 2)), "partitions [0, 1, 1, 2] in the groups, not each of [0, 1, 2] once"),
        (grouped((0,), (2,)), "partitions [0, 2] in the groups, not each of [0, 1, 2] once"),
        (grouped((0, 1), (2,), ()), ""),
    ],
)
def test_a_decision_that_no_fleet_could_carry_out_is_a_failure(decision: Decision, said: str) -> None:
    partitions = tuple(PartitionObservation(partition, 0, 0, 0.0) for partition in (0, 1, 2))
    observation = StreamObservation(time_s=0, fleet=FLEET, replicas=ReplicaCounts(joined=1), partitions=partitions)
    with contextlib.nullcontext() if not said else pytest.raises(ValueError, match=re.escape(said)):
        check_decision(decision, observation)


def test_zero_replicas_are_a_target() -> None:
    check_decision(Decision(action="down", targets={FLEET: 0}), blind(1))


def test_an_answer_that_is_no_decision_is_a_failure() -> None:
    (record,) = Timeline(named("mute", decide=lambda *_: (None, None))).run(1)
    assert "mute" in record.errors and record.decisions["mute"].action == "hold"


@pytest.mark.parametrize(("takes_s", "slow"), [(1.0, {}), (1.25, {"thinker": 1.25})])
def test_a_decision_that_takes_longer_than_its_interval_is_journaled(takes_s: float, slow: dict[str, float]) -> None:
    clock = VirtualClock()

    def decide(_: object, __: FleetObservation, state: object) -> tuple[Decision, object]:
        clock.pass_time(takes_s)
        return Decision(action="none"), state

    (record,) = Timeline(named("thinker", decide=decide), named("shadow"), clock=clock, phase_s=0.0).run(1)
    assert record.slow == slow


def test_during_a_monitor_outage_it_holds_and_the_journal_says_so() -> None:
    line = Timeline(named("acting", every=1), script={1: blind(1), 2: blind(2)})
    records = line.run(4)
    assert [record.decisions["acting"].action for record in records] == ["up", "hold", "hold", "up"]
    assert records[1].note == "holding: 1 unknown, first arrived: broker away 1"
    assert [record.note for record in (records[0], records[3])] == ["", ""]


def test_a_monitor_that_fails_is_an_outage_of_everything() -> None:
    line = Timeline(named("acting", every=1), named("shadow"), script={0: OSError("no route")})
    records = line.run(2)
    assert {decision.action for decision in records[0].decisions.values()} == {"hold"}
    assert records[0].observation.unknown == {"observation": "OSError: no route"}
    assert records[0].observation.replicas.current == 1
    assert records[0].note == "monitor: OSError: no route"
    assert records[1].decisions["acting"].action == "up"


def test_what_the_actuator_could_not_take_on_is_journaled_and_starts_no_hold() -> None:
    line = Timeline(named("acting", every=1))

    def refuses(decision: Decision) -> None:
        raise PenstockError("supervisor away")

    line.actuator.apply = refuses  # type: ignore[method-assign, assignment]
    records = line.run(2)
    assert records[0].accepted is None
    assert records[0].errors == {"actuator": "PenstockError: supervisor away"}
    assert records[1].observation.last_scale_s is None


# --- restarts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("killed_after", [1, 2, 5, 6, 9])
def test_a_loop_restarted_in_the_middle_decides_as_if_it_had_not_been(killed_after: int) -> None:
    def scalers() -> list[StepScaler]:
        return [named("acting", every=2, hold_s=2.0), named("slow", every=2, period_s=2.5)]

    undisturbed = Timeline(*scalers()).run(12)
    first = Timeline(*scalers())
    before = list(first.run(killed_after))
    written = msgspec.json.encode(first.loop.snapshot())
    second = Timeline(
        *scalers(), clock=first.clock, actuator=first.actuator, resume=msgspec.json.decode(written, type=LoopState)
    )
    second.monitor.count = first.monitor.count
    assert before + second.run(12 - killed_after) == undisturbed


def test_ticks_missed_while_the_controller_was_dead_are_counted() -> None:
    first = Timeline(StepScaler(StepParameters()))
    first.run(3)
    first.clock.pass_time(4.2)  # from 2.1 to 6.3
    second = Timeline(StepScaler(StepParameters()), clock=first.clock, resume=first.loop.snapshot())
    (record,) = second.run(1)
    assert (record.tick, record.skipped) == (6, 3)


def test_a_scaler_that_is_new_after_the_restart_starts_afresh() -> None:
    first = Timeline(named("old"))
    first.run(2)
    second = Timeline(named("old"), named("new"), clock=first.clock, resume=first.loop.snapshot())
    (record,) = second.run(1)
    assert set(record.decisions) == {"old", "new"}


def test_the_state_is_handed_out_after_each_tick() -> None:
    line = Timeline(StepScaler(StepParameters()))
    ticks: list[int] = []
    line.run(3, lambda record: ticks.append(line.loop.snapshot().tick))
    assert ticks == [0, 1, 2]
