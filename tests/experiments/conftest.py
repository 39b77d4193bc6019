"""A whole run on real services, for the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from rich.console import Console

from experiments.analysis.measurement import summary_of
from experiments.analysis.summary import Summary
from experiments.compare import begin, carry_out_all
from experiments.experiment import Experiment, Options
from experiments.progress import RunProgress
from infra.local.service import PREFIX
from infra.local.services import LocalServices
from infra.local.world import LocalWorld
from penstock.rundir import RunDirectory
from penstock.supervision import Supervisor


class Play(Protocol):
    """Carries one run out."""

    def __call__(self, experiment: Experiment, scaler: str, options: Options) -> tuple[RunDirectory, Summary]: ...


@pytest.fixture
def play(local_services: LocalServices, tmp_path: Path) -> Iterator[Play]:
    """``play(experiment, scaler, options)``: one finished run."""

    def run(experiment: Experiment, scaler: str, options: Options) -> tuple[RunDirectory, Summary]:
        directory = begin(experiment, [scaler], options, 1, tmp_path, resume=False)
        with RunProgress(Console(quiet=True), runs=1) as progress, LocalWorld(services=local_services) as world:
            carry_out_all(world, experiment, options, directory, progress)
        (finished,) = directory.runs()
        return finished, summary_of(finished)

    yield run
    programs = Supervisor(local_services.endpoints().supervisor).programs()
    left = [name for name in programs if not name.startswith(PREFIX)]
    assert left == [], f"a run left programs behind: {left}"
