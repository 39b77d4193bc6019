"""The actuator over a Deployment against a real API server, with pods that behave as members of a group do.

The pods run ``tests/controller/fleets/stream/trivial_member.py`` in Penstock's own image
(PENSTOCK_TEST_IMAGE names another one). The actuator has the rights of the controller's Role and no others.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kubernetes
import msgspec
import pytest

from controller.fleets.stream.assignment import AssignmentPlanner
from controller.fleets.stream.plan_service import PlanService
from controller.fleets.stream.pod_actuator import DeploymentActuator
from infra.kubernetes.kubectl import Kubectl
from penstock.adapters.kubernetes.deployment import Deployment
from penstock.adapters.kubernetes.informer import KubernetesError
from penstock.adapters.kubernetes.pods import Pod
from penstock.contracts import POD_STEPS, Actuator, Decision, ReplicaEvent
from penstock.runspec import RunSpec, ScalerSpec
from tests.cluster.gate import Gate
from tests.conformance.ports import ActuatorConformance
from tests.support.eventually import eventually

pytestmark = pytest.mark.cluster

FLEET = "payments"
AWAY_S = 20.0
SPEC = RunSpec(
    run="r",
    experiment="test",
    world="kubernetes",
    scaler=ScalerSpec(name="none"),
    fleet=FLEET,
    partitions=4,
    duration_s=1,
    max_replicas=3,
    join_timeout_s=2.5,
)
IMAGE = os.environ.get("PENSTOCK_TEST_IMAGE", "penstock/app:0.1.0")
MEMBER = Path(__file__).parent.parent / "controller" / "fleets" / "stream" / "trivial_member.py"
ASK = """
import json, os, sys, time, urllib.request
url = f"{sys.argv[1]}/groups/group/replicas/{os.environ['POD_NAME']}?wait_s=20"
while True:
    try:
        replica = json.load(urllib.request.urlopen(url, timeout=30))["replica"]
        break
    except OSError:
        time.sleep(0.2)
os.execv(sys.executable, [sys.executable, "/test/trivial_member.py", sys.argv[1], "group", "--replica", replica])
"""


def api_server(cluster: Kubectl) -> tuple[str, int]:
    """Host and port by the current kubeconfig."""
    server = cluster.run("config", "view", "--minify", "--output=jsonpath={.clusters[0].cluster.server}").decode()
    host, _, port = server.removeprefix("https://").partition(":")
    return host, int(port or "443")


def host_address(cluster: Kubectl) -> str:
    """The address of this machine that the cluster's pods reach: the one from which the API server is reached."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(api_server(cluster))
        return str(probe.getsockname()[0])


def member_deployment(url: str) -> dict[str, Any]:
    """A Deployment of members, of no size yet."""
    confined = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "member",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-c", ASK, url],
        "workingDir": "/tmp",
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
        "securityContext": confined,
        "volumeMounts": [{"name": "test", "mountPath": "/test"}],
    }
    spec = {
        "terminationGracePeriodSeconds": 2,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "test", "configMap": {"name": "test"}}],
    }
    labels = {"app.kubernetes.io/name": FLEET}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": FLEET},
        "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
    }


def role(manifests: Path, without: tuple[str, str] | None = None) -> dict[str, Any]:
    """The controller's Role as the manifests have it, perhaps without one verb on one resource."""
    import yaml

    documents = yaml.safe_load_all((manifests / "base" / "controller.yaml").read_text())
    (found,) = [each for each in documents if each["kind"] == "Role"]
    for rule in found["rules"]:
        if without is not None and rule["resources"] == [without[0]]:
            rule["verbs"].remove(without[1])
    return {**found, "rules": [rule for rule in found["rules"] if rule["verbs"]]}


def grant(namespace: Kubectl, rules: dict[str, Any], gate: Gate | None = None) -> Any:
    """A client that may do what the Role says, perhaps through a gate."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "controller"}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "controller"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "controller"},
        "subjects": [{"kind": "ServiceAccount", "name": "controller", "namespace": namespace.namespace}],
    }
    namespace.apply(account, rules, binding)
    token = namespace.run("create", "token", "controller").decode().strip()
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(client_configuration=configuration)
    configuration.refresh_api_key_hook = None  # it would put the kubeconfig's own token back
    configuration.cert_file = configuration.key_file = None
    configuration.api_key = {"authorization": token, "BearerToken": token}
    configuration.api_key_prefix = {"authorization": "Bearer", "BearerToken": "Bearer"}
    if gate is not None:
        configuration.host = f"https://127.0.0.1:{gate.port}"
        configuration.assert_hostname = False  # the certificate is the API server's
    client = kubernetes.client.ApiClient(configuration)
    right = {"namespace": namespace.namespace, "resource": "pods", "verb": rules["rules"][-1]["verbs"][0]}
    review: Any = {"spec": {"resourceAttributes": right}}
    may: Any = kubernetes.client.AuthorizationV1Api(client).create_self_subject_access_review
    deadline = time.monotonic() + 60
    while not may(review).status.allowed:  # the authorizer hears of roles a moment later
        assert time.monotonic() < deadline, "the role does not come into force"
        time.sleep(0.05)
    return client


class Stage:
    """A plan service on this machine, a Deployment on the cluster, and actuators on both."""

    def __init__(self, namespace: Kubectl, manifests: Path, gate: Gate | None = None) -> None:
        self.kubectl = namespace
        self.client = grant(namespace, role(manifests), gate)
        address = host_address(namespace)
        self.plans = PlanService(
            AssignmentPlanner(join_timeout_s=20), group="group", fleet=FLEET, url=f"http://{address}:0"
        )
        self.plans.start()
        data = {"trivial_member.py": MEMBER.read_text()}
        test = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "test"}, "data": data}
        namespace.apply(test, member_deployment(self.plans.url))
        self.actuator: DeploymentActuator | None = None
        self.happened: list[ReplicaEvent] = []

    def start(self, replicas: Any = None) -> DeploymentActuator:
        """An actuator at work, perhaps after another one."""
        deployment = Deployment(self.kubectl.namespace, FLEET, self.client)
        self.actuator = actuator = DeploymentActuator(SPEC, self.plans, deployment, replicas)
        actuator.connect()
        actuator.start()
        return actuator

    def close(self) -> None:
        if self.actuator is not None:
            self.actuator.stop()
            self.actuator.stop_replicas(timeout_s=120)
        self.plans.stop()

    def pods(self) -> dict[str, Pod]:
        found = [msgspec.convert(each, Pod) for each in self.kubectl.get("pods")["items"]]
        return {pod.replica: pod for pod in found if not pod.ending}

    def wait(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            self.collect()
            assert time.monotonic() < deadline, (self.actuator and self.actuator.replicas(), self.happened)
            time.sleep(0.05)
        self.collect()

    def collect(self) -> None:
        assert self.actuator is not None
        self.happened += self.actuator.events()

    def joined(self, count: int) -> Callable[[], bool]:
        return lambda: self.actuator is not None and list(self.actuator.replicas().values()) == ["joined"] * count

    def life(self, replica: str) -> list[str]:
        """Without the steps of its pod."""
        return [each.phase for each in self.happened if each.replica == replica and each.phase not in POD_STEPS]


@pytest.fixture
def gate(cluster: Kubectl) -> Iterator[Gate]:
    """Before the API server; the actuator comes through it, the tests' own kubectl does not."""
    with Gate(*api_server(cluster)) as opened:
        yield opened


@pytest.fixture
def gated(namespace: Kubectl, manifests: Path, gate: Gate) -> Iterator[Stage]:
    opened = Stage(namespace, manifests, gate)
    yield opened
    gate.open()
    opened.close()


@pytest.fixture
def stage(namespace: Kubectl, manifests: Path) -> Iterator[Stage]:
    opened = Stage(namespace, manifests)
    yield opened
    opened.close()


def scale(action: str, replicas: int, assignment: tuple[tuple[int, ...], ...] | None = None) -> Decision:
    return Decision(action=action, targets={FLEET: replicas}, assignment=assignment)  # type: ignore[arg-type]


class TestDeploymentActuator(ActuatorConformance):
    """The cluster's heir."""

    fleet = FLEET
    timeout_s = 60.0

    @pytest.fixture(autouse=True)
    def _stage(self, namespace: Kubectl, manifests: Path) -> None:
        self.namespace, self.manifests = namespace, manifests

    @contextmanager
    def make_actuator(self) -> Iterator[Actuator]:
        opened = Stage(self.namespace, self.manifests)
        try:
            yield opened.start()
        finally:
            opened.close()


def test_the_pod_that_the_plan_wants_gone_goes_though_it_is_the_oldest(stage: Stage) -> None:
    actuator = stage.start()
    actuator.apply(scale("up", 1, ((0, 1, 2, 3),)))
    stage.wait(stage.joined(1))
    actuator.apply(scale("up", 3, ((0,), (1, 2), (3,))))
    stage.wait(stage.joined(3))
    stage.wait(lambda: sorted(stage.plans.snapshot().assigned().values()) == [(0,), (1, 2), (3,)])
    pods = stage.pods()
    holds = {partitions: replica for replica, partitions in stage.plans.snapshot().assigned().items()}
    smallest = holds[(0,)]
    actuator.apply(scale("down", 2, ((1, 2, 0), (3,))))
    stage.wait(lambda: list(actuator.replicas().values()) == ["joined", "joined"])
    (gone,) = {event.replica for event in stage.happened if event.phase == "gone"}
    assert gone == smallest
    assert set(stage.pods()) == set(pods) - {smallest}


def test_the_steps_of_a_new_pod_are_on_record_in_their_order(stage: Stage) -> None:
    stage.start().apply(scale("up", 2))
    stage.wait(stage.joined(2))
    for replica in stage.pods():
        steps = [(event.phase, event.at_ns) for event in stage.happened if event.replica == replica]
        steps.sort(key=lambda step: step[1])
        assert [phase for phase, _ in steps] == ["requested", "created", "scheduled", "started", "joined"]


def test_a_killed_pod_is_replaced_under_the_same_replica(stage: Stage) -> None:
    stage.start().apply(scale("up", 2))
    stage.wait(stage.joined(2))
    stage.wait(lambda: all(pod.life is not None for pod in stage.pods().values()))  # a kubelet tells later than they
    victim = stage.pods()[f"{FLEET}-1"].name
    stage.kubectl.run("delete", "pod", victim, "--grace-period=0", "--force", "--wait=false")
    stage.wait(lambda: "gone" in stage.life(f"{FLEET}-1"))
    stage.wait(stage.joined(2))
    assert stage.life(f"{FLEET}-1") == ["requested", "started", "joined", "gone", "requested", "started", "joined"]
    assert stage.pods()[f"{FLEET}-1"].name != victim
    (gone,) = [event for event in stage.happened if event.phase == "gone"]
    assert victim in gone.reason


def test_an_edit_of_the_size_is_undone(stage: Stage) -> None:
    stage.start().apply(scale("up", 2))
    stage.wait(stage.joined(2))
    before = {replica: pod.name for replica, pod in stage.pods().items()}
    stage.kubectl.run("scale", f"deployment/{FLEET}", "--replicas=3")
    stage.wait(lambda: stage.kubectl.get(f"deployment/{FLEET}")["spec"]["replicas"] == 2)
    stage.wait(lambda: {replica: pod.name for replica, pod in stage.pods().items()} == before)


def test_a_controller_that_dies_in_the_middle_of_a_scale_out_has_a_successor(stage: Stage) -> None:
    first = stage.start()
    first.apply(scale("up", 1))
    stage.wait(stage.joined(1))
    first.apply(scale("up", 3))
    first.stop()
    stage.collect()
    stage.start(first.snapshot())
    stage.wait(stage.joined(3))
    assert stage.life(f"{FLEET}-1") == ["requested", "started", "joined"]
    assert set(stage.pods()) == {f"{FLEET}-1", f"{FLEET}-2", f"{FLEET}-3"}


def test_an_api_server_that_is_away_for_20_s_costs_time_and_no_replica(gated: Stage, gate: Gate) -> None:
    """Asked for more, losing a pod and asked for fewer meanwhile, it has it all done once the API server is back."""
    actuator = gated.start()
    actuator.apply(scale("up", 2))
    gated.wait(gated.joined(2))
    kept = gated.pods()[f"{FLEET}-1"].name
    gate.shut()
    back_s = time.monotonic() + AWAY_S
    actuator.apply(scale("up", 3))
    gated.kubectl.run(
        *("delete", "pod", gated.pods()[f"{FLEET}-2"].name, "--grace-period=0", "--force", "--wait=false")
    )
    gated.wait(lambda: time.monotonic() > back_s)
    assert gated.life(f"{FLEET}-1") == ["requested", "started", "joined"]
    assert gated.kubectl.get(f"deployment/{FLEET}")["spec"]["replicas"] == 2
    gate.open()
    gated.wait(gated.joined(3))
    assert set(gated.pods()) == {f"{FLEET}-1", f"{FLEET}-2", f"{FLEET}-3"}
    assert gated.pods()[f"{FLEET}-1"].name == kept
    assert gated.life(f"{FLEET}-2")[-4:] == ["gone", "requested", "started", "joined"]
    actuator.apply(scale("down", 1))
    gated.wait(gated.joined(1))


@pytest.mark.parametrize(
    ("resource", "verb", "fails"),
    [
        ("deployments", "list", "connect"),
        ("deployments", "watch", "watch"),
        ("deployments/scale", "patch", "scale"),
        ("pods", "list", "connect"),
        ("pods", "watch", "watch"),
        ("pods", "patch", "name"),
    ],
)
def test_every_verb_of_the_role_is_needed(
    namespace: Kubectl, manifests: Path, caplog: pytest.LogCaptureFixture, resource: str, verb: str, fails: str
) -> None:
    client = grant(namespace, role(manifests, (resource, verb)))
    namespace.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "test"}, "data": {}},
        member_deployment("http://127.0.0.1:1"),
    )
    plans = PlanService(AssignmentPlanner(join_timeout_s=20), group="group", fleet=FLEET, url="http://127.0.0.1:0")
    actuator = DeploymentActuator(SPEC, plans, Deployment(namespace.namespace, FLEET, client))
    if fails == "connect":
        with pytest.raises(KubernetesError, match=f"cannot {verb} resource"):
            actuator.connect()
        actuator.stop()
        return
    actuator.connect()
    actuator.start()
    try:
        actuator.apply(scale("up", 1))
        eventually(
            lambda: any(f"cannot {verb} resource" in record.getMessage() for record in caplog.records),
            lambda: [record.getMessage() for record in caplog.records],
            within_s=30,
        )
    finally:
        actuator.stop()


def test_a_deployment_that_is_not_there_is_one_clear_line(namespace: Kubectl, manifests: Path) -> None:
    client = grant(namespace, role(manifests))
    with pytest.raises(KubernetesError, match="has no Deployment payments"):
        Deployment(namespace.namespace, FLEET, client).start()


def test_no_api_server_is_one_clear_line() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    configuration = kubernetes.client.Configuration(host=f"http://127.0.0.1:{port}")
    configuration.retries = False
    with pytest.raises(KubernetesError, match="the API server is away"):
        Deployment("penstock", FLEET, kubernetes.client.ApiClient(configuration)).start()
