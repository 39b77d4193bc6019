"""Locust without its page, against a fleet whose workers are frozen for a while: it shows what events went through."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import msgspec
import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from infra.local.ports import free_port
from infra.local.services import LocalServices
from penstock.adapters.process_manager import Supervisor
from penstock.measures import bucket_of, nearest_ranks
from penstock.records import Result, result_decoder
from penstock.rundir import RunDirectory
from penstock.schedule import Schedule
from tests.pipelines.process import analytics, end
from tests.support.eventually import eventually

REPOSITORY = Path(__file__).parents[2]
PATIENCE_S = 120.0
EVENTS = 20 * 14


def locust(folder: Path, environment: dict[str, str], *options: str) -> "subprocess.Popen[bytes]":
    with (folder / "locust.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "locust", "-f", str(REPOSITORY / "producers" / "locustfile.py"), *options],
            stdout=log, stderr=log, cwd=folder,
            env={**environment, "PENSTOCK_RUNS": str(folder / "runs"), "PYTHONPATH": str(REPOSITORY)},
        )  # fmt: skip


def wait(what: str, condition: Callable[[], bool], log: Path) -> None:
    eventually(condition, lambda: f"{what}: not in time\n{log.read_text()[-3000:]}", within_s=PATIENCE_S)


class Page:
    """Locust's page, over HTTP."""

    def __init__(self) -> None:
        port = free_port()
        self.options = ("--web-host", "127.0.0.1", "--web-port", str(port))
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_S)

    def answers(self) -> bool:
        with suppress(httpx.TransportError):
            return self.client.get("/").is_success
        return False

    def start(self, workload: str, rate: str = "0") -> None:
        fields = {"workload": workload, "rate": rate, "slo": "300ms", "scaler": "linear", "partitions": "2"}
        assert self.client.post("/swarm", data=fields).json()["success"]

    def stop(self) -> None:
        assert self.client.post("/stop").json()["success"]

    def requests(self) -> int:
        return int(self.client.get("/stats/requests").json()["stats"][-1]["num_requests"])

    def fleet(self) -> dict[str, str]:
        (tab,) = self.client.get("/stats/requests").json()["extended_stats"]
        return {row["figure"]: row["value"] for row in tab["data"]}

    def state(self) -> str:
        return str(self.client.get("/stats/requests").json()["state"])


class Results:
    """Reads the run's results beside Locust."""

    def __init__(self, kafka: str, topic: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": kafka, "group.id": "beside-locust", "log_level": 0})
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.found: dict[int, Result] = {}

    def read(self) -> int:
        for message in self._consumer.consume(1000, 0.2):
            if message.error() is None:
                result = result_decoder.decode(message.value() or b"")
                assert result.id is not None
                self.found.setdefault(result.id, result)
        return len(self.found)

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.live
@pytest.mark.when_changed("producers", "pipelines")
def test_the_page_shows_the_latencies_of_a_fleet_that_was_frozen_as_spark_computed_them(
    local_services: LocalServices, tmp_path: Path
) -> None:
    """The last event comes long after the others: until then the results topic is there for Spark to read."""
    environment, log, report = local_services.environment(), tmp_path / "locust.log", tmp_path / "stats.json"
    endpoints = local_services.endpoints()
    process = locust(
        tmp_path, environment, "--headless", "--scaler", "linear", "--partitions", "2", "--slo", "0.3",
        "--workload", "step:before_per_s=20,after_per_s=0.0125,at_s=24,duration_s=105",
        "--json-file", str(report.with_suffix("")),
    )  # fmt: skip
    try:
        wait("a start", lambda: "running; one user is 1 events/s" in log.read_text(), log)
        directory = RunDirectory.open(next((tmp_path / "runs").iterdir()))
        spec, events = directory.spec(), len(Schedule.read(directory.schedule_file))
        results = Results(endpoints.kafka, spec.results_topic)

        def freeze() -> None:
            wait("results", lambda: results.read() > 20, log)
            supervisor = Supervisor(endpoints.supervisor)
            programs = supervisor.programs(f"{spec.run}:{spec.fleet}").values()
            frozen = [each.pid for each in programs if each.pid is not None]
            assert frozen
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(10.0)
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)

        # Spark may take its time to start; the events of the first 24 s do not wait for it.
        with ThreadPoolExecutor(1) as pool:
            freezing = pool.submit(freeze)
            with analytics(directory, endpoints) as spark:
                freezing.result()
                wait("all but the last event", lambda: results.read() >= events - 1, log)
                end(spark)
        wait("the last event", lambda: results.read() == events, log)
        results.close()
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait()

    (shown,) = msgspec.json.decode(report.read_bytes())
    latency_s = np.asarray([(each.finished_ns - (each.intended_ns or 0)) / 1e9 for each in results.found.values()])
    assert latency_s.max() > 9, "the freeze is in the latencies"
    buckets = np.sort(
        np.repeat(
            bucket_of([float(bound) / 1000 for bound in shown["response_times"]]),
            list(shown["response_times"].values()),
        )
    )
    assert shown["num_requests"] == len(buckets) == events
    assert (np.abs(buckets - bucket_of(np.sort(latency_s))) <= 1).all()
    assert shown["num_failures"] == 0 < (latency_s > 0.3).sum(), "late events are no failures"
    computed = pq.read_table(directory.latency_file).to_pydict()
    last = latency_s[[each.id for each in results.found.values()].index(events - 1)]
    from_spark = np.sort([*np.repeat(computed["bucket"], computed["count"]), *bucket_of([last])])
    assert len(from_spark) == events
    ranks = nearest_ranks(events, (50.0, 90.0, 95.0, 99.0)) - 1
    assert (np.abs(buckets[ranks] - from_spark[ranks]) <= 1).all()
    # Nothing is left: replicas, controller, topics, ledger.
    assert not Supervisor(endpoints.supervisor).programs(f"{spec.run}:")
    consumer = Consumer({"bootstrap.servers": endpoints.kafka, "group.id": "look", "log_level": 0})
    try:
        assert spec.events_topic not in consumer.list_topics(timeout=10).topics
    except KafkaException as error:
        pytest.fail(str(error))
    finally:
        consumer.close()


@pytest.mark.live
def test_the_page_starts_a_session_and_stops_it_and_what_was_sent_is_waited_for(
    local_services: LocalServices, tmp_path: Path
) -> None:
    log, page = tmp_path / "locust.log", Page()
    process = locust(tmp_path, local_services.environment(), *page.options)
    try:
        wait("the page", page.answers, log)
        assert all(f'"{name}"' in page.client.get("/").text for name in ("workload", "rate", "slo", "scaler"))
        page.start(workload="constant")
        wait("a clear line", lambda: "constant needs rate_per_s" in page.client.get("/stats/requests").text, log)
        wait("the end", lambda: page.state() == "stopped", log)
        page.start(workload="constant:rate_per_s=10,duration_s=600", rate="20")
        wait("results", lambda: page.requests() > 40, log)
        assert page.client.get("/stop").status_code == 405
        wait("the fleet", lambda: page.fleet()["replicas"] != "–", log)
        assert page.fleet()["results within the SLO"].endswith(" %") and page.fleet()["lag (events)"] != "–"
        assert '"missing_host_warning": false' in page.client.get("/").text
        page.stop()
        directory = RunDirectory.open(next((tmp_path / "runs").iterdir()))
        acknowledged = len(pq.read_table(directory.delivery_file)["acked_ns"].drop_null())
        assert 40 < acknowledged < 600 * 20
        # Locust gives the same answer for two seconds.
        wait("all that was sent", lambda: page.requests() >= acknowledged, log)
        assert page.requests() == acknowledged
        wait("the report", lambda: page.fleet()["report"] == str(directory.report_file), log)
        assert "linear" in directory.report_file.read_text("utf-8")
        assert directory.manifest().verdict == "INVALID", "it was stopped: most of its schedule was not sent"
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
    finally:
        page.client.close()
        process.kill()
        process.wait()
    assert directory.spec().slo_s == 0.3
    assert len(Schedule.read(directory.schedule_file)) == 20 * 600
    assert not Supervisor(local_services.endpoints().supervisor).programs(f"{directory.name}:")
    assert "Traceback" not in log.read_text()


@pytest.fixture
def distributed(
    local_services: LocalServices, tmp_path: Path
) -> Iterator[Callable[..., list[subprocess.Popen[bytes]]]]:
    """Starts a master with the given options, and two workers: those three."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*options: str) -> list[subprocess.Popen[bytes]]:
        environment, port = local_services.environment(), str(free_port())
        started.append(locust(tmp_path, environment, "--master", "--master-bind-port", port, *options))
        started.extend(locust(tmp_path, environment, "--worker", "--master-port", port) for _ in range(2))
        return started

    yield start
    for process in started:
        process.kill()
        process.wait()


HEADLESS = ("--headless", "--expect-workers", "2", "--slo", "0.5", "--scaler", "linear", "--partitions", "2")


@pytest.mark.live
def test_two_workers_send_each_event_once(
    distributed: Callable[..., list["subprocess.Popen[bytes]"]], tmp_path: Path
) -> None:
    log, report = tmp_path / "locust.log", tmp_path / "stats.json"
    master, *_ = distributed(
        *HEADLESS, "--workload", "constant:rate_per_s=20,duration_s=14", "--json-file", str(report.with_suffix(""))
    )
    assert master.wait(PATIENCE_S) == 0, log.read_text()[-3000:]
    directory = RunDirectory.open(next((tmp_path / "runs").iterdir()))
    deliveries = pq.read_table(directory.delivery_file)
    assert deliveries["id"].to_pylist() == list(range(EVENTS))
    assert deliveries["acked_ns"].null_count == 0
    (shown,) = msgspec.json.decode(report.read_bytes())
    assert shown["num_requests"] == EVENTS
    said = log.read_text()
    assert "sending shard 0/2" in said and "sending shard 1/2" in said
    assert "ended: 100.00 % of the schedule sent" in said
    assert f"report: {directory.report_file}" in said
    assert directory.manifest().verdict != "INVALID", directory.manifest().reasons
    assert "Ramping" not in said and "Traceback" not in said
    assert not list(directory.path.glob("delivery-*"))


@pytest.mark.live
@pytest.mark.when_changed("producers", "pipelines")
def test_stopped_and_started_again_each_session_has_its_own_deliveries(
    distributed: Callable[..., list["subprocess.Popen[bytes]"]], tmp_path: Path
) -> None:
    log, page = tmp_path / "locust.log", Page()
    distributed(*page.options, "--expect-workers", "2")
    with page.client:
        wait("the page", page.answers, log)
        page.start("constant:rate_per_s=20,duration_s=600")  # the workers have hardly begun
        wait("results", lambda: page.requests() > 40, log)
        page.stop()
        page.start("constant:rate_per_s=20,duration_s=5")
        wait("the end", lambda: "ended: 100.00 % of the schedule sent" in log.read_text(), log)
        wait("its results", lambda: page.requests() == 100, log)
    first, second = (RunDirectory.open(path) for path in sorted((tmp_path / "runs").iterdir()))
    for directory, events in ((first, 12_000), (second, 100)):
        assert pq.read_table(directory.delivery_file)["id"].to_pylist() == list(range(events))
    acked = [pq.read_table(each.delivery_file)["acked_ns"].drop_null() for each in (first, second)]
    assert 40 < len(acked[0]) < 12_000 and len(acked[1]) == 100
    assert "Traceback" not in log.read_text()


@pytest.mark.live
def test_a_worker_that_is_lost_is_reported_and_the_others_shards_are_sent(
    distributed: Callable[..., list["subprocess.Popen[bytes]"]], tmp_path: Path
) -> None:
    log = tmp_path / "locust.log"
    master, lost, _ = distributed(*HEADLESS, "--workload", "constant:rate_per_s=20,duration_s=30")
    wait("both send", lambda: log.read_text().count("sending shard") == 2, log)
    directory = RunDirectory.open(next((tmp_path / "runs").iterdir()))
    wait("the start", lambda: time.time_ns() > directory.spec().start_ns + 2 * 10**9, log)
    for process in (*psutil.Process(lost.pid).children(), psutil.Process(lost.pid)):
        process.kill()
    assert master.wait(PATIENCE_S) == 2, log.read_text()[-3000:]
    assert "of 2: it was lost" in log.read_text()
    deliveries = pq.read_table(directory.delivery_file).to_pydict()
    assert deliveries["id"] == list(range(600))
    missing = {
        event_id for event_id, acked_ns in zip(deliveries["id"], deliveries["acked_ns"], strict=True) if not acked_ns
    }
    assert missing in (set(range(0, 600, 2)), set(range(1, 600, 2)))
    assert all("it was lost" in deliveries["error"][event_id] for event_id in missing)


@pytest.mark.live
def test_what_cannot_be_played_is_told_in_one_line(local_services: LocalServices, tmp_path: Path) -> None:
    process = locust(tmp_path, local_services.environment(), "--headless", "--workload", "constant")
    assert process.wait(PATIENCE_S) == 2
    said = (tmp_path / "locust.log").read_text()
    assert "constant needs rate_per_s" in said
    assert "Traceback" not in said


def test_kafkas_client_and_gevent_do_not_meet() -> None:
    check = "import sys, producers.locustfile as _; sys.exit(bool({'confluent_kafka', 'pyspark'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", check], cwd=REPOSITORY, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0
