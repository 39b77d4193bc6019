"""What ``run``, ``compare`` and ``report`` say: exit codes and ``verdict.json``, on which a CI job relies, and lines
below the table.
"""

import errno
import json
import resource
import shutil
import signal
import sys
from collections import namedtuple
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from penstock.command import build, main
from penstock.errors import EXIT_INVALID, EXIT_MISSED, PenstockError
from penstock.rundir import RunDirectory
from penstock.systems import StreamSystem
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData
from tests.experiments.synthetic import Toy, write_run

ASSUMED = (
    "Assumed in virtual time: start-up of a replica 1.2 s, rebalance 0.03 s (eager), stop of a replica 0.7 s; "
    "change with --set system.<name>."
)
Penstock = Callable[..., object]
MAD = """
from controller.scalers.linear import Linear
from penstock.contracts import Decision

class Negative(Linear):
    name = "negative"

    def decide(self, observation, state):
        return Decision(action="down", targets={observation.fleet: -5}), state

class Raises(Linear):
    name = "raises"

    def decide(self, observation, state):
        if observation.fleet == "payments" and observation.time_s >= 1:
            raise RuntimeError("no idea")
        return super().decide(observation, state)
"""
SLICE = ("binpack-workload-1", "--world", "sim", "--seconds", "10")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "runs"


@pytest.fixture
def penstock(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Penstock:
    """The exit code of a command."""
    del runs

    def invoke(*arguments: object) -> object:
        monkeypatch.setattr(sys, "argv", ["penstock", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code

    return invoke


def the_run(runs: Path) -> RunDirectory:
    (spec,) = runs.glob("*/run.json")
    return RunDirectory.open(spec.parent)


def verdict_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "verdict.json").read_text())
    return found


# --- verdicts --------------------------------------------------------------------------------------------------------


def test_a_valid_run_ends_with_0_and_its_verdict_is_in_its_directory(runs: Path, penstock: Penstock) -> None:
    assert penstock("run", *SLICE, "--scaler", "linear", "--fail-under", "0.9") == 0
    found = verdict_of(the_run(runs).path)
    assert (found["exit_code"], found["fail_under"], found["failures"]) == (0, 0.9, [])
    (run,) = found["runs"]
    assert (run["verdict"], run["reasons"], run["scaler"], run["run"]) == ("VALID", [], "linear", the_run(runs).name)
    (comparison,) = runs.glob("*-compare")
    assert verdict_of(comparison) == found


def test_a_run_without_a_decision_is_invalid_and_ends_with_98(
    runs: Path, penstock: Penstock, capsys: pytest.CaptureFixture[str]
) -> None:
    assert penstock("run", *SLICE, "--scaler", "linear", "--tick-phase", "99") == EXIT_INVALID == 98
    (run,) = verdict_of(the_run(runs).path)["runs"]
    reason = "linear never decided: with a tick phase of 99 s no tick was due in 10 s"
    assert (run["verdict"], run["reasons"]) == ("INVALID", [reason])
    assert f"INVALID: {reason}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("scaler", "ticks", "error"),
    [("Negative", 10, "ValueError: -5 replicas for payments"), ("Raises", 9, "RuntimeError: no idea")],
)
def test_a_scaler_that_answers_nonsense_or_raises_makes_its_run_invalid(
    runs: Path, penstock: Penstock, tmp_path: Path, scaler: str, ticks: int, error: str
) -> None:
    (tmp_path / "mad.py").write_text(MAD)
    assert penstock("run", *SLICE, "--scaler", f"{tmp_path}/mad.py:{scaler}") == EXIT_INVALID
    (run,) = verdict_of(the_run(runs).path)["runs"]
    said = f"{scaler.lower()} failed on {ticks} of 10 ticks and held instead; first: {error}"
    assert run["reasons"][-1].startswith(said)


# --- the threshold ---------------------------------------------------------------------------------------------------


def test_a_run_below_the_threshold_ends_with_99(
    runs: Path, penstock: Penstock, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = write_run(runs, Toy(seconds=10))
    kept = summary_of(RunData(directory)).slo_share
    assert kept is not None and 0 < kept < 1
    assert penstock("report", directory.path) == 0
    assert penstock("report", directory.path, "--fail-under", kept) == 0
    assert penstock("report", directory.path, "--fail-under", kept + 0.001) == EXIT_MISSED == 99
    assert "of events within the SLO, less than" in capsys.readouterr().err
    assert verdict_of(directory.path)["exit_code"] == 99


def test_each_run_of_a_comparison_must_reach_the_threshold(runs: Path, penstock: Penstock) -> None:
    both = [write_run(runs, Toy(seconds=10, scaler=name, per_replica=rate)) for name, rate in (("a", 60), ("b", 200))]
    kept = [summary_of(RunData(directory)).slo_share or 0.0 for directory in both]
    assert kept[0] > kept[1]
    paths = [directory.path for directory in both]
    assert penstock("report", *paths, "--fail-under", kept[1]) == 0
    assert penstock("report", *paths, "--fail-under", kept[0]) == EXIT_MISSED
    assert verdict_of(runs)["exit_code"] == EXIT_MISSED
    assert [verdict_of(path)["exit_code"] for path in paths] == [0, EXIT_MISSED]


def test_an_invalid_run_is_worse_than_a_missed_threshold(runs: Path, penstock: Penstock) -> None:
    directory = write_run(runs, Toy(seconds=10, lose=(3,)))
    assert penstock("report", directory.path, "--fail-under", "1") == EXIT_INVALID
    assert len(verdict_of(directory.path)["failures"]) == 2


def test_compare_ends_with_99_too(penstock: Penstock) -> None:
    assert penstock("compare", *SLICE, "--scalers", "linear,hpa", "--set", "worker.service_time_s=0.2",
                    "--fail-under", "0.99") == EXIT_MISSED  # fmt: skip


def test_a_threshold_is_a_share(penstock: Penstock, capsys: pytest.CaptureFixture[str]) -> None:
    assert penstock("run", *SLICE, "--scaler", "linear", "--fail-under", "99") == 2
    assert "--fail-under" in capsys.readouterr().err


def test_report_prints_the_verdict_as_json(runs: Path, penstock: Penstock, capsys: pytest.CaptureFixture[str]) -> None:
    directory = write_run(runs, Toy(seconds=10))
    assert penstock("report", directory.path, "--json") == 0
    assert json.loads(capsys.readouterr().out) == verdict_of(directory.path)


# --- files that were changed -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """A simulated run that nobody may change."""
    runs = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(signal, "signal", lambda *_: None)
        patched.setenv("PENSTOCK_RUNS", str(runs))
        patched.setattr(sys, "argv", ["penstock", "run", *SLICE, "--scaler", "linear"])
        with pytest.raises(SystemExit):
            main()
    return the_run(runs)


def copy_of(directory: RunDirectory, folder: Path) -> RunDirectory:
    return RunDirectory(shutil.copytree(directory.path, folder / directory.name))


def test_a_copied_run_is_what_it_was(finished: RunDirectory, tmp_path: Path, penstock: Penstock) -> None:
    assert penstock("report", copy_of(finished, tmp_path).path) == 0


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def garble(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("change", [cut, garble])
@pytest.mark.parametrize(
    "name", ["run.json", "schedule.parquet", "decisions.jsonl", "replicas.jsonl", "latency.parquet", "summary.json",
             "results/part-0.parquet"],
)  # fmt: skip
def test_a_run_whose_files_were_changed_has_no_verdict(
    finished: RunDirectory, tmp_path: Path, penstock: Penstock, capsys: pytest.CaptureFixture[str], name: str,
    change: Callable[[Path], None],
) -> None:  # fmt: skip
    directory = copy_of(finished, tmp_path)
    change(directory.path / name)
    code = penstock("report", directory.path)
    out, err = capsys.readouterr()
    assert code in ((2, EXIT_INVALID) if name == "run.json" else (EXIT_INVALID,))
    assert err.count("\n") == 1 and err.startswith("error: ")
    assert f"{name} does not match its checksum" in err or code == 2
    assert "VALID" not in out


def test_files_that_are_missing_added_or_of_another_run_are_named(
    finished: RunDirectory, tmp_path: Path, penstock: Penstock, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = copy_of(finished, tmp_path)
    part = directory.results_folder / "part-0.parquet"
    part.rename(directory.results_folder / "part-1.parquet")
    assert penstock("report", directory.path) == EXIT_INVALID
    assert "results/part-0.parquet is missing, results/part-1.parquet was added" in capsys.readouterr().err
    manifest = msgspec.structs.replace(directory.manifest(), run="other")
    directory.write(directory.manifest_file, manifest)
    assert penstock("report", directory.path) == EXIT_INVALID
    assert "manifest.json is of another run (other)" in capsys.readouterr().err


def test_a_report_of_a_run_without_a_manifest_says_invalid(
    finished: RunDirectory, tmp_path: Path, penstock: Penstock, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = copy_of(finished, tmp_path)
    directory.manifest_file.unlink()
    assert penstock("report", directory.path) == EXIT_INVALID
    out, err = capsys.readouterr()
    assert "(INVALID)" in out and "VALID)" not in out.replace("(INVALID)", "")
    assert f"{directory.name}: INVALID: the run did not come to its end: without manifest.json" in err


def test_a_summary_that_is_made_anew_gets_a_new_checksum(finished: RunDirectory, tmp_path: Path) -> None:
    directory = copy_of(finished, tmp_path)
    before = summary_of(RunData(directory))
    directory.summary_file.write_text('{"from": "an older version"}')
    manifest = msgspec.structs.replace(directory.manifest(), files=directory.file_sums())
    directory.write(directory.manifest_file, manifest)
    assert summary_of(RunData(directory)) == summary_of(RunData(directory)) == before


def test_a_run_of_an_older_penstock_says_that_it_has_no_checksums(
    runs: Path, penstock: Penstock, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = write_run(runs, Toy(seconds=10))
    assert penstock("report", directory.path) == 0
    said = f"no checksums: {directory.name} is of an older Penstock; its files are not verified\n"
    assert capsys.readouterr().err == said


# --- the folder of runs ----------------------------------------------------------------------------------------------


def refused(penstock: Penstock, capsys: pytest.CaptureFixture[str], code: int = 2) -> str:
    """What a run says that ends in one line."""
    assert penstock("run", *SLICE, "--scaler", "linear") == code
    out, err = capsys.readouterr()
    assert "VALID" not in out
    assert err.startswith("error: ") and err.count("\n") == 1
    return err


def test_a_runs_folder_that_is_a_file_is_refused(
    runs: Path, penstock: Penstock, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.write_text("")
    assert f"runs folder {runs}: File exists; set PENSTOCK_RUNS" in refused(penstock, capsys)


def test_a_read_only_or_full_runs_folder_is_refused_before_the_run(
    runs: Path, penstock: Penstock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(**_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patched:
        patched.setattr("penstock.rundir.TemporaryFile", read_only)
        assert f"runs folder {runs}: Read-only file system; set PENSTOCK_RUNS" in refused(penstock, capsys)
    usage = namedtuple("usage", "free")
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage(3_000_000))
    assert f"runs folder {runs}: 3 MB are free, a run needs at least 32 MB; make room" in refused(penstock, capsys)


def test_a_disk_that_is_full_at_the_end_gives_one_line_and_not_the_verdict_table(
    penstock: Penstock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "report.html.partial")

    monkeypatch.setattr("experiments.progress.RunProgress.note", lambda *_: None)
    monkeypatch.setattr("experiments.reporting.write_report", full)
    assert "report.html.partial: No space left on device; make room" in refused(penstock, capsys, code=1)


def test_files_that_may_not_grow_end_a_run_in_one_line(
    penstock: Penstock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("experiments.progress.RunProgress.note", lambda *_: None)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, limits[1]))
    try:
        said = refused(penstock, capsys, code=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "File too large; make room" in said


def test_an_error_that_is_none_of_the_disk_is_not_hidden(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ConnectionResetError(errno.ECONNRESET, "reset")

    monkeypatch.setattr("experiments.reporting.write_report", broken)
    with pytest.raises(ConnectionResetError):
        penstock("run", *SLICE, "--scaler", "linear")


# --- what is said below the table ------------------------------------------------------------------------------------


def test_table_and_report_say_which_delays_were_assumed_and_who_was_tuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path))
    asked = "compare binpack-workload-1 --scalers linear,hpa --world sim --from 420 --seconds 20"
    said = CliRunner().invoke(build(), asked.split())
    assert said.exit_code == 0, said.output
    assert said.output.count(ASSUMED) == 1
    tuned = "Parameters: linear: hold_s 10, f_up 0.9, f_down 0.4, decision_interval_s 1; hpa: its own defaults"
    assert tuned in said.output
    reports = list(tmp_path.glob("*/report.html"))
    assert len(reports) == 3
    for report in reports:
        assert unescape(report.read_text(encoding="utf-8")).count(ASSUMED) == 1


def test_a_fleet_of_no_replicas_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_RUNS", str(tmp_path))
    asked = "run binpack-workload-1 --scaler linear --world sim --max-replicas 0"
    said = CliRunner().invoke(build(), asked.split())
    assert isinstance(said.exception, PenstockError)
    assert str(said.exception) == "--max-replicas 0: has to be at least 1"


# --- options of run and compare --------------------------------------------------------------------------------------


def test_json_alone_goes_to_standard_output(penstock: Penstock, capsys: pytest.CaptureFixture[str]) -> None:
    assert penstock("run", *SLICE, "--scaler", "linear", "--json") == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["verdict"] == "VALID"


def test_a_quiet_run_says_only_what_is_wrong(penstock: Penstock, capsys: pytest.CaptureFixture[str]) -> None:
    assert penstock("run", *SLICE, "--scaler", "linear", "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    assert penstock("run", *SLICE, "--scaler", "linear", "-q", "--fail-under", "1", "--slo", "6ms") == EXIT_MISSED
    out, err = capsys.readouterr()
    assert out == "" and "within" in err


def test_slo_service_time_partitions_start_up_and_price_change_the_run(runs: Path, penstock: Penstock) -> None:
    changes = ("--slo", "250ms", "--service-time", "4ms", "--partitions", "7", "--start-up", "3s", "--price", "2")
    assert penstock("run", *SLICE, "--scaler", "linear", *changes, "--tick-phase", "200ms") == 0
    spec = the_run(runs).spec()
    assert (spec.slo_s, spec.worker.service_time_s, spec.partitions) == (0.25, 0.004, 7)
    assert isinstance(spec.system, StreamSystem)
    assert (spec.system.start_up_s, spec.replica_price_per_hour, spec.tick_phase_s) == (3.0, 2.0, 0.2)
    assert spec.scaler.parameters["slo_s"] == 0.25 and spec.scaler.parameters["service_rate_per_s"] == 250
    summary = summary_of(RunData(the_run(runs)))
    assert summary.money == pytest.approx(2 * summary.replica_minutes / 60)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("binpack-workload-1", "--slo", "0"), "--slo 0: has to be more than 0"),
        (("binpack-workload-1", "--slo", "soon"), "invalid value for '--slo'"),
        (("binpack-workload-1", "--start-up", "3s", "--world", "local"), "only the sim world can choose it"),
        (("binpack-workload-1", "--start-up", "3s", "--set", "system.start_up_s=2"), "give one of them"),
        (("amesos-document", "--scaler", "rps", "--set", "system.image=me/{function}"), "nothing is deployed in world"),
        (("amesos-document", "--partitions", "3"), "amesos-document has function fleets, which have none"),
    ],
)
def test_an_option_that_would_have_no_effect_is_refused(
    runs: Path, penstock: Penstock, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert penstock("run", arguments[0], "--scaler", "linear", "--world", "sim", *arguments[1:]) == 2
    assert said in capsys.readouterr().err
    assert not runs.is_dir() or not list(runs.iterdir())
