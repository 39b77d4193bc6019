"""The analytics process of a run: ``python -m pipelines.stream --run DIR``.

Structured Streaming reads the results topic during the run; figures per second and stage go to Parquet and
Prometheus, and a second query brings Prometheus' own series into the run's directory. SIGTERM: read all, write, end.
"""

import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from penstock.adapters.exposition import expose
from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.process_main import on_termination, process_parser, run_main
from penstock.records import Result, encode
from penstock.rundir import RunDirectory
from penstock.schedule import events_scheduled
from penstock.settings import Endpoints
from pipelines.prometheus_query import PrometheusQuery
from pipelines.publication import Publication
from pipelines.results_query import IDLE_S, ResultsQuery, measured_results, to_columns
from pipelines.session import connector_jars, executors_elsewhere, spark_session

NICENESS: Final = 10
WATCH_S: Final = 1.0
DRAIN_TIMEOUT_S: Final = 25.0
PROMETHEUS_FILE: Final = "prometheus.parquet"


class Analytics:
    """Both queries of one run, from ready to drained."""

    def __init__(self, spark: SparkSession, directory: RunDirectory, endpoints: Endpoints, folder: Path) -> None:
        spec = directory.spec()
        registry = CollectorRegistry()
        self._publication = Publication(directory, registry)
        self._results = ResultsQuery(
            spark,
            self._publication,
            bootstrap=endpoints.require("kafka"),
            run=spec,
            scheduled=events_scheduled(directory.schedule_file),
            folder=folder,
        )
        self._prometheus: PrometheusQuery | None = None
        if endpoints.prometheus:
            self._prometheus = PrometheusQuery(
                spark,
                url=endpoints.prometheus,
                run=spec.run,
                path=directory.metrics_folder / PROMETHEUS_FILE,
                folder=folder,
                start_ns=spec.start_ns or time.time_ns(),
            )
        else:
            _say("PENSTOCK_PROMETHEUS is not set: the run's directory gets no replicas, lag and decisions from it")
        expose(f"{spec.run}-pipelines", endpoints.scrape_targets, {"run": spec.run}, registry)

    def start(self, stop: threading.Event) -> None:
        """Return once both sources have been looked at (or ``stop`` is set), so that their start-up disturbs no run."""
        if self._prometheus:
            self._prometheus.start(stop)
        self._results.start(stop)

    def run(self, stop: threading.Event) -> None:
        """Run until ``stop`` is set; then read the rest, write and return."""
        while not stop.wait(WATCH_S):
            if self._results.watch():
                self._publication.publish(time.time_ns() - round(IDLE_S * NANOS_PER_SECOND))
            if self._prometheus:
                self._prometheus.watch()
        drained = self._results.finish(DRAIN_TIMEOUT_S)
        self._publication.finish()
        if self._prometheus:
            self._prometheus.finish()
        if not drained:
            raise PenstockError(f"the results topic could not be read to its end within {DRAIN_TIMEOUT_S:g} s")


def _warm_up(spark: SparkSession, slo_s: float, folder: Path) -> None:
    """Load classes and plan the query on one made-up result: the first seconds of a run are measured too."""
    nowhen = dict.fromkeys(("id", "intended_ns", "sent_ns", "received_ns", "started_ns", "finished_ns"), 0)
    nowhere = dict.fromkeys(("run", "pipeline", "stage", "queue", "worker"), "")
    result = encode(msgspec.convert({**nowhen, **nowhere, "outcome": "completed"}, Result)).decode()
    # No file, since executors may be on another machine; no constant either, which would be parsed once while planning.
    numbered = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    raw = numbered.select(sql.when(numbered["value"] >= 0, sql.lit(result)).alias("value"))

    def discard(batch: DataFrame, _: int) -> None:
        to_columns(batch)

    writer = measured_results(raw, "", 1, slo_s).writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(folder / "warm-up-checkpoint"))
    writer.foreachBatch(discard).start().awaitTermination()


def analyse(directory: RunDirectory, endpoints: Endpoints, stop: threading.Event) -> None:
    """The process from start to end. Raises PenstockError for errors that the user can correct."""
    ready = directory.path / "pipelines-ready"
    ready.unlink(missing_ok=True)
    directory.metrics_folder.mkdir(exist_ok=True)
    folder = directory.path.absolute() / ".spark"
    # A predecessor that was killed took its figures with it: begin again with the topic's first record.
    shutil.rmtree(folder, ignore_errors=True)
    with spark_session(
        f"penstock {directory.name}", folder, jars=connector_jars(), elsewhere=executors_elsewhere()
    ) as spark:
        _warm_up(spark, directory.spec().slo_s, folder)
        analytics = Analytics(spark, directory, endpoints, folder)
        analytics.start(stop)
        ready.write_text(f"{os.getpid()}\n")
        _say(f"reading {directory.spec().results_topic}")
        analytics.run(stop)
    shutil.rmtree(folder, ignore_errors=True)


def _say(line: str) -> None:
    print(f"pipelines: {line}", flush=True)  # noqa: T201


def main() -> int:
    """Entry point; the exit code."""
    given = process_parser("pipelines.stream", __doc__ or "").parse_args()
    stop = threading.Event()
    on_termination(stop.set)
    os.nice(NICENESS)
    return run_main(lambda: analyse(RunDirectory.open(given.run), Endpoints(), stop))


if __name__ == "__main__":
    sys.exit(main())
