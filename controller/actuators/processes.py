"""The process actuator: a replica is a program of the local world's supervisor, which outlives the controller."""

import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from controller.actuators.consumer_group import ConsumerGroup, GroupActuator
from controller.actuators.roster import Roster
from controller.plan_service import PlanService
from penstock.errors import PenstockError
from penstock.supervision import Program, ProgramStatus, Supervisor


class WorkerProgram(msgspec.Struct, frozen=True, kw_only=True):
    """How to run a replica: ``command`` is followed by ``--replica NAME``; one log a replica in ``logs``."""

    command: tuple[str, ...]
    folder: Path
    logs: Path
    env: Mapping[str, str]
    grace_s: float = 10.0


class ProcessActuator(GroupActuator):
    """Actuator port on a supervisor. Programs are named ``<run>:<replica>``, replicas ``<fleet>-<number>``."""

    def __init__(
        self,
        group: ConsumerGroup,
        plans: PlanService,
        *,
        run: str,
        supervisor: Supervisor,
        worker: WorkerProgram,
        roster: Roster | None = None,
    ) -> None:
        super().__init__(group, plans, roster)
        self._prefix = f"{run}:"
        self._supervisor = supervisor
        self._worker = worker

    def reconcile(self) -> None:
        """Start what is missing, end what has let go of its partitions."""
        work = self._reckon(self._programs())
        for name in work.end:
            self._supervisor.remove(self._prefix + name, wait=False)
        for name in work.start:
            self._supervisor.add(self._program(name))

    def _end_all(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        for name in self._programs():
            self._supervisor.remove(self._prefix + name, wait=False)
        while left := self._programs():
            if time.monotonic() > deadline_s:
                raise PenstockError(f"replicas {', '.join(left)} have not ended within {timeout_s:g} s; see their logs")
            time.sleep(0.05)

    def _programs(self) -> dict[str, ProgramStatus]:
        """This fleet's programs by replica name."""
        found = self._supervisor.programs(prefix=f"{self._prefix}{self.fleet}-")
        return {name.removeprefix(self._prefix): program for name, program in found.items()}

    def _program(self, name: str) -> Program:
        return Program(
            name=self._prefix + name,
            command=(*self._worker.command, "--replica", name),
            folder=self._worker.folder,
            log=self._worker.logs / f"{name}.log",
            env=self._worker.env,
            respawn=True,
            grace_s=self._worker.grace_s,
        )
