"""Live runs beside simulated ones: runs that were simulated, and copies of them that say that they were live."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from experiments.amesos.live import cases, figures, mean, peak_queue
from penstock.command import build
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData

SLICE = ("--from", "60", "--seconds", "30")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunDirectory]:
    """Half a minute of the document pipeline under AMESoS and RPS."""
    runs = tmp_path_factory.mktemp("runs")
    command = ["compare", "amesos-document", "--scalers", "amesos,rps", "--world", "sim", *SLICE]
    done = CliRunner().invoke(build(), command, env={"PENSTOCK_RUNS": str(runs)})
    assert done.exit_code == 0, done.output
    finished = [RunDirectory(path) for path in sorted(runs.iterdir()) if (path / "manifest.json").is_file()]
    return {directory.spec().scaler.name: directory for directory in finished}


Change = Callable[[dict[str, Any]], None]


def as_live(simulated: RunDirectory, folder: Path, change: Change = lambda _: None) -> RunDirectory:
    """A copy whose summary says that it was live, with something changed."""
    copy = RunDirectory(folder / f"live-{simulated.name}")
    shutil.copytree(simulated.path, copy.path)
    summary = json.loads(copy.summary_file.read_bytes())
    summary["world"] = summary["conditions"]["world"] = "local"
    summary["conditions"]["analytics"] = True
    summary["conditions"]["system.call_s"] = 0.001  # what one of the two is told and the other one is not
    change(summary)
    copy.summary_file.write_text(json.dumps(summary))
    copy.write(copy.manifest_file, msgspec.structs.replace(copy.manifest(), files=copy.file_sums()))
    return copy


def slower(factor: float) -> Change:
    def change(summary: dict[str, Any]) -> None:
        summary["latency"]["p99_s"] *= factor

    return change


def said(*directories: RunDirectory) -> str:
    done = CliRunner().invoke(build(), ["paper", "amesos", "live", *(str(directory.path) for directory in directories)])
    if done.exception is not None:
        raise done.exception
    return done.stdout


def row(text: str, first: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {first} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_misses_are_what_was_acknowledged_and_did_not_leave_in_time(simulated: dict[str, RunDirectory]) -> None:
    run = RunData(simulated["amesos"])
    summary = summary_of(run)
    found = figures(run, summary)
    assert found.requests == summary.scheduled_events
    assert summary.slo_share is not None
    assert found.missed == pytest.approx(found.requests * (1 - summary.slo_share))
    assert found.replica_s == pytest.approx(60 * summary.replica_minutes)


def test_the_queue_is_what_waits_at_all_functions_at_a_whole_second(
    simulated: dict[str, RunDirectory], tmp_path: Path
) -> None:
    directory = as_live(simulated["rps"], tmp_path)
    waits_s = ((0.5, 2.5), (0.9, 1.5), (1.2, 1.3), (2.2, 2.3), (2.3, 2.9))
    start_ns = directory.spec().start_ns
    came_ns, began_ns = ([start_ns + round(1e9 * at_s) for at_s in column] for column in zip(*waits_s, strict=True))
    (part,) = directory.results_folder.iterdir()
    pq.write_table(pa.table({"received_ns": came_ns, "started_ns": began_ns}), part)
    assert peak_queue(RunData(directory)) == 2


def test_a_scaler_has_one_row_and_what_differs_too_much_is_bold(
    simulated: dict[str, RunDirectory], tmp_path: Path
) -> None:
    live = as_live(simulated["amesos"], tmp_path, slower(1.2))
    other = as_live(simulated["rps"], tmp_path, slower(1.05))
    text = said(live, other, *simulated.values())
    assert "\n### amesos-document, amesos:pipeline=document, 60–90 s\n" in text
    amesos, rps = row(text, "amesos"), row(text, "rps")
    assert amesos[1:3] == rps[1:3] == ["1 / 1", "1 VALID"]
    found = figures(RunData(simulated["amesos"]), summary_of(RunData(simulated["amesos"])))
    assert amesos[6] == f"{found.replica_s:.0f} / {found.replica_s:.0f} (+0 %)"
    assert amesos[9] == f"{1200 * found.p99_s:.1f} / {1000 * found.p99_s:.1f} ms (**+20 %**)"
    assert rps[9].endswith(" ms (+5 %)")
    assert "7 of 8 values (p50, p95, p99, replica-seconds) lie within 10 % of the simulated ones" in text


def test_the_papers_claims_are_told_for_both_worlds(simulated: dict[str, RunDirectory], tmp_path: Path) -> None:
    def fewer(summary: dict[str, Any]) -> None:
        summary["replica_minutes"] /= 2

    live = [as_live(simulated["amesos"], tmp_path, fewer), as_live(simulated["rps"], tmp_path)]
    text = said(*live, *simulated.values())
    claimed = [line for line in text.splitlines() if line.startswith("| peak queue | rps |")]
    assert len(claimed) == 1 and "up to 20 % lower" in claimed[0], "of this pipeline only"
    assert "| replica-minutes | lass | up to 28 % fewer | – | – |" in text, "nobody has run it"


def test_the_order_of_the_scalers_is_compared(simulated: dict[str, RunDirectory], tmp_path: Path) -> None:
    p99_s = {name: summary_of(RunData(directory)).latency.p99_s or 0.0 for name, directory in simulated.items()}
    last = max(p99_s, key=lambda name: p99_s[name])
    first = min(p99_s, key=lambda name: p99_s[name])
    same = [as_live(directory, tmp_path / "same") for directory in simulated.values()]
    assert row(said(*same, *simulated.values()), "p99") == ["p99", *[f"{first} < {last}"] * 2, "1.00"]
    turned = [
        as_live(simulated[last], tmp_path / "turned"),
        as_live(simulated[first], tmp_path / "turned", slower(10 * p99_s[last] / p99_s[first])),
    ]
    assert row(said(*turned, *simulated.values()), "p99") == [
        "p99", f"{last} < {first}", f"{first} < {last}", "-1.00",
    ]  # fmt: skip


def test_repetitions_are_averaged_and_other_requests_are_another_case(
    simulated: dict[str, RunDirectory], tmp_path: Path
) -> None:
    def scaled(summary: dict[str, Any]) -> None:
        summary["conditions"]["workload.workload"] += ",scale=0.25"

    runs = [as_live(simulated["rps"], tmp_path / "a"), as_live(simulated["rps"], tmp_path / "b", slower(3))]
    others = [as_live(simulated["rps"], tmp_path / "c", scaled), simulated["rps"]]
    found = cases(map(RunData, [*runs, *others]))
    assert list(found) == [
        "amesos-document, amesos:pipeline=document, 60–90 s",
        "amesos-document, amesos:pipeline=document,scale=0.25, 60–90 s",
    ]
    first, second = found.values()
    assert {key: len(some) for key, some in first.items()} == {("local", "rps"): 2, ("sim", "rps"): 1}
    assert {key: len(some) for key, some in second.items()} == {("local", "rps"): 1}
    averaged, alone = mean(first, "local", "rps"), mean(first, "sim", "rps")
    assert averaged is not None and alone is not None
    assert averaged.p99_s == pytest.approx(2 * alone.p99_s)
    once, twice, thrice = (f"{factor * 1000 * alone.p99_s:.1f}" for factor in (1, 2, 3))
    assert row(said(*runs, simulated["rps"]), "rps")[9].startswith(f"{twice} ({once}–{thrice}) / {once} ms")


def test_folders_without_a_finished_run_are_told(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match="no finished run of amesos-aes or amesos-document or amesos-matrix"):
        said(RunDirectory(tmp_path))
