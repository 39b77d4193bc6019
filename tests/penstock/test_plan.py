"""Groups to members: everybody is answered, every partition is given once, as little as possible moves."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.plan import match_members, range_assignment, range_groups, same_grouping


@st.composite
def groupings(draw: st.DrawFn) -> tuple[tuple[int, ...], ...]:
    partitions = draw(st.integers(1, 12))
    groups = draw(st.integers(1, partitions))
    owner = [draw(st.integers(0, groups - 1)) for _ in range(partitions)]
    return tuple(tuple(p for p in range(partitions) if owner[p] == g) for g in range(groups))


@st.composite
def holdings(draw: st.DrawFn) -> dict[str, list[int]]:
    members = draw(st.integers(1, 6))
    held: dict[str, list[int]] = {f"m{index}": [] for index in range(members)}
    for partition in range(draw(st.integers(0, 12))):
        held[f"m{draw(st.integers(0, members - 1))}"].append(partition)
    return held


@given(groupings(), holdings())
def test_every_partition_once_and_every_member_answered(
    groups: tuple[tuple[int, ...], ...], held: dict[str, list[int]]
) -> None:
    answer = match_members(groups, held)
    assert set(answer) == set(held)
    given_out = sorted(p for partitions in answer.values() for p in partitions)
    assert given_out == sorted(p for group in groups for p in group)


@given(groupings())
def test_members_that_hold_the_groups_already_keep_them(groups: tuple[tuple[int, ...], ...]) -> None:
    held = {f"m{index}": group for index, group in enumerate(groups)}
    assert {m: set(p) for m, p in match_members(groups, held).items()} == {m: set(p) for m, p in held.items()}


@given(groupings(), holdings())
def test_an_assignment_made_by_it_is_left_alone(
    groups: tuple[tuple[int, ...], ...], held: dict[str, list[int]]
) -> None:
    first = match_members(groups, held)
    assert match_members(groups, first) == first


def test_a_newcomer_gets_the_group_nobody_holds() -> None:
    answer = match_members(((0, 1), (2,)), {"new": [], "old": [0, 1, 2]})
    assert answer == {"old": (0, 1), "new": (2,)}


def test_fewer_members_than_groups_merges_onto_the_member_with_the_fewest_partitions() -> None:
    answer = match_members(((0, 1, 2), (3,), (4,)), {"a": [0, 1, 2], "b": [3]})
    assert answer == {"a": (0, 1, 2), "b": (3, 4)}


def test_range_gives_the_first_members_one_more() -> None:
    assert range_assignment(range(5), ["b", "a"]) == {"a": (0, 1, 2), "b": (3, 4)}
    assert range_groups(range(5), 3) == ((0, 1), (2, 3), (4,))
    assert range_groups(range(2), 3) == ((0,), (1,), ())


def test_a_grouping_is_the_same_in_any_order_and_without_its_empty_groups() -> None:
    assert same_grouping([[0, 1], [2], []], [(2,), (1, 0)])
    assert not same_grouping([[0, 1], [2]], [[0], [1, 2]])
