"""A worker as a process, whatever its broker: arguments, log, signals, metrics, exit code."""

import argparse
from collections.abc import Callable
from contextlib import closing
from typing import Protocol

from prometheus_client import REGISTRY

from consumers.meters import ServiceMeters
from consumers.plan_client import PlanClient, PlanServiceError
from penstock.adapters.exposition import expose
from penstock.process_main import await_identity, configure_log, on_termination, process_parser, run_main
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.settings import Endpoints

IDENTITY_WAIT_S = 20.0
"""How long one request for the replica's name waits at the plan service."""


class Working(Protocol):
    """The work of a process."""

    spec: RunSpec

    @property
    def meters(self) -> ServiceMeters:
        """Its counters."""
        ...

    def run(self) -> None:
        """Work until stopped."""
        ...

    def stop(self) -> None:
        """Finish the work in progress and return from ``run``. May be called from a signal handler."""
        ...


def parser(module: str, description: str, *, in_pods: bool = False) -> argparse.ArgumentParser:
    """Common arguments: ``--run`` and ``--replica``; with ``in_pods`` also ``--pod`` in place of ``--replica``."""
    arguments = process_parser(module, description)
    arguments.set_defaults(pod="")
    names = arguments.add_mutually_exclusive_group(required=True)
    names.add_argument("--replica", help="name of this replica in plans, reports and results")
    if in_pods:
        names.add_argument("--pod", help="name of this pod; the controller tells which replica it is")
    return arguments


def run_process(given: argparse.Namespace, make: Callable[[RunDirectory, Endpoints], Working]) -> int:
    """Work until SIGTERM or SIGINT. Exit code 0, or 2 with one line for an error that the user can correct."""

    def work() -> None:
        endpoints, directory = Endpoints(), RunDirectory.open(given.run)
        if given.pod:  # asked of the plan service until the pod is a replica of a plan
            with closing(PlanClient(endpoints.require("controller"), directory.spec().group)) as client:
                given.replica = await_identity(lambda: client.replica(given.pod, IDENTITY_WAIT_S), PlanServiceError)
        replica = make(directory, endpoints)
        on_termination(replica.stop)
        REGISTRY.register(replica.meters)
        expose(given.replica, endpoints.scrape_targets, {"fleet": replica.spec.fleet, "run": replica.spec.run})
        replica.run()

    configure_log(label=given.replica or given.pod)
    return run_main(work)
