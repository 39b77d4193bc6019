"""What a run does to its pods: the fault that kills one, and the end of the controller's."""

import io
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from infra.kubernetes.kubectl import Kubectl
from infra.runs.pods import ControllerPod, FunctionPods, PodReplicas
from infra.runs.programs import NO_REPLICA
from penstock.adapters.kubernetes.pods import REPLICA, Condition, Metadata, Pod, PodStatus
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory

FOLDER = "/runs/run-1"


class FakeKubectl(Kubectl):
    """kubectl on these pods, until they are deleted or their Deployment is emptied. Calls are kept."""

    def __init__(self, *pods: Pod, volume: bytes = b"", read_only: bool = False) -> None:
        super().__init__("penstock")
        self.left, self.volume, self.read_only = list(pods), volume, read_only
        self.calls: list[str] = []

    def run(self, *arguments: str, given: bytes | None = None, timeout_s: float = 60) -> bytes:
        self.calls.append(" ".join(arguments[:3]))
        if arguments[0] == "scale":
            self.left.clear()
        return b""

    def pods(self, *arguments: str) -> list[Pod]:
        return list(self.left)

    def execute(
        self, pod: str, container: str, script: str, given: bytes | None = None, timeout_s: float = 30
    ) -> bytes:
        assert (pod, container) == ("deployment/controller", "controller")
        if script.startswith("rm "):
            self.calls.append(script)
            if self.read_only:
                raise PenstockError("kubectl exec: Read-only file system")
            return b""
        self.calls.append("copy")
        return self.volume


def replica(name: str) -> Pod:
    ready = PodStatus(conditions=(Condition(type="Ready", status="True"),))
    return Pod(metadata=Metadata(name=f"payments-{name}", annotations={REPLICA: name}), status=ready)


def kinds_of_replicas(kubectl: Kubectl) -> tuple[PodReplicas, FunctionPods]:
    return PodReplicas(cast(Any, None), kubectl, "payments", lambda pod: pod.ready), FunctionPods(kubectl, ["pdf"])


def test_a_kill_that_finds_no_replica_has_no_effect() -> None:
    kubectl = FakeKubectl()
    assert [replicas.kill() for replicas in kinds_of_replicas(kubectl)] == [NO_REPLICA, NO_REPLICA]
    assert not kubectl.calls


def test_a_kill_deletes_the_pod_of_the_first_replica() -> None:
    kubectl = FakeKubectl(replica("w-2"), replica("w-1"))
    for replicas in kinds_of_replicas(kubectl):
        killed = replicas.kill()
        assert killed.hit and killed.detail == "w-1 (pod payments-w-1)"
    assert kubectl.calls == ["delete pod payments-w-1"] * 2


def journal(text: bytes) -> bytes:
    """A tar stream with a journal."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        entry = tarfile.TarInfo("decisions.jsonl")
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    return stream.getvalue()


def controller_pod(kubectl: Kubectl, folder: Path) -> ControllerPod:
    """That of a run which has begun."""
    spec, directory = SimpleNamespace(run="run-1", fleet="payments"), RunDirectory(folder)
    directory.logs_folder.mkdir()
    context = cast(Any, SimpleNamespace(spec=spec, directory=directory))
    pod = ControllerPod(cast(Any, SimpleNamespace(kubectl=kubectl)), context)
    pod._begun = pod._running = True
    return pod


@pytest.mark.parametrize("read_only", [False, True], ids=["deleted", "cannot be deleted"])
def test_the_runs_folder_in_the_controllers_volume_is_deleted_once_it_is_copied(
    tmp_path: Path, read_only: bool
) -> None:
    kubectl = FakeKubectl(replica("controller"), volume=journal(b"ticks\n"), read_only=read_only)
    controller_pod(kubectl, tmp_path).stop()
    assert (tmp_path / "decisions.jsonl").read_bytes() == b"ticks\n"
    assert kubectl.calls[0] == "copy"
    assert kubectl.calls[-2:] == [f"rm -rf {FOLDER}", "scale deployment/controller --replicas=0"]


def test_a_folder_that_could_not_be_copied_stays_in_the_volume(tmp_path: Path) -> None:
    kubectl = FakeKubectl(replica("controller"), volume=journal(b"ticks\n" * 1000)[:700])
    with pytest.raises(tarfile.TarError):
        controller_pod(kubectl, tmp_path).stop()
    assert kubectl.calls == ["copy"]
