"""Shared by the tests of this folder: the folder of runs, a file of rates, and a whole run on real services."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from rich.console import Console

from experiments.compare import begin, carry_out_all
from experiments.experiment import Experiment, Options
from experiments.progress import RunProgress
from infra.local.service import PREFIX
from infra.local.services import LocalServices
from infra.runs.local_world import LocalWorld
from penstock.adapters.process_manager import Supervisor
from penstock.rundir import RunDirectory
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData
from report.analysis.summary import RunSummary


class Play(Protocol):
    """Carries one run out."""

    def __call__(self, experiment: Experiment, scaler: str, options: Options) -> tuple[RunDirectory, RunSummary]: ...


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder to which commands write their runs."""
    folder = tmp_path / "runs"
    monkeypatch.setenv("PENSTOCK_RUNS", str(folder))
    return folder


@pytest.fixture
def rates_file(tmp_path: Path) -> Callable[[Iterable[float]], Path]:
    """``rates_file(rates)``: a trace with one rate per second, as ``load.csv``."""

    def write(rates: Iterable[float]) -> Path:
        path = tmp_path / "load.csv"
        path.write_text("rate_per_s\n" + "".join(f"{float(rate)!r}\n" for rate in rates), encoding="utf-8")
        return path

    return write


@pytest.fixture
def play(local_services: LocalServices, tmp_path: Path) -> Iterator[Play]:
    """``play(experiment, scaler, options)``: one finished run."""

    def run(experiment: Experiment, scaler: str, options: Options) -> tuple[RunDirectory, RunSummary]:
        directory = begin(experiment, [scaler], options, 1, tmp_path, resume=False)
        with RunProgress(Console(quiet=True), runs=1) as progress, LocalWorld(services=local_services) as world:
            carry_out_all(world, experiment, options, directory, progress)
        (finished,) = directory.runs()
        return finished, summary_of(RunData(finished))

    yield run
    programs = Supervisor(local_services.endpoints().supervisor).programs()
    left = [name for name in programs if not name.startswith(PREFIX)]
    assert left == [], f"a run left programs behind: {left}"
