"""Which long tests CI leaves out."""

import subprocess
from pathlib import Path

import pytest

from tests.support.changed import CLUSTER_RUN, ROOT, WINDOW_S, changed_lately, unchanged


class Item:
    nodeid = "tests/cluster/test_a.py::test_b"

    def __init__(self, *paths: str) -> None:
        self.marker = pytest.mark.when_changed(*paths).mark if paths else None

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        assert name == "when_changed"
        return self.marker


@pytest.mark.parametrize(
    ("paths", "changed", "played"),
    [
        ((), {"a.py"}, True),
        (("controller/keda",), None, True),
        (("controller/keda",), {"controller/keda/caution.py"}, True),
        (("pyproject.toml", "a.py"), {"a.py"}, True),
        (("controller/keda",), {"tests/cluster/test_a.py"}, True),
        (("controller/keda",), {"controller/keda_kafka.py", "tests/cluster/test_ab.py"}, False),
        (("controller/keda",), set(), False),
    ],
)
def test_a_test_is_left_out_when_nothing_of_its_part_has_changed(
    paths: tuple[str, ...], changed: set[str] | None, played: bool
) -> None:
    reason = unchanged(Item(*paths), changed)  # type: ignore[arg-type]
    assert (reason == "") is played
    assert played or "controller/keda" in reason


def test_what_a_live_run_consists_of_is_there() -> None:
    assert [path for path in CLUSTER_RUN if not (ROOT / path).exists()] == []


def commit(folder: Path, name: str, at_s: int) -> None:
    (folder / name).write_text(name)
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "add", "."], cwd=folder, check=True)
    date = {"GIT_COMMITTER_DATE": f"{at_s} +0000", "PATH": "/usr/bin:/bin"}
    subprocess.run(["git", *who, "commit", "--quiet", f"--message={name}"], cwd=folder, check=True, env=date)


def test_changes_before_the_window_do_not_count(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    newest_s = 1_800_000_000
    for name, before_s in (("old.py", WINDOW_S + 60), ("a b.py", WINDOW_S - 60), ("new.py", 0)):
        commit(tmp_path, name, newest_s - before_s)
    assert changed_lately(tmp_path) == frozenset({"a b.py", "new.py"})


def test_without_a_history_nothing_is_known(tmp_path: Path) -> None:
    assert changed_lately(tmp_path) is None
