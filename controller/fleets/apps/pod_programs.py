"""Function apps as pods: a Deployment in the place of the process manager.

A pod gets a replica name (``penstock.adapters.kubernetes.replica_pods``) and reads its identity from Redis
(``penstock.adapters.app_boards.PodBoard``). A container that restarts in the pod becomes the same app.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from penstock.adapters.app_boards import PodBoard
from penstock.adapters.kubernetes.deployment import Deployment
from penstock.adapters.kubernetes.pods import Pod
from penstock.adapters.kubernetes.replica_pods import ReplicaPods
from penstock.adapters.process_manager import Program, Programs, ProgramStatus
from penstock.apps import PodIdentity

RUN: Final = "--run"


class PodPrograms:
    """The programs of ``run``: those that are ``here`` on the ``local`` supervisor, all others as pods of
    ``deployment``. ``files``: content of a pod's run directory. For one thread. Raises KubernetesError while
    the API server is away.
    """

    def __init__(
        self,
        run: str,
        deployment: Deployment,
        board: PodBoard,
        files: Mapping[str, bytes],
        local: Programs,
        here: Collection[str],
    ) -> None:
        self._prefix = f"{run}:"
        self._deployment, self._replica_pods = deployment, ReplicaPods(deployment)
        self._board, self._files = board, files
        self._local, self._here = local, here
        self._arguments: dict[str, tuple[str, ...]] = {}
        self._staying: dict[str, None] = {}
        self._identified: set[str] = set()
        self._started = False

    def add(self, program: Program) -> None:
        """Start a pod for the program at the next look."""
        name = program.name.removeprefix(self._prefix)
        if name in self._here:
            self._local.add(program)
            return
        command = program.command
        self._arguments[name] = command[command.index(RUN) + 2 :]
        self._staying[name] = None

    def remove(self, name: str, *, wait: bool = True) -> None:
        """End its pod at the next look."""
        short = name.removeprefix(self._prefix)
        if short in self._here:
            self._local.remove(name, wait=wait)
        else:
            self._staying.pop(short, None)

    def programs(self, prefix: str = "") -> dict[str, ProgramStatus]:
        """Observe and reconcile the pods. A pod that ends is included until it is gone."""
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
        seen, pods = self._replica_pods.look()
        names = self._replica_pods.name(pods, list(self._staying))
        for pod in pods:
            replica = names.get(pod.name, "")
            if pod.name not in self._identified and replica in self._arguments:
                self._board.assign_identity(pod.name, PodIdentity(replica, self._arguments[replica], dict(self._files)))
                self._identified.add(pod.name)
        self._identified &= {pod.name for pod in pods}
        self._replica_pods.resize(seen, pods, self._staying)
        return self._statuses(pods, names)

    def _start(self) -> None:
        """Adopt the pods of a predecessor."""
        if self._started:
            return
        self._deployment.start()
        self._started = True
        for pod in self._deployment.pods():
            if pod.alive and pod.replica:
                self._staying[pod.replica] = None
                self._identified.add(pod.name)

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
