"""Function apps as pods: what a supervisor is to programs on one machine, a Deployment is to them on a cluster.

A pod is named (``penstock.kubernetes.named_pods``), told through Redis which app it is, and becomes that
(``consumers.app_pod``). One whose container ends becomes the same app again.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

from penstock.apps import AppIntroduction
from penstock.kubernetes.deployment import Deployment
from penstock.kubernetes.named_pods import NamedPods
from penstock.kubernetes.pods import Pod
from penstock.supervision import Program, Programs, ProgramStatus

RUN: Final = "--run"


class Introductions(Protocol):
    """How a pod hears which app it is: ``penstock.apps.PodBoard``."""

    def introduce(self, pod: str, app: AppIntroduction) -> None:
        """Tell it."""
        ...


class PodPrograms:
    """The programs of ``run``: those that are ``here`` on the ``local`` supervisor, all others as pods of
    ``deployment``. ``files``: what a pod finds in its run directory. One caller at a time. Raises KubernetesError while
    the API server is away.
    """

    def __init__(
        self,
        run: str,
        deployment: Deployment,
        board: Introductions,
        files: Mapping[str, bytes],
        local: Programs,
        here: Collection[str],
    ) -> None:
        self._prefix = f"{run}:"
        self._deployment = deployment
        self._named = NamedPods(deployment)
        self._board = board
        self._files = files
        self._local = local
        self._here = here
        self._arguments: dict[str, tuple[str, ...]] = {}
        self._staying: dict[str, None] = {}
        self._told: set[str] = set()
        self._started = False

    def add(self, program: Program) -> None:
        """A pod for it is asked for with the next look."""
        name = program.name.removeprefix(self._prefix)
        if name in self._here:
            self._local.add(program)
            return
        command = program.command
        self._arguments[name] = command[command.index(RUN) + 2 :]
        self._staying[name] = None

    def remove(self, name: str, *, wait: bool = True) -> None:
        """Its pod goes with the next look."""
        short = name.removeprefix(self._prefix)
        if short in self._here:
            self._local.remove(name, wait=wait)
        else:
            self._staying.pop(short, None)

    def programs(self, prefix: str = "") -> dict[str, ProgramStatus]:
        """Look at the pods and do what is to be done about them. A pod that goes is there until it is gone."""
        found = {
            name: status
            for name, status in self._local.programs(prefix).items()
            if name.removeprefix(self._prefix) in self._here
        }
        for name, status in self._look().items():
            if (whole := self._prefix + name).startswith(prefix):
                found[whole] = ProgramStatus(whole, status.pid, status.state)
        return found

    def _look(self) -> dict[str, ProgramStatus]:
        self._start()
        seen, pods = self._named.look()
        names = self._named.name(pods, list(self._staying))
        for pod in pods:
            replica = names.get(pod.name, "")
            if pod.name not in self._told and replica in self._arguments:
                self._board.introduce(pod.name, AppIntroduction(replica, self._arguments[replica], dict(self._files)))
                self._told.add(pod.name)
        self._told &= {pod.name for pod in pods}
        self._named.resize(seen, pods, self._staying)
        return self._statuses(pods, names)

    def _start(self) -> None:
        """Pods that a predecessor has left are apps until somebody says otherwise."""
        if self._started:
            return
        self._deployment.start()
        self._started = True
        for pod in self._deployment.pods():
            if pod.alive and pod.replica:
                self._staying[pod.replica] = None
                self._told.add(pod.name)

    def _statuses(self, pods: Sequence[Pod], names: Mapping[str, str]) -> dict[str, ProgramStatus]:
        statuses = {name: ProgramStatus(name, None, "starting") for name in self._staying}
        for pod in sorted(pods, key=lambda pod: (not pod.ending, pod.metadata.creation_timestamp)):
            replica = names.get(pod.name, "")
            if not replica or pod.over:
                continue
            if replica in self._staying:
                if not pod.ending:
                    statuses[replica] = pod.program()
            else:
                statuses[replica] = ProgramStatus(replica, pod.life, "stopping")
        return statuses
