"""A member's ear and voice: it rejoins when it must, once, and is never silent for long about where it is."""

import time
from collections.abc import Iterator
from types import SimpleNamespace

import msgspec
import pytest

from consumers.assignor import AssignmentData, PlanAssignor
from consumers.membership import Counts, Membership
from controller.fleets.stream.assignment import AssignmentPlanner
from controller.fleets.stream.plan_service import PlanService
from penstock.contracts import Groups
from penstock.plan import MemberReport
from tests.support.eventually import eventually

GROUPS = ((0, 1, 2),)


class Member:
    """A membership whose consumer is the test."""

    def __init__(self, url: str) -> None:
        self.rejoins = 0
        self.may_ask = True
        self.counts: Counts | None = None
        self.assignor = PlanAssignor(url, "g", "r-0")
        self.membership = Membership(
            url,
            "g",
            self.assignor,
            rejoin=self.rejoin,
            may_ask=lambda: self.may_ask,
            counts=lambda: self.counts,
        )

    def rejoin(self) -> None:
        self.rejoins += 1

    def rejoined(self, epoch: int) -> None:
        """The consumer asked to join and was given its part of that plan."""
        self.assignor.metadata({"events"})
        user_data = msgspec.json.encode(AssignmentData(epoch=epoch))
        given = SimpleNamespace(user_data=user_data, assigned_partitions=[("events", [0, 1, 2])])
        self.assignor.on_assignment(given, 1)
        self.membership.report("joined", (0, 1, 2))
        self.membership.assigned()


@pytest.fixture
def service() -> Iterator[PlanService]:
    running = PlanService(AssignmentPlanner(join_timeout_s=5), group="g", fleet="f", url="http://127.0.0.1:0")
    running.start()
    yield running
    running.stop()


@pytest.fixture
def member(service: PlanService) -> Iterator[Member]:
    made = Member(service.url)
    yield made
    made.membership.close(1.0)
    service.stop()
    if made.membership._watcher.ident is not None:
        made.membership._watcher.join(10)


def test_a_new_plan_asks_for_one_rejoin_and_following_it_for_none(service: PlanService, member: Member) -> None:
    member.rejoined(-1)
    eventually(lambda: service.snapshot().assigned() == {"r-0": (0, 1, 2)})
    service.propose(GROUPS, ["r-0"], 0)
    eventually(lambda: member.rejoins == 1)
    member.rejoined(1)
    time.sleep(0.2)
    assert member.rejoins == 1


def test_a_member_that_joined_with_an_older_plan_than_the_one_in_force_asks_again(
    service: PlanService, member: Member
) -> None:
    service.report("r-0", MemberReport(phase="joined", at_ns=1))
    service.propose(GROUPS, ["r-0"], 0)
    member.rejoined(-1)
    eventually(lambda: member.rejoins == 1)


def test_a_plan_heard_of_while_joining_without_it_is_joined_for_again(service: PlanService, member: Member) -> None:
    member.rejoined(-1)
    eventually(lambda: bool(service.snapshot().assigned()))
    member.assignor.metadata({"events"})
    service.propose(GROUPS, ["r-0"], 0)
    eventually(lambda: member.rejoins == 1)
    member.membership.assigned()
    assert member.rejoins == 2


def test_somebody_who_joins_or_leaves_hurries_the_others_unless_they_have_rejoined_since(
    service: PlanService, member: Member
) -> None:
    service.report("r-0", MemberReport(phase="joined", at_ns=1))
    service.propose(GROUPS, ["r-0"], 0)
    member.rejoined(1)
    eventually(lambda: member.membership._notice_ns > 0)
    service.report("r-1", MemberReport(phase="joining", at_ns=1))
    eventually(lambda: member.rejoins == 1)
    heard_ns = member.membership._notice_ns
    member.assignor.asked_to_join_ns = time.time_ns() + 10**9
    service.report("r-1", MemberReport(phase="left", at_ns=2))
    eventually(lambda: member.membership._notice_ns > heard_ns)
    assert member.rejoins == 1


def test_in_an_undirected_rebalance_only_the_leader_asks(service: PlanService, member: Member) -> None:
    member.may_ask = False
    member.rejoined(-1)
    eventually(lambda: bool(service.snapshot().assigned()))
    service.propose(GROUPS, ["r-0"], 0)
    eventually(lambda: member.membership._notice_ns > 0)
    assert member.rejoins == 0


def test_a_successor_of_the_service_is_told_where_the_member_is(service: PlanService, member: Member) -> None:
    member.rejoined(-1)
    eventually(lambda: bool(service.snapshot().assigned()))
    service.stop()
    successor = PlanService(AssignmentPlanner(join_timeout_s=5), group="g", fleet="f", url=service.url)
    since_ns = time.time_ns()
    successor.start()
    try:
        eventually(lambda: successor.snapshot().assigned() == {"r-0": (0, 1, 2)})
        assert successor.snapshot().members["r-0"].at_ns > since_ns
    finally:
        member.membership.close(1.0)
        successor.stop()


@pytest.mark.parametrize("groups", [GROUPS, ((0, 1), (2,))])
def test_a_successor_that_counts_as_its_predecessor_did_is_followed(
    service: PlanService, member: Member, groups: Groups
) -> None:
    before = service.snapshot()
    member.rejoined(-1)
    eventually(lambda: bool(service.snapshot().assigned()))
    service.propose(GROUPS, ["r-0"], 0)
    eventually(lambda: member.rejoins == 1)
    service.stop()
    planner = before.copy()
    planner.report("r-0", MemberReport(phase="joined", at_ns=1))
    planner.propose(groups, ["r-0"], 0)
    assert (planner.serial, planner.highest_epoch) == (1, 1)
    successor = PlanService(planner, group="g", fleet="f", url=service.url)
    successor.start()
    try:
        eventually(lambda: member.rejoins == 2)
    finally:
        member.membership.close(1.0)
        successor.stop()


def test_counts_of_events_are_reported_by_a_member_that_has_joined_and_cause_no_rebalance(
    service: PlanService, member: Member
) -> None:
    member.counts = Counts(0, 0, 0)
    member.membership.report("joining")
    member.membership.report_counts()  # the service would let the other members rejoin again
    eventually(lambda: bool(service.snapshot().members))
    assert service.snapshot().serial == 1
    member.rejoined(-1)
    eventually(lambda: bool(service.snapshot().assigned()))
    assert service.snapshot().finished == 0
    member.counts = Counts(40, 3, 200_000_000)
    member.membership.report_counts()
    eventually(lambda: service.snapshot().finished == 40)
    after = service.snapshot()
    assert (after.late, after.serial, after.assigned()) == (3, 1, {"r-0": (0, 1, 2)})
    assert after.busy_s == 0.2


def test_without_a_service_there_is_nobody_to_tell() -> None:
    alone = Member("")
    alone.rejoined(-1)
    alone.membership.close(1.0)
    assert alone.rejoins == 0
