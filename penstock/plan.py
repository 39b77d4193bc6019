"""A plan: which partitions belong together on one consumer, and which member holds which group.

The scaler gives groups, not members; members are matched to groups by overlap with what they hold, so that as few
partitions move as can be. Both the controller (which publishes plans) and the assignor inside the consumer group
(which answers with them) use this module.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Final, Literal

import msgspec

from penstock.contracts import Groups
from penstock.records import Int64

MOST_PARTITIONS: Final = 100_000
"""Of one member, in a report."""


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """Groups of partitions with an epoch that only grows.

    ``members`` are the replicas that the plan was made for (the ones that stay); replicas outside it get nothing.
    Empty ``members`` means anyone may take a group.
    """

    epoch: int
    groups: Groups
    members: tuple[str, ...] = ()

    def partitions(self) -> set[int]:
        """All partitions the plan speaks of."""
        return {p for group in self.groups for p in group}


def same_grouping(a: Sequence[Sequence[int]], b: Sequence[Sequence[int]]) -> bool:
    """Whether two groupings are equal as sets of sets; empty groups do not count (reading B18)."""
    return {frozenset(g) for g in a if g} == {frozenset(g) for g in b if g}


def match_members(groups: Groups, held: Mapping[str, Iterable[int]]) -> dict[str, tuple[int, ...]]:
    """Give each group to a member, sticky by overlap.

    ``held`` maps every member to the partitions it holds now. Pairs with the largest overlap are fixed first (ties:
    larger group, then member name). Members left over get nothing; a group left over (fewer members than groups) stays
    with the member that holds all of it, else it goes to the one with the fewest partitions. Deterministic; every
    member is in the answer, and an assignment made by it is left alone.
    """
    answer: dict[str, list[int]] = {member: [] for member in sorted(held)}
    if not answer:
        return {}
    holding = {member: set(partitions) for member, partitions in held.items()}
    open_groups = [tuple(sorted(group)) for group in groups if group]
    pairs = sorted(
        (
            (-len(holding[member].intersection(group)), -len(group), member, index)
            for index, group in enumerate(open_groups)
            for member in answer
        ),
    )
    taken: set[int] = set()
    for _, _, member, index in pairs:
        if index not in taken and not answer[member]:
            answer[member].extend(open_groups[index])
            taken.add(index)
    for index, group in enumerate(open_groups):
        if index not in taken:
            keeper = [member for member in answer if holding[member].issuperset(group)]
            answer[min(keeper or answer, key=lambda member: (len(answer[member]), member))].extend(group)
    return {member: tuple(sorted(partitions)) for member, partitions in answer.items()}


def range_groups(partitions: Iterable[int], replicas: int) -> Groups:
    """The grouping of Kafka's range assignor on one topic: consecutive partitions, the first consumers one more."""
    ordered, count = sorted(partitions), max(1, replicas)
    size, extra = divmod(len(ordered), count)
    bounds = [size * index + min(index, extra) for index in range(count + 1)]
    return tuple(tuple(ordered[start:end]) for start, end in pairwise(bounds))


def range_assignment(partitions: Iterable[int], members: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Kafka's range assignor: a group for each member, in order of their names."""
    names = sorted(members)
    return dict(zip(names, range_groups(partitions, len(names)), strict=False))


MemberPhase = Literal["started", "joining", "joined", "first-event", "leaving", "left"]


class PlanNotice(msgspec.Struct, frozen=True, omit_defaults=True):
    """Answer of ``GET /groups/{group}/plan[?after=serial&wait_s=seconds]``.

    ``serial`` grows when the members should rejoin: for a new plan, and when a member joins or leaves, before the other
    members' next heartbeat. With ``after`` the answer waits for another ``serial``. ``at_ns`` is when it grew: a member
    that asked to join after that need not ask again.
    """

    serial: int
    plan: Plan | None = None
    at_ns: int = 0


class MemberReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """Body of ``POST /groups/{group}/members/{replica}``: phase and partitions of a member. ``finished``, and of those
    ``late``: events since the process began, and ``busy_ns`` the time for which it served events or some waited for it
    without need; None where it does not count them. ``delivery_ns``: from an event's intended time until this member,
    which was idle, began to serve it; the median of the last ones.
    ``stopped_ns``: how long it stood still in the rebalance of this generation, reported once.
    """

    phase: MemberPhase
    at_ns: Int64
    partitions: Annotated[tuple[Int64, ...], msgspec.Meta(max_length=MOST_PARTITIONS)] = ()
    generation: Int64 = -1
    epoch: Int64 = -1
    fallback: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """Why the leader answered with range instead of a plan, where it did."""
    finished: Int64 | None = None
    late: Int64 | None = None
    busy_ns: Int64 | None = None
    stopped_ns: Int64 | None = None
    delivery_ns: Int64 | None = None


class ReplicaName(msgspec.Struct, frozen=True):
    """Answer of ``GET /groups/{group}/replicas/{process}[?wait_s=seconds]``: which replica a process is that does not
    choose its name, such as a pod. 404 if it is none within the wait.
    """

    replica: str
