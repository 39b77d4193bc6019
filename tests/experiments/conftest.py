"""A whole run on real services, for the tests of this folder."""

from collections.abc import Iterator
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
