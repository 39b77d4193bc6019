"""Real worker processes on a real broker and ledger: nothing is lost or booked twice, whatever happens to them."""

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np
import pytest

from consumers.ledger import Booking, Ledger
from consumers.private_run import PrivateRun, example_payment
from consumers.worker import Worker
from controller.plan_service import PlanService
from controller.plans import PlanBoard
from infra.local.services import LocalServices
from penstock.contracts import Groups
from penstock.measures import Conservation, conservation
from penstock.records import Result, encode
from penstock.runspec import WorkerSpec
from penstock.settings import Endpoints

PATIENCE_S = 30.0


@pytest.fixture
def signed(services: Endpoints) -> Endpoints:
    """The session's services with a signing key, whether or not the world gave one."""
    if services.signing_key.get_secret_value():
        return services
    return Endpoints.model_validate({**services.model_dump(), "signing_key": "5e" * 32})


class Fleet:
    """Workers of one private run that follow the plans of a plan service."""

    def __init__(self, run: PrivateRun, service: PlanService) -> None:
        self.run = run
        self.service = service

    def start(self, *replicas: str) -> None:
        for replica in replicas:
            self.run.start(replica)

    def plan(self, groups: Groups, *members: str) -> None:
        self.service.propose(groups, members, time.monotonic())

    def until(self, held: dict[str, tuple[int, ...]]) -> None:
        until(lambda: self.service.assigned() == held, lambda: f"{self.service.assigned()}, wanted {held}")


@pytest.fixture
def fleet(signed: Endpoints) -> Iterator[Callable[..., Fleet]]:
    closers: list[Callable[[], object]] = []

    def make(partitions: int = 5, worker: WorkerSpec | None = None) -> Fleet:
        run = PrivateRun(signed, purpose="test", partitions=partitions, worker=worker).__enter__()
        closers.append(lambda: run.__exit__(None, None, None))
        board = PlanBoard(join_timeout_s=10, directed=run.spec.worker.directed_rebalance)
        service = PlanService(board, group=run.spec.group, fleet=run.spec.fleet, url="http://127.0.0.1:0")
        service.start()
        closers.append(service.stop)
        run.controller = service.url
        return Fleet(run, service)

    yield make
    for close in reversed(closers):
        close()


def until(condition: Callable[[], bool], story: Callable[[], str] = lambda: "") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:g} s in vain: {story()}"
        time.sleep(0.01)


def balance(run: PrivateRun, sent: list[int], results: list[Result]) -> Conservation:
    by_outcome = {
        outcome: np.array([r.id for r in results if r.outcome == outcome and r.id is not None], dtype=np.int64)
        for outcome in ("completed", "failed")
    }
    return conservation(
        scheduled=len(sent),
        acknowledged=np.array(sent, dtype=np.int64),
        booked=np.array(run.ledger.booked_ids(), dtype=np.int64),
        results=by_outcome,
        result_rows=len(results),
    )


@pytest.mark.smoke
def test_events_in_results_out_and_every_count_agrees(fleet: Callable[..., Fleet]) -> None:
    payments = fleet()
    payments.start("p-0")
    payments.plan(((0, 1, 2, 3, 4),), "p-0")
    payments.until({"p-0": (0, 1, 2, 3, 4)})
    run = payments.run
    until(lambda: run.committed() == dict.fromkeys(range(5), 0))  # lag is known before the first event
    sent = run.send(range(200))
    results = run.collect(200, PATIENCE_S)
    found = balance(run, sent, results)
    assert found.exact, found.disagreements
    assert (found.completed, found.redelivered) == (200, 0)
    for result in results:
        assert result.started_ns <= result.finished_ns
        assert result.worker == "p-0"
        assert result.queue == f"payments/{(result.id or 0) % 5}"
    assert run.ledger.balance_cents("account-3") == -example_payment(3).amount_cents
    until(lambda: run.committed() == dict.fromkeys(range(5), 40))
    assert run.stop("p-0") == 0, run.log("p-0")
    assert [event.phase for event in payments.service.events()] == ["started", "joined", "first-event", "draining"]
    assert payments.service.phases == {}


@pytest.mark.live
def test_a_worker_killed_in_mid_burst_loses_nothing_and_books_nothing_twice(fleet: Callable[..., Fleet]) -> None:
    payments = fleet(worker=WorkerSpec(session_timeout_s=1.0, heartbeat_s=0.3))
    payments.start("p-0", "p-1")
    payments.plan(((0, 1, 2), (3, 4)), "p-0", "p-1")
    payments.until({"p-0": (0, 1, 2), "p-1": (3, 4)})
    run = payments.run
    sent = run.send(range(600))
    until(lambda: len(run.ledger.booked_ids()) > 100)
    run.processes["p-0"].send_signal(signal.SIGKILL)
    results = run.collect(600, PATIENCE_S)
    found = balance(run, sent, results)
    assert found.exact, found.disagreements
    assert {result.worker for result in results} == {"p-0", "p-1"}
    spent = sum(example_payment(number).amount_cents for number in sent if number % 997 == 5)
    assert run.ledger.balance_cents("account-5") == -spent


@pytest.mark.live
def test_a_worker_that_skips_one_booking_is_found_out(signed: Endpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Ledger.book

    def skipping(ledger: Ledger, bookings: Sequence[Booking]) -> list[int]:
        return [1 if booking.id == 17 else honest(ledger, [booking])[0] for booking in bookings]

    monkeypatch.setattr(Ledger, "book", skipping)
    with PrivateRun(signed, purpose="test") as run:
        worker = Worker(run.spec, "p-0", signed.model_copy(update={"controller": ""}))
        working = threading.Thread(target=worker.run)
        working.start()
        try:
            sent = run.send(range(50))
            results = run.collect(50, PATIENCE_S)
        finally:
            worker.stop()
            working.join(PATIENCE_S)
        found = balance(run, sent, results)
    assert found.completed == 50
    assert not found.exact
    assert found.disagreements == ("completed but not in the ledger: 1 (first ids 17)",)


@pytest.mark.live
@pytest.mark.parametrize(("service", "seconds"), [("redis", 2.0), ("kafka", 4.0)])
def test_a_service_that_is_away_for_a_while_costs_time_and_nothing_else(
    fleet: Callable[..., Fleet], local_services: LocalServices, service: str, seconds: float
) -> None:
    payments = fleet()
    payments.start("p-0", "p-1")
    payments.plan(((0, 1, 2), (3, 4)), "p-0", "p-1")
    payments.until({"p-0": (0, 1, 2), "p-1": (3, 4)})
    run = payments.run
    sent = run.send(range(600))
    until(lambda: len(run.ledger.booked_ids()) > 100)
    local_services.stop_service(service)
    time.sleep(seconds)
    local_services.start_service(service)
    results = run.collect(600, PATIENCE_S)
    found = balance(run, sent, results)
    assert found.exact, found.disagreements
    assert (run.stop("p-0"), run.stop("p-1")) == (0, 0), run.log("p-0")


@pytest.mark.live
def test_sigterm_finishes_the_event_in_hand_and_hands_over_without_a_duplicate(fleet: Callable[..., Fleet]) -> None:
    payments = fleet()
    payments.start("p-0", "p-1")
    payments.plan(((0, 1, 2), (3, 4)), "p-0", "p-1")
    payments.until({"p-0": (0, 1, 2), "p-1": (3, 4)})
    run = payments.run
    sent = run.send(range(500))
    until(lambda: len(run.ledger.booked_ids()) > 60)
    assert run.stop("p-0") == 0, run.log("p-0")
    results = run.collect(500, PATIENCE_S)
    found = balance(run, sent, results)
    assert found.exact, found.disagreements
    assert found.redelivered == 0
    assert {result.attempt for result in results} == {1}
    assert payments.service.assigned() == {"p-1": (0, 1, 2, 3, 4)}


@pytest.mark.live
def test_bad_payments_are_counted_as_failed_and_the_run_goes_on(fleet: Callable[..., Fleet]) -> None:
    payments = fleet(partitions=1)
    payments.plan(((0,),), "p-0")
    payments.start("p-0")
    run = payments.run
    good = run.event(0)
    run.send_raw(b"{broken")
    run.send_raw(b"")
    run.send_raw(encode(msgspec.structs.replace(good, id=1)))
    run.send_raw(encode(run.event(2, msgspec.structs.replace(example_payment(2), amount_cents=-1))))
    run.send_raw(encode(msgspec.structs.replace(good, run="another-run")))
    run.send_raw(encode(good))
    run.flush()
    results = list(itertools.islice(run.results(PATIENCE_S), 6))
    assert [(result.id, result.outcome) for result in results] == [
        (None, "failed"),
        (None, "failed"),
        (1, "failed"),
        (2, "failed"),
        (None, "failed"),
        (0, "completed"),
    ]
    assert [result.reason.split(":")[0] for result in results] == [
        "unreadable",
        "unreadable",
        "bad signature",
        "amount_cents -1 is not in 1…100000000",
        "belongs to run 'another-run'",
        "",
    ]
    assert run.ledger.booked_ids() == [0]


@pytest.mark.live
def test_a_redelivery_that_the_ledger_knows_still_publishes_its_result(fleet: Callable[..., Fleet]) -> None:
    payments = fleet(partitions=1)
    payments.plan(((0,),), "p-0")
    payments.start("p-0")
    run = payments.run
    run.send([0, 1, 0, 0])
    results = list(itertools.islice(run.results(PATIENCE_S), 4))
    assert [(result.id, result.attempt, result.outcome) for result in results] == [
        (0, 1, "completed"),
        (1, 1, "completed"),
        (0, 2, "completed"),
        (0, 3, "completed"),
    ]
    assert run.ledger.balance_cents("account-0") == -example_payment(0).amount_cents


@pytest.mark.live
def test_a_directed_rebalance_moves_exactly_what_the_plan_says(fleet: Callable[..., Fleet]) -> None:
    payments = fleet()
    payments.start("p-0", "p-1")
    payments.plan(((0, 1, 2), (3, 4)), "p-0", "p-1")
    payments.until({"p-0": (0, 1, 2), "p-1": (3, 4)})
    run = payments.run
    payments.start("p-2")
    until(lambda: "p-2" in payments.service.assigned())
    time.sleep(0.3)
    assert payments.service.assigned() == {"p-0": (0, 1, 2), "p-1": (3, 4), "p-2": ()}
    payments.plan(((0, 1), (2,), (3, 4)), "p-0", "p-1", "p-2")
    payments.until({"p-0": (0, 1), "p-1": (3, 4), "p-2": (2,)})
    payments.plan(((0, 1, 2, 3, 4),), "p-1")
    payments.until({"p-0": (), "p-1": (0, 1, 2, 3, 4), "p-2": ()})
    sent = run.send(range(50))
    results = run.collect(50, PATIENCE_S)
    assert balance(run, sent, results).exact
    assert {result.worker for result in results} == {"p-1"}


@pytest.mark.live
def test_a_plan_waits_for_a_replica_that_is_still_starting(fleet: Callable[..., Fleet]) -> None:
    payments = fleet(partitions=2)
    payments.plan(((0, 1),), "p-0")
    payments.start("p-0")
    payments.until({"p-0": (0, 1)})
    payments.plan(((0,), (1,)), "p-0", "p-1")
    assert payments.service.pending is not None
    assert payments.service.assigned() == {"p-0": (0, 1)}
    payments.start("p-1")
    payments.until({"p-0": (0,), "p-1": (1,)})
    assert payments.service.current is not None
    assert payments.service.current.epoch == 2


@pytest.mark.live
def test_without_direction_the_leader_rejoins_and_the_rest_follow_by_heartbeat(fleet: Callable[..., Fleet]) -> None:
    payments = fleet(worker=WorkerSpec(directed_rebalance=False))
    payments.start("p-0", "p-1")
    payments.plan(((0, 1, 2), (3, 4)), "p-0", "p-1")
    payments.until({"p-0": (0, 1, 2), "p-1": (3, 4)})
    payments.plan(((0, 1), (2, 3, 4)), "p-0", "p-1")
    payments.until({"p-0": (0, 1), "p-1": (2, 3, 4)})


@pytest.mark.live
def test_all_consumption_pauses_after_each_rebalance_for_as_long_as_asked(fleet: Callable[..., Fleet]) -> None:
    payments = fleet(partitions=2, worker=WorkerSpec(rebalance_pause_s=1.5))
    payments.plan(((0, 1),), "p-0")
    payments.start("p-0")
    run = payments.run
    run.send(range(600))
    assert len(run.collect(20, PATIENCE_S)) >= 20
    planned_ns = time.time_ns()
    payments.start("p-1")
    payments.plan(((0,), (1,)), "p-0", "p-1")
    payments.until({"p-0": (0,), "p-1": (1,)})
    starts = sorted(result.started_ns for result in run.collect(580, PATIENCE_S) if result.started_ns > planned_ns)
    assert max(later - earlier for earlier, later in itertools.pairwise(starts)) >= 1.4e9


@pytest.mark.live
def test_a_fleet_goes_on_with_its_last_plan_while_the_controller_is_away(fleet: Callable[..., Fleet]) -> None:
    payments = fleet(worker=WorkerSpec(session_timeout_s=1.0, heartbeat_s=0.3))
    payments.start("p-0", "p-1")
    payments.plan(((0,), (1, 2, 3, 4)), "p-0", "p-1")
    until(lambda: sorted(map(len, payments.service.assigned().values())) == [1, 4])
    held = payments.service.assigned()
    payments.service.stop()
    run = payments.run
    run.processes["p-1"].send_signal(signal.SIGKILL)
    sent = run.send(range(100))
    results = run.collect(100, PATIENCE_S)
    assert balance(run, sent, results).exact
    board = PlanBoard.restore(payments.service.snapshot(), join_timeout_s=10)
    successor = PlanService(board, group=run.spec.group, fleet=run.spec.fleet, url=payments.service.url)
    successor.start()
    try:
        successor.forget("p-1")
        until(lambda: successor.assigned() == {"p-0": (0, 1, 2, 3, 4)}, lambda: f"{held} → {successor.assigned()}")
    finally:
        successor.stop()


@pytest.mark.live
def test_a_worker_waits_for_a_broker_that_is_away_and_still_hears_sigterm(signed: Endpoints) -> None:
    with PrivateRun(signed, purpose="test") as run:
        there = run.endpoints
        run.endpoints = there.model_copy(update={"kafka": "127.0.0.1:1"})
        process = run.start("p-0")
        run.endpoints = there
        until(lambda: "broker 127.0.0.1:1 is away" in run.log("p-0"))
        assert process.poll() is None
        assert run.stop("p-0") == 0


@pytest.mark.live
def test_a_heartbeat_longer_than_the_session_is_refused_in_one_line(signed: Endpoints) -> None:
    with PrivateRun(signed, purpose="test", worker=WorkerSpec(heartbeat_s=3, session_timeout_s=3)) as run:
        assert run.start("p-0").wait(PATIENCE_S) == 2
        assert run.log("p-0").startswith("error: heartbeat_s 3 must be less than session_timeout_s 3")
