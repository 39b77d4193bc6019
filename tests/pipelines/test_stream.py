"""The analytics process as a run starts it, on real Kafka, held against numpy on the same results."""

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from infra.local.services import LocalServices
from penstock import metrics
from penstock.adapters.topics import admin_client
from penstock.measures import PERCENTILE_FIELDS, bucket_of, bucket_upper_s, completions, histogram, percentiles_s
from penstock.records import Result, encode
from penstock.rundir import RunDirectory
from penstock.settings import Endpoints, Folders
from tests.pipelines.conftest import EVENTS
from tests.pipelines.process import START_TIMEOUT_S, analytics, end
from tests.support.changed import LIVE_RUN
from tests.support.eventually import eventually

SECOND = 1_000_000_000

MakeResult = Callable[..., Result]


@pytest.fixture
def directory(
    tmp_path: Path, services: Endpoints, make_directory: Callable[..., RunDirectory]
) -> Iterator[RunDirectory]:
    """A run's directory, with its results topic."""
    name = f"stream-{secrets.token_hex(4)}"
    directory = make_directory(tmp_path / name, name)
    spec = directory.spec()
    admin = admin_client(services.kafka)
    admin.create_topics([NewTopic(spec.results_topic, 1, 1)])[spec.results_topic].result(10)
    yield directory
    admin.delete_topics([spec.results_topic])[spec.results_topic].result(60)


def synthetic(make_result: MakeResult, run: str, events: int, start_ns: int) -> list[Result | bytes]:
    """What at-least-once delivery makes of ``events`` events over 15 s: some twice (a third of those with the earlier
    one last), some failed; and texts that are no result of ``run``.
    """
    rng = np.random.default_rng(11)
    finished_ns = start_ns + np.sort(rng.integers(0, 15 * SECOND, events))
    latency_ns = (rng.lognormal(-1.5, 1, events) * SECOND).astype(np.int64)
    latency_ns[:20] = -np.arange(20) * 1_000_000
    sent: list[tuple[int, Result | bytes]] = []
    for i in range(events):
        first = make_result(i, int(finished_ns[i]), int(latency_ns[i]), run=run)
        delay_ns = int(rng.integers(SECOND // 10, 4 * SECOND))
        if i % 50 == 0:
            again = msgspec.structs.replace(first, finished_ns=first.finished_ns + delay_ns, attempt=2, worker="w2")
            order = (first, again) if i % 150 else (again, first)
            sent += [(first.finished_ns, order[0]), (first.finished_ns + delay_ns, order[1])]
        elif i % 97 == 0:
            sent.append((first.finished_ns, msgspec.structs.replace(first, outcome="failed", reason="bad signature")))
        else:
            sent.append((first.finished_ns, first))
    foreign = (
        make_result(None, start_ns, run=run, outcome="failed", reason="unreadable"),
        make_result(EVENTS, start_ns, run=run),
        make_result(0, start_ns, run="another"),
    )
    sent += [(start_ns, encode(result)) for result in foreign] + [(start_ns, b"no result")]
    return [record for _, record in sorted(sent, key=lambda item: item[0])]


def publish(services: Endpoints, topic: str, records: list[Result | bytes], seconds: float) -> None:
    """Spread over ``seconds``."""
    producer = Producer({"bootstrap.servers": services.kafka, "linger.ms": 5})
    for chunk in np.array_split(np.arange(len(records)), 20):
        for row in chunk:
            record = records[row]
            producer.produce(topic, record if isinstance(record, bytes) else encode(record))
        producer.poll(0)
        time.sleep(seconds / 20)
    assert producer.flush(60) == 0


def assert_equals_numpy(directory: RunDirectory, records: list[Result | bytes], slo_s: float) -> None:
    """Every second and the whole run: counts exact, percentiles in the bucket of the exact ones."""
    results = [record for record in records if isinstance(record, Result)]
    completed = [result for result in results if result.outcome == "completed"]
    columns = {
        name: np.asarray([getattr(result, name) for result in completed], dtype=np.int64)
        for name in ("intended_ns", "sent_ns", "started_ns", "finished_ns")
    }
    truth = completions(np.asarray([result.id for result in completed], dtype=np.int64), **columns)
    rows = {row["second"]: row for row in pq.read_table(directory.per_second_file).to_pylist()}
    second = truth.finished_ns // SECOND
    assert {at for at, row in rows.items() if row["count"]} == set(second.tolist())
    for at in np.unique(second).tolist():
        latency_s = truth.latency_s[second == at]
        row = rows[at]
        assert row["count"] == len(latency_s)
        assert row["slo_met"] == np.count_nonzero(latency_s <= slo_s)
        assert [row[name] for name in PERCENTILE_FIELDS] == bucket_upper_s(bucket_of(percentiles_s(latency_s))).tolist()
        assert (row["buckets"], row["counts"]) == tuple(part.tolist() for part in histogram(latency_s))
    failed = [result for result in results if result.outcome == "failed"]
    assert sum(row["failed"] for row in rows.values()) == len(failed)
    whole = pq.read_table(directory.latency_file).to_pydict()
    assert (whole["bucket"], whole["count"]) == tuple(part.tolist() for part in histogram(truth.latency_s))


@pytest.mark.smoke
def test_streaming_figures_are_those_of_numpy(
    services: Endpoints, directory: RunDirectory, make_result: MakeResult
) -> None:
    spec = directory.spec()
    records = synthetic(make_result, spec.run, events=5000, start_ns=time.time_ns() - 20 * SECOND)
    with analytics(directory, services) as process:
        publish(services, spec.results_topic, records, seconds=4)
        (target,) = (directory.path / "targets").glob("*.json")
        address = msgspec.json.decode(target.read_bytes())[0]["targets"][0]
        page = f"http://{address}/metrics"
        shown = f'{metrics.STAGE_LATENCY}_bucket{{le="+Inf",stage="payments"}}'
        eventually(lambda: shown in httpx.get(page, trust_env=False).text, within_s=30)
        end(process)
    assert_equals_numpy(directory, records, spec.slo_s)
    assert not (directory.path / ".spark").exists()
    assert not target.exists()
    assert {file.name for file in directory.path.parent.iterdir()} == {directory.name}


@pytest.mark.live
@pytest.mark.when_changed(*LIVE_RUN)
def test_it_survives_a_broker_that_is_away_for_five_seconds(
    local_services: LocalServices, services: Endpoints, directory: RunDirectory, make_result: MakeResult
) -> None:
    spec = directory.spec()
    records = synthetic(make_result, spec.run, events=3000, start_ns=time.time_ns() - 20 * SECOND)
    with analytics(directory, services) as process:
        publish(services, spec.results_topic, records[:1500], seconds=2)
        local_services.stop_service("kafka")
        time.sleep(5)
        local_services.start_service("kafka")
        publish(services, spec.results_topic, records[1500:], seconds=2)
        end(process)
    assert_equals_numpy(directory, records, spec.slo_s)


@pytest.mark.live
@pytest.mark.when_changed(*LIVE_RUN)
def test_killed_and_started_again_it_gives_the_same_figures(
    services: Endpoints, directory: RunDirectory, make_result: MakeResult
) -> None:
    spec = directory.spec()
    records = synthetic(make_result, spec.run, events=3000, start_ns=time.time_ns() - 20 * SECOND)
    with analytics(directory, services):
        publish(services, spec.results_topic, records[:2000], seconds=3)
    with analytics(directory, services) as process:
        publish(services, spec.results_topic, records[2000:], seconds=1)
        end(process)
    assert_equals_numpy(directory, records, spec.slo_s)


@pytest.mark.live
@pytest.mark.when_changed(*LIVE_RUN)
def test_a_topic_that_does_not_exist_ends_with_one_clear_line(
    tmp_path: Path, services: Endpoints, make_directory: Callable[..., RunDirectory]
) -> None:
    make_directory(tmp_path, "stream-without-topic")
    answer = subprocess.run(
        [sys.executable, "-m", "pipelines.stream", "--run", str(tmp_path)],
        env=os.environ | {"PENSTOCK_KAFKA": services.kafka, "PENSTOCK_JARS": str(Folders().jars.absolute())},
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        cwd=tmp_path,
    )
    assert answer.returncode == 2
    assert "error: topic stream-without-topic.results cannot be read" in answer.stderr
