"""Rows of finished runs of any experiment."""

from pathlib import Path

import msgspec
from rich.console import Console

from experiments.driver import carry_out, describe
from experiments.elastic_faas.tables import EXPERIMENT
from experiments.experiment import Options
from experiments.measured import row
from experiments.progress import RunProgress
from report.groups import group_runs
from simulator.world import SimWorld


def test_a_row_tells_verdicts_and_how_much_the_host_took(tmp_path: Path) -> None:
    """Virtual time has no host; the share of a live run is in its summary."""
    options = Options(world="sim", seconds=10.0)
    directory, _ = describe(EXPERIMENT, "faas", options, tmp_path)
    with RunProgress(Console(quiet=True), runs=1) as progress, SimWorld() as world:
        summary = carry_out(world, EXPERIMENT, options, directory, progress)
    assert summary.cpu_stolen is None
    shares = (None, 0.034, 0.05)
    runs = [msgspec.structs.replace(summary, cpu_stolen=share) for share in shares]
    (alone,), (both,) = group_runs(runs[:1]), group_runs(runs[1:])
    assert (row(alone)["verdicts"], row(alone)["taken by the host, %"]) == ("1 VALID", "–")
    assert (row(both)["runs"], row(both)["taken by the host, %"]) == ("2", "4.2 (3.4–5.0)")
