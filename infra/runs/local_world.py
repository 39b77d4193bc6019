"""The local world: one run on real services, with all its processes on this machine.

Every process is a program of the supervisor, so that `penstock down` finds it even after this process was killed.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Self

from infra.local.grafana import board_link
from infra.local.kafka import allocate_indexes
from infra.local.services import LocalServices
from infra.local.warm_up import warm_up
from infra.runs.kinds import COMMON, live_kind, local_run
from infra.runs.left_behind import left_for_good, left_on_services
from infra.runs.live_world import LiveWorld
from penstock.rundir import RunDirectory, Verdict
from penstock.runspec import RunSpec
from penstock.world import Progress


class LocalWorld(LiveWorld):
    """World on this machine. It starts services that are not up, and stops them at the end unless some were up before.
    Those belong to another command; they stay up, and so does one of them that had died and that this world started.
    """

    def __init__(self, tell: Progress = lambda _: None, services: LocalServices | None = None) -> None:
        super().__init__()
        self._services = services or LocalServices.from_settings(tell)
        self._tell = tell
        self._needs: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        self._services.state.create()
        with ExitStack() as ending:
            ending.enter_context(self._services.state.running())
            before = self._services.running()
            endpoints = self._services.up(COMMON)
            if not before:
                ending.callback(self._services.down)
            if "kafka" not in before:
                warm_up(endpoints.require("kafka"))
            self._ending = ending.pop_all()
        return self

    def prepare(self, spec: RunSpec, directory: RunDirectory) -> None:
        """Start the services that only this kind of run needs, then prepare the run."""
        self._needs = live_kind(spec.system).needs
        if self._needs:
            self._services.up(self._needs)
        self._run = run = local_run(self._services, spec, directory)
        run.prepare()
        self._metrics = run.metrics
        if grafana := self._services.exports().get("PENSTOCK_GRAFANA"):
            self._tell(f"grafana: {board_link(grafana, spec.run, time.time_ns())}")
        allocate_indexes(self._services.state, [spec.events_topic, spec.results_topic])

    def judged(self, verdict: Verdict, reasons: Sequence[str]) -> None:
        """Let Prometheus take it in; at most a few seconds."""
        self._metrics.judged(verdict, reasons)

    def left_behind(self, run: str) -> Sequence[str]:
        """Programs, processes, topics, queues, functions and keys that stay."""
        endpoints, state = self._services.endpoints(), self._services.state.path
        return left_for_good(lambda: left_on_services(run, endpoints, state, functions="gateway" in self._needs))
