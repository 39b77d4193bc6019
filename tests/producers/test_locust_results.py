"""The reader of results for Locust's page, on records that anybody with access to the broker can write."""

import select
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from penstock.records import Result, encode
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, ScalerSpec
from penstock.schedule import Schedule
from producers import locust_results
from producers.locust_messages import Batch, Trouble, read_message

EVENTS = 3
RESULT = Result(
    id=1, run="r", pipeline="p", stage="payment", outcome="completed", queue="q", intended_ns=1, sent_ns=1,
    received_ns=1, started_ns=1, finished_ns=100_000_001, worker="w",
)  # fmt: skip


class Consumer:
    """Has some records, the next ones at each call; then the reader is told to stop."""

    def __init__(self, records: Sequence[bytes]) -> None:
        self._records = list(records)
        self.reader: Any = None

    def consume(self, _most: int, _timeout_s: float) -> list[Any]:
        if not self._records:
            self.reader.stop()
            return []
        value = self._records.pop(0)
        return [type("Message", (), {"value": lambda _: value, "error": lambda _: None})()]

    def close(self) -> None:
        """Nothing to do."""


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory(tmp_path)
    spec = RunSpec(run="r", experiment="load", world="local", scaler=ScalerSpec(name="linear"), duration_s=1.0)
    directory.write(directory.spec_file, spec)
    Schedule(np.zeros(EVENTS, np.int64), np.zeros(EVENTS, np.int16), 1.0).write(directory.schedule_file)
    return directory


def read(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch, *records: bytes) -> None:
    consumer = Consumer(records)
    monkeypatch.setattr(locust_results, "make_consumer", lambda *_, **__: consumer)
    for name in ("partitions_of", "assign_from_start"):
        monkeypatch.setattr(locust_results, name, lambda *_: [0])
    monkeypatch.setattr(locust_results, "LAST_S", 0.0)
    consumer.reader = locust_results.Reader(directory, "nowhere")
    consumer.reader.run()


def changed(**fields: Any) -> bytes:
    return encode(msgspec.structs.replace(RESULT, **fields))


def test_only_results_of_the_run_and_its_schedule_are_counted_whatever_else_is_on_the_topic(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    foreign = (changed(id=2, run="another"), changed(id=EVENTS), changed(id=-1), changed(id=None), changed(id="x"))
    read(directory, monkeypatch, b"not JSON", b"\xff", b"", *foreign, changed(), changed(finished_ns=7))
    (line,) = capfd.readouterr().out.splitlines()
    batch = read_message(line.encode())
    assert isinstance(batch, Batch)
    assert (batch.stage, batch.second, batch.counts, batch.sum_s) == ("payment", 0, (1,), 0.1)


@pytest.mark.parametrize("name", ["x" * 5000, "\x01" * 5000, "\U0001f600" * 5000])
def test_a_name_of_any_length_fits_into_a_line(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    read(directory, monkeypatch, changed(stage=name))
    (line,) = capfd.readouterr().out.splitlines()
    assert len(line.encode()) <= select.PIPE_BUF
    batch = read_message(line.encode())
    assert isinstance(batch, Batch) and name.startswith(batch.stage)


def test_a_reader_that_ends_by_an_error_tells_locust(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    directory.schedule_file.unlink()
    monkeypatch.setenv("PENSTOCK_KAFKA", "127.0.0.1:1")
    monkeypatch.setattr(sys, "argv", ["locust_results", "--run", str(directory.path)])
    assert locust_results.main() == 2
    said = capfd.readouterr()
    trouble = read_message(said.out.encode())
    assert isinstance(trouble, Trouble)
    assert trouble.message.startswith("results are not read any longer: ") and "no schedule there" in trouble.message
    assert "no schedule there" in said.err
