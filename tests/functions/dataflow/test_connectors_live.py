"""The pipeline manager on a real broker and ledger, with functions behind a real HTTP server: faults, conservation."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from functions.dataflow.connectors.http import HttpConnector
from functions.dataflow.connectors.rabbitmq import RabbitConnector
from functions.dataflow.flow import Patience
from functions.dataflow.settlement import DeadLetter, letters_key
from infra.local.collect import copy_ledger, copy_results
from infra.local.services import LocalServices
from penstock.adapters.amqp import Link, Management, main_queue
from penstock.records import Result
from penstock.settings import Endpoints
from penstock.systems import FunctionSpec
from tests.functions.dataflow_gateway import FunctionServer, constant, echo, serving, slowly
from tests.functions.dataflow_run import WAIT_S, Run

pytestmark = pytest.mark.live

DIAMOND = (
    FunctionSpec(name="split", service_time_s=0.01),
    FunctionSpec(name="left", service_time_s=0.01, after=("split",)),
    FunctionSpec(name="right", service_time_s=0.02, after=("split",)),
    FunctionSpec(name="merge", service_time_s=0.01, after=("left", "right")),
)
CHAIN = (FunctionSpec(name="one", service_time_s=0.01), FunctionSpec(name="two", service_time_s=0.01, after=("one",)))


@pytest.fixture
def begin(services: Endpoints, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """``begin(server, functions)`` is a run of those functions."""
    runs: list[Run] = []

    def make(server: FunctionServer, functions: tuple[FunctionSpec, ...] = CHAIN) -> Run:
        runs.append(Run(services, server.url, functions, tmp_path))
        return runs[-1]

    yield make
    for run in runs:
        run.close()


Begin = Callable[..., Run]


def test_requests_go_through_branches_and_a_merge_and_every_count_agrees(begin: Begin, tmp_path: Path) -> None:
    with serving(split=echo, left=constant("l"), right=constant({"r": 1}), merge=echo) as server:
        run = begin(server, DIAMOND)
        with run.process() as process:
            run.send(40)
            results = run.until_terminal(40)
            run.wait(lambda: run.lag() == 0)
            run.wait(lambda: run.snapshot().finished == 40)
            seen = run.snapshot()
            process.terminate()
            assert process.wait(60) == 0
        assert len(results) == 40 and {r.outcome for r in results} == {"completed"}
        assert sorted((r.id, r.stage) for r in run.results) == sorted((n, f.name) for n in range(40) for f in DIAMOND)
        assert {r.worker for r in results} == {"merge-1"} and {r.stage for r in results} == {"merge"}
        assert all(r.broker_ns and r.received_ns <= r.started_ns <= r.finished_ns for r in run.results)
        assert (seen.arrived, seen.finished, seen.missed) == (40, 40, 0)
        assert [(f.arrived, f.completed, f.waiting, f.in_flight) for f in seen.functions] == [(40, 40, 0, 0)] * 4
        assert [f.connections for f in seen.functions] == [4] * 4
        assert max(server.most_in_flight.values()) <= 4
        balance = run.balance()
        assert balance.exact and balance.completed == balance.booked == 40 and balance.redelivered == 0
        # What a run is collected with reads the same.
        assert copy_results(run.endpoints.kafka, run.spec.results_topic, tmp_path) == 160
        assert copy_ledger(run.endpoints.require("redis"), run.spec.ledger_key, tmp_path / "ledger.parquet") == 40


def test_killed_in_the_middle_it_goes_on_and_nothing_is_lost_or_counted_twice(begin: Begin) -> None:
    released = threading.Event()

    def held(event: int, body: bytes) -> tuple[int, bytes]:
        if sum(function == "two" for function, _ in list(server.calls)) > 30:
            released.wait(WAIT_S)
        return 200, body

    with serving(one=slowly(0.01), two=held) as server:
        run = begin(server)
        with run.process() as process:
            run.send(150)
            run.until_terminal(20)
            process.send_signal(signal.SIGKILL)
            process.wait(30)
        released.set()
        before = run.snapshot()
        assert len({r.id for r in run.terminal()}) <= 30
        with run.process():
            run.send(20)
            run.until_terminal(170)
            run.wait(lambda: run.lag() == 0 and run.snapshot().finished == 170)
            seen = run.snapshot()
        balance = run.balance()
        assert balance.exact and balance.completed == balance.booked == 170
        assert (seen.arrived, seen.finished) == (170, 170)
        assert seen.epoch > before.epoch


def test_redis_away_for_five_seconds_delays_outcomes_and_loses_none(
    begin: Begin, local_services: LocalServices
) -> None:
    with serving(one=echo, two=echo) as server:
        run = begin(server)
        with run.manager() as manager:
            run.send(10)
            run.until_terminal(10)
            local_services.stop_service("redis")
            try:
                run.send(30)
                run.wait(lambda: server.calls["two", 39] > 0)  # functions are served meanwhile
                time.sleep(5)
                assert len(run.terminal()) == 10 and manager.flow.inside == 30
            finally:
                local_services.start_service("redis")
            run.until_terminal(40)
            run.wait(lambda: run.lag() == 0 and run.snapshot().finished == 40)
        balance = run.balance()
        assert balance.exact and balance.completed == 40
        assert max(server.calls.values()) == 1


def test_a_function_that_crashes_at_every_call_makes_dead_letters_and_the_others_go_on(begin: Begin) -> None:
    def crashing(event: int, body: bytes) -> tuple[int, bytes]:
        return (500, b"ZeroDivisionError") if event % 4 == 0 else (200, body)

    with serving(one=echo, two=crashing) as server:
        run = begin(server)
        with run.manager():
            run.send(20)
            run.until_terminal(20)
            run.wait(lambda: run.lag() == 0 and run.snapshot().finished == 20)
            seen = run.snapshot()
        balance = run.balance()
        assert balance.exact and (balance.completed, balance.dead_lettered) == (15, 5)
        assert seen.missed == 5 and seen.functions[1].failed == 15
        assert {n: server.calls["two", n] for n in range(20)} == {n: 3 if n % 4 == 0 else 1 for n in range(20)}
        letters = {
            int(k): msgspec.json.decode(v, type=DeadLetter)
            for k, v in run.redis.hgetall(letters_key(run.spec.run)).items()
        }
        assert sorted(letters) == [0, 4, 8, 12, 16]
        assert letters[4].stage == "two" and letters[4].attempts == 3 and "ZeroDivisionError" in letters[4].reason
        assert letters[4].event is not None and bytes(letters[4].event.payload) == b'{"n": 1}'


def test_a_hanging_function_times_out_and_a_broken_connection_is_tried_again(begin: Begin) -> None:
    released = threading.Event()

    def hanging(event: int, body: bytes) -> tuple[int, bytes]:
        if event == 3:
            released.wait(60)
        if event == 5 and server.calls["one", 5] == 1:
            raise ConnectionResetError("the replica was killed")
        return 200, body

    with serving(one=hanging, two=echo) as server:
        run = begin(server)
        with run.manager(patience=Patience(attempts=2, timeout_s=3.0, backoff_s=0.02)):
            run.send(8)
            results = {r.id: r for r in run.until_terminal(8)}
            released.set()
        assert results[3].outcome == "dead-lettered" and "no answer within 3 s" in results[3].reason
        assert [r.outcome for n, r in results.items() if n != 3] == ["completed"] * 7
        assert [r.attempt for r in run.results if r.id == 5 and r.stage == "one"] == [2]
        assert run.balance().exact


def test_busy_and_absent_functions_keep_requests_waiting_however_long(begin: Begin) -> None:
    free = threading.Event()

    def busy(event: int, body: bytes) -> tuple[int, bytes]:
        return (200, body) if free.is_set() else (429 if event % 2 else 503, b"")

    with serving(one=busy, two=echo) as server:
        run = begin(server)
        with run.manager(patience=Patience(attempts=2, rest_s=0.02)):
            run.send(6)
            run.wait(lambda: run.snapshot().functions[0].arrived == 6 and run.snapshot().functions[0].refused > 20)
            waiting = run.snapshot().functions[0]
            assert waiting.waiting + waiting.in_flight == 6 and waiting.failed == 0 and len(waiting.laxity_s) == 6
            free.set()
            assert {r.outcome for r in run.until_terminal(6)} == {"completed"}


def test_malformed_and_unsigned_records_fail_and_the_run_goes_on(begin: Begin) -> None:
    with serving(one=echo, two=echo) as server:
        run = begin(server)
        with run.manager():
            run.send_raw(b'{"id": 1, "run"')
            run.send_raw(b"\x00\xff", 1)
            run.send_raw(run.event(0).replace(b'"n"', b'"m"'))
            run.send(5)
            run.until_terminal(7)
            run.wait(lambda: run.lag() == 0 and run.snapshot().finished == 8)
            assert run.snapshot().unreadable == 3
        failed = [r for r in run.terminal() if r.outcome == "failed"]
        assert [r.reason.partition(":")[0] for r in failed].count("unreadable") == 2
        assert [r.id for r in failed if r.reason == "bad signature"] == [0]
        assert run.balance().exact and run.balance().completed == 5


def test_ten_megabytes_go_in_by_http_and_between_functions(begin: Begin) -> None:
    large = msgspec.json.encode({"blob": "x" * 10_000_000})
    lengths: list[int] = []

    def measuring(event: int, body: bytes) -> tuple[int, bytes]:
        lengths.append(len(body))
        return 200, body

    with serving(one=measuring, two=measuring) as server:
        run = begin(server)
        connector = HttpConnector()
        with run.manager(lambda seen: connector, Patience(attempts=2, timeout_s=60)) as manager:
            reply = httpx.post(f"{connector.url}/requests", content=run.event(0, large), timeout=120, trust_env=False)
            assert reply.status_code == 200, reply.text
            assert msgspec.json.decode(reply.content, type=Result).outcome == "completed"
            assert lengths == [len(large)] * 2
            again = httpx.post(f"{connector.url}/requests", content=run.event(0, large), timeout=120, trust_env=False)
            assert again.status_code == 200 and msgspec.json.decode(again.content)["attempt"] == 2
            refused = httpx.post(f"{connector.url}/requests", content=b"{}", timeout=60, trust_env=False)
            assert refused.status_code == 422 and "unreadable" in refused.text
            assert manager.flow.finished == 1 and manager.flow.inside == 0


def test_what_the_user_can_mend_is_said_in_one_line(begin: Begin, tmp_path: Path) -> None:
    def said(*options: str, **environment: str) -> str:
        command = [sys.executable, "-m", "functions.dataflow", *options]
        done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=120)
        assert done.returncode == 2 and done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    with serving(one=echo, two=echo) as server:
        run = begin(server)
        folder = str(run.folder)
        assert "not a run directory" in said("--run", str(tmp_path))
        assert "PENSTOCK_SIGNING_KEY" in said("--run", folder, PENSTOCK_SIGNING_KEY="")
        pipeline = tmp_path / "other.json"
        pipeline.write_text('{"pipeline":"p","deadline_s":1,"entry":["a"],"functions":{"a":{"service_time_s":1}}}')
        assert "functions a, but run" in said("--run", folder, "--pipeline", str(pipeline))


def test_requests_from_rabbitmq_are_acknowledged_when_they_have_left(
    queue_services: Endpoints, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("functions.dataflow.manager.GRACE_S", 0.5)
    released, calls = threading.Event(), itertools.count()

    def held(event: int, body: bytes) -> tuple[int, bytes]:
        if next(calls) >= 10:  # whichever they are: requests overtake each other
            released.wait(WAIT_S)
        return 200, body

    with serving(one=echo, two=held) as server:
        run = begin(server)
        url, queue = queue_services.require("rabbitmq"), main_queue(run.spec.run)
        management = Management(queue_services.require("rabbitmq_management"))
        link = Link(url, f"{run.spec.run}:test")
        link.open()
        management.declare_queue(queue)
        outcomes: list[str] = []
        for number in range(20):
            link.publish(queue, run.event(number), outcomes.append, published_ns=time.time_ns())
        run.sent = 20
        while len(outcomes) < 20:
            link.serve(1.0)

        def connector(seen: object) -> RabbitConnector:
            return RabbitConnector(url=url, queue=queue, name=f"{run.spec.run}:dataflow")

        with run.manager(connector, Patience(timeout_s=WAIT_S)):
            run.until_terminal(10)
            run.wait(lambda: run.snapshot().arrived == 20)
        # Half of them had not left: they are brought again, to the next manager, and are no arrivals of its own.
        released.set()
        with run.manager(connector):
            run.until_terminal(20)
            run.wait(lambda: run.snapshot().finished == 20)
            assert run.snapshot().arrived == 20
        balance = run.balance()
        assert balance.exact and balance.completed == 20
        link.close()
        management.delete_run(run.spec.run)
        management.close()
