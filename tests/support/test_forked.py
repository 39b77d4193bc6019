"""Tests in several processes are reported as one process would report them; a process that dies fails its test."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = {
    "test_one.py": """
        import os, pytest
        SEEN = []
        def test_first(tmp_path): SEEN.append(tmp_path)
        def test_second_in_the_same_process(): assert len(SEEN) == 1
        @pytest.mark.skip(reason="no reason")
        def test_skipped(): pass
        def test_failing(): print("words of a test"); assert 1 == 2, "the message"
    """,
    "test_two.py": """
        import os
        def test_before(): pass
        def test_dying(): os._exit(3)
        def test_after(): pass
    """,
}


def test_one_summary_has_the_tests_of_all_processes(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text("\n".join(line[8:] for line in text.splitlines()))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-ra", "-p", "tests.support.forked", "--forks", "2"]
    folders = ["--rootdir", tmp_path, "-c", tmp_path / "pytest.ini", "--basetemp", tmp_path / "temporary", tmp_path]
    done = subprocess.run([*command, *map(str, folders)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "3 failed, 3 passed, 1 skipped" in done.stdout, done.stdout
    assert "the message" in done.stdout and "words of a test" in done.stdout
    for test, reason in (("dying", "its process ended with 3"), ("after", "its process ended before its turn")):
        assert f"test_two.py::test_{test}" in done.stdout and reason in done.stdout
