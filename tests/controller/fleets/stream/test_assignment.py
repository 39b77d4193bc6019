"""Timelines of the plan board: what is proposed and reported, and which plan is in force after it."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from controller.fleets.stream.assignment import AssignmentPlanner
from penstock.contracts import MEASURED
from penstock.plan import MemberPhase, MemberReport

ONE = ((0, 1, 2, 3, 4),)
TWO = ((0, 1, 2), (3, 4))


def said(
    phase: MemberPhase, at: int, partitions: tuple[int, ...] = (), *, generation: int = 1, epoch: int = -1
) -> MemberReport:
    return MemberReport(phase=phase, at_ns=at, partitions=partitions, generation=generation, epoch=epoch)


def board_with(*replicas: str, directed: bool = True) -> AssignmentPlanner:
    board = AssignmentPlanner(join_timeout_s=5, directed=directed)
    for replica in replicas:
        board.report(replica, said("joined", 1))
    return board


def epoch(board: AssignmentPlanner) -> int:
    return board.current.epoch if board.current is not None else 0


def test_a_plan_for_members_that_are_all_there_is_in_force_at_once() -> None:
    board = board_with("r-0", "r-1")
    board.propose(TWO, ["r-1", "r-0"], now_s=0)
    assert board.current is not None
    assert (board.current.epoch, board.current.groups, board.current.members) == (1, TWO, ("r-0", "r-1"))
    assert board.pending is None


def test_the_old_plan_stays_until_every_newcomer_has_joined_then_one_epoch_moves_everything() -> None:
    board = board_with("r-0")
    board.propose(ONE, ["r-0"], now_s=0)
    board.propose(((0, 1), (2, 3), (4,)), ["r-0", "r-1", "r-2"], now_s=1)
    assert epoch(board) == 1
    assert board.pending is not None
    assert board.pending.awaited == ("r-1", "r-2")
    for at, (replica, phase) in enumerate([("r-1", "started"), ("r-1", "joining"), ("r-1", "joined")], start=2):
        board.report(replica, said(phase, at))  # type: ignore[arg-type]
        assert epoch(board) == 1
    board.report("r-2", said("joined", 9))
    assert epoch(board) == 2
    assert board.pending is None


def test_a_join_timeout_puts_the_plan_in_force_with_those_who_are_there() -> None:
    board = board_with("r-0")
    board.propose(ONE, ["r-0"], now_s=0)
    board.propose(TWO, ["r-0", "r-1"], now_s=10)
    board.tick(14.9)
    assert epoch(board) == 1
    board.tick(15.0)
    assert epoch(board) == 2
    board.tick(30.0)
    assert epoch(board) == 2


def test_asking_again_for_what_is_awaited_does_not_extend_the_wait() -> None:
    board = board_with("r-0")
    for now_s in (0, 2, 4):
        board.propose(TWO, ["r-0", "r-1"], now_s)
    board.tick(5)
    assert epoch(board) == 1


def test_a_proposal_replaces_the_one_that_waits() -> None:
    board = board_with("r-0")
    board.propose(ONE, ["r-0"], now_s=0)
    board.propose(TWO, ["r-0", "r-1"], now_s=1)
    board.propose(((0,), (1, 2, 3, 4)), ["r-0", "r-1"], now_s=4)
    board.tick(6)
    assert epoch(board) == 1
    board.report("r-1", said("joined", 5))
    assert board.current is not None
    assert board.current.groups == ((0,), (1, 2, 3, 4))
    assert epoch(board) == 2


def test_asking_for_what_is_in_force_withdraws_the_waiting_plan_and_bumps_nothing() -> None:
    board = board_with("r-0")
    board.propose(ONE, ["r-0"], now_s=0)
    board.propose(TWO, ["r-0", "r-1"], now_s=1)
    serial = board.serial
    board.propose(((4, 3, 2, 1, 0), ()), ["r-0"], now_s=2)
    assert board.pending is None
    assert (epoch(board), board.serial) == (1, serial)
    assert board.groups == ONE


def test_the_scaler_sees_the_grouping_it_asked_for_before_it_is_in_force() -> None:
    board = board_with("r-0")
    assert list(board.groups) == []
    board.propose(ONE, ["r-0"], now_s=0)
    board.propose(TWO, ["r-0", "r-1"], now_s=1)
    assert board.groups == TWO


def test_scale_in_is_in_force_before_the_leaver_leaves_and_its_leaving_is_announced() -> None:
    board = board_with("r-0", "r-1")
    board.propose(TWO, ["r-0", "r-1"], now_s=0)
    board.propose(ONE, ["r-0"], now_s=1)
    assert board.current is not None
    assert board.current.members == ("r-0",)
    serial = board.serial
    board.report("r-1", said("leaving", 5))
    assert board.serial == serial
    board.report("r-1", said("left", 6))
    assert board.serial == serial + 1
    assert set(board.members) == {"r-0"}


def test_nobody_waits_for_a_replica_that_was_killed_before_it_joined() -> None:
    board = board_with("r-0")
    board.propose(ONE, ["r-0"], now_s=0)
    board.propose(TWO, ["r-0", "r-1"], now_s=1)
    board.forget("r-1")
    assert epoch(board) == 2


def test_joining_and_leaving_hurry_the_others_only_in_a_directed_rebalance() -> None:
    for directed in (True, False):
        board = board_with("r-0", directed=directed)
        board.propose(ONE, ["r-0"], now_s=0)
        serial = board.serial
        board.report("r-1", said("joining", 2))
        board.report("r-1", said("joined", 3))
        board.report("r-1", said("left", 4))
        assert board.serial == (serial + 2 if directed else serial)


def test_by_heartbeat_a_plan_waits_only_for_the_requests_to_join() -> None:
    """The rebalance that it begins ends when the others have come; the plan is there by then."""
    for directed in (True, False):
        board = board_with("r-0", directed=directed)
        board.propose(ONE, ["r-0"], now_s=0)
        board.propose(TWO, ["r-0", "r-1"], now_s=1)
        board.report("r-1", said("started", 2))
        assert epoch(board) == 1
        board.report("r-1", said("joining", 3))
        assert epoch(board) == (1 if directed else 2)
        board.report("r-1", said("joined", 4))
        assert epoch(board) == 2


def test_a_report_that_was_overtaken_is_ignored() -> None:
    board = AssignmentPlanner(join_timeout_s=5)
    board.report("r-0", said("joined", 10, (0, 1), generation=3))
    board.report("r-0", said("joined", 9, (4,), generation=2))
    assert board.assigned() == {"r-0": (0, 1)}
    assert board.last_rebalance_ns == 10


def test_a_report_of_a_later_generation_counts_after_the_clock_was_set_back() -> None:
    board = board_with("r-0")
    board.report("r-0", said("joined", 20, (0, 1)))
    board.report("r-0", said("joined", 17, (2,), generation=2))
    assert board.assigned() == {"r-0": (2,)}


def test_assigned_tells_what_present_members_hold() -> None:
    board = board_with("r-0")
    board.report("r-0", said("joined", 2, (0, 1)))
    board.report("r-1", said("joining", 2))
    assert board.assigned() == {"r-0": (0, 1)}
    assert {name: report.phase for name, report in board.members.items()} == {"r-0": "joined", "r-1": "joining"}


def test_counts_of_finished_and_late_events_outlive_the_processes_that_counted_them() -> None:
    planner = AssignmentPlanner(join_timeout_s=3.0)

    def counted(*reports: tuple[str, MemberReport]) -> tuple[int | None, int | None]:
        for replica, report in reports:
            planner.report(replica, report)
        return planner.finished, planner.late

    assert counted() == (None, None)
    assert counted(("a", MemberReport("joined", 1, (0,)))) == (None, None)  # a consumer that does not count
    assert counted(("b", MemberReport("joined", 1, (1,), finished=0, late=0))) == (0, 0)
    assert counted(("b", MemberReport("first-event", 2, (1,), finished=10, late=1))) == (10, 1)
    assert counted(("b", MemberReport("first-event", 3, (1,), finished=25, late=2))) == (25, 2)
    again, left = MemberReport("started", 4, finished=0, late=0), MemberReport("left", 6, finished=7, late=5)
    assert counted(("b", again), ("b", MemberReport("joined", 5, (1,), finished=5, late=5))) == (30, 7)
    assert counted(("c", MemberReport("first-event", 5, finished=100, late=0))) == (130, 7)
    planner.forget("c")  # it was killed
    assert counted(("b", left), ("b", left)) == (132, 7)  # its answer was lost: it is sent twice


def test_busy_time_outlives_the_processes_too() -> None:
    planner = AssignmentPlanner(join_timeout_s=3.0)
    assert planner.busy_s is None
    planner.report("a", MemberReport("joined", 1, (0,), finished=20, late=0, busy_ns=100_000_000))
    planner.report("b", MemberReport("joined", 1, (1,), finished=40, late=0, busy_ns=200_000_000))
    assert planner.busy_s == 0.3
    planner.forget("a")
    planner.report("a", MemberReport("started", 4, finished=0, late=0, busy_ns=0))
    assert planner.busy_s == 0.3


def test_a_delivery_takes_as_long_as_to_the_median_member() -> None:
    planner = AssignmentPlanner(join_timeout_s=3.0)
    planner.report("a", MemberReport("joined", 1, (0,)))
    assert planner.delivery_s is None
    for replica, delivery_ns in (("a", 6_000_000), ("b", 7_000_000), ("c", 90_000_000)):
        planner.report(replica, MemberReport("joined", 2, (0,), delivery_ns=delivery_ns))
    assert planner.delivery_s == 0.007


def test_a_rebalance_lasts_as_long_as_the_median_member_stood_still() -> None:
    planner = AssignmentPlanner(join_timeout_s=3.0)

    def joined(replica: str, generation: int, stopped_ms: int | None) -> None:
        stopped_ns = None if stopped_ms is None else stopped_ms * 1_000_000
        planner.report(replica, MemberReport("joined", generation, (0,), generation, stopped_ns=stopped_ns))

    joined("new", 1, None)  # it held nothing before
    assert planner.rebalances_s() == ()
    for replica, stopped_ms in (("new", 90), ("b", 100), ("c", 900)):
        joined(replica, 2, stopped_ms)
    joined("c", 2, 900)  # its answer was lost: it is sent twice
    assert planner.rebalances_s() == (0.1,)
    for generation in range(3, 3 + 2 * MEASURED):
        joined("b", generation, generation)
    assert len(planner.rebalances_s()) == MEASURED
    assert planner.rebalances_s()[-1] == (2 + 2 * MEASURED) / 1000


def test_a_restored_board_goes_on_with_its_waiting_plan() -> None:
    board = board_with("r-0")
    board.propose(ONE, ["r-0"], now_s=0)
    board.propose(TWO, ["r-0", "r-1"], now_s=1)
    written = msgspec.json.encode(board.copy())
    restored = msgspec.json.decode(written, type=AssignmentPlanner)
    assert restored == board
    restored.report("r-1", said("joined", 9))
    assert restored.current is not None
    assert (restored.current.epoch, restored.current.groups) == (2, TWO)


def test_a_board_restored_from_too_long_ago_never_gives_an_epoch_out_twice() -> None:
    old = board_with("r-0")
    old.propose(ONE, ["r-0"], now_s=0)
    restored = old.copy()
    restored.report("r-0", said("joined", 20, epoch=7))
    assert epoch(restored) == 8
    restored.propose(TWO, ["r-0"], now_s=9)
    assert epoch(restored) == 9


def test_members_leave_a_plan_that_a_predecessor_did_not_write_down() -> None:
    old = board_with("r-0")
    old.propose(ONE, ["r-0"], now_s=0)
    restored = old.copy()
    serial = restored.serial
    restored.report("r-0", said("joined", 20, epoch=2))
    assert restored.current is not None
    assert (restored.current.epoch, restored.current.groups, restored.serial) == (3, ONE, serial + 1)


steps = st.one_of(
    st.tuples(st.just("propose"), st.integers(1, 4)),
    st.tuples(st.sampled_from(["joining", "joined", "first-event", "leaving", "left", "forget"]), st.integers(0, 3)),
    st.tuples(st.just("wait"), st.integers(0, 6)),
)


@given(st.lists(steps, max_size=40), st.booleans())
def test_serial_and_epoch_only_grow_and_a_waiting_plan_always_comes_into_force(
    timeline: list[tuple[str, int]], directed: bool
) -> None:
    board = AssignmentPlanner(join_timeout_s=5, directed=directed)
    now_s = 0.0
    for at, (step, number) in enumerate(timeline):
        before = (board.serial, epoch(board))
        if step == "propose":
            groups = tuple(tuple(range(start, 5, number)) for start in range(number))
            board.propose(groups, [f"r-{index}" for index in range(number)], now_s)
        elif step == "wait":
            now_s += number
            board.tick(now_s)
        elif step == "forget":
            board.forget(f"r-{number}")
        else:
            board.report(f"r-{number}", said(step, at))  # type: ignore[arg-type]
        assert board.serial >= before[0]
        assert epoch(board) - before[1] in (0, 1)
        assert epoch(board) == before[1] or board.serial > before[0]
        assert board.pending is None or board.pending.awaited
    wanted = board.groups
    board.tick(now_s + 5)
    assert board.pending is None
    assert (board.current.groups if board.current is not None else ()) == wanted


def test_a_late_farewell_is_not_taken_for_a_report_of_the_successor() -> None:
    planner = AssignmentPlanner(join_timeout_s=5)
    phases: dict[MemberPhase, int] = {"joined": 10, "leaving": 30, "left": 31}
    for phase, at_ns in phases.items():
        planner.report("p-0", MemberReport(phase=phase, at_ns=at_ns))
    planner.forget("p-0", before_ns=20)
    assert planner.steps == {}
    planner.report("p-0", MemberReport(phase="joined", at_ns=40))
    planner.forget("p-0", before_ns=20)
    assert planner.steps == {"p-0": {"joined": 40}}
