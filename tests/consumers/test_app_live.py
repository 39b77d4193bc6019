"""Function apps on a real RabbitMQ: containers come and go, services last as drawn, routes are gone step by step."""

import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import pytest

from consumers.service_times import QueueServiceTimes, TopicServiceTimes
from penstock.apps import AppReport
from penstock.records import Result, encode
from penstock.schedule import Schedule
from penstock.settings import Endpoints
from penstock.systems import JobSpec, NetworkSystem, QueueSystem, TopicSpec
from tests.consumers.private_queue_run import PrivateQueueRun
from tests.consumers.worker_rig import PATIENCE_S, balance
from tests.support.broker_view import BrokerView
from tests.support.eventually import eventually

pytestmark = pytest.mark.live

NETWORK = NetworkSystem(
    topics=(
        TopicSpec(topic="A", service_rate_per_s=200.0, service_scv=0.5),
        TopicSpec(topic="D", service_rate_per_s=200.0),
    ),
    jobs=(
        JobSpec(job="long", route=("A", "D", "D"), arrival_rate_per_s=1.0),
        JobSpec(job="short", route=("D",), arrival_rate_per_s=1.0),
    ),
)
MakeRun = Callable[..., PrivateQueueRun]


@pytest.fixture
def make_run(queue_services: Endpoints) -> Iterator[MakeRun]:
    runs: list[PrivateQueueRun] = []

    def make(system: QueueSystem | NetworkSystem, **arguments: Any) -> PrivateQueueRun:
        runs.append(PrivateQueueRun(queue_services, purpose="test", system=system, **arguments).__enter__())
        return runs[-1]

    yield make
    for run in runs:
        run.__exit__(None, None, None)


def report(run: PrivateQueueRun, replica: str = "bank-1") -> AppReport:
    """A report that was made after this call."""
    asked_ns = time.time_ns()
    eventually(
        lambda: replica in run.board.reports() and run.board.reports()[replica].at_ns > asked_ns,
        lambda: run.log(replica),
    )
    return run.board.reports()[replica]


def service_s(results: list[Result]) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.asarray([(result.finished_ns - result.started_ns) / 1e9 for result in results])


def test_each_event_takes_the_time_that_the_runs_seed_gives_it_and_the_report_adds_up(make_run: MakeRun) -> None:
    system = QueueSystem(service_rate_per_s=50.0)
    run = make_run(system, containers=4)
    run.start("bank-1")
    sent = run.send(range(200))
    results = run.collect(200, PATIENCE_S)
    found = balance(run, sent, results)
    assert found.exact, found.disagreements
    times = QueueServiceTimes(system, run.spec.seed)
    floors_s = np.asarray([times.floor_ns(result.id) / 1e9 for result in results])
    assert np.all(service_s(results) >= floors_s - 1e-3)
    eventually(lambda: report(run).busy == 0)
    told = report(run)
    assert (told.containers, told.completed) == (4, 200)
    assert told.busy_s == pytest.approx(service_s(results).sum(), rel=1e-3)
    assert told.busy_s2 == pytest.approx((service_s(results) ** 2).sum(), rel=1e-3)
    assert 0 < told.first_ns <= min(result.received_ns for result in results) + 10**9
    assert {result.worker for result in results} <= {f"bank-1.{number}" for number in range(1, 5)}
    assert {(result.queue, result.stage, result.terminal) for result in results} == {("main", "payments", True)}


def test_a_container_that_is_wanted_no_more_finishes_its_event_first(make_run: MakeRun) -> None:
    run = make_run(QueueSystem(service_rate_per_s=0.4, service_law="deterministic"), containers=3)
    run.start("bank-1")
    eventually(lambda: report(run).containers == 3)
    run.send(range(4))
    eventually(lambda: report(run).busy == 3)
    run.board.want("bank-1", 1)
    results = run.collect(4, PATIENCE_S)
    assert len(results) == 4
    assert {result.attempt for result in results} == {1}
    eventually(lambda: report(run).containers == 1)
    # The fourth was served by the only one that had stayed.
    last = max(results, key=lambda result: result.started_ns)
    assert last.worker == "bank-1.1"
    assert sorted(result.worker for result in results) == ["bank-1.1", "bank-1.1", "bank-1.2", "bank-1.3"]
    run.board.want("bank-1", 0)
    eventually(lambda: report(run).containers == 0)
    run.send([4])
    eventually(lambda: run.management.queues(run.spec.run)[run.queues[0]].ready == 1)
    run.board.want("bank-1", 2)
    assert [result.id for result in run.collect(1, PATIENCE_S)] == [4]


def test_an_app_that_nobody_wants_containers_of_has_none(make_run: MakeRun) -> None:
    run = make_run(QueueSystem(service_rate_per_s=50.0), containers=0)
    run.start("bank-1")
    assert report(run).containers == 0
    assert run.stop("bank-1", PATIENCE_S) == 0


def test_nothing_is_left_of_a_run(queue_services: Endpoints) -> None:
    system = QueueSystem(service_rate_per_s=500.0)
    with PrivateQueueRun(queue_services, purpose="test", system=system, containers=2) as run:
        run.start("bank-1")
        run.send(range(5))
        assert len(run.collect(5, PATIENCE_S)) == 5
        assert run.stop("bank-1", PATIENCE_S) == 0, run.log("bank-1")
        assert run.board.reports()["bank-1"].containers == 0  # its last words
    management = BrokerView(queue_services.require("rabbitmq_management"))
    eventually(lambda: len(management.objects(run.spec.run)) == 0)
    management.close()


# --- pub/sub networks -------------------------------------------------------------------------------------------------


def jobs(events: int) -> Schedule:
    """Every third event is short."""
    kinds = np.asarray([int(event % 3 == 2) for event in range(events)], dtype=np.int16)
    return Schedule(np.zeros(events, dtype=np.int64), kinds, duration_s=1.0)


def send_jobs(run: PrivateQueueRun, events: int) -> list[int]:
    assert run.schedule is not None
    for event, kind in enumerate(run.schedule.partition[:events].tolist()):
        run.send_raw(encode(msgspec.structs.replace(run.event(event), job=NETWORK.jobs[kind].job)), kind)
    run.flush()
    return list(range(events))


def collect_terminal(run: PrivateQueueRun, events: int) -> list[Result]:
    """All results until each event has its terminal one."""
    found: list[Result] = []
    ended: set[int | None] = set()
    for result in run.results(PATIENCE_S):
        found.append(result)
        if result.terminal:
            ended.add(result.id)
        if len(ended) == events:
            break
    return found


def test_a_job_goes_its_route_step_by_step_and_is_booked_at_its_end(make_run: MakeRun) -> None:
    run = make_run(NETWORK, containers=2, schedule=jobs(60))
    for topic in ("A", "D"):
        run.start(topic)
    sent = send_jobs(run, 60)
    results = list(islice(run.results(PATIENCE_S), 40 * 3 + 20))  # two jobs in three have three steps
    ways: dict[int | None, list[Result]] = defaultdict(list)
    for result in sorted(results, key=lambda result: result.finished_ns):
        ways[result.id].append(result)
    for event in sent:
        expected = [("D", 1, True)] if event % 3 == 2 else [("A", 1, False), ("D", 1, False), ("D", 2, True)]
        assert [(result.stage, result.visit, result.terminal) for result in ways[event]] == expected
        assert {result.outcome for result in ways[event]} == {"completed"}
    assert balance(run, sent, [result for result in results if result.terminal]).exact
    times = {topic: TopicServiceTimes(NETWORK, topic, jobs(60), run.spec.seed) for topic in ("A", "D")}
    floors_s = [times[result.stage].floor_ns(result.id, result.visit) / 1e9 for result in results]
    assert np.all(service_s(results) >= np.asarray(floors_s) - 1e-3)
    begun, ended = report(run, "A").jobs, report(run, "D").jobs
    assert (begun["long"].arrived, begun["long"].finished) == (40, 0)
    assert (ended["long"].arrived, ended["long"].finished) == (0, 40)
    assert (ended["short"].arrived, ended["short"].finished) == (20, 20)
    times_ns = [(result.intended_ns, result.finished_ns) for result in results if result.terminal]
    late = [end_ns - begin_ns > run.spec.slo_s * 1e9 for begin_ns, end_ns in times_ns if begin_ns is not None]
    assert ended["long"].late + ended["short"].late == sum(late)
    assert "short" not in begun


def test_a_job_loses_nothing_though_the_consumers_of_a_topic_are_killed(make_run: MakeRun) -> None:
    run = make_run(NETWORK, containers=3, schedule=jobs(300))
    for topic in ("A", "D"):
        run.start(topic)
    sent = send_jobs(run, 300)
    eventually(lambda: len(run.ledger.booked_ids()) > 30)
    for topic in ("D", "A"):
        run.processes[topic].send_signal(signal.SIGKILL)
        run.processes[topic].wait()
        run.start(topic)
    results = collect_terminal(run, 300)
    found = balance(run, sent, [result for result in results if result.terminal])
    assert found.exact, found.disagreements


def test_an_event_that_is_not_at_its_topic_fails_and_says_where_it_should_be(make_run: MakeRun) -> None:
    run = make_run(NETWORK, schedule=jobs(3))
    run.start("D")
    run.send_raw(encode(msgspec.structs.replace(run.event(0), job="no such job")), 1)
    run.send_raw(encode(msgspec.structs.replace(run.event(1), job="long")), 1)
    results = sorted(run.collect(2, PATIENCE_S), key=lambda result: result.id or 0)
    assert [(result.outcome, result.terminal) for result in results] == [("failed", True)] * 2
    assert [result.reason for result in results] == [
        "step 0 of job 'no such job' is not at topic D",
        "step 0 of job 'long' is not at topic D",
    ]
    assert run.ledger.booked_ids() == []
