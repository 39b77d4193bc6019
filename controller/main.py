"""The controller of one run as a process: ``python -m controller.main --run DIRECTORY``.

It serves the plan service, brings up the initial replicas under a range plan, writes ``controller-ready`` into the
run directory once they have joined (``{"ready": true, "joined": n, "url": …}``), waits until run.json has a start,
and ticks from then on. SIGTERM ends it; replicas stay for whoever comes next unless ``--stop-replicas`` is given.
Started again with the same directory, it goes on from ``controller-state.json`` with the replicas that exist. While
the directory has a file ``blind``, the monitor sees nothing. Addresses come from the environment
(``penstock.settings.Endpoints``).
"""

import argparse
import logging
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from prometheus_client import REGISTRY

from controller.actuators.processes import ProcessActuator, WorkerProgram
from controller.exposition import ControllerMetrics
from controller.journal import RunJournal, TickRecord
from controller.loop import Loop, LoopState, check_kinds
from controller.monitors.kafka import KafkaMonitor, OffsetReader
from controller.plan_service import PlanService
from controller.plans import PlanBoard
from controller.state import ControllerState, StateFile
from penstock.clock import NANOS_PER_SECOND
from penstock.contracts import Decision, StreamObservation
from penstock.errors import PenstockError
from penstock.exposition import expose
from penstock.plan import range_groups
from penstock.priority import take_precedence
from penstock.registry import make_scaler
from penstock.rundir import RunDirectory
from penstock.settings import Endpoints
from penstock.supervision import Supervisor

log = logging.getLogger("controller")

POLL_S = 0.05
PATIENCE_S = 5.0
"""How often it says what it waits for."""
MONITOR_SHARE = 0.4
"""Of the time between two ticks: what reading the offsets may take at most (0.4 s at ticks of 1 s)."""
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "OPENBLAS_NUM_THREADS")


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
    """Everything of one run, put together. ``worker`` is the command of a replica, without ``--run`` and
    ``--replica``.
    """

    def __init__(self, directory: RunDirectory, endpoints: Endpoints, worker: Sequence[str]) -> None:
        self.directory = directory
        self.spec = spec = directory.spec()
        self.clock = StoppableClock()
        self.endpoints = endpoints
        self._scalers = [make_scaler(each) for each in (spec.scaler, *spec.shadows)]
        check_kinds(self._scalers, StreamObservation)
        self._state_file = StateFile(directory)
        state = self._state_file.read()
        self._loop_state = state.loop if state is not None else LoopState()
        self._journal = RunJournal(directory)
        self._metrics = ControllerMetrics(spec.run, spec.fleet, REGISTRY)
        board = PlanBoard(
            join_timeout_s=spec.join_timeout_s,
            directed=spec.worker.directed_rebalance,
            state=state.board if state is not None else None,
        )
        self.plans = PlanService(board, group=spec.group, fleet=spec.fleet, url=endpoints.require("controller"))
        self.actuator = ProcessActuator(
            run=spec.run,
            fleet=spec.fleet,
            partitions=spec.partitions,
            max_replicas=spec.max_replicas,
            supervisor=Supervisor(endpoints.require("supervisor")),
            plans=self.plans,
            worker=WorkerProgram(
                command=(*worker, "--run", str(directory.path)),
                folder=directory.path,
                logs=directory.logs_folder,
                env=worker_environment(os.environ),
            ),
            drain_timeout_s=2 * spec.join_timeout_s,
            roster=state.roster if state is not None else None,
        )

    def run(self) -> None:
        """From bring-up to SIGTERM."""
        expose(
            f"{self.spec.run}-controller",
            self.endpoints.scrape_targets,
            {"run": self.spec.run, "fleet": self.spec.fleet},
        )
        self.plans.start()
        self.actuator.step()  # finds the replicas that a predecessor left
        self.actuator.start(self._after_step)
        try:
            self._bring_up()
            self._await_start()
            if not self.clock.stopped:
                loop = self._loop()
                loop.run(lambda: self.clock.stopped, lambda record: self._after_tick(loop, record))
        finally:
            self._close()

    def stop_replicas(self) -> None:
        """End all replicas; after ``run``."""
        self.actuator.stop_replicas()
        self._journal.replicas(self.actuator.events())
        self._save()

    def close(self) -> None:
        """Close the journal."""
        self._journal.close()

    # --- before the run ----------------------------------------------------------------------------------------------

    def _bring_up(self) -> None:
        """The initial replicas, unless a predecessor has made a plan already."""
        if not self.plans.groups:
            wanted = self.spec.initial_replicas
            groups = range_groups(range(self.spec.partitions), wanted)
            self.actuator.apply(Decision(action="up", targets={self.spec.fleet: wanted}, assignment=groups))
        said_s = time.monotonic()
        while not self.clock.stopped and not self._serving():
            self.clock.sleep_until(time.time() + POLL_S)
            if time.monotonic() - said_s >= PATIENCE_S:
                said_s = time.monotonic()
                log.info("waiting for replicas to join: %s", dict(self.actuator.replicas()))
        if self.clock.stopped:
            return
        ready = {"ready": True, "joined": self.actuator.counts().joined, "url": self.plans.url}
        self.directory.write(self.directory.controller_ready_file, ready)
        log.info("ready: %d replicas of %s joined, plans at %s", ready["joined"], self.spec.group, self.plans.url)

    def _serving(self) -> bool:
        """A plan is in force and all replicas have joined; a run that has begun is not kept waiting."""
        if self.directory.spec().start_ns > 0:
            return True
        counts = self.actuator.counts()
        return self.plans.current is not None and self.plans.pending is None and counts.joined == counts.current

    def _await_start(self) -> None:
        while not self.clock.stopped and self.spec.start_ns <= 0:
            self.clock.sleep_until(time.time() + POLL_S)
            self.spec = self.directory.spec()

    # --- the run -----------------------------------------------------------------------------------------------------

    def _loop(self) -> Loop:
        spec = self.spec
        origin_s = spec.start_ns / NANOS_PER_SECOND
        period_s = min(scaler.period_s for scaler in self._scalers)
        reader = OffsetReader(
            bootstrap=self.endpoints.require("kafka"),
            topic=spec.events_topic,
            group=spec.group,
            partitions=spec.partitions,
            clock=self.clock,
            timeout_s=MONITOR_SHARE * min(1.0, period_s),
        )
        reader.read()  # connections are made before the first tick, not in it
        monitor = KafkaMonitor(
            fleet=spec.fleet,
            reader=reader,
            partitions=spec.partitions,
            clock=self.clock,
            origin_s=origin_s,
            replicas=self.actuator,
            plans=self.plans,
            rate_interval_s=1.0 / spec.speed,
            blind=self.directory.blind_file.exists,
        )
        return Loop(
            fleet=spec.fleet,
            clock=self.clock,
            monitor=monitor,
            actuator=self.actuator,
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
        self._journal.replicas(self.actuator.events())
        self._save()

    def _save(self) -> None:
        self._state_file.write(
            ControllerState(loop=self._loop_state, roster=self.actuator.snapshot(), board=self.plans.snapshot())
        )

    def _close(self) -> None:
        self.actuator.stop()
        self.plans.stop()
        self._journal.replicas(self.actuator.events())
        self._save()


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a replica is given of this process's environment: Penstock's settings and what Python needs to run."""
    return {name: value for name, value in environment.items() if name in PASSED_ON or name.startswith("PENSTOCK_")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 after SIGTERM, 2 with one line on standard error where the user can mend something."""
    parser = argparse.ArgumentParser(prog="python -m controller.main", description="The controller of one run.")
    parser.add_argument("--run", type=Path, required=True, help="run directory with its run.json")
    parser.add_argument(
        "--worker", default=f"{shlex.quote(sys.executable)} -m consumers.worker", help="command of a replica"
    )
    parser.add_argument("--stop-replicas", action="store_true", help="end the replicas too at SIGTERM")
    options = parser.parse_args(arguments)
    take_precedence()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        directory = RunDirectory.open(options.run.absolute())
        controller = Controller(directory, Endpoints(), shlex.split(options.worker))
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
