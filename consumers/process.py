"""A worker as a process, whatever its broker: arguments, log, signals, metrics, exit code."""

import argparse
import logging
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Protocol

from prometheus_client import REGISTRY

from consumers.introduction import ask_replica
from consumers.meters import ServiceMeters
from penstock.errors import PenstockError
from penstock.exposition import expose
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.settings import Endpoints


class Working(Protocol):
    """What a process does until it is told to stop."""

    spec: RunSpec

    @property
    def meters(self) -> ServiceMeters:
        """What it counts."""
        ...

    def run(self) -> None:
        """Work until told to stop."""
        ...

    def stop(self) -> None:
        """Finish what is in hand and return from ``run``. May be called from a signal handler."""
        ...


def parser(module: str, description: str, *, in_pods: bool = False) -> argparse.ArgumentParser:
    """Arguments that all have: ``--run`` and ``--replica``; or ``--pod`` of a worker that may live in one."""
    arguments = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    arguments.add_argument("--run", type=Path, required=True, help="run directory (its run.json says what to do)")
    arguments.set_defaults(pod="")
    names = arguments.add_mutually_exclusive_group(required=True)
    names.add_argument("--replica", help="name of this replica in plans, reports and results")
    if in_pods:
        names.add_argument(
            "--pod", help="name of the pod that this is: the controller says which replica that makes it"
        )
    return arguments


def run_process(given: argparse.Namespace, make: Callable[[RunDirectory, Endpoints], Working]) -> int:
    """Work until SIGTERM or SIGINT. Exit code 0, or 2 with one line for what the user can mend."""
    name = given.replica or given.pod
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s {name} %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    try:
        endpoints = Endpoints()
        directory = RunDirectory.open(given.run)
        if given.pod:
            given.replica = ask_replica(endpoints.require("controller"), directory.spec().group, given.pod)
        work = make(directory, endpoints)
    except PenstockError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        work.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    REGISTRY.register(work.meters)
    expose(given.replica, endpoints.scrape_targets, {"fleet": work.spec.fleet, "run": work.spec.run})
    work.run()
    return 0
