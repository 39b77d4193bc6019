"""The controller of one run as a process: ``python -m controller.main --run DIRECTORY``.

It starts the fleet of the run's system (``controller.fleets``), brings up the initial replicas, writes
``controller-ready`` into the run directory once they serve (``{"ready": true, "joined": n}``), or the reason why they
never will into ``controller-refusal``, waits until run.json has a start, and ticks from then on. SIGTERM ends it; the
replicas stay for a successor unless ``--stop-replicas`` is given. Started again with the same directory, it continues
from ``controller-state.json`` with the replicas that exist. While the directory has a file ``blind``, the monitor
observes nothing. Addresses come from the environment (``penstock.settings.Endpoints``).
"""

import logging
import shlex
import sys
from collections.abc import Sequence

from controller.assembly import RunController, StateFile, StoppableClock, make_live_scaler
from controller.fleets.fleet import make_fleet
from penstock.fleet_kinds import kind_of
from penstock.process_main import configure_log, on_termination, process_parser, run_main, take_precedence
from penstock.rundir import RunDirectory
from penstock.settings import Endpoints


def make_controller(directory: RunDirectory, endpoints: Endpoints, worker: Sequence[str] = ()) -> RunController:
    """The controller of the run, where a predecessor left it. ``worker``: command of a stream's replica."""
    clock, spec, state = StoppableClock(), directory.spec(), StateFile(directory).read()
    offered = kind_of(spec.system).load("observation")
    scalers = [make_live_scaler(each, offered, spec.speed) for each in (spec.scaler, *spec.shadows)]
    of_stream = {"worker": tuple(worker)} if worker else {}
    fleet = make_fleet(directory, spec, endpoints, clock, state.fleet if state else None, **of_stream)
    return RunController(directory, spec, endpoints, fleet, scalers, clock, state.loop if state else None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 after SIGTERM, 2 with one line on standard error for an error that the user can correct."""
    parser = process_parser("controller.main", "The controller of one run.")
    parser.add_argument("--worker", default="", help="command of a stream's replica, without --run and --replica")
    parser.add_argument("--stop-replicas", action="store_true", help="end the replicas too at SIGTERM")
    options = parser.parse_args(arguments)

    def work() -> None:
        directory = RunDirectory.open(options.run.absolute())
        controller = make_controller(directory, Endpoints(), shlex.split(options.worker))
        on_termination(controller.clock.stop)
        controller.run()
        if options.stop_replicas:
            controller.stop_replicas()
        controller.close()

    take_precedence()
    configure_log({"httpx": logging.WARNING})  # the gateway is asked some times a second
    return run_main(work)


if __name__ == "__main__":
    sys.exit(main())
