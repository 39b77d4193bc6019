"""The run directory: names, torn lines, and errors that name what is missing."""

import errno
import resource
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.contracts import ReplicaEvent
from penstock.errors import PenstockError
from penstock.rundir import LOAD_SESSION, JsonLines, RunDirectory, read_lines, slug
from penstock.runspec import RunSpec, ScalerSpec
from tests.support.mutations import mutations

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_runs_of_the_same_second_get_directories_of_their_own(tmp_path: Path) -> None:
    first = RunDirectory.create(tmp_path, "binpack-workload-1", "binpack_tail", now=NOW)
    second = RunDirectory.create(tmp_path, "binpack-workload-1", "binpack_tail", now=NOW)
    assert first.name == "20260102T030405Z-binpack-workload-1-binpack-tail"
    assert second.name == first.name + "-2"


def test_the_spec_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "e", "s", now=NOW)
    spec = RunSpec(run="r", experiment="e", world="local", scaler=ScalerSpec(name="s"), duration_s=10)
    directory.write(directory.spec_file, spec)
    assert RunDirectory.open(directory.path).spec() == spec
    assert not directory.finished


def test_a_folder_without_a_run_is_refused_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_RUNS", "/mnt/my-runs")
    said = r"not a run directory \(no run.json\); `penstock runs list` prints those in /mnt/my-runs \(PENSTOCK_RUNS\)"
    with pytest.raises(PenstockError, match=said):
        RunDirectory.open(tmp_path)


def test_an_incomplete_run_names_what_is_missing(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "e", "s", now=NOW)
    with pytest.raises(PenstockError, match=r"missing manifest.json"):
        directory.manifest()
    with pytest.raises(PenstockError, match=r"missing decisions.jsonl, delivery.parquet"):
        directory.require(directory.results_folder, directory.decisions_file, directory.delivery_file)


def test_an_incomplete_load_session_is_not_told_to_be_compared_again(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "load", "s", now=NOW)
    spec = RunSpec(run="r", experiment=LOAD_SESSION, world="local", scaler=ScalerSpec(name="s"), duration_s=10)
    directory.write(directory.spec_file, spec)
    with pytest.raises(PenstockError, match=r"missing ledger.parquet; the load session did not come to its end"):
        directory.require(directory.ledger_file)


def test_a_broken_spec_names_the_file_and_what_is_wrong(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path, "e", "s", now=NOW)
    directory.spec_file.write_text('{"run": 5}')
    with pytest.raises(PenstockError, match=r"run.json: cannot be read as RunSpec: .*"):
        directory.spec()


def test_a_line_torn_by_a_kill_costs_that_line_only(tmp_path: Path) -> None:
    path = tmp_path / "replicas.jsonl"
    before, after = ReplicaEvent("f", "f-1", "requested", 1), ReplicaEvent("f", "f-1", "gone", 2)
    lines = JsonLines(path)
    lines.append(before)
    lines.close()
    with path.open("ab") as torn:
        torn.write(b'{"fleet":"f","repl')
    lines = JsonLines(path)
    lines.append(after)
    lines.close()
    assert list(read_lines(path, ReplicaEvent)) == [before, after]


def test_a_line_of_the_wrong_shape_is_named_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "replicas.jsonl"
    path.write_text('{"fleet":"f","replica":"f-1","phase":"asleep","at_ns":1}\n')
    with pytest.raises(PenstockError, match=r"replicas.jsonl:1: not a ReplicaEvent"):
        list(read_lines(path, ReplicaEvent))


def test_slugs_have_letters_digits_and_dashes_only() -> None:
    assert slug("My Scaler: <b>v2</b>") == "my-scaler-b-v2-b"


# --- hostile input ---------------------------------------------------------------------------------------------------

SPEC = msgspec.json.encode(RunSpec(run="r", experiment="e", world="local", scaler=ScalerSpec(name="s"), duration_s=10))
LINE = msgspec.json.encode(ReplicaEvent("f", "f-0", "joined", 5, "Grüße"))
in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


@in_one_folder
@given(content=st.binary(max_size=100) | mutations(SPEC))
def test_any_run_json_is_read_or_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.json").write_bytes(content)
    try:
        assert isinstance(RunDirectory(tmp_path).spec(), RunSpec)
    except PenstockError as error:
        assert "run.json" in str(error)


@in_one_folder
@given(cut=st.integers(0, len(LINE)))
def test_a_line_torn_within_a_letter_is_skipped(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "replicas.jsonl"
    path.write_bytes(LINE + b"\n" + LINE[:cut])
    assert len(list(read_lines(path, ReplicaEvent))) == 1 + (cut == len(LINE))


@in_one_folder
@given(content=mutations(LINE + b"\n" + LINE + b"\n"))
def test_any_journal_is_read_or_refused_by_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "replicas.jsonl"
    path.write_bytes(content)
    try:
        assert all(isinstance(event, ReplicaEvent) for event in read_lines(path, ReplicaEvent))
    except PenstockError as error:
        assert "replicas.jsonl:" in str(error)


class Nearly:
    """A file on a disk with ``room`` bytes."""

    def __init__(self, room: int) -> None:
        self.room, self.content, self.closed = room, b"", False

    def write(self, content: bytes) -> int:
        part = bytes(content[: self.room])
        if not part:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(part)
        self.content += part
        return len(part)

    def close(self) -> None:
        self.closed = True


def test_lines_for_which_there_is_no_room_are_written_whole_and_in_order_later(tmp_path: Path) -> None:
    lines, full = JsonLines(tmp_path / "lines.jsonl"), Nearly(7)
    lines._file.close()
    lines._file = full  # type: ignore[assignment]
    for number in range(3):
        lines.append([number])
    assert full.content == b"[0]\n[1]"
    full.room = 1000
    lines.append([3])
    assert full.content == b"[0]\n[1]\n[2]\n[3]\n"


def test_a_limit_on_the_size_of_files_is_a_full_disk(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "lines.jsonl")
    lines.append([0])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        lines.append([1])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "lines.jsonl").read_bytes() == b"[0]\n"
    lines.append([2])
    lines.close()
    assert (tmp_path / "lines.jsonl").read_bytes() == b"[0]\n[1]\n[2]\n"


def test_lines_that_found_no_room_until_the_end_are_an_error(tmp_path: Path) -> None:
    lines, full = JsonLines(tmp_path / "lines.jsonl"), Nearly(0)
    lines._file.close()
    lines._file = full  # type: ignore[assignment]
    lines.append([1])
    with pytest.raises(OSError, match=r"No space left on device: '.*lines\.jsonl'"):
        lines.close()
    assert full.closed
    lines.close()
    assert full.content == b"", "what a closed file lacks is written no more"
