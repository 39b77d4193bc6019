"""What the actuators of function apps share.

Each of the parties (supervisor, Redis, RabbitMQ) may be away for a while: what needs it is left as it is, which is said
once, and is done when it is back.
"""

import logging
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from controller.actuators.processes import WorkerProgram
from controller.actuators.stepping import RosterT, SteppingActuator
from penstock.apps import AWAY, AppBoard
from penstock.errors import PenstockError
from penstock.supervision import Program, Programs, ProgramStatus

log = logging.getLogger(__name__)


class Reconciler(SteppingActuator[RosterT]):
    """Programs are named ``<run>:<name>``. ``program`` says how an app is run: its command is followed by what is the
    app's own.
    """

    def __init__(self, run: str, programs: Programs, program: WorkerProgram, apps: AppBoard, roster: RosterT) -> None:
        super().__init__(roster)
        self._run_name = run
        self._prefix = f"{run}:"
        self._supervisor = programs
        self._app_program = program
        self._apps = apps
        self._troubles: dict[str, str] = {}
        self._wanted: dict[str, int] = {}

    def stop(self) -> None:
        """Close the connections, too."""
        super().stop()
        self._apps.close()

    def trouble(self, part: str) -> str:
        """Why a party is away, empty if it was there at the last step."""
        return self._troubles.get(part, "")

    @contextmanager
    def _with(self, part: str) -> Iterator[None]:
        """What is done with one of the parties; if it is away the rest of the block is left for the next step."""
        try:
            yield
        except (PenstockError, *AWAY) as error:
            if self._troubles.get(part) != str(error):
                log.warning("%s: %s; left as it is until that is over", part, error)
            self._troubles[part] = str(error) or type(error).__name__
        else:
            self._troubles.pop(part, None)

    # --- programs and apps -------------------------------------------------------------------------------------------

    def _programs(self) -> dict[str, ProgramStatus]:
        """The run's programs without its name."""
        found = self._supervisor.programs(prefix=self._prefix)
        return {name.removeprefix(self._prefix): program for name, program in found.items()}

    def _start_program(self, name: str, *arguments: str, command: tuple[str, ...] | None = None) -> None:
        how = self._app_program
        self._supervisor.add(
            Program(
                name=self._prefix + name,
                command=(*(how.command if command is None else command), *arguments),
                folder=how.folder,
                log=how.logs / f"{name}.log",
                env=how.env,
                respawn=True,
                grace_s=how.grace_s,
            )
        )

    def _end_program(self, name: str) -> None:
        self._supervisor.remove(self._prefix + name, wait=False)

    def _end_programs(self, names: Collection[str], timeout_s: float) -> None:
        """Tell each to end, and wait. Raises PenstockError if some do not."""
        deadline_s = time.monotonic() + timeout_s
        told: set[str] = set()
        while left := [name for name in self._programs() if name in names]:
            for name in set(left) - told:
                self._end_program(name)
                told.add(name)
            if time.monotonic() > deadline_s:
                raise PenstockError(f"{', '.join(left)}: not ended within {timeout_s:g} s; see their logs")
            time.sleep(0.05)

    def _want(self, wanted: Mapping[str, int]) -> None:
        """Tell each app how many containers it is to have, if that is news to it."""
        for name, containers in wanted.items():
            if self._wanted.get(name) != containers:
                self._apps.want(name, containers)
                self._wanted[name] = containers
