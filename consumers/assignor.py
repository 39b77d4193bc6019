"""Partition assignor of a consumer group that follows the controller's plan.

The group's leader asks the plan service which partitions belong together and gives each group to the member that holds
most of it already. An application's own kafka-python consumer needs two lines::

    assignor = PlanAssignor("http://127.0.0.1:8700", group="payments", replica="payments-0")
    consumer = KafkaConsumer("events", group_id="payments", partition_assignment_strategy=[assignor])
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from consumers.plan_client import PlanClient, PlanServiceError
from penstock.plan import Plan, match_members, range_assignment

log = logging.getLogger(__name__)

VERSION = 0
NO_EPOCH = -1


class MemberData(msgspec.Struct, frozen=True):
    """User data of a member's subscription: who it is and what it holds, by topic, since which generation and epoch."""

    replica: str
    held: Mapping[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    generation: int = -1
    epoch: int = NO_EPOCH


class AssignmentData(msgspec.Struct, frozen=True):
    """User data of an assignment: the plan it follows, or why the leader fell back to range."""

    epoch: int = NO_EPOCH
    fallback: str = ""


_member_decoder = msgspec.json.Decoder(MemberData)
_assignment_decoder = msgspec.json.Decoder(AssignmentData)


class PlanAssignor(AbstractPartitionAssignor):  # type: ignore[misc]  # kafka-python ships no types
    """Follows the plan of ``group`` at the plan service ``url``; ``replica`` is this member's name in plans.

    An empty ``url`` means that there is no service: then the group is assigned by range. ``on_fallback`` is called on
    the leader with the reason whenever it had to answer with range. Not to be shared between consumers.
    """

    name = "penstock-plan"
    version = VERSION

    def __init__(
        self,
        url: str,
        group: str,
        replica: str,
        *,
        timeout_s: float = 0.25,
        on_fallback: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.replica = replica
        self.epoch = NO_EPOCH
        """Epoch of the plan that this member's assignment follows, -1 for none."""
        self.fallback = ""
        """Why this member's assignment follows no plan, empty if it does."""
        self.generation = -1
        """Generation of the group in which it was made."""
        self.asked_to_join_ns = 0
        """When this member last sent out a request to join, nanoseconds since the epoch."""
        self._client = PlanClient(url, group, timeout_s) if url else None
        self._plan: Plan | None = None
        self._held: dict[str, tuple[int, ...]] = {}
        self._on_fallback = on_fallback

    def learn(self, plan: Plan | None) -> None:
        """Remember a plan received elsewhere, for when the service is away while this member has to assign."""
        if plan is not None:
            self._plan = plan

    # --- what kafka-python calls, on its I/O thread ------------------------------------------------------------------

    def metadata(self, topics: set[str]) -> Any:
        """This member's subscription: its topics, its name and what it holds."""
        self.asked_to_join_ns = time.time_ns()
        data = MemberData(self.replica, self._held, self.generation, self.epoch)
        return ConsumerProtocolSubscription(VERSION, sorted(topics), msgspec.json.encode(data))

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Take note of what this member was given."""
        data = _decode(_assignment_decoder, assignment.user_data) or AssignmentData(
            fallback="the leader's assignor is another one"
        )
        self.epoch, self.fallback, self.generation = data.epoch, data.fallback, generation
        self._held = {topic: tuple(partitions) for topic, partitions in assignment.assigned_partitions}

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
        """Leader only: partitions for every member. ``cluster`` knows the topics' partitions."""
        # A member without readable data goes by its member id and holds nothing.
        claims: dict[str, MemberData] = {
            member.member_id: _decode(_member_decoder, member.metadata.user_data) or MemberData(member.member_id)
            for member in members
        }
        topics = {member.member_id: set(member.metadata.topics) for member in members}
        partitions = {topic: set(cluster.partitions_for_topic(topic) or ()) for topic in set().union(*topics.values())}
        plan, refusal = self._valid_plan(partitions)
        if plan is not None:
            given = {topic: planned(plan, topic, claims) for topic in partitions}
            note = AssignmentData(epoch=plan.epoch)
        else:
            given = {
                topic: range_assignment(there, [member for member, subscribed in topics.items() if topic in subscribed])
                for topic, there in partitions.items()
            }
            note = AssignmentData(fallback=refusal)
            if self._client is not None:
                log.warning("assigning by range: %s", refusal)
                self._on_fallback(refusal)
        user_data = msgspec.json.encode(note)
        assigned = {
            member: [(topic, list(held[member])) for topic, held in sorted(given.items()) if held.get(member)]
            for member in claims
        }
        return {member: ConsumerProtocolAssignment(VERSION, held, user_data) for member, held in assigned.items()}

    # --- inside ----------------------------------------------------------------------------------------------------

    def _valid_plan(self, partitions: Mapping[str, set[int]]) -> tuple[Plan | None, str]:
        """The plan to follow, or None and the reason."""
        if self._client is None:
            return None, "no plan service is configured"
        away = ""
        try:
            self.learn(self._client.notice().plan)
        except (PlanServiceError, msgspec.DecodeError) as error:
            away = str(error)
            log.warning("%s; %s", away, "the last known plan stays" if self._plan else "and no plan is known")
        finally:
            self._client.close()  # asked once a rebalance: a connection kept in between would only go stale
        plan = self._plan
        if plan is None:
            return None, away or "there is no plan yet"
        if len(partitions) != 1:
            return None, f"a plan speaks of one topic, the group subscribes to {len(partitions)}"
        (topic, there), planned_for = next(iter(partitions.items())), plan.partitions()
        if not there:  # this member has not learnt of the topic's partitions yet
            return plan, ""
        if planned_for != there or sum(map(len, plan.groups)) != len(planned_for):
            return None, f"plan {plan.epoch} speaks of partitions {sorted(planned_for)}, {topic} has {sorted(there)}"
        return plan, ""


def planned(plan: Plan, topic: str, members: Mapping[str, MemberData]) -> dict[str, tuple[int, ...]]:
    """Partitions of ``topic`` for every member id. Members outside the plan get nothing, unless all are.

    Two members may both claim a partition when one of them was removed from the group and came back: the later
    generation is right.
    """
    named = {member for member, data in members.items() if not plan.members or data.replica in plan.members}
    if not named:
        log.warning(
            "plan %d is for %s, none of whom is a member: all members may take a group", plan.epoch, plan.members
        )
    owner: dict[int, str] = {}
    for member, data in sorted(members.items(), key=lambda item: (item[1].generation, item[0])):
        owner.update(dict.fromkeys(data.held.get(topic, ()), member))
    # Ties are broken by the replica's name: member ids are random and would make the assignment so.
    key = {member: f"{members[member].replica}\0{member}" for member in named or members}
    held: dict[str, list[int]] = {name: [] for name in key.values()}
    for partition, member in owner.items():
        if member in key:
            held[key[member]].append(partition)
    matched = match_members(plan.groups, held)
    return {member: matched[key[member]] if member in key else () for member in members}


def _decode(decoder: msgspec.json.Decoder[Any], user_data: bytes | None) -> Any:
    try:
        return decoder.decode(user_data) if user_data else None
    except msgspec.DecodeError:
        return None
