"""``penstock watch``: what a frame shows, from run directories that are written as a run writes them."""

import io
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from rich.console import Console
from typer.testing import CliRunner

from controller.journal import DecisionsFile, JournalTail, TickRecord
from penstock.clock import NANOS_PER_SECOND
from penstock.command import build
from penstock.contracts import Accepted, Decision, FleetObservation, PartitionObservation, ReplicaCounts
from penstock.contracts import StreamObservation as Seen
from penstock.errors import PenstockError
from penstock.measures import bucket_of, bucket_upper_s, percentiles_s
from penstock.rundir import Manifest, RunDirectory
from penstock.runspec import RunSpec, ScalerSpec
from pipelines.figures import ResultColumns
from pipelines.publication import Publication
from report.watch import Latencies, WatchedRun, curve, find_run, frame, rate_per_s

START_NS = 1_700_000_000 * NANOS_PER_SECOND


def run_directory(runs: Path, name: str = "20260101T000000Z-binpack-linear", **fields: Any) -> RunDirectory:
    directory = RunDirectory(runs / name)
    directory.metrics_folder.mkdir(parents=True)
    spec = RunSpec(
        run=name, experiment="binpack", world="local", scaler=ScalerSpec(name="linear"), duration_s=110,
        start_ns=START_NS, **fields,
    )  # fmt: skip
    directory.write(directory.spec_file, spec)
    return directory


def tick(number: int, arrived: int | None, completed: int | None, decisions: dict[str, Decision]) -> TickRecord:
    unknown = {} if arrived is not None else {"arrived": "Kafka is away"}
    seen = Seen(
        time_s=float(number),
        fleet="payments",
        replicas=ReplicaCounts(requested=1, joined=2),
        arrived=arrived,
        completed=completed,
        backlog=None if arrived is None or completed is None else arrived - completed,
        unknown=unknown,
        partitions=(PartitionObservation(0, arrived, completed, 200.0),),
    )
    accepted = Accepted({"payments": 3}) if decisions["linear"].action == "up" else None
    note = "holding: 1 unknown, first arrived: Kafka is away" if unknown else ""
    return TickRecord(
        tick=number, time_s=seen.time_s, at_ns=START_NS, phase_s=0.1, observation=seen, decisions=decisions,
        acting="linear", accepted=accepted, note=note,
    )  # fmt: skip


UP = Decision(action="up", targets={"payments": 3}, why={"payments": {"reason": "λ is above the threshold"}})
STAY = Decision(action="none", why={"payments": {"replicas": 3}})
SHADOW = Decision(action="down", targets={"payments": 1}, why={"payments": {"reason": "a shadow's opinion"}})


def journaled(directory: RunDirectory, *ticks: TickRecord) -> None:
    journal = DecisionsFile(directory)
    for each in ticks:
        journal.tick(each)
    journal.close()


def shown(directory: RunDirectory, width: int = 120) -> str:
    watched = WatchedRun(directory)
    watched.look()
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(frame(watched))
    return console.export_text()


def ticks_of_200_per_s() -> list[TickRecord]:
    decisions = [{"linear": STAY, "hpa": SHADOW}, {"linear": UP}, {"linear": STAY}]
    return [
        tick(number, 200 * number, 200 * number - 40, decisions[min(2, abs(number - 7))]) for number in range(1, 11)
    ]


def test_a_frame_shows_rates_lag_replicas_decision_and_the_shadows_last_opinion(tmp_path: Path) -> None:
    directory = run_directory(tmp_path)
    journaled(directory, *ticks_of_200_per_s())
    text = shown(directory)
    assert "20260101T000000Z-binpack-linear: linear in the local world, 10 of 110 s" in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith("payments ")]
    assert row == ["payments", "200.0/s", "200.0/s", "40", "1", "·", "2", "·", "·"]
    assert "linear on payments: leave as it is" in text
    assert "last change: at 8 s, up: payments 3" in text
    (opinion,) = [line.split() for line in text.splitlines() if line.startswith("hpa ")]
    assert opinion[:3] == ["hpa", "down", "1"]
    assert "a shadow's opinion" in text


def test_what_is_unknown_is_called_unknown_and_why(tmp_path: Path) -> None:
    directory = run_directory(tmp_path)
    journaled(directory, tick(1, None, None, {"linear": STAY}))
    text = shown(directory)
    assert text.count("unknown") >= 3
    assert "Kafka is away" in text


def test_latencies_are_those_of_the_merged_histograms_within_one_bucket(tmp_path: Path) -> None:
    directory = run_directory(tmp_path, slo_s=0.5)
    latency_s = np.random.default_rng(7).lognormal(-1.5, 0.7, 5000)
    finished_ns = START_NS + np.sort(np.random.default_rng(8).integers(0, 40, 5000)) * NANOS_PER_SECOND
    results = ResultColumns(
        np.full(5000, "payment", dtype=object), np.arange(5000), finished_ns, bucket_of(latency_s), latency_s <= 0.5
    )
    publication = Publication(directory, CollectorRegistry())
    publication.take(0, results, complete_until_ns=START_NS + 41 * NANOS_PER_SECOND)
    latencies = Latencies(directory)
    latencies.read()
    assert latencies.total is not None and latencies.recent is not None
    exact = bucket_of(percentiles_s(latency_s, (50.0, 99.0)))
    assert bucket_of([latencies.total.p50_s, latencies.total.p99_s]).tolist() == exact.tolist()
    recent = finished_ns >= START_NS + 30 * NANOS_PER_SECOND
    assert latencies.recent.count == recent.sum()
    assert latencies.recent.p99_s == bucket_upper_s(bucket_of(percentiles_s(latency_s[recent], (99.0,))))[0]
    assert latencies.total.share == (latency_s <= 0.5).sum() / 5000
    journaled(directory, *ticks_of_200_per_s())
    text = shown(directory)
    assert "latency last 10 s: p50" in text and "latency so far: p50" in text and "SLO 500 ms" in text


def test_a_journal_is_read_on_from_where_it_was_and_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    directory = run_directory(tmp_path)
    lines = [msgspec.json.encode(each) + b"\n" for each in ticks_of_200_per_s()[:3]]
    journal = JournalTail(directory.decisions_file)
    journal.read()
    assert not journal.ticks
    directory.decisions_file.write_bytes(lines[0] + lines[1][:50])
    journal.read()
    assert [each.tick for each in journal.ticks] == [1]
    with directory.decisions_file.open("ab") as file:
        file.write(lines[1][50:] + lines[2])
    journal.read()
    assert [each.tick for each in journal.ticks] == [1, 2, 3]


def test_the_end_of_a_long_journal_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.journal.TAIL_BYTES", 2000)
    directory = run_directory(tmp_path)
    journaled(directory, *ticks_of_200_per_s())
    journal = JournalTail(directory.decisions_file)
    journal.read()
    assert 0 < len(journal.ticks) < 10
    assert journal.ticks[-1].tick == 10


def test_a_rate_is_taken_over_five_seconds_and_is_unknown_without_two_readings() -> None:
    seen = [
        FleetObservation(time_s=at_s, fleet="f", replicas=ReplicaCounts(), arrived=arrived)
        for at_s, arrived in ((0.0, 0), (5.0, 1000), (9.0, None), (10.0, 1500))
    ]
    assert rate_per_s(seen, "arrived") == 100.0
    assert rate_per_s(seen[:1], "arrived") is None
    assert rate_per_s(seen[2:], "arrived") is None


def test_a_curve_has_eight_heights_and_blanks_for_what_is_unknown() -> None:
    assert curve([0, 50, None, 100]) == "▁▅ █"
    assert curve([None, 0.0]) == " ▁"


def test_the_newest_run_is_shown_unless_one_is_named(tmp_path: Path) -> None:
    old, new = run_directory(tmp_path, "a-old"), run_directory(tmp_path, "b-new")
    os.utime(old.spec_file, (1, 1))
    (tmp_path / "comparison").mkdir()
    assert find_run(tmp_path, None).name == new.name
    assert find_run(tmp_path, old.path).name == old.name
    with pytest.raises(PenstockError, match=r"no run in .* yet: `penstock run"):
        find_run(tmp_path / "elsewhere", None)
    with pytest.raises(PenstockError, match="not a run directory"):
        find_run(tmp_path, tmp_path / "comparison")


def test_watching_ends_with_the_run_and_says_how_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = run_directory(tmp_path)
    journaled(directory, *ticks_of_200_per_s())
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path))
    once = CliRunner().invoke(build(), ["watch", "--once"])
    assert once.exit_code == 0
    assert "Ctrl-C leaves" in once.output
    manifest = Manifest(
        run=directory.name, finished_at="", git_revision="", versions={}, machine={}, verdict="DEGRADED",
        reasons=("late ticks",),
    )  # fmt: skip
    summary = {"completed_events": 2000, "slo_share": 0.875, "latency": {"p50_s": 0.2, "p99_s": 0.75, "max_s": 1.0}}
    directory.write(directory.summary_file, summary)
    directory.write(directory.manifest_file, manifest)
    began_s = time.monotonic()
    live = CliRunner().invoke(build(), ["watch", str(directory.path)])
    assert live.exit_code == 0
    assert "the run has ended: DEGRADED (late ticks)" in live.output
    assert "latency of the run: p50 200 ms, p99 750 ms (SLO 500 ms), 87.5% of 2,000 within" in live.output
    assert time.monotonic() - began_s < 60


def test_a_run_that_was_killed_is_told_from_one_that_drains(tmp_path: Path) -> None:
    directory = run_directory(tmp_path)
    journaled(directory, *ticks_of_200_per_s())
    for ago_s, said in ((30, "the run drains, or its controller is away"), (300, "the run was ended")):
        os.utime(directory.decisions_file, (time.time() - ago_s,) * 2)
        assert said in shown(directory)


def test_a_run_without_a_tick_says_what_it_waits_for(tmp_path: Path) -> None:
    text = shown(run_directory(tmp_path, analytics=False))
    assert "no tick yet" in text
    assert "this run computes none until its end" in text


def test_ctrl_c_leaves_the_run_alone_and_a_run_that_was_killed_ends_the_watching(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = run_directory(tmp_path)
    journaled(directory, *ticks_of_200_per_s())

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("time.sleep", interrupted)
        left = CliRunner().invoke(build(), ["watch", str(directory.path)])
    assert left.exit_code == 0
    assert left.output.strip().endswith("the run continues")
    os.utime(directory.decisions_file, (time.time() - 300,) * 2)
    killed = CliRunner().invoke(build(), ["watch", str(directory.path)])
    assert killed.exit_code == 0
    assert "the run was ended" in killed.output
