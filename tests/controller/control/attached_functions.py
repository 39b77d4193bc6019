"""``penstock control --functions`` as a process, with a state folder and runs of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from controller.journal import TickRecord, read_ticks
from penstock.rundir import RunDirectory
from tests.support.eventually import eventually

REPOSITORY = Path(__file__).parents[3]
BY_CALLS = f"{Path(__file__).parent / 'scaler_by_calls.py'}:ByCalls"


class AttachedFunctions:
    """One process at a time in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "control.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, functions: str, gateway: str, *arguments: str, scaler: str = BY_CALLS) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "PYTHONPATH": str(REPOSITORY),
            "PENSTOCK_STATE": str(self.folder),
            "PENSTOCK_RUNS": str(self.folder / "runs"),
        }
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from penstock.command import main; main()", "control",
                 "--functions", functions, "--gateway", gateway, "--scaler", scaler, *arguments],
                stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=self.folder,
            )  # fmt: skip

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.process.wait()

    @property
    def directory(self) -> RunDirectory:
        return RunDirectory.open(max((self.folder / "runs").iterdir()))

    def ticks(self) -> list[TickRecord]:
        return list(read_ticks(self.directory))

    def newest(self, condition: Callable[[TickRecord], bool]) -> bool:
        """Whether it holds of the newest tick."""
        ticks = self.ticks()
        return bool(ticks) and condition(ticks[-1])

    def said(self, text: str) -> bool:
        return text in self.log.read_text()

    def wait(self, what: str, condition: Callable[[], bool]) -> None:
        assert self.process is not None
        process = self.process
        eventually(
            lambda: condition() or process.poll() is not None,
            lambda: f"{what}: not in time\n{self.log.read_text()[-4000:]}",
        )
        assert condition(), f"{what}: it has ended\n{self.log.read_text()[-4000:]}"

    def interrupt(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=60)
