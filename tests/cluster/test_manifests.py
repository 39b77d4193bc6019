"""The manifests: accepted by a real API server, and as confined as they claim to be."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.kubernetes.functions import MANIFEST, deployments, manifest
from infra.kubernetes.kubectl import Kubectl
from infra.kubernetes.services import BASE, LABELS, OVERLAYS

CRDS = Path(__file__).parent / "crds"
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "keda"
OVERLAY_NAMES = sorted(each.name for each in OVERLAYS.iterdir())


def rendered(overlay: str) -> list[dict[str, Any]]:
    """An overlay's objects."""
    text = Kubectl("default").run("kustomize", str(OVERLAYS / overlay)).decode()
    return [each for each in yaml.safe_load_all(text) if each]


def objects_of(overlay: str) -> list[dict[str, Any]]:
    """An overlay's objects, and a function's Deployment as a run makes it."""
    return [*rendered(overlay), *deployments(["pdf"], "penstock/app:0.1.0", LABELS)]


def pod_specs(overlay: str) -> dict[str, dict[str, Any]]:
    """Pod specs by the name of what makes the pods."""
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in objects_of(overlay)
        if each["kind"] in ("Deployment", "StatefulSet")
    }


WITHOUT_CLUSTER = pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl, and no cluster")
RECOMMENDED = ("name", "instance", "version", "component", "part-of", "managed-by")


def containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [*spec.get("initContainers", ()), *spec["containers"]]


@pytest.fixture(scope="module")
def others(cluster: Kubectl) -> Iterator[None]:
    """Custom resources of others that our manifests have some of; those that are there already stay as they are."""
    files = sorted(CRDS.glob("*.yaml"))
    names = {each["metadata"]["name"]: file for file in files for each in yaml.safe_load_all(file.read_text())}
    there = {each["metadata"]["name"] for each in cluster.get("customresourcedefinitions")["items"]}
    made = [name for name in names if name not in there]
    for file in sorted({names[name] for name in made}):
        cluster.run("apply", f"--filename={file}")
    for name in made:
        cluster.run("wait", "--for=condition=Established", f"customresourcedefinition/{name}", "--timeout=30s")
    yield
    for name in made:
        cluster.run("delete", f"customresourcedefinition/{name}")


@pytest.mark.cluster
def test_the_api_server_takes_the_examples_for_keda(others: None, namespace: Kubectl) -> None:
    for file in sorted(set(EXAMPLES.glob("*.yaml")) - set(EXAMPLES.glob("*-patch.yaml"))):
        said = namespace.run("apply", "--dry-run=server", f"--filename={file}").decode()
        objects = [each for each in yaml.safe_load_all(file.read_text()) if each]
        assert said.count("(server dry run)") == len(objects)
    deployment = next(yaml.safe_load_all((EXAMPLES / "external-scaler.yaml").read_text()))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "keda"},
        "spec": deployment["spec"]["template"]["spec"],
    }
    namespace.run("create", "--dry-run=server", "--filename=-", given=json.dumps(pod).encode())
    deployment["spec"]["replicas"] = 0
    namespace.run("create", "--filename=-", given=json.dumps(deployment).encode())
    patch = f"--patch-file={EXAMPLES / 'tls-patch.yaml'}"
    namespace.run("patch", "deployment", "penstock-keda", patch)
    (scaler,) = namespace.get("deployment", "penstock-keda")["spec"]["template"]["spec"]["containers"]
    assert "grpc" not in scaler["readinessProbe"] and scaler["readinessProbe"]["tcpSocket"]
    assert "--tls-cert=/tls/tls.crt" in scaler["args"]
    namespace.run("patch", "deployment", "penstock-keda", f"--patch-file={EXAMPLES / 'kafka-patch.yaml'}")
    patched = namespace.get("deployment", "penstock-keda")["spec"]["template"]["spec"]
    given = {each["name"] for each in patched["containers"][0]["env"]}
    assert {"PENSTOCK_KAFKA_SECURITY_PROTOCOL", "PENSTOCK_KAFKA_SASL_PASSWORD_FILE"} <= given
    # the two patches do not displace each other
    assert {"/tls", "/kafka"} <= {each["mountPath"] for each in patched["containers"][0]["volumeMounts"]}
    namespace.run("delete", "deployment", "penstock-keda")


@pytest.mark.cluster
@pytest.mark.parametrize("overlay", OVERLAY_NAMES)
def test_the_api_server_takes_the_overlay(
    penstock_namespace: Kubectl, others: None, overlay: str, tmp_path: Path
) -> None:
    objects = rendered(overlay)
    penstock_namespace.apply(*(each for each in objects if each["kind"] == "Namespace"))
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    said = penstock_namespace.run("apply", "--dry-run=server", f"--filename={file}").decode()
    assert said.count("(server dry run)") == len(objects)


@pytest.mark.cluster
@pytest.mark.parametrize("overlay", OVERLAY_NAMES)
def test_the_restricted_policy_lets_every_pod_in(penstock_namespace: Kubectl, overlay: str, tmp_path: Path) -> None:
    objects = rendered(overlay)
    accounts = [each for each in objects if each["kind"] in ("Namespace", "ServiceAccount")]
    default = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}  # may not be there yet
    penstock_namespace.apply(*accounts, default)
    for name, spec in pod_specs(overlay).items():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": with_volumes(spec)}
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(pod))
        said = penstock_namespace.run("create", "--dry-run=server", f"--filename={file}").decode()
        assert said == f"pod/{name} created (server dry run)\n"


def with_volumes(spec: dict[str, Any]) -> dict[str, Any]:
    """A StatefulSet's pods get volumes that are not in its template."""
    named = {each["name"] for each in spec.get("volumes", ())}
    mounted = {each["name"] for container in containers(spec) for each in container.get("volumeMounts", ())}
    more = [{"name": name, "emptyDir": {}} for name in sorted(mounted - named)]
    return {**spec, "volumes": [*spec.get("volumes", ()), *more]}


@pytest.mark.cluster
@pytest.mark.parametrize("overlay", OVERLAY_NAMES)
def test_every_container_is_confined(cluster: Kubectl, overlay: str) -> None:
    specs = pod_specs(overlay)
    assert {"redis", "prometheus", "controller", "payments", "gateway", "function-pdf"} <= set(specs)
    assert ("kafka" in specs) != overlay.endswith("-strimzi")
    assert ("grafana" in specs) == ("driver" in specs) == (overlay != "cluster")
    for name, spec in specs.items():
        assert spec["securityContext"]["runAsNonRoot"], name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        for container in containers(spec):
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"], name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
            assert {"cpu", "memory"} <= set(container["resources"]["requests"]), name
            assert "memory" in container["resources"]["limits"], name
            tag = container["image"].partition(":")[2]
            assert tag and tag != "latest", container["image"]


@pytest.mark.cluster
def test_only_who_asks_the_api_server_has_a_token(cluster: Kubectl) -> None:
    with_token = {name for name, spec in pod_specs("kind").items() if spec.get("automountServiceAccountToken", True)}
    assert with_token == {"controller", "gateway", "driver"}


def test_what_is_committed_of_the_functions_is_what_the_code_says() -> None:
    assert MANIFEST.read_text() == manifest(), "python -m infra.kubernetes.functions"


def test_the_gateway_may_do_to_functions_what_the_controller_may_do_to_consumers_and_no_more() -> None:
    """Why each of the rights is needed is shown on a cluster, with the controller's (test_deployment_on_a_cluster)."""
    documents = list(yaml.safe_load_all((BASE / "controller.yaml").read_text()))
    (controller,) = [each for each in documents if each["kind"] == "Role"]
    gateway = next(yaml.safe_load_all(MANIFEST.read_text()))

    def rights(role: dict[str, Any]) -> list[tuple[list[str], list[str], bool]]:
        return [(rule["resources"], rule["verbs"], "resourceNames" in rule) for rule in role["rules"]]

    assert rights(gateway) == rights(controller)


@pytest.mark.cluster
def test_no_secret_is_in_the_manifests(cluster: Kubectl) -> None:
    objects = rendered("cluster")
    assert not [each for each in objects if each["kind"] == "Secret"]
    for spec in pod_specs("cluster").values():
        for container in containers(spec):
            for variable in container.get("env", ()):
                if "PASSWORD" in variable["name"] or "KEY" in variable["name"]:
                    assert "secretKeyRef" in variable["valueFrom"], variable["name"]


def requested_cpu(overlay: str) -> dict[str, int]:
    """Requests of a pod in thousandths of a CPU, by what makes it."""

    def cpu_m(container: dict[str, Any]) -> int:
        text = str(container["resources"]["requests"]["cpu"])
        return int(text.removesuffix("m")) if text.endswith("m") else 1000 * int(text)

    return {name: sum(cpu_m(each) for each in spec["containers"]) for name, spec in pod_specs(overlay).items()}


@pytest.mark.system
@WITHOUT_CLUSTER
@pytest.mark.parametrize(("overlay", "free_m", "payments"), [("cluster", 1900, 9), ("kind", 1050, 20)])
def test_the_fleet_at_its_largest_fits_two_processors(overlay: str, free_m: int, payments: int) -> None:
    """Beside kubeadm's own pods on kind: 0.95 (apiserver .25, controllers .2, scheduler, etcd, kindnet .1, DNS .2)."""
    asked = requested_cpu(overlay)
    shared = sum(cpu for name, cpu in asked.items() if name != "payments" and not name.startswith("function-"))
    assert shared + payments * asked["payments"] <= free_m
    assert shared - asked["senders"] + 20 * asked["function-pdf"] <= free_m, "load sessions have consumers"


@pytest.mark.system
@WITHOUT_CLUSTER
@pytest.mark.parametrize("overlay", OVERLAY_NAMES)
def test_every_object_has_the_recommended_labels(overlay: str) -> None:
    for each in rendered(overlay):
        labels = each["metadata"].get("labels", {})
        missing = [label for label in RECOMMENDED if f"app.kubernetes.io/{label}" not in labels]
        assert not missing, (each["kind"], each["metadata"]["name"])


@pytest.mark.system
@WITHOUT_CLUSTER
@pytest.mark.parametrize("overlay", OVERLAY_NAMES)
def test_no_disruption_budget_keeps_a_node_from_being_drained(overlay: str) -> None:
    """A budget without a pod to spare makes `kubectl drain` wait for ever."""
    budgets = [each for each in rendered(overlay) if each["kind"] == "PodDisruptionBudget"]
    assert budgets
    assert all(each["spec"].get("maxUnavailable", 0) >= 1 and "minAvailable" not in each["spec"] for each in budgets)


@pytest.mark.system
@WITHOUT_CLUSTER
@pytest.mark.parametrize("overlay", OVERLAY_NAMES)
def test_functions_have_deployments_once_a_run_asks_for_them(overlay: str) -> None:
    assert not [each for each in rendered(overlay) if each["metadata"]["name"].startswith("function-")]
    (deployment,) = deployments(["pdf"], "registry/app:1", LABELS)
    template = deployment["spec"]["template"]
    assert deployment["spec"]["replicas"] == 0
    assert template["spec"]["containers"][0]["image"] == "registry/app:1"
    assert template["metadata"]["labels"].items() >= {**LABELS, "app.kubernetes.io/name": "function-pdf"}.items()
    assert template["metadata"]["labels"].items() >= deployment["spec"]["selector"]["matchLabels"].items()
