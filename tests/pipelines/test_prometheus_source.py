import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, Gauge
from pyspark.sql import Row, SparkSession

from penstock import metrics
from penstock.adapters.exposition import expose
from penstock.errors import PenstockError
from pipelines.prometheus_query import queries_of
from pipelines.prometheus_source import PrometheusSource, PrometheusStreamReader, RangeReader, options_of
from pipelines.results_query import stop_between_batches
from tests.support.eventually import eventually

QUERIES = {"level": "test_level", "doubled": "2 * test_level"}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class LivePrometheus:
    """Debian's Prometheus on a port of its own; scrapes what is announced in ``folder/targets`` each second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.config = folder / "prometheus.yml"
        self.config.write_text(
            "global: {scrape_interval: 5s}\n"
            "scrape_configs:\n"
            "  - job_name: test\n"
            f"    file_sd_configs: [{{files: ['{folder}/targets/*.json'], refresh_interval: 1s}}]\n"
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={self.config}",
                f"--storage.tsdb.path={self.folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        eventually(self._ready)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(20)
            self.process = None

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/-/ready", trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def has_scraped(self) -> bool:
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": "test_level"}, trust_env=False).json()
        return bool(answer["data"]["result"])


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePrometheus]:
    """It has scraped ``test_level{partition="3"} 42``."""
    folder = tmp_path_factory.mktemp("prometheus")
    registry = CollectorRegistry()
    Gauge("test_level", "A level", ["partition"], registry=registry).labels("3").set(42)
    expose("test", folder / "targets", {"run": "r"}, registry)
    server = LivePrometheus(folder)
    try:
        server.start()
        eventually(server.has_scraped)
        yield server
    finally:
        server.stop()


def test_while_prometheus_is_away_batches_are_empty_and_nothing_is_skipped() -> None:
    reader = RangeReader(f"http://127.0.0.1:{free_port()}", QUERIES)
    start_ms = time.time_ns() // 1_000_000 - 60_000
    assert reader.read(start_ms) == ([], start_ms)


def test_what_has_not_settled_is_not_asked_for() -> None:
    now_ms = time.time_ns() // 1_000_000
    assert RangeReader("http://127.0.0.1:1", QUERIES, settle_s=5).read(now_ms) == ([], now_ms)


def test_a_long_gap_is_read_in_pieces() -> None:
    reader = RangeReader("http://127.0.0.1:1", QUERIES)
    assert reader.newest_ms(0) == 9_999_000


def test_the_series_of_a_run_are_its_own_and_outlive_a_restarted_process() -> None:
    query = queries_of("20260101T000000Z-x")["lag"]
    assert query == f'max by (fleet, partition) ({metrics.LAG}{{run="20260101T000000Z-x"}})'


def test_the_first_instant_lies_on_the_grid() -> None:
    options = options_of("http://127.0.0.1:1", QUERIES, start_ns=1_700_000_000_250_000_000)
    assert PrometheusStreamReader(options).initialOffset() == {"from_ms": 1_700_000_001_000}


@pytest.mark.live
def test_a_query_that_prometheus_refuses_is_named(prometheus: LivePrometheus) -> None:
    with pytest.raises(PenstockError, match=r"refused the query 'wrong' \(rate\(\): .*parse error"):
        RangeReader(prometheus.url, {"wrong": "rate("}).read_between(0, 1000)


@pytest.mark.live
def test_spark_streams_every_instant_once_also_across_a_restart_of_prometheus(
    spark: SparkSession, prometheus: LivePrometheus, tmp_path: Path
) -> None:
    spark.dataSource.register(PrometheusSource)
    rows: list[Row] = []
    query = (
        spark.readStream.format("prometheus")
        .options(**options_of(prometheus.url, QUERIES, start_ns=time.time_ns()))
        .load()
        .writeStream.trigger(processingTime="1 second")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        .start()
    )
    try:
        eventually(lambda: len(rows) >= 6)
        prometheus.stop()
        time.sleep(3)
        prometheus.start()
        seen = len(rows)
        eventually(lambda: len(rows) >= seen + 12)
        assert query.isActive
    finally:
        stop_between_batches(query)
    for name, value in (("level", 42.0), ("doubled", 84.0)):
        series = [row for row in rows if row["metric"] == name]
        instants_s = [row["at_ns"] // 10**9 for row in series]
        assert instants_s == list(range(instants_s[0], instants_s[0] + len(instants_s)))
        assert {row["value"] for row in series} == {value}
        assert all(row["labels"]["partition"] == "3" and row["labels"]["run"] == "r" for row in series)
