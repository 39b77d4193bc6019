"""What of the Kubernetes world can be told without a cluster: its errors, its words, and the world's name."""

import io
import json
import tarfile
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from experiments.catalogue import find_experiment
from experiments.experiment import Options, parse_faults, run_spec
from infra.kubernetes import services
from infra.kubernetes.kubectl import Kubectl, NoClusterError, unpack
from infra.kubernetes.services import OVERLAYS, ClusterServices
from infra.kubernetes.troubles import Troubles
from infra.local.services import LocalServices
from infra.runs.context import CHECK_S
from infra.runs.pods import label
from penstock.adapters.kubernetes.pods import Pod
from penstock.errors import PenstockError
from penstock.settings import Folders
from tests.infra.kubernetes.fake_cluster import FakeCluster, fake_kubectl, labelled
from tests.support.services import on_free_ports


def test_without_kubectl_it_is_said_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoClusterError, match="no kubectl on PATH"):
        Kubectl("penstock").require_cluster()


def test_a_cluster_that_does_not_answer_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = "echo 'The connection to the server localhost:8080 was refused' >&2; exit 1"
    kubectl = fake_kubectl(tmp_path, monkeypatch, refused)
    with pytest.raises(NoClusterError, match=r"^no Kubernetes cluster .* localhost:8080 was refused$"):
        kubectl.require_cluster()


def test_an_error_names_the_call_and_not_what_was_given_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl = fake_kubectl(tmp_path, monkeypatch, "cat >/dev/null; echo denied >&2; exit 1")
    with pytest.raises(PenstockError) as raised:
        kubectl.run("create", "--filename=-", given=b"password")
    assert str(raised.value) == "kubectl create --filename=-: denied"


def test_a_namespace_of_somebody_else_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "calls"
    found = '{"metadata": {"labels": {}}}'
    answer = f"""echo "$@" >>'{log}'; case "$*" in *"get namespace"*) echo '{found}' ;; esac"""
    fake_kubectl(tmp_path, monkeypatch, answer)
    local = LocalServices(Folders(state=tmp_path / "state"), on_free_ports())
    with pytest.raises(PenstockError, match="is not Penstock's"):
        ClusterServices(local).down()
    assert "delete" not in log.read_text()


def test_an_overlay_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    local = LocalServices(Folders(state=tmp_path / "state"), on_free_ports())
    with pytest.raises(PenstockError, match="no overlay moon: choose cluster, gke, gke-strimzi, kind"):
        ClusterServices(local, overlay="moon")


def test_a_pod_that_never_becomes_ready_is_named_with_its_newest_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = {"metadata": labelled("kafka-0"), "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    pods = [ready, *({"metadata": labelled(name)} for name in ("redis-0", "grafana-1", "prometheus-0", "gateway-0"))]
    said = [
        {"involvedObject": {"name": "redis-0"}, "lastTimestamp": f"2026-01-01T00:00:0{second}Z", "message": message}
        for second, message in ((2, "Readiness probe\nerrored"), (1, "connection refused"))
    ]
    message = 'Failed to create pod sandbox: failed to find plugin "bridge" in path'
    no_sandbox = [{"involvedObject": {"name": "gateway-0"}, "message": message}]
    for name, items in {"pods": pods, "unhealthy": said, "no-sandbox": no_sandbox, "others": []}.items():
        (tmp_path / name).write_text(json.dumps({"items": items}))
    answer = (
        'case "$*" in *Unhealthy*) cat unhealthy;; *SandBox*) cat no-sandbox;; *pods*) cat pods;; *) cat others;; esac'
    )
    fake_kubectl(tmp_path, monkeypatch, f"cd {tmp_path}; {answer}")
    monkeypatch.setattr(services, "READY_TIMEOUT_S", 0.0)
    local = LocalServices(Folders(state=tmp_path / "state"), on_free_ports())
    with pytest.raises(PenstockError) as raised:
        ClusterServices(local).await_pods(lambda: False, "not there", ("kafka", "redis", "prometheus", "gateway"))
    assert str(raised.value) == (
        "not there within 0 s: pod redis-0 is not ready: Readiness probe errored; "
        "pod prometheus-0 is not ready: no event says why; "
        'pod gateway-0 is not ready: Failed to create pod sandbox: failed to find plugin "bridge" in path'
    )


NO_NODE = {
    "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"
}  # fmt: skip


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster(tmp_path, monkeypatch)


def test_an_image_that_no_run_needs_is_reported_and_does_not_fail_up(scene: FakeCluster) -> None:
    pods = [scene.pod(name, ready=True) for name in sorted(services.SHARED)]
    scene.answer("pods", {"items": [*pods, scene.pod("grafana", ready=False, waiting="grafana:11: not found")]})
    scene.services.up()
    assert "delete" not in scene.calls()
    assert (
        scene.told[1] == "cluster: pod grafana-0 is not ready, and no run needs it: ErrImagePull: grafana:11: not found"
    )


def test_an_image_that_runs_need_and_no_registry_has_fails_up_and_leaves_nothing(scene: FakeCluster) -> None:
    scene.answer("pods", {"items": [scene.pod("redis", ready=False, waiting="redis:9: not found")]})
    with pytest.raises(PenstockError) as raised:
        scene.services.up()
    assert str(raised.value) == "namespace penstock does not come up: pod redis-0: ErrImagePull: redis:9: not found"
    assert not (scene.folder / "namespace").exists()


def test_the_first_error_is_kept_when_cleaning_up_fails(scene: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "DELETE_TIMEOUT_S", 0.0)
    conditions = [
        {"type": "NamespaceContentRemaining", "status": "True", "message": "Some resources are remaining: pods."},
        {"type": "NamespaceDeletionContentFailure", "status": "False", "message": "All content deleted."},
    ]
    scene.answer(
        "stuck", {**scene.namespace(deletionTimestamp="2026-01-01T00:00:00Z"), "status": {"conditions": conditions}}
    )
    scene.answer("pods", {"items": [scene.pod("redis", ready=False, waiting="redis:9: access denied")]})
    with pytest.raises(PenstockError, match=r"redis:9: access denied$"):
        scene.services.up()
    why = "namespace penstock has not ended within 0 s: Some resources are remaining: pods."
    assert scene.told[-1] == f"cluster: cleaning up failed, too: {why}"


def test_a_namespace_that_stays_in_terminating_is_explained(
    scene: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "DELETE_TIMEOUT_S", 0.0)
    message = "Discovery failed for some groups: external.metrics.k8s.io/v1beta1"
    conditions = [{"type": "NamespaceDeletionDiscoveryFailure", "status": "True", "message": message}]
    ending = scene.namespace(deletionTimestamp="2026-01-01T00:00:00Z")
    scene.answer("namespace", {**ending, "status": {"conditions": conditions}})
    with pytest.raises(PenstockError, match=r"external\.metrics\.k8s\.io/v1beta1$"):
        scene.services.up()
    assert "apply" not in scene.calls()


@pytest.mark.parametrize(
    ("of", "policy", "told"),
    [
        ("penstock", "Delete", ["cluster: volumes that are not deleted yet: pvc-1"]),
        ("penstock", "Retain", []),
        ("shop", "Delete", []),
    ],
)
def test_down_waits_for_volumes_that_the_cluster_deletes(
    scene: FakeCluster, monkeypatch: pytest.MonkeyPatch, of: str, policy: str, told: list[str]
) -> None:
    monkeypatch.setattr(services, "VOLUMES_TIMEOUT_S", 0.0)
    scene.answer("namespace", scene.namespace())
    spec = {"claimRef": {"namespace": of}, "persistentVolumeReclaimPolicy": policy}
    scene.answer("persistentvolumes", {"items": [{"metadata": {"name": "pvc-1"}, "spec": spec}]})
    assert scene.services.down()
    assert scene.told[1:] == told


def test_down_needs_no_right_to_list_volumes(scene: FakeCluster) -> None:
    scene.answer("namespace", scene.namespace())
    (scene.folder / "persistentvolumes").unlink()
    assert scene.services.down()
    assert scene.told == ["cluster: deleting namespace penstock"]


@pytest.mark.parametrize("overlay", ["gke", "gke-strimzi"])
def test_overlays_for_gke_are_refused_on_another_cluster(scene: FakeCluster, overlay: str) -> None:
    (scene.folder / "context").write_text("kind-penstock\n")
    services = ClusterServices(scene.services.local, overlay=overlay)
    with pytest.raises(PenstockError, match=r"^context kind-penstock is no GKE cluster: `gcloud container clusters"):
        services.up()
    assert "apply" not in scene.calls()
    scene.answer("nodes", {"items": [{"spec": {"providerID": "gce://project/zone/node"}}]})
    services.up()
    assert f"apply --kustomize={OVERLAYS / overlay}" in scene.calls()


def test_overlay_kind_is_refused_on_another_cluster(scene: FakeCluster) -> None:
    scene.answer("nodes", {"items": [{"spec": {"providerID": "gce://project/zone/node"}}, {"spec": {}}]})
    with pytest.raises(
        PenstockError, match=r"^context gke_project is no kind cluster: `kubectl config use-context kind-"
    ):
        scene.services.up()
    assert "apply" not in scene.calls()


def test_a_pod_without_a_node_is_reported_within_15_s_of_a_run(
    scene: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(services, "time", SimpleNamespace(monotonic=lambda: clock.now_s))
    scene.services._troubles = Troubles(scene.told.append, lambda: clock.now_s)
    asked: list[float] = []

    def pending() -> list[Pod]:
        asked.append(clock.now_s)
        return [msgspec.convert({"metadata": labelled("payments-1"), "status": {"conditions": [NO_NODE]}}, Pod)]

    scene.services.__dict__["_pending"] = SimpleNamespace(list=pending)
    for _ in range(100):  # as often as a run looks
        scene.services.check()
        clock.now_s += CHECK_S
        if scene.told:
            break
    assert scene.told == ["cluster: pod payments-1 waits for a node: Unschedulable: 0/1 nodes are available"]
    assert clock.now_s - 1000.0 <= 15
    assert len(asked) <= 4, "the API server is asked now and then"


def tar_of(**files: bytes) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    stream.seek(0)
    return stream


def test_what_comes_from_a_pod_lands_in_the_folder(tmp_path: Path) -> None:
    assert unpack(tar_of(**{"./a/b.txt": b"1", "./c": b"2"}), tmp_path) == ["a", "c"]
    assert (tmp_path / "a" / "b.txt").read_bytes() == b"1"


@pytest.mark.parametrize("name", ["../a", "/tmp/penstock-a"])
def test_nothing_from_a_pod_lands_elsewhere(tmp_path: Path, name: str) -> None:
    with pytest.raises(tarfile.TarError, match="no file in the folder"):
        unpack(tar_of(**{name: b"1"}), tmp_path / "folder")
    assert not list(tmp_path.iterdir())


def test_a_stream_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    whole = tar_of(a=bytes(5000)).getvalue()
    with pytest.raises(tarfile.TarError):
        unpack(io.BytesIO(whole[:3000]), tmp_path)


def test_a_label_has_what_labels_may_have() -> None:
    assert label("20261121T225500Z-binpack-workload-1-linear") == "20261121T225500Z-binpack-workload-1-linear"
    assert label("a/b c" + "x" * 80) == ("a-b-c" + "x" * 80)[:63]
    assert not label("run-" * 16).endswith("-")


def test_faults_that_pods_cannot_have_are_refused_before_anything_is_made() -> None:
    options = Options(world="kubernetes", faults=parse_faults(["stop-broker@5+5"]))
    with pytest.raises(PenstockError, match=r"stop-broker@5\+5: --world kubernetes has kill-worker"):
        run_spec(find_experiment("binpack-workload-1"), "linear", options, "run")
