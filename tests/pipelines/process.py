"""The analytics process of a run, as a test starts and ends it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from penstock.rundir import RunDirectory
from penstock.settings import Endpoints, Folders
from tests.support.eventually import eventually

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0


@contextmanager
def analytics(directory: RunDirectory, services: Endpoints) -> Iterator[subprocess.Popen[str]]:
    """The process, ready; killed at the end if it is still there."""
    env = os.environ | {
        "PENSTOCK_KAFKA": services.kafka,
        "PENSTOCK_PROMETHEUS": "",
        "PENSTOCK_SCRAPE_TARGETS": str(directory.path / "targets"),
        "PENSTOCK_JARS": str(Folders().jars.absolute()),
    }
    log, ready = directory.path / "log", directory.path / "pipelines-ready"
    ready.unlink(missing_ok=True)
    with log.open("a") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "pipelines.stream", "--run", str(directory.path)],
            env=env,
            cwd=directory.path.parent,
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        eventually(lambda: ready.exists() or process.poll() is not None, within_s=START_TIMEOUT_S)
        assert process.poll() is None, log.read_text()
        yield process
    finally:
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        process.wait()
        psutil.wait_procs(family, timeout=20)


def end(process: subprocess.Popen[str]) -> None:
    """SIGTERM; it must leave nothing behind."""
    family = psutil.Process(process.pid).children(recursive=True)
    assert any(child.name() == "java" for child in family)
    process.send_signal(signal.SIGTERM)
    assert process.wait(STOP_TIMEOUT_S) == 0
    _, alive = psutil.wait_procs(family, timeout=5)
    assert alive == []
