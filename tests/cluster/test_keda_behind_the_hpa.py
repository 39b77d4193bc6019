"""``penstock keda`` behind the real HorizontalPodAutoscaler, with a client that calls as KEDA does.

Kafka, its consumers and the scaler run on this machine; the cluster has the Deployment that is scaled. Its pods do
nothing: how many there are is all that counts.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaException

from infra.kubernetes.kubectl import Kubectl
from infra.local.services import LocalServices
from penstock.settings import Endpoints
from tests.cluster.external_metrics import API_SERVICE, ExternalMetrics, serving_external_metrics
from tests.cluster.test_deployment_on_a_cluster import IMAGE, host_address
from tests.controller.keda.group_scene import PARTITIONS, Group, Members, Service, ended, frozen
from tests.controller.keda.keda_client import ScaledObject, Trigger
from tests.support.eventually import PATIENCE_S, eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.when_changed("controller/keda", "controller/fleets/stream", "tests/controller/keda"),
]

FLEET: Final = "orders"
METRIC: Final = "s0-orders"
REPLICAS: Final = 4
POLL_S: Final = 2.0
"""KEDA's polling interval here."""
SOME_SYNCS_S: Final = 32.0
"""The HPA syncs twice, at least: every 15 s."""


class Fleet:
    """A Deployment behind an HPA, and its ScaledObject."""

    def __init__(self, namespace: Kubectl, metrics: ExternalMetrics, trigger: Trigger) -> None:
        self._namespace, self._metrics = namespace, metrics
        self.keda = ScaledObject(trigger, REPLICAS, fallback=2)
        namespace.apply(deployment(), autoscaler())

    @property
    def replicas(self) -> int:
        """Replicas that the Deployment is to have."""
        return int(self._namespace.get("deployment", FLEET)["spec"]["replicas"])

    def poll(self) -> None:
        """One poll of KEDA: its executor scales, and the HPA finds the value, or none."""
        before = self.keda.replicas = self.replicas
        value = self.keda.poll()
        if value is None:
            self._metrics.values.pop(METRIC, None)
        else:
            self._metrics.values[METRIC] = value
        if self.keda.replicas != before:
            self._namespace.run("scale", f"deployment/{FLEET}", f"--replicas={self.keda.replicas}")
        self.keda.seen.append(self.keda.replicas)

    def polls(self, for_s: float) -> None:
        """Poll for so long."""
        until_s = time.monotonic() + for_s
        while time.monotonic() < until_s:
            self.poll()
            time.sleep(POLL_S)

    def polls_until(self, condition: Callable[[], object], what: str) -> None:
        """Poll until the condition holds."""

        def polled() -> bool:
            self.poll()
            return bool(condition())

        eventually(polled, what, within_s=2 * PATIENCE_S)


def deployment() -> dict[str, Any]:
    """Pods that sleep."""
    labels = {"app.kubernetes.io/name": FLEET}
    container = {
        "name": "sleeps", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["sleep", "infinity"],
        "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"memory": "32Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}
        },
    }  # fmt: skip
    spec = {
        "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False, "containers": [container],
        "securityContext": {
            "runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}
        },
    }  # fmt: skip
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": FLEET},
        "spec": {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template},
    }  # fmt: skip


def autoscaler() -> dict[str, Any]:
    """As KEDA makes it. It carries every value out at once, so that a wrong one shows."""
    target = {"type": "AverageValue", "averageValue": "1"}
    at_once = {"stabilizationWindowSeconds": 0}
    return {
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": f"keda-hpa-{FLEET}"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": FLEET},
            "minReplicas": 1, "maxReplicas": 12, "behavior": {"scaleUp": at_once, "scaleDown": at_once},
            "metrics": [{"type": "External", "external": {"metric": {"name": METRIC}, "target": target}}],
        },
    }  # fmt: skip


@pytest.fixture
def metrics(cluster: Kubectl, namespace: Kubectl, tmp_path: Path) -> Iterator[ExternalMetrics]:
    """Served to the cluster."""
    if cluster.run("get", "apiservice", API_SERVICE, "--ignore-not-found").strip():
        pytest.skip("the cluster has external metrics of its own")
    with serving_external_metrics(namespace, host_address(cluster), tmp_path) as made:
        yield made


@pytest.fixture
def group(services: Endpoints, topic: Callable[[int], str]) -> Iterator[Group]:
    made = Group(services.kafka, topic(PARTITIONS))
    yield made
    made.consumer.close()


def test_a_loaded_fleet_behind_the_hpa_falls_for_the_lag_alone(
    metrics: ExternalMetrics, namespace: Kubectl, group: Group, local_services: LocalServices, tmp_path: Path
) -> None:
    # Four members; the lag asks for four replicas, then for one, within the hold.
    group.commit()
    group.send(40)
    members = Members(group, REPLICAS)
    try:
        with ended(Service(group, tmp_path)) as service:
            trigger = Trigger(service.channel, FLEET, scaleInHoldSeconds="600")
            eventually(lambda: trigger.known_value() == REPLICAS, "four replicas wanted")
            fleet = Fleet(namespace, metrics, trigger)
            fleet.polls_until(lambda: metrics.read.get(METRIC, 0) >= 2, "two syncs of the HPA")
            group.commit(lag=10, by=members.consumers[0])  # from now on the lag asks for one

            with frozen(local_services):
                fleet.polls(SOME_SYNCS_S)
                service.kill()
                service.start()
                fleet.polls(SOME_SYNCS_S)
            fleet.polls_until(lambda: trigger.known_value() is not None, "a value after the thaw")
            fleet.polls(SOME_SYNCS_S)
            service.kill()  # the broker is there: only the scaler is restarted
            service.start()
            fleet.polls_until(lambda: trigger.known_value() is not None, "a value after the restart")
            fleet.polls(SOME_SYNCS_S)
            assert set(fleet.keda.seen) == {REPLICAS}

            # Events in partitions that are added later scale out.
            group.add_partitions(2)

            def committed() -> bool:
                try:
                    group.commit(lag=10, by=members.consumers[0])
                except KafkaException:  # the group is being rebalanced
                    return False
                return True

            eventually(committed, "a commit for the new partitions")
            group.send(60, to=PARTITIONS + 1)
            fleet.polls_until(lambda: fleet.replicas == 7, "seven replicas by the HPA")

            # Without the hold the same HPA carries the lag's one replica out at once.
            eventually(committed, "a commit without the sixty events")
            fleet.keda.trigger = Trigger(service.channel, FLEET, scaleInHoldSeconds="0")
            fleet.polls_until(lambda: fleet.replicas == 1, "one replica by the HPA")
    finally:
        members.close()
