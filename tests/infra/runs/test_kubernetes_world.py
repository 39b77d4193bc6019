"""One run at a time: on a cluster by its pods, in a state folder by its lock. What a world has started, it ends."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from infra.kubernetes.services import ClusterServices
from infra.local.state import StateFolder
from infra.runs import kubernetes_world
from infra.runs.kubernetes_world import KubernetesWorld
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, ScalerSpec

SPEC = RunSpec(run="run-1", experiment="e", world="kubernetes", scaler=ScalerSpec(name="linear"), duration_s=60.0)


def services_of(folder: Path, steps: list[str], *, up: bool, pods_of: str = "") -> ClusterServices:
    """Services of a cluster, and a supervisor on this machine, which are ``up`` or not. One Deployment has a pod."""
    local = SimpleNamespace(
        state=StateFolder(folder),
        supervised=up,
        up=lambda _: steps.append("local up"),
        down=lambda: steps.append("local down"),
    )
    kubectl = SimpleNamespace(
        namespace="penstock", pods_of=lambda name: [SimpleNamespace(name=f"{name}-x")] if name == pods_of else []
    )
    services = SimpleNamespace(
        local=local,
        kubectl=kubectl,
        is_up=lambda: up,
        up=lambda: steps.append("up"),
        down=lambda: steps.append("down"),
        endpoints=lambda: SimpleNamespace(require=lambda name: name),
    )
    return cast(ClusterServices, services)


@pytest.mark.parametrize("deployment", ["controller", "senders", "payments", "apps"])
def test_a_run_is_refused_while_another_one_or_a_load_session_has_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deployment: str
) -> None:
    made: list[object] = []
    run = SimpleNamespace(prepare=lambda: made.append("a run"), close=lambda: None)
    monkeypatch.setattr(kubernetes_world, "pod_run", lambda *_: run)
    steps: list[str] = []
    with KubernetesWorld(services=services_of(tmp_path, steps, up=True, pods_of=deployment)) as world:
        with pytest.raises(PenstockError, match=rf"is active on this cluster: there is pod {deployment}-x; .*scale"):
            world.prepare(SPEC, RunDirectory(tmp_path))
        assert not made
    assert steps == ["local up"]
    with KubernetesWorld(services=services_of(tmp_path, steps, up=True)) as world:
        world.prepare(SPEC, RunDirectory(tmp_path))
        assert made == ["a run"]


def test_a_second_world_in_the_same_state_folder_is_refused_before_it_starts_anything(tmp_path: Path) -> None:
    first: list[str] = []
    second: list[str] = []
    with (
        KubernetesWorld(services=services_of(tmp_path, first, up=True)),
        pytest.raises(PenstockError, match="another run"),
        KubernetesWorld(services=services_of(tmp_path, second, up=False)),
    ):
        raise AssertionError("two at once")
    assert not second
    with KubernetesWorld(services=services_of(tmp_path, second, up=True)):
        pass


def test_what_was_not_up_before_is_ended_in_reverse_order_also_after_a_broken_off_warm_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ["up", "local up", "warm up", "local down", "down"]
    steps: list[str] = []
    monkeypatch.setattr(kubernetes_world, "warm_up", lambda _: steps.append("warm up"))
    with KubernetesWorld(services=services_of(tmp_path, steps, up=False)):
        pass
    assert steps == whole

    def interrupted(_: str) -> None:
        steps.append("warm up")
        raise KeyboardInterrupt

    monkeypatch.setattr(kubernetes_world, "warm_up", interrupted)
    steps.clear()
    with pytest.raises(KeyboardInterrupt), KubernetesWorld(services=services_of(tmp_path, steps, up=False)):
        raise AssertionError("it was entered")
    assert steps == whole
