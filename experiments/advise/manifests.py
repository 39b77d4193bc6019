"""The YAML with which Kubernetes itself scales as an emulated scaler did: a ScaledObject of KEDA, or an HPA.

autoscaling/v2 and keda.sh/v1alpha1, by their references of 2026. Durations are whole seconds there.
"""

from collections.abc import Mapping
from typing import Any, Final

import yaml

from penstock.registry import find_scaler
from penstock.runspec import ScalerSpec

KEDA: Final = "KEDA"
HPA: Final = "Kubernetes HPA"
METRICS: Final = {"backlog": "kafka_consumergroup_lag", "rate": "kafka_topic_events_per_s"}
"""External metrics of an adapter, by the metric of the HPA; KEDA's trigger brings its own."""


def manifest(acting: ScalerSpec, max_replicas: int) -> str:
    """YAML of a scaler with all its parameters; "" for one that no object of Kubernetes can express. Names in capitals
    are the user's to fill in.
    """
    system = getattr(find_scaler(acting), "emulates", "")
    p = acting.parameters
    bounds = max(1, int(p.get("min_replicas", 1))), min(int(p.get("max_replicas") or max_replicas), max_replicas)
    behavior = {"scaleDown": {"stabilizationWindowSeconds": round(p.get("stabilisation_s", 300))}}
    if system == KEDA and "lag_threshold" in p:
        return _text(_scaled_object(p, bounds[1], behavior))
    if system == HPA and p.get("metric") in METRICS:
        return _text(_hpa(p, bounds, behavior))
    return ""


def _scaled_object(p: Mapping[str, Any], max_replicas: int, behavior: dict[str, Any]) -> dict[str, Any]:
    trigger = {
        "bootstrapServers": "KAFKA:9092",
        "topic": "TOPIC",
        "consumerGroup": "GROUP",
        "lagThreshold": p["lag_threshold"],
        "activationLagThreshold": p["activation_lag_threshold"],
        "offsetResetPolicy": p["offset_reset"],
        "allowIdleConsumers": p["allow_idle_consumers"],
        "limitToPartitionsWithLag": p["limit_to_partitions_with_lag"],
        "ensureEvenDistributionOfPartitions": p["ensure_even_distribution"],
    }
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "CONSUMER"},
        "spec": {
            "scaleTargetRef": {"name": "CONSUMER"},
            "minReplicaCount": int(p["min_replicas"]),
            "maxReplicaCount": max_replicas,
            "pollingInterval": round(p["poll_interval_s"]),
            "cooldownPeriod": round(p["cooldown_s"]),
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior}},
            "triggers": [
                # Metadata are texts, true and false in lower case.
                {"type": "kafka", "metadata": {name: str(value).lower() if isinstance(value, bool) else str(value)
                                               for name, value in trigger.items()}},
            ],
        },
    }  # fmt: skip


def _hpa(p: Mapping[str, Any], bounds: tuple[int, int], behavior: dict[str, Any]) -> dict[str, Any]:
    target = p["target_per_replica"] if p["metric"] == "backlog" else p["target_rate_per_s"]
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "CONSUMER"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "CONSUMER"},
            "minReplicas": bounds[0],
            "maxReplicas": bounds[1],
            "metrics": [
                {
                    "type": "External",
                    "external": {
                        "metric": {"name": METRICS[p["metric"]]},
                        # A quantity of Kubernetes: thousandths where it is not whole.
                        "target": {"type": "AverageValue", "averageValue": f"{round(1000 * target)}m"},
                    },
                }
            ],
            "behavior": behavior,
        },
    }


def _text(document: dict[str, Any]) -> str:
    return str(yaml.safe_dump(document, sort_keys=False))
