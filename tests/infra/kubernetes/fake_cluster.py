"""kubectl as a shell script, over a cluster that consists of files."""

import json
import os
from pathlib import Path

import pytest

from infra.kubernetes import services
from infra.kubernetes.kubectl import Kubectl
from infra.kubernetes.services import ClusterServices
from infra.local.services import LocalServices
from penstock.settings import Folders
from tests.support.services import on_free_ports


def fake_kubectl(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Kubectl:
    """kubectl as a shell script of one's own."""
    program = folder / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return Kubectl("penstock")


def labelled(pod: str) -> dict[str, object]:
    """Metadata of a pod of a workload."""
    return {"name": pod, "labels": {"app.kubernetes.io/name": pod.rpartition("-")[0]}}


class FakeCluster:
    """A cluster of files that a fake kubectl reads: one for each question that ``up`` asks. Calls are logged."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.told: list[str] = []
        self.answer("pods", {"items": [self.pod(name, ready=True) for name in sorted(services.SHARED)]})
        self.answer("events", {"items": []})
        self.answer("persistentvolumes", {"items": []})
        self.answer("nodes", {"items": [{"spec": {"providerID": "kind://docker/penstock/penstock-control-plane"}}]})
        (folder / "context").write_text("gke_project\n")
        fake_kubectl(
            folder,
            monkeypatch,
            f"""cd {folder}; while [ "$1" = --namespace ]; do shift 2; done; echo "$@" >>calls
            case "$*" in
            "get --raw=/readyz") ;;
            "get namespace "*) cat namespace 2>/dev/null || true ;;
            "apply --filename="*) [ -e namespace ] || cp new namespace ;;
            "delete namespace/"*) [ -e stuck ] && cp stuck namespace || rm namespace ;;
            "get secret/"*) echo there ;;
            "get deployment/"*) ;;
            "get "*) cat "$2" ;;
            "config current-context") cat context ;;
            "kustomize "*) cat overlay ;;
            esac""",
        )
        (folder / "new").write_text(json.dumps(self.namespace()))
        self.services = ClusterServices(
            LocalServices(Folders(state=folder / "state"), on_free_ports()), self.told.append, "kind"
        )

    def answer(self, name: str, content: object) -> None:
        (self.folder / name).write_text(json.dumps(content))

    def calls(self) -> str:
        return (self.folder / "calls").read_text()

    @staticmethod
    def namespace(**more: object) -> dict[str, object]:
        return {"metadata": {"labels": services.PART_OF, **more}}

    @staticmethod
    def pod(workload: str, *, ready: bool, waiting: str = "") -> dict[str, object]:
        state = {"state": {"waiting": {"reason": "ErrImagePull", "message": waiting}}} if waiting else {}
        conditions = [{"type": "Ready", "status": str(ready)}]
        return {
            "metadata": labelled(f"{workload}-0"),
            "status": {"conditions": conditions, "containerStatuses": [state]},
        }
