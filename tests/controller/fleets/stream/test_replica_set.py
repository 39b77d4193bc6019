"""Reconciliation as timelines: what is wanted, what runs, what members say, and what follows. Times are in seconds."""

import msgspec

from controller.fleets.programs import ProgramWork
from controller.fleets.stream.replica_set import ConsumerReplicaSet
from penstock.adapters.process_manager import ProgramStatus
from penstock.contracts import MEASURED, Groups
from penstock.plan import MemberPhase, MemberReport, Plan

SECOND = 1_000_000_000


class Fleet:
    """A replica set with the programs and reports that it is shown."""

    def __init__(self, joined: int = 0) -> None:
        self.replicas = ConsumerReplicaSet(fleet="pay")
        self.programs: dict[str, ProgramStatus] = {}
        self.reports: dict[str, MemberReport] = {}
        self.steps: dict[str, dict[MemberPhase, int]] = {}
        self.plan: Plan | None = None
        self.seen: list[tuple[float, str, str]] = []
        self._pid = 100
        if joined:
            for name in self.replicas.request(joined, 0):
                self.runs(name)
                self.says(name, "joined", 0.0)
            self.look(0)
            self.seen.clear()

    def runs(self, name: str, state: str = "active") -> None:
        self._pid += 1
        self.programs[name] = ProgramStatus(name, self._pid, state)

    def says(self, name: str, phase: MemberPhase, at_s: float, holds: tuple[int, ...] = (), epoch: int = -1) -> None:
        self.reports[name] = MemberReport(phase, round(at_s * SECOND), holds, epoch=epoch)
        self.steps.setdefault(name, {})[phase] = round(at_s * SECOND)

    def look(self, at_s: float) -> ProgramWork:
        now_ns = round(at_s * SECOND)
        self.replicas.observe(self.programs, self.steps, now_ns)
        self.seen += [(event.at_ns / SECOND, event.replica, event.phase) for event in self.replicas.take_events()]
        return self.replicas.work(
            self.programs, self.reports, self.plan, now_ns, drain_timeout_ns=5 * SECOND, silence_ns=3 * SECOND
        )

    def drain(self, *names: str, at_s: float) -> None:
        self.replicas.drain(names, round(at_s * SECOND))


def test_a_replica_joins_although_the_clock_was_set_back_since_its_request() -> None:
    fleet = Fleet(joined=1)
    fleet.replicas.request(1, 20 * SECOND)
    fleet.look(20.1)
    fleet.runs("pay-1")  # another process
    fleet.runs("pay-2")
    fleet.look(17.2)
    fleet.says("pay-1", "joined", 17.3)
    fleet.says("pay-2", "joined", 17.3)
    fleet.look(17.4)
    assert set(fleet.replicas.phases().values()) == {"joined"}


def test_a_requested_replica_is_started_again_and_again_until_it_is_seen() -> None:
    fleet = Fleet()
    assert fleet.replicas.request(2, 0) == ["pay-1", "pay-2"]
    assert fleet.look(0.1).start == ("pay-1", "pay-2")
    fleet.runs("pay-1")
    assert fleet.look(0.2).start == ("pay-2",)
    assert fleet.seen == [(0, "pay-1", "requested"), (0, "pay-2", "requested"), (0.2, "pay-1", "started")]


def test_the_time_from_request_to_joining_is_kept_of_the_last_replicas() -> None:
    fleet = Fleet()
    fleet.replicas.request(1, 1 * SECOND)
    fleet.runs("pay-1")
    fleet.look(1.3)
    assert fleet.replicas.start_ups_s() == ()
    fleet.says("pay-1", "joined", 2.2)
    fleet.says("pay-1", "first-event", 2.4)
    fleet.look(2.5)
    fleet.look(3.5)  # nothing new
    assert fleet.replicas.start_ups_s() == (1.2,)
    restored = msgspec.json.decode(msgspec.json.encode(fleet.replicas), type=ConsumerReplicaSet)
    assert restored.start_ups_s() == (1.2,)
    for number in range(2, 2 + MEASURED):
        fleet.replicas.request(1, 10 * SECOND)
        fleet.runs(f"pay-{number}")
        fleet.says(f"pay-{number}", "joined", 10 + number)
    fleet.look(30)
    assert fleet.replicas.start_ups_s() == tuple(float(number) for number in range(2, 2 + MEASURED))


def test_joined_and_first_event_are_told_at_the_time_of_the_report() -> None:
    fleet = Fleet()
    fleet.replicas.request(1, 0)
    fleet.runs("pay-1")
    fleet.look(0.3)
    fleet.says("pay-1", "joined", 0.8)
    fleet.look(0.9)
    fleet.says("pay-1", "first-event", 1.25)
    fleet.look(1.3)
    fleet.look(1.4)
    assert fleet.seen[2:] == [(0.8, "pay-1", "joined"), (1.25, "pay-1", "first-event")]
    assert fleet.replicas.counts().joined == 1


def test_a_step_that_was_overtaken_is_told_too() -> None:
    fleet = Fleet()
    fleet.replicas.request(1, 0)
    fleet.runs("pay-1")
    fleet.says("pay-1", "first-event", 0.5)
    fleet.look(0.6)
    assert [phase for _, _, phase in fleet.seen] == ["requested", "started", "joined", "first-event"]


def test_steps_heard_twice_or_of_strangers_change_nothing() -> None:
    fleet = Fleet(joined=1)
    fleet.replicas.reach("pay-1", "joined", SECOND)
    fleet.replicas.reach("pay-9", "joined", SECOND)
    fleet.replicas.reach("pay-1", "draining", SECOND)
    assert fleet.replicas.take_events() == []


def test_scale_in_waits_until_the_leaver_holds_nothing_under_the_new_plan() -> None:
    fleet = Fleet(joined=2)
    fleet.says("pay-2", "first-event", 1, holds=(3, 4), epoch=1)
    fleet.plan = Plan(epoch=1, groups=((0, 1, 2), (3, 4)), members=("pay-1", "pay-2"))
    fleet.drain("pay-2", at_s=2)
    assert fleet.look(2.1) == ProgramWork()
    fleet.plan = Plan(epoch=2, groups=((0, 1, 2, 3, 4),), members=("pay-1",))
    assert fleet.look(2.2) == ProgramWork()
    fleet.says("pay-2", "joined", 2.3, holds=(), epoch=2)
    assert fleet.look(2.4) == ProgramWork(end=("pay-2",))
    fleet.programs["pay-2"] = ProgramStatus("pay-2", 102, "stopping")
    assert fleet.look(2.5) == ProgramWork()
    del fleet.programs["pay-2"]
    assert fleet.look(2.6) == ProgramWork()
    assert fleet.seen[-2:] == [(2, "pay-2", "draining"), (2.6, "pay-2", "gone")]
    assert list(fleet.replicas.replicas) == ["pay-1"]


def test_where_nobody_stays_leavers_end_at_once() -> None:
    """The plan without members leaves their partitions to whoever is there: they would hold them until the time-out."""
    fleet = Fleet(joined=2)
    fleet.says("pay-1", "first-event", 1, holds=(0, 1), epoch=1)
    fleet.says("pay-2", "first-event", 1, holds=(2, 3), epoch=1)
    fleet.plan = Plan(epoch=1, groups=((0, 1), (2, 3)), members=("pay-1", "pay-2"))
    fleet.drain("pay-1", "pay-2", at_s=2)
    assert fleet.look(2.1) == ProgramWork()
    fleet.plan = Plan(epoch=2, groups=((0, 1, 2, 3),))
    assert fleet.look(2.2) == ProgramWork(end=("pay-1", "pay-2"))
    fleet.programs.clear()
    fleet.look(2.3)
    assert not fleet.replicas.replicas


def test_a_leaver_that_does_not_let_go_is_ended_after_the_time_out() -> None:
    fleet = Fleet(joined=2)
    fleet.says("pay-2", "first-event", 1, holds=(3, 4), epoch=1)
    fleet.plan = Plan(epoch=2, groups=((0, 1, 2, 3, 4),), members=("pay-1",))
    fleet.drain("pay-2", at_s=2)
    assert fleet.look(6.9) == ProgramWork()
    assert fleet.look(7.0).end == ("pay-2",)


def test_a_leaver_that_never_joined_is_ended_at_once() -> None:
    fleet = Fleet(joined=1)
    fleet.replicas.request(2, SECOND)
    fleet.runs("pay-2")
    fleet.look(1.1)
    fleet.drain("pay-2", "pay-3", at_s=1.2)
    assert fleet.look(1.3) == ProgramWork(end=("pay-2",))
    assert fleet.seen[-1] == (1.3, "pay-3", "gone")  # it was not even started


def test_a_killed_replica_lives_once_more_under_its_name() -> None:
    fleet = Fleet(joined=1)
    fleet.says("pay-1", "first-event", 1)
    fleet.look(1)
    fleet.runs("pay-1")  # its supervisor has respawned it
    fleet.look(5)
    fleet.says("pay-1", "joined", 5.7)
    fleet.look(5.8)
    assert fleet.seen[1:] == [
        (5, "pay-1", "gone"),
        (5, "pay-1", "requested"),
        (5, "pay-1", "started"),
        (5.7, "pay-1", "joined"),
    ]


def test_a_killed_replica_that_is_back_before_anybody_looked_has_joined() -> None:
    fleet = Fleet(joined=1)
    fleet.says("pay-1", "first-event", 1)
    fleet.look(1)
    fleet.runs("pay-1")
    fleet.says("pay-1", "joined", 4.8)
    fleet.look(5)
    assert fleet.seen[1:] == [(5, "pay-1", step) for step in ("gone", "requested", "started", "joined")]


def test_what_its_earlier_life_reported_does_not_count() -> None:
    fleet = Fleet(joined=1)
    fleet.says("pay-1", "first-event", 1)
    fleet.look(1)
    fleet.runs("pay-1")
    fleet.look(5)
    assert fleet.replicas.phases() == {"pay-1": "started"}


def test_a_replica_that_its_supervisor_gave_up_is_tried_anew_after_a_while() -> None:
    fleet = Fleet(joined=1)
    fleet.programs["pay-1"] = ProgramStatus("pay-1", None, "failed")
    assert fleet.look(1) == ProgramWork()
    assert fleet.look(4) == ProgramWork(end=("pay-1",))
    del fleet.programs["pay-1"]
    assert fleet.look(4.1) == ProgramWork(start=("pay-1",))
    assert [phase for _, _, phase in fleet.seen] == ["gone", "requested"]


def test_a_leaver_that_is_killed_and_respawned_is_ended_and_does_not_come_back() -> None:
    fleet = Fleet(joined=2)
    fleet.plan = Plan(epoch=2, groups=((0,),), members=("pay-1",))
    fleet.says("pay-2", "first-event", 1, holds=(1,), epoch=1)
    fleet.drain("pay-2", at_s=2)
    fleet.runs("pay-2")
    assert fleet.look(2.1) == ProgramWork()
    fleet.says("pay-2", "started", 2.5)
    assert fleet.look(2.6) == ProgramWork(end=("pay-2",))
    assert fleet.replicas.counts().current == 1


def test_replicas_that_nobody_remembers_are_adopted_unless_they_are_on_their_way_out() -> None:
    fleet = Fleet()
    fleet.runs("pay-7")
    fleet.runs("pay-8", state="stopping")
    fleet.says("pay-7", "first-event", 0)
    assert fleet.look(1) == ProgramWork()
    assert fleet.replicas.phases() == {"pay-7": "started"}
    assert fleet.replicas.request(1, SECOND) == ["pay-8"]


def test_a_replica_set_that_was_written_down_continues() -> None:
    fleet = Fleet(joined=3)
    fleet.drain("pay-3", at_s=1)
    fleet.replicas = msgspec.json.decode(msgspec.json.encode(fleet.replicas), type=ConsumerReplicaSet)
    del fleet.programs["pay-3"]
    assert fleet.look(1.5) == ProgramWork()
    assert [phase for _, _, phase in fleet.seen] == ["draining", "gone"]
    assert fleet.replicas.request(1, 2 * SECOND) == ["pay-4"]


# --- who stays -------------------------------------------------------------------------------------------------------


def staying(fleet: Fleet, count: int, groups: Groups, held: dict[str, tuple[int, ...]]) -> list[str]:
    return sorted(fleet.replicas.choose_staying(count, groups, held))


def test_those_stay_that_hold_most_of_the_new_groups() -> None:
    held = {"pay-1": (4,), "pay-2": (0, 1), "pay-3": (2, 3)}
    assert staying(Fleet(joined=3), 2, ((0, 1, 4), (2, 3)), held) == ["pay-2", "pay-3"]


def test_of_those_that_hold_nothing_the_furthest_and_then_the_oldest_stay() -> None:
    fleet = Fleet(joined=2)
    fleet.replicas.request(2, 0)
    fleet.runs("pay-4")
    fleet.look(0.1)
    assert staying(fleet, 3, ((0, 1),), {"pay-2": (0, 1)}) == ["pay-1", "pay-2", "pay-4"]
    assert staying(fleet, 1, ((0, 1),), {}) == ["pay-1"]


def test_ages_count_in_the_order_of_creation_not_of_the_alphabet() -> None:
    fleet = Fleet(joined=11)
    assert staying(fleet, 10, (), {}) == sorted(f"pay-{number}" for number in range(1, 11))


def test_a_replica_on_its_way_out_is_not_counted_on() -> None:
    fleet = Fleet(joined=3)
    fleet.drain("pay-1", at_s=1)
    assert staying(fleet, 1, ((0, 1),), {"pay-1": (0, 1), "pay-3": (0,)}) == ["pay-3"]
    assert fleet.replicas.counts().current == 2


def test_a_plan_with_fewer_groups_is_for_those_that_have_joined_and_then_for_the_furthest() -> None:
    fleet = Fleet(joined=2)
    fleet.replicas.request(2, 0)
    fleet.runs("pay-4")
    fleet.look(0.1)
    everyone = [replica.name for replica in fleet.replicas.current()]
    assert fleet.replicas.named_by(((0,), (1,)), everyone) == ["pay-1", "pay-2"]
    assert fleet.replicas.named_by(((0,), (1,), (2,)), everyone) == ["pay-1", "pay-2", "pay-4"]
    assert fleet.replicas.named_by(((0,), (1,), (2,), ()), everyone) == everyone
    assert fleet.replicas.named_by((), everyone) == everyone


def test_a_plan_names_all_that_have_joined_also_if_it_has_fewer_groups() -> None:
    # Who holds most of a group gets it: a plan that left one of them out could move its partitions for nothing.
    everyone = ["pay-1", "pay-2", "pay-3"]
    assert Fleet(joined=3).replicas.named_by(((0,), (1,)), everyone) == everyone


def test_a_process_that_restarted_unseen_joins_by_the_report_it_made_meanwhile() -> None:
    """The watch was broken from 2 s on: what it shows until 6 s is the process that ended at 3 s."""
    fleet = Fleet(joined=1)
    fleet.look(6)
    fleet.steps.clear()
    fleet.says("pay-1", "joined", 4)
    fleet.programs["pay-1"] = ProgramStatus("pay-1", 999, "active", former_ended_ns=3 * SECOND)
    fleet.look(6.1)
    assert fleet.replicas.phases() == {"pay-1": "joined"}
