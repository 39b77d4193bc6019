"""One Spark session for all tests of this room: its JVM takes seconds to come up."""

import gc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from pyspark.sql import SparkSession

from penstock.records import Result
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, ScalerSpec
from penstock.schedule import Schedule
from pipelines.session import spark_session

SOCKETS = "ignore:unclosed <socket.socket .*127.0.0.1:ResourceWarning"
"""pyspark leaves the loopback sockets over which it fetched rows to the garbage collector."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings(SOCKETS))


@pytest.fixture(scope="session")
def spark_for_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with spark_session("tests", tmp_path_factory.mktemp("spark")) as session:
        yield session
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture
def spark(spark_for_all: SparkSession) -> Iterator[SparkSession]:
    yield spark_for_all
    # Sockets are collected here, where they are ignored, not in somebody else's test.
    gc.collect()


@pytest.fixture(scope="session")
def make_result() -> Callable[..., Result]:
    """A completed result: sent 1 ms late, served for 5 ms, in ``latency_ns`` altogether."""

    def make(event_id: int | None, finished_ns: int, latency_ns: int = 50_000_000, **given: Any) -> Result:
        intended_ns = None if event_id is None else finished_ns - latency_ns
        fields = {
            "id": event_id,
            "run": "test",
            "pipeline": "payments",
            "stage": "payments",
            "outcome": "completed",
            "queue": "test.events/0",
            "intended_ns": intended_ns,
            "sent_ns": None if intended_ns is None else intended_ns + 1_000_000,
            "received_ns": finished_ns - 6_000_000,
            "started_ns": finished_ns - 5_000_000,
            "finished_ns": finished_ns,
            "worker": "w1",
        }
        return Result(**(fields | given))

    return make


EVENTS = 7000
"""In the schedule of each test's run."""


@pytest.fixture(scope="session")
def make_directory(make_spec: Callable[..., RunSpec]) -> Callable[..., RunDirectory]:
    """The directory of a run that is prepared: specification and schedule."""

    def make(path: Path, run: str) -> RunDirectory:
        directory = RunDirectory(path)
        directory.results_folder.mkdir(parents=True)
        directory.write(directory.spec_file, make_spec(run))
        Schedule(np.zeros(EVENTS, np.int64), np.zeros(EVENTS, np.int16), 15.0).write(directory.schedule_file)
        return directory

    return make


@pytest.fixture(scope="session")
def make_spec() -> Callable[..., RunSpec]:
    def make(run: str, **given: Any) -> RunSpec:
        spec = RunSpec(run=run, experiment="test", world="local", scaler=ScalerSpec(name="linear"), duration_s=15.0)
        return msgspec.structs.replace(spec, **given)

    return make
