"""The assignor: every partition to exactly one member, every member answered, as few moves as can be."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from consumers.assignor import MemberData, PlanAssignor, planned
from controller.fleets.stream.assignment import AssignmentPlanner
from controller.fleets.stream.plan_service import PlanService
from penstock.contracts import Groups
from penstock.plan import MemberReport, Plan

TOPIC = "events"


class Cluster:
    """What the assignor asks of kafka-python's cluster metadata."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._partitions = partitions

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self._partitions[topic])) if topic in self._partitions else None


FIVE = Cluster({TOPIC: 5})


@pytest.fixture
def service(servers_end_soon: None) -> Iterator[PlanService]:
    running = PlanService(AssignmentPlanner(join_timeout_s=5), group="g", fleet="f", url="http://127.0.0.1:0")
    running.start()
    yield running
    running.stop()


def assignor_of(
    service: PlanService, replica: str, on_fallback: Callable[[str], object] = lambda _: None
) -> PlanAssignor:
    """With patience: on a busy machine an answer takes longer than a rebalance may wait for one."""
    return PlanAssignor(service.url, "g", replica, timeout_s=10.0, on_fallback=on_fallback)


def in_force(service: PlanService, groups: Groups, *members: str) -> None:
    for at_ns, member in enumerate(members):
        service.report(member, MemberReport(phase="joined", at_ns=at_ns + 1))
    service.propose(groups, members, now_s=0)
    plan = service.snapshot().current
    assert plan is not None
    assert plan.groups == groups


def joining(assignor: PlanAssignor, topics: tuple[str, ...] = (TOPIC,)) -> Any:
    """The member as the leader receives it: its subscription encoded and decoded again."""
    wire = assignor.metadata(set(topics)).encode()
    return SimpleNamespace(
        member_id=f"{assignor.replica}-0815", metadata=ConsumerProtocolSubscription.decode(wire), group_instance_id=None
    )


def rebalance(
    leader: PlanAssignor, *others: PlanAssignor, cluster: Cluster = FIVE, generation: int = 1
) -> dict[str, tuple[int, ...]]:
    """One rebalance as kafka-python drives it; what each replica holds after it."""
    members = (leader, *others)
    answer = leader.assign(cluster, [joining(member) for member in members])
    assert set(answer) == {f"{member.replica}-0815" for member in members}
    held: dict[str, tuple[int, ...]] = {}
    for member in members:
        given = ConsumerProtocolAssignment.decode(answer[f"{member.replica}-0815"].encode())
        member.on_assignment(given, generation)
        held[member.replica] = tuple(sorted(source.partition for source in given.partitions()))
    return held


def test_each_member_of_the_plan_gets_one_group_and_newcomers_get_nothing(service: PlanService) -> None:
    in_force(service, ((0, 1, 2), (3, 4)), "r-0", "r-1")
    members = [assignor_of(service, f"r-{index}") for index in range(3)]
    held = rebalance(*members)
    assert held == {"r-0": (0, 1, 2), "r-1": (3, 4), "r-2": ()}
    assert [(member.epoch, member.fallback) for member in members] == [(1, "")] * 3


def test_a_new_epoch_moves_only_what_the_plan_moves(service: PlanService) -> None:
    members = [assignor_of(service, f"r-{index}") for index in range(3)]
    in_force(service, ((3, 4), (0, 1, 2)), "r-0", "r-1")
    before = rebalance(*members[:2])
    in_force(service, ((1, 2), (0,), (4, 3)), "r-0", "r-1", "r-2")
    after = rebalance(*members, generation=2)
    assert before == {"r-0": (0, 1, 2), "r-1": (3, 4)}
    assert after == {"r-0": (1, 2), "r-1": (3, 4), "r-2": (0,)}


def test_fewer_members_than_groups_merge_onto_the_least_loaded(service: PlanService) -> None:
    in_force(service, ((0, 1, 2), (3,), (4,)), "r-0", "r-1", "r-2")
    held = rebalance(assignor_of(service, "r-0"), assignor_of(service, "r-2"))
    assert held == {"r-0": (0, 1, 2), "r-2": (3, 4)}


def test_if_nobody_of_the_plan_is_there_whoever_is_takes_the_groups(service: PlanService) -> None:
    in_force(service, ((0, 1, 2), (3, 4)), "r-0", "r-1")
    assert rebalance(assignor_of(service, "r-9")) == {"r-9": (0, 1, 2, 3, 4)}


def test_without_a_plan_the_leader_assigns_by_range_and_says_so(service: PlanService) -> None:
    reasons: list[str] = []
    leader = assignor_of(service, "r-0", on_fallback=reasons.append)
    follower = assignor_of(service, "r-1")
    assert rebalance(leader, follower) == {"r-0": (0, 1, 2), "r-1": (3, 4)}
    assert reasons == ["there is no plan yet"]
    assert (follower.epoch, follower.fallback) == (-1, "there is no plan yet")


@pytest.mark.parametrize("groups", [((0, 1, 2, 3),), ((0, 1, 2, 3, 4), (4,)), ((0, 1, 2, 3, 4, 5),)])
def test_a_plan_for_other_partitions_than_the_topic_has_is_not_followed(service: PlanService, groups: Groups) -> None:
    in_force(service, groups, "r-0")
    leader = assignor_of(service, "r-0")
    assert rebalance(leader) == {"r-0": (0, 1, 2, 3, 4)}
    assert leader.fallback.startswith("plan 1 speaks of partitions")


def test_a_leader_that_does_not_know_the_topic_yet_trusts_the_plan(service: PlanService) -> None:
    in_force(service, ((0, 1, 2), (3, 4)), "r-0", "r-1")
    members = [assignor_of(service, f"r-{index}") for index in range(2)]
    assert rebalance(*members, cluster=Cluster({})) == {"r-0": (0, 1, 2), "r-1": (3, 4)}


def test_with_the_service_away_the_last_known_plan_stays(service: PlanService) -> None:
    in_force(service, ((0,), (1, 2, 3, 4)), "r-0", "r-1")
    members = [assignor_of(service, f"r-{index}") for index in range(2)]
    first = rebalance(*members)
    service.stop()
    assert rebalance(*members, generation=2) == first == {"r-0": (1, 2, 3, 4), "r-1": (0,)}
    assert members[0].fallback == ""


def test_with_the_service_away_and_no_plan_known_the_reason_names_the_service(service: PlanService) -> None:
    service.stop()
    leader = assignor_of(service, "r-0")
    assert rebalance(leader) == {"r-0": (0, 1, 2, 3, 4)}
    assert f"{service.url} is away" in leader.fallback


def test_a_group_that_subscribes_to_two_topics_is_assigned_by_range(service: PlanService) -> None:
    in_force(service, ((0, 1, 2, 3, 4),), "r-0")
    leader, follower = assignor_of(service, "r-0"), assignor_of(service, "r-1")
    answer = leader.assign(Cluster({TOPIC: 5, "other": 1}), [joining(leader), joining(follower, (TOPIC, "other"))])
    assert answer["r-0-0815"].assigned_partitions == [(TOPIC, [0, 1, 2])]
    assert answer["r-1-0815"].assigned_partitions == [(TOPIC, [3, 4]), ("other", [0])]


def test_a_member_with_user_data_of_somebody_else_goes_by_its_member_id(service: PlanService) -> None:
    in_force(service, ((0, 1, 2, 3, 4),), "r-0")
    leader = assignor_of(service, "r-0")
    stranger = SimpleNamespace(
        member_id="stranger", metadata=ConsumerProtocolSubscription(0, [TOPIC], b"\x00\x01"), group_instance_id=None
    )
    answer = leader.assign(FIVE, [joining(leader), stranger])
    assert answer["stranger"].assigned_partitions == []
    assert answer["r-0-0815"].assigned_partitions == [(TOPIC, [0, 1, 2, 3, 4])]


def test_of_two_members_that_claim_a_partition_the_later_generation_is_right() -> None:
    plan = Plan(epoch=3, groups=((0, 1), (2,)))
    members = {
        "a": MemberData("r-0", {TOPIC: (0, 1)}, generation=4),
        "b": MemberData("r-1", {TOPIC: (0, 1)}, generation=7),
    }
    assert planned(plan, TOPIC, members) == {"a": (2,), "b": (0, 1)}


groupings = st.integers(1, 12).flatmap(
    lambda count: st.lists(st.integers(0, 5), min_size=count, max_size=count).map(
        lambda owners: tuple(tuple(p for p, owner in enumerate(owners) if owner == group) for group in range(6))
    )
)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Plan, dict[str, MemberData]]:
    groups = draw(groupings)
    names = draw(st.lists(st.sampled_from([f"r-{index}" for index in range(8)]), min_size=1, unique=True))
    planned_for = draw(st.lists(st.sampled_from([f"r-{index}" for index in range(8)]), unique=True))
    partitions = st.lists(st.integers(0, 11), unique=True).map(tuple)
    members = {
        f"{name}-id": MemberData(name, {TOPIC: draw(partitions)}, draw(st.integers(-1, 3)), draw(st.integers(-1, 3)))
        for name in names
    }
    return Plan(epoch=1, groups=groups, members=tuple(planned_for)), members


@given(situations())
def test_every_partition_goes_to_exactly_one_member_and_every_member_is_answered(
    situation: tuple[Plan, dict[str, MemberData]],
) -> None:
    plan, members = situation
    answer = planned(plan, TOPIC, members)
    assert set(answer) == set(members)
    assert sorted(partition for held in answer.values() for partition in held) == sorted(plan.partitions())
    invited = {member for member, data in members.items() if data.replica in plan.members}
    if invited:
        assert all(not held for member, held in answer.items() if member not in invited)


@given(situations())
def test_an_assignment_that_follows_the_plan_is_left_alone(situation: tuple[Plan, dict[str, MemberData]]) -> None:
    plan, members = situation
    first = planned(plan, TOPIC, members)
    holding = {
        member: MemberData(data.replica, {TOPIC: first[member]}, generation=5) for member, data in members.items()
    }
    assert planned(plan, TOPIC, holding) == first


def test_the_assignor_imports_nothing_but_kafka_python_and_the_kernel() -> None:
    program = (
        "import sys; import consumers.assignor;"
        "print([m for m in ('redis', 'confluent_kafka', 'pydantic', 'httpx', 'numpy', 'pyarrow', 'prometheus_client',"
        " 'controller', 'penstock.settings') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.strip() == "[]"


def test_a_worker_process_imports_nothing_that_only_analysts_need() -> None:
    program = (
        "import sys; import consumers.worker;"
        "print([m for m in ('pyarrow', 'pandas', 'numpy', 'rich', 'typer', 'httpx', 'plotly') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert answer.stdout.strip() == "[]"
