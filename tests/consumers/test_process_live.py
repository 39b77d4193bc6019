"""What holds of a worker whatever its broker: each test runs on Kafka and on RabbitMQ, with real processes."""

import itertools
import signal
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

from consumers.private_run import example_payment
from infra.local.services import LocalServices
from penstock.records import encode
from penstock.runspec import WorkerSpec
from penstock.settings import Endpoints
from tests.consumers.worker_rig import PATIENCE_S, Apps, Fleet, Rig, balance
from tests.support.changed import LIVE_RUN
from tests.support.eventually import eventually

pytestmark = pytest.mark.live

MakeRig = Callable[..., Rig]
KEY = "5e" * 32


@pytest.fixture(params=["kafka", "rabbitmq"])
def broker(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def rig(request: pytest.FixtureRequest, broker: str) -> Iterator[MakeRig]:
    """``rig(abreast, service_s)``: a run whose events can be served so many at a time by each replica's partitions or
    containers, each for so long.
    """
    endpoints: Endpoints = request.getfixturevalue("services" if broker == "kafka" else "queue_services")
    if not endpoints.signing_key.get_secret_value():
        endpoints = Endpoints.model_validate({**endpoints.model_dump(), "signing_key": KEY})
    made: list[Rig] = []

    def make(abreast: int = 5, service_s: float = 0.005) -> Rig:
        worker = WorkerSpec(service_time_s=service_s, session_timeout_s=6.0, heartbeat_s=0.3)
        made.append(Fleet(endpoints, abreast, worker) if broker == "kafka" else Apps(endpoints, abreast, service_s))
        return made[-1]

    yield make
    for one in made:
        one.close()


def replicas_of(workers: set[str]) -> set[str]:
    """A container's name is its app's and a number."""
    return {worker.split(".")[0] for worker in workers}


def test_a_worker_killed_in_mid_burst_loses_nothing_and_books_nothing_twice(rig: MakeRig) -> None:
    payments = rig()
    payments.start("p-0", "p-1")
    run = payments.run
    sent = run.send(range(100))
    results = run.collect(100, PATIENCE_S)  # each has had some, and said so
    sent += run.send(range(100, 600))
    eventually(lambda: len(run.ledger.booked_ids()) > 200)
    run.processes["p-0"].send_signal(signal.SIGKILL)
    while (missing := 600 - len({result.id for result in results})) and (more := run.collect(missing, PATIENCE_S)):
        results += more
    found = balance(run, sent, results)
    assert found.exact, found.disagreements
    assert replicas_of({result.worker for result in results}) == {"p-0", "p-1"}
    spent = sum(example_payment(number).amount_cents for number in sent if number % 997 == 5)
    assert run.balance_cents("account-5") == -spent


def test_sigterm_finishes_the_event_in_hand_and_hands_over_without_a_duplicate(rig: MakeRig) -> None:
    payments = rig()
    payments.start("p-0", "p-1")
    run = payments.run
    sent = run.send(range(500))
    eventually(lambda: len(run.ledger.booked_ids()) > 60)
    assert run.stop("p-0", PATIENCE_S) == 0, run.log("p-0")
    results = run.collect(500, PATIENCE_S)
    found = balance(run, sent, results)
    assert found.exact, found.disagreements
    assert found.redelivered == 0
    assert {result.attempt for result in results} == {1}
    assert run.stop("p-1", PATIENCE_S) == 0, run.log("p-1")


def test_every_service_lasts_as_long_as_its_floor_and_no_two_of_a_worker_overlap(rig: MakeRig) -> None:
    payments = rig(abreast=1, service_s=0.02)
    payments.start("p-0")
    run = payments.run
    run.send(range(100))
    results = sorted(run.collect(100, PATIENCE_S), key=lambda result: result.started_ns)
    assert [result.id for result in results] == list(range(100))
    # Wall and monotonic clock are read one after the other.
    slack_ns = 1_000_000
    assert all(result.finished_ns - result.started_ns >= 20_000_000 - slack_ns for result in results)
    assert all(later.started_ns - former.started_ns >= 20_000_000 - slack_ns
               for former, later in itertools.pairwise(results))  # fmt: skip


def test_bad_payments_are_counted_as_failed_and_the_run_goes_on(rig: MakeRig) -> None:
    payments = rig(abreast=1)
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


def test_a_redelivery_that_the_ledger_knows_still_publishes_its_result(rig: MakeRig) -> None:
    payments = rig(abreast=1)
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
    assert run.balance_cents("account-0") == -example_payment(0).amount_cents


@pytest.mark.parametrize(
    ("broker", "away"),
    [
        ("kafka", "redis"),
        ("kafka", "kafka"),
        pytest.param("rabbitmq", "redis", marks=pytest.mark.when_changed(*LIVE_RUN)),
        pytest.param("rabbitmq", "kafka", marks=pytest.mark.when_changed(*LIVE_RUN)),
        ("rabbitmq", "rabbitmq"),
    ],
    indirect=["broker"],
)
def test_a_service_that_is_away_for_a_while_costs_time_and_nothing_else(
    rig: MakeRig, local_services: LocalServices, away: str
) -> None:
    payments = rig()
    payments.start("p-0", "p-1")
    run = payments.run
    sent = run.send(range(600))
    eventually(lambda: len(run.ledger.booked_ids()) > 100)
    local_services.stop_service(away)
    time.sleep(2.0)
    local_services.start_service(away)
    results = run.collect(600, PATIENCE_S)
    found = balance(run, sent, results)
    assert found.exact, found.disagreements
    assert (run.stop("p-0", PATIENCE_S), run.stop("p-1", PATIENCE_S)) == (0, 0), run.log("p-0")
