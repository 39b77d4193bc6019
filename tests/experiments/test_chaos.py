"""Faults by seed: what a seed draws, what counts as a violation, and that an interrupted series is continued."""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiments.catalogue import EXPERIMENTS
from experiments.chaos import (
    ChaosDirectory,
    ChaosRequest,
    ChaosRun,
    begin_chaos,
    carry_out_chaos,
    draw_faults,
    faults_of,
    finished_twice,
    parse_seeds,
)
from experiments.experiment import Experiment, Options, parse_faults
from experiments.progress import RunProgress
from penstock.command import main
from penstock.errors import EXIT_INVALID, PenstockError
from penstock.runspec import LASTING_FAULTS, FaultKind
from report.analysis.run_data import RunData
from simulator.world import SimWorld
from tests.experiments.synthetic import Toy, write_run

KINDS = {type(each.system): each for each in EXPERIMENTS.values()}
"""One experiment of each kind of fleet."""
STREAM = EXPERIMENTS["binpack-workload-1"]
COMMAND = ("chaos", "binpack-workload-1", "--scaler", "linear", "--seconds", "8")


def request(*seeds: int, seconds: float = 8.0, **options: Any) -> ChaosRequest:
    return ChaosRequest(
        experiment=STREAM,
        scaler="linear",
        options=Options(world="sim", analytics=False, shadows=(), **options),
        seeds=seeds,
        seconds=seconds,
    )


def run_all(runs: Path, wanted: ChaosRequest, *, resume: bool = False) -> tuple[ChaosDirectory, list[ChaosRun]]:
    directory = begin_chaos(wanted, runs, resume=resume)
    with RunProgress(Console(quiet=True), runs=len(wanted.seeds)) as progress:
        return directory, list(carry_out_chaos(wanted, directory, progress))


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path))
    return tmp_path


def penstock(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_times_are_durations_as_everywhere(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("chaos", "binpack-workload-1", "--scaler", "linear", "--seeds", "1")
    assert penstock(monkeypatch, *asked, "--seconds", "6000ms", "--from", "7m") == 0
    (spec,) = (json.loads(path.read_bytes()) for path in runs.rglob("run.json"))
    assert (spec["duration_s"], spec["workload"]["from_s"]) == (6.0, 420.0)


@pytest.mark.parametrize("seconds", ["4999ms", "61m"])
def test_a_length_outside_the_limits_is_refused(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seconds: str
) -> None:
    assert penstock(monkeypatch, "chaos", "binpack-workload-1", "--scaler", "linear", "--seconds", seconds) == 2
    assert "from 5 to 3600 s" in capsys.readouterr().err
    assert list(runs.iterdir()) == []


@pytest.mark.parametrize(("text", "seeds"), [("7", (7,)), ("1-3", (1, 2, 3)), ("5, 1-2,2", (1, 2, 5))])
def test_seeds_are_numbers_and_ranges(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "3-1", "-1", "1-", "1-999999999", "1.5"])
def test_other_seeds_are_refused(text: str) -> None:
    with pytest.raises(PenstockError, match="--seeds"):
        parse_seeds(text)


def test_a_seed_draws_the_same_faults_each_time_and_others_than_its_neighbour() -> None:
    kinds = faults_of(STREAM.system, "local")
    assert draw_faults(3, kinds, 30) == draw_faults(3, kinds, 30)
    assert len({draw_faults(seed, kinds, 30) for seed in range(100)}) == 100


@pytest.mark.parametrize("experiment", KINDS.values(), ids=lambda each: each.name)
@pytest.mark.parametrize("world", ["sim", "local"])
def test_all_faults_of_a_world_are_drawn_within_the_run(experiment: Experiment, world: Any) -> None:
    kinds = faults_of(experiment.system, world)
    drawn = [fault for seed in range(300) for fault in draw_faults(seed, kinds, 30)]
    counts = Counter(fault.kind for fault in drawn)
    assert set(counts) == set(kinds)
    assert min(counts.values()) > max(counts.values()) / 3
    assert all(3 <= fault.at_s <= 24 for fault in drawn)
    assert all((0.5 <= fault.seconds <= 6) if fault.kind in LASTING_FAULTS else fault.seconds == 0 for fault in drawn)


@pytest.mark.parametrize("name", ["binpack-workload-1", "amesos-document", "multiqueue", "pubsub-mintime"])
def test_five_seeds_draw_every_fault_that_a_kind_has_on_a_cluster(name: str) -> None:
    """docs/reliability.md counts on it."""
    kinds = faults_of(EXPERIMENTS[name].system, "kubernetes")
    assert {fault.kind for seed in range(1, 6) for fault in draw_faults(seed, kinds, 30.0)} == set(kinds)


def test_faults_that_last_are_those_that_need_a_duration() -> None:
    assert all(kind in FaultKind.__args__ for kind in LASTING_FAULTS)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"lost": 2}, "2 lost"),
        ({"finished_twice": 1}, "1 finished twice"),
        ({"in_flight": 3}, "3 still waiting"),
        ({"disagreements": ("completed but not in the ledger: 1",)}, "completed but not in the ledger: 1"),
        ({"left_behind": ("topic r.events",)}, "left behind: topic r.events"),
        ({"error": "kafka has died"}, "kafka has died"),
    ],
)
def test_what_is_lost_doubled_or_left_is_a_violation(bad: dict[str, Any], said: str) -> None:
    assert ChaosRun(seed=1, run="r", faults=(), verdict="VALID").violations == []
    assert ChaosRun(seed=1, run="r", faults=(), **bad).violations == [said]


def test_two_results_that_were_both_the_first_are_a_double(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    directory = write_run(tmp_path, Toy(seconds=5))
    assert finished_twice(RunData(directory)) == 0
    file = directory.results_folder / "part-0.parquet"
    table = pq.read_table(file)
    again = table.slice(10, 3)
    pq.write_table(pa.concat_tables([table, again]), file)
    assert finished_twice(RunData(directory)) == 0, "the same finish, published again"
    later = pc.add(again["finished_ns"], 1_000_000)
    again = again.set_column(again.schema.get_field_index("finished_ns"), "finished_ns", later)
    attempt = table.schema.get_field_index("attempt")
    known = again.set_column(attempt, "attempt", pa.array([2, 2, 1], table.schema.field(attempt).type))
    pq.write_table(pa.concat_tables([table, known]), file)
    assert finished_twice(RunData(directory)) == 1


def test_a_series_that_is_interrupted_keeps_its_seeds_and_is_continued(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inject = SimWorld.prepare
    prepared: list[int] = []

    def interrupted(self: SimWorld, spec: Any, directory: Any) -> None:
        prepared.append(spec.seed)
        if len(prepared) == 3:
            raise KeyboardInterrupt
        inject(self, spec, directory)

    monkeypatch.setattr(SimWorld, "prepare", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_all(runs, request(1, 2, 3, 4))
    directory, found = run_all(runs, request(1, 2, 3, 4), resume=True)
    assert prepared == [1, 2, 3, 3, 4]
    assert [run.seed for run in found] == [1, 2, 3, 4]
    assert not any(run.violations for run in found)
    assert len(list(runs.glob("*-compare"))) == 1
    more, _ = run_all(runs, request(4, 5), resume=True)
    assert (more.path, prepared) == (directory.path, [1, 2, 3, 3, 4, 5])
    other, _ = run_all(runs, request(1, seconds=9.0), resume=True)
    assert other.path != directory.path


def test_a_run_that_ends_with_an_error_is_a_violation_and_the_others_go_on(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = SimWorld.prepare

    def failing(self: SimWorld, spec: Any, directory: Any) -> None:
        if spec.seed == 2:
            raise PenstockError("kafka has died; the end of its log:\nmore")
        prepare(self, spec, directory)

    monkeypatch.setattr(SimWorld, "prepare", failing)
    _, found = run_all(runs, request(1, 2, 3))
    assert [run.violations for run in found] == [[], ["kafka has died; the end of its log:"], []]
    assert (found[1].events, found[1].failed) == (0, 0)


def test_services_that_cannot_tell_what_is_left_are_a_violation(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(self: SimWorld, run: str) -> None:
        raise PenstockError("Redis does not answer (refused)")

    monkeypatch.setattr(SimWorld, "left_behind", away)
    _, found = run_all(runs, request(1))
    assert [run.violations for run in found] == [["Redis does not answer (refused)"]]


def test_the_command_prints_json_and_ends_with_0(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert penstock(monkeypatch, *COMMAND, "--seeds", "1-2", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [run["seed"] for run in found] == [1, 2]
    assert all(run["lost"] == run["finished_twice"] == run["in_flight"] == 0 and run["events"] > 0 for run in found)
    assert all(run["faults"] for run in found)


def test_a_violation_ends_with_98_and_the_command_that_repeats_it(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(SimWorld, "left_behind", lambda self, run: ["topic x"])
    assert penstock(monkeypatch, *COMMAND, "--seeds", "3") == EXIT_INVALID
    said = capsys.readouterr().err
    assert "seed 3: left behind: topic x" in said
    (again,) = [line for line in said.splitlines() if line.startswith("again: penstock run ")]
    words = again.split()
    given = parse_faults(word for at, word in enumerate(words) if words[at - 1] == "--fault")
    assert given == draw_faults(3, faults_of(STREAM.system, "sim"), 8.0)
    assert words[words.index("--seed") + 1] == "3"


def test_on_a_cluster_the_seeds_are_played_in_the_drivers_pod(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[tuple[str, ...]] = []

    class Driver:
        def __init__(self, tell: object) -> None:
            pass

        def exists(self) -> bool:
            return True

        def run(self, arguments: Sequence[str], folder: Path, out: object) -> int:
            played.append(tuple(arguments))
            assert folder == runs
            return EXIT_INVALID

    monkeypatch.setattr("infra.kubernetes.driver_pod.DriverPod", Driver)
    asked = (*COMMAND, "--seeds", "1-5", "--world", "kubernetes")
    assert penstock(monkeypatch, *asked) == EXIT_INVALID
    assert played == [asked]
    assert not list(runs.iterdir())


@pytest.mark.parametrize(
    "wrong",
    [("--seeds", "x"), ("--seconds", "1"), ("--world", "moon"), ("--set", "system.x=1")],
    ids=" ".join,
)
def test_a_bad_request_is_refused_before_anything_is_written(
    runs: Path, monkeypatch: pytest.MonkeyPatch, wrong: tuple[str, str]
) -> None:
    assert penstock(monkeypatch, *COMMAND, *wrong) == 2
    assert not list(runs.iterdir())
