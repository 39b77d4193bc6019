"""Real worker processes in a consumer group: plans, rebalances and commits. What holds on every broker is claimed in
``test_workers_on_both_brokers``.
"""

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from consumers.ledger import Booking, Ledger
from consumers.private_run import example_payment
from consumers.worker import Worker
from controller.fleets.stream.plan_service import PlanService
from penstock.runspec import WorkerSpec
from penstock.settings import Endpoints
from tests.consumers.observed_run import ObservedRun
from tests.consumers.worker_rig import PATIENCE_S, Fleet, balance
from tests.support.eventually import eventually


@pytest.fixture
def signed(services: Endpoints) -> Endpoints:
    """The session's services with a signing key, whether or not the world gave one."""
    if services.signing_key.get_secret_value():
        return services
    return Endpoints.model_validate({**services.model_dump(), "signing_key": "5e" * 32})


@pytest.fixture
def fleet(signed: Endpoints) -> Iterator[Callable[..., Fleet]]:
    closers: list[Callable[[], object]] = []

    def make(partitions: int = 5, worker: WorkerSpec | None = None) -> Fleet:
        fleet = Fleet(signed, partitions, worker)
        closers.append(fleet.close)
        return fleet

    yield make
    for close in reversed(closers):
        close()


@pytest.mark.smoke
def test_events_in_results_out_and_every_count_agrees(fleet: Callable[..., Fleet]) -> None:
    payments = fleet()
    payments.launch("p-0")
    payments.plan(((0, 1, 2, 3, 4),), "p-0")
    payments.until({"p-0": (0, 1, 2, 3, 4)})
    run = payments.run
    eventually(lambda: run.committed() == dict.fromkeys(range(5), 0))  # lag is known before the first event
    sent = run.send(range(200))
    results = run.collect(200, PATIENCE_S)
    found = balance(run, sent, results)
    assert found.exact, found.disagreements
    assert (found.completed, found.redelivered) == (200, 0)
    for result in results:
        assert result.started_ns <= result.finished_ns
        assert result.worker == "p-0"
        assert result.queue == f"payments/{(result.id or 0) % 5}"
    assert run.balance_cents("account-3") == -example_payment(3).amount_cents
    eventually(lambda: run.committed() == dict.fromkeys(range(5), 40))
    assert run.stop("p-0") == 0, run.log("p-0")
    steps = ["started", "joining", "joined", "first-event", "leaving", "left"]
    assert list(payments.service.snapshot().steps["p-0"]) == steps
    assert payments.service.snapshot().members == {}


@pytest.mark.live
def test_a_worker_that_skips_one_booking_is_found_out(signed: Endpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Ledger.book

    def skipping(ledger: Ledger, bookings: Sequence[Booking]) -> list[int]:
        return [1 if booking.id == 17 else honest(ledger, [booking])[0] for booking in bookings]

    monkeypatch.setattr(Ledger, "book", skipping)
    with ObservedRun(signed, purpose="test") as run:
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
def test_a_directed_rebalance_moves_exactly_what_the_plan_says(fleet: Callable[..., Fleet]) -> None:
    payments = fleet()
    payments.launch("p-0", "p-1")
    payments.plan(((0, 1, 2), (3, 4)), "p-0", "p-1")
    payments.until({"p-0": (0, 1, 2), "p-1": (3, 4)})
    run = payments.run
    payments.launch("p-2")
    eventually(lambda: "p-2" in payments.service.snapshot().assigned())
    time.sleep(0.3)
    assert payments.service.snapshot().assigned() == {"p-0": (0, 1, 2), "p-1": (3, 4), "p-2": ()}
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
    payments.launch("p-0")
    payments.until({"p-0": (0, 1)})
    payments.plan(((0,), (1,)), "p-0", "p-1")
    assert payments.service.snapshot().pending is not None
    assert payments.service.snapshot().assigned() == {"p-0": (0, 1)}
    payments.launch("p-1")
    payments.until({"p-0": (0,), "p-1": (1,)})
    plan = payments.service.snapshot().current
    assert plan is not None
    assert plan.epoch == 2


@pytest.mark.live
def test_without_direction_the_leader_rejoins_and_the_rest_follow_by_heartbeat(fleet: Callable[..., Fleet]) -> None:
    payments = fleet(worker=WorkerSpec(directed_rebalance=False))
    payments.launch("p-0", "p-1")
    payments.plan(((0, 1, 2), (3, 4)), "p-0", "p-1")
    eventually(lambda: sorted(payments.service.snapshot().assigned().values()) == [(0, 1, 2), (3, 4)])
    first = min(held := payments.service.snapshot().assigned(), key=held.__getitem__)  # both are new: either may be
    (second,) = held.keys() - {first}
    payments.plan(((0, 1), (2, 3, 4)), "p-0", "p-1")
    payments.until({first: (0, 1), second: (2, 3, 4)})


@pytest.mark.live
def test_all_consumption_pauses_after_each_rebalance_for_as_long_as_asked(fleet: Callable[..., Fleet]) -> None:
    payments = fleet(partitions=2, worker=WorkerSpec(rebalance_pause_s=1.5, service_time_s=0.03))
    payments.plan(((0, 1),), "p-0")
    payments.launch("p-0")
    run = payments.run
    run.send(range(600))
    assert len(run.collect(20, PATIENCE_S)) >= 20
    planned_ns = time.time_ns()
    payments.launch("p-1")
    payments.plan(((0,), (1,)), "p-0", "p-1")
    payments.until({"p-0": (0,), "p-1": (1,)})
    starts = sorted(result.started_ns for result in run.collect(580, PATIENCE_S) if result.started_ns > planned_ns)
    assert max(later - earlier for earlier, later in itertools.pairwise(starts)) >= 1.4e9


@pytest.mark.live
def test_a_fleet_goes_on_with_its_last_plan_while_the_controller_is_away(fleet: Callable[..., Fleet]) -> None:
    payments = fleet(worker=WorkerSpec(session_timeout_s=1.0, heartbeat_s=0.3))
    payments.launch("p-0", "p-1")
    payments.plan(((0,), (1, 2, 3, 4)), "p-0", "p-1")
    eventually(lambda: sorted(map(len, payments.service.snapshot().assigned().values())) == [1, 4])
    held = payments.service.snapshot().assigned()
    payments.service.stop()
    run = payments.run
    run.processes["p-1"].send_signal(signal.SIGKILL)
    sent = run.send(range(100))
    results = run.collect(100, PATIENCE_S)
    assert balance(run, sent, results).exact
    board = payments.service.snapshot()
    successor = PlanService(board, group=run.spec.group, fleet=run.spec.fleet, url=payments.service.url)
    successor.start()
    try:
        successor.forget("p-1")
        eventually(
            lambda: successor.snapshot().assigned() == {"p-0": (0, 1, 2, 3, 4)},
            lambda: f"{held} → {successor.snapshot().assigned()}",
        )
    finally:
        successor.stop()


@pytest.mark.live
def test_a_worker_waits_for_a_broker_that_is_away_and_still_hears_sigterm(signed: Endpoints) -> None:
    with ObservedRun(signed, purpose="test") as run:
        there = run.endpoints
        run.endpoints = there.model_copy(update={"kafka": "127.0.0.1:1"})
        process = run.start("p-0")
        run.endpoints = there
        eventually(lambda: "broker 127.0.0.1:1 is away" in run.log("p-0"))
        assert process.poll() is None
        assert run.stop("p-0") == 0


@pytest.mark.live
def test_a_heartbeat_longer_than_the_session_is_refused_in_one_line(signed: Endpoints) -> None:
    with ObservedRun(signed, purpose="test", worker=WorkerSpec(heartbeat_s=3, session_timeout_s=3)) as run:
        assert run.start("p-0").wait(PATIENCE_S) == 2
        assert run.log("p-0").startswith("error: heartbeat_s 3 must be less than session_timeout_s 3")
