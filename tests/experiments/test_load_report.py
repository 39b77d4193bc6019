"""A load session is judged as any run."""

import json
import subprocess
import sys
from pathlib import Path

from penstock.rundir import RunDirectory
from tests.experiments.synthetic import Toy, write_run


def test_a_session_without_a_manifest_gets_verdict_manifest_and_report(tmp_path: Path) -> None:
    directory: RunDirectory = write_run(tmp_path, Toy(scaler="linear", seconds=20))
    directory.manifest_file.unlink()
    done = subprocess.run(
        [sys.executable, "-m", "experiments.load_report", str(directory.path), "0"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(directory.report_file)
    assert "linear" in directory.report_file.read_text("utf-8")
    verdict = json.loads((directory.path / "verdict.json").read_text())
    assert verdict["runs"][0]["verdict"] == directory.manifest().verdict
    directory.verify(directory.manifest())
