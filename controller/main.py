"""The controller of one run as a process: ``python -m controller.main --run DIRECTORY``.

It puts together the fleet of the run's system (``controller.fleets``), brings up the initial replicas, writes
``controller-ready`` into the run directory once they serve (``{"ready": true, "joined": n}``), waits until run.json has
a start, and ticks from then on. SIGTERM ends it; replicas stay for whoever comes next unless ``--stop-replicas`` is
given. Started again with the same directory, it goes on from ``controller-state.json`` with the replicas that exist.
While the directory has a file ``blind``, the monitor sees nothing. Addresses come from the environment
(``penstock.settings.Endpoints``).
"""

import argparse
import logging
import shlex
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from prometheus_client import REGISTRY

from controller.exposition import ControllerMetrics
from controller.fleets.fleet import make_fleet
from controller.journal import RunJournal, TickRecord
from controller.loop import Loop, LoopState, check_kinds
from controller.state import ControllerState, StateFile
from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.exposition import expose
from penstock.priority import take_precedence
from penstock.registry import make_scaler
from penstock.rundir import RunDirectory
from penstock.settings import Endpoints

log = logging.getLogger("controller")

POLL_S = 0.05
PATIENCE_S = 5.0
"""How often it says what it waits for."""


class StoppableClock:
    """The wall clock; a sleep ends at once when ``stop`` is called, also from a signal handler."""

    def __init__(self) -> None:
        self._stop = threading.Event()

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        return time.time()

    def sleep_until(self, time_s: float) -> None:
        """Until then or until ``stop``."""
        self._stop.wait(max(0.0, time_s - time.time()))

    def stop(self, *_: object) -> None:
        """End this and every later sleep. Takes what a signal handler is given."""
        self._stop.set()

    @property
    def stopped(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stop.is_set()


class Controller:
    """Everything of one run, put together: the loop, its journal, and the fleet of the run's system. ``worker`` is the
    command of a stream's replica, without ``--run`` and ``--replica``; None for the one that there is.
    """

    def __init__(self, directory: RunDirectory, endpoints: Endpoints, worker: Sequence[str] | None = None) -> None:
        self.directory = directory
        self.spec = spec = directory.spec()
        self.clock = StoppableClock()
        self.endpoints = endpoints
        self._scalers = [make_scaler(each) for each in (spec.scaler, *spec.shadows)]
        self._state_file = StateFile(directory)
        state = self._state_file.read()
        self._loop_state = state.loop if state is not None else LoopState()
        options = {"worker": worker} if worker is not None else {}
        self.fleet = make_fleet(
            directory, spec, endpoints, self.clock, state.fleet if state is not None else None, **options
        )
        check_kinds(self._scalers, self.fleet.offers)
        self._journal = RunJournal(directory)
        self._metrics = ControllerMetrics(
            spec.run, spec.fleet, REGISTRY, max_replicas=spec.max_replicas, slo_s=spec.slo_s
        )

    def run(self) -> None:
        """From bring-up to SIGTERM."""
        expose(
            f"{self.spec.run}-controller",
            self.endpoints.scrape_targets,
            {"run": self.spec.run, "fleet": self.spec.fleet},
        )
        self.fleet.start(self._after_step)
        try:
            self._bring_up()
            self._await_start()
            if not self.clock.stopped:
                loop = self._loop()
                loop.run(lambda: self.clock.stopped, lambda record: self._after_tick(loop, record))
        finally:
            self.fleet.stop()
            self._after_step()

    def stop_replicas(self) -> None:
        """End all replicas; after ``run``."""
        self.fleet.stop_replicas()
        self._after_step()

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    # --- before the run ----------------------------------------------------------------------------------------------

    def _bring_up(self) -> None:
        self.fleet.bring_up()
        said_s = time.monotonic()
        while not self.clock.stopped and not self._serving():
            self.clock.sleep_until(time.time() + POLL_S)
            if time.monotonic() - said_s >= PATIENCE_S:
                said_s = time.monotonic()
                log.info("waiting for replicas to join: %s", dict(self.fleet.actuator.replicas()))
        if self.clock.stopped:
            return
        joined = self.fleet.counts().joined
        self.directory.write(self.directory.controller_ready_file, {"ready": True, "joined": joined})
        log.info("ready: %d replicas of %s joined", joined, self.spec.group)

    def _serving(self) -> bool:
        """A run that has begun is not kept waiting."""
        return self.directory.spec().start_ns > 0 or self.fleet.ready()

    def _await_start(self) -> None:
        while not self.clock.stopped and self.spec.start_ns <= 0:
            self.clock.sleep_until(time.time() + POLL_S)
            self.spec = self.directory.spec()

    # --- the run -----------------------------------------------------------------------------------------------------

    def _loop(self) -> Loop:
        spec = self.spec
        origin_s = spec.start_ns / NANOS_PER_SECOND
        return Loop(
            fleet=spec.fleet,
            clock=self.clock,
            monitor=self.fleet.monitor(origin_s, self.directory.blind_file.exists),
            actuator=self.fleet.actuator,
            acting=self._scalers[0],
            shadows=self._scalers[1:],
            journals=(self._journal, self._metrics),
            origin_s=origin_s,
            tick_phase_s=spec.tick_phase_s,
            seed=spec.seed,
            resume=self._loop_state,
        )

    def _after_tick(self, loop: Loop, record: TickRecord) -> None:
        self._loop_state = loop.snapshot()
        self._save()
        if record.note:
            log.warning("tick %d at %.1f s: %s", record.tick, record.time_s, record.note)

    def _after_step(self) -> None:
        self._journal.replicas(self.fleet.actuator.events())
        self._save()

    def _save(self) -> None:
        self._state_file.write(ControllerState(loop=self._loop_state, fleet=self.fleet.snapshot()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 after SIGTERM, 2 with one line on standard error where the user can mend something."""
    parser = argparse.ArgumentParser(prog="python -m controller.main", description="The controller of one run.")
    parser.add_argument("--run", type=Path, required=True, help="run directory with its run.json")
    parser.add_argument("--worker", default="", help="command of a stream's replica, without --run and --replica")
    parser.add_argument("--stop-replicas", action="store_true", help="end the replicas too at SIGTERM")
    options = parser.parse_args(arguments)
    take_precedence()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a bound is changed some times a second
    try:
        directory = RunDirectory.open(options.run.absolute())
        controller = Controller(directory, Endpoints(), shlex.split(options.worker) or None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, controller.clock.stop)
        controller.run()
        if options.stop_replicas:
            controller.stop_replicas()
        controller.close()
    except PenstockError as error:
        log.error("%s", error)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
