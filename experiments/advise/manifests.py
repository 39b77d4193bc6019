"""The YAML with which Kubernetes itself scales as an emulated scaler did, a ScaledObject of KEDA or an HPA; and the
scaler that such YAML describes.

autoscaling/v2 and keda.sh/v1alpha1, by their references of 2026. Durations are whole seconds there, quantities
thousandths. A window of its own for scale-down gives an HPA a ``spec.behavior``.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import yaml

from experiments.advise.trial import Trial
from experiments.advise.trials import Trials, Wanted
from penstock.errors import PenstockError
from penstock.parameters import make_parameters
from penstock.registry import find_scaler
from penstock.runspec import ScalerSpec

KEDA: Final = "KEDA"
HPA: Final = "Kubernetes HPA"
METRICS: Final = {"backlog": "kafka_consumergroup_lag", "rate": "kafka_topic_events_per_s"}
"""External metrics of an adapter, by the metric of the HPA; KEDA's trigger brings its own."""
TARGETS: Final = {"backlog": "target_per_replica", "rate": "target_rate_per_s"}
"""The parameter of the HPA that each of them is compared with."""
LONGEST_WINDOW_S: Final = 3600
TRIGGER: Final = {
    "lagThreshold": "lag_threshold",
    "activationLagThreshold": "activation_lag_threshold",
    "offsetResetPolicy": "offset_reset",
    "allowIdleConsumers": "allow_idle_consumers",
    "limitToPartitionsWithLag": "limit_to_partitions_with_lag",
    "ensureEvenDistributionOfPartitions": "ensure_even_distribution",
    "excludePersistentLag": "exclude_persistent_lag",
    "scaleToZeroOnInvalidOffset": "scale_to_zero_on_invalid_offset",
}
"""Metadata of KEDA's Kafka trigger, and the parameters that they are."""


def manifest(acting: ScalerSpec, max_replicas: int) -> str:
    """YAML of a scaler with all its parameters; "" for one that no object of Kubernetes can express, or not exactly:
    the interval and the tolerance of an HPA, for example, belong to the controller. Names in capitals are the user's to
    fill in.
    """
    system = getattr(find_scaler(acting), "emulates", "")
    p = acting.parameters
    most = min(int(p.get("max_replicas") or max_replicas), max_replicas)
    if system == KEDA and "lag_threshold" in p:
        document = _scaled_object(p, most)
    elif system == HPA and p.get("metric") in METRICS:
        document = _hpa(p, most)
    else:
        return ""
    text = str(yaml.safe_dump(document, sort_keys=False))
    return text if _says(text, acting, most) else ""


def scaler_of(text: str) -> ScalerSpec:
    """The emulated scaler with exactly the settings of this YAML, KEDA's and Kubernetes' defaults for what it leaves
    out. PenstockError for another object.
    """
    document = yaml.safe_load(text)
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind == "ScaledObject":
        name, given = "keda-kafka", _given_by_scaled_object(document["spec"])
    elif kind == "HorizontalPodAutoscaler":
        name, given = "hpa", _given_by_hpa(document["spec"])
    else:
        raise PenstockError(f"kind {kind}: expected a ScaledObject or a HorizontalPodAutoscaler")
    parameters = make_parameters(name, find_scaler(ScalerSpec(name=name)).Parameters, given)
    return ScalerSpec(name=name, parameters=dataclasses.asdict(parameters))


def trials_of(text: str, known: Trials, seeds: Sequence[int]) -> list[Trial]:
    """Trials of the YAML itself on the rest of the trace."""
    scaler = scaler_of(text)
    trials = [known.trial(Wanted(scaler.name, (), "rest", seed)) for seed in seeds]
    return [msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, scaler=scaler)) for each in trials]


def _says(text: str, acting: ScalerSpec, most: int) -> bool:
    """Whether the scaler that is read from the YAML is the one that acted."""
    p, read = acting.parameters, scaler_of(text).parameters
    decides = set(read) - {"service_rate_per_s", "max_replicas", *TARGETS.values()}
    if p.get("metric") in TARGETS:
        decides.add(TARGETS[p["metric"]])
    same = all(read[name] == p.get(name, read[name]) for name in decides)
    return same and read["max_replicas"] == most and p.get("stabilisation_s", 0) <= LONGEST_WINDOW_S


def _behavior(p: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing for an HPA without it, which has the controller's window."""
    if not p["behavior"]:
        return {}
    return {"behavior": {"scaleDown": {"stabilizationWindowSeconds": round(p["stabilisation_s"])}}}


def _given_by_behavior(spec: Mapping[str, Any]) -> dict[str, Any]:
    if "behavior" not in spec:
        return {}
    window_s = spec["behavior"].get("scaleDown", {}).get("stabilizationWindowSeconds")
    return {"behavior": True, **({} if window_s is None else {"stabilisation_s": float(window_s)})}


def _scaled_object(p: Mapping[str, Any], max_replicas: int) -> dict[str, Any]:
    behavior = _behavior(p)
    trigger = {
        "bootstrapServers": "KAFKA:9092",
        "topic": "TOPIC",
        "consumerGroup": "GROUP",
        **{name: p[parameter] for name, parameter in TRIGGER.items()},
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
            **({"advanced": {"horizontalPodAutoscalerConfig": behavior}} if behavior else {}),
            "triggers": [
                # Metadata are texts, true and false in lower case.
                {"type": "kafka", "metadata": {name: str(value).lower() if isinstance(value, bool) else str(value)
                                               for name, value in trigger.items()}},
            ],
        },
    }  # fmt: skip


def _given_by_scaled_object(spec: Mapping[str, Any]) -> dict[str, Any]:
    triggers = [each["metadata"] for each in spec["triggers"] if each["type"] == "kafka"]
    if len(triggers) != 1 or len(spec["triggers"]) != 1:
        raise PenstockError("a ScaledObject with another trigger than one of type kafka is not simulated")
    counts = {"minReplicaCount": "min_replicas", "maxReplicaCount": "max_replicas"}
    times = {"pollingInterval": "poll_interval_s", "cooldownPeriod": "cooldown_s"}
    config = spec.get("advanced", {}).get("horizontalPodAutoscalerConfig", {})
    return {
        **{parameter: int(spec[name]) for name, parameter in counts.items() if name in spec},
        **{parameter: float(spec[name]) for name, parameter in times.items() if name in spec},
        **{parameter: _metadata(triggers[0][name]) for name, parameter in TRIGGER.items() if name in triggers[0]},
        **_given_by_behavior(config),
    }


def _metadata(text: str) -> Any:
    """A truth, a number or a word."""
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdigit() else text


def _hpa(p: Mapping[str, Any], max_replicas: int) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "CONSUMER"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "CONSUMER"},
            "minReplicas": int(p["min_replicas"]),
            "maxReplicas": max_replicas,
            "metrics": [
                {
                    "type": "External",
                    "external": {
                        "metric": {"name": METRICS[p["metric"]]},
                        "target": {
                            "type": "AverageValue",
                            "averageValue": f"{round(1000 * p[TARGETS[p['metric']]])}m",
                        },
                    },
                }
            ],
            **_behavior(p),
        },
    }


def _given_by_hpa(spec: Mapping[str, Any]) -> dict[str, Any]:
    (source,) = spec["metrics"]
    name = source.get("external", {}).get("metric", {}).get("name")
    metric = next((metric for metric, each in METRICS.items() if each == name), None)
    if metric is None:
        known = ", ".join(METRICS.values())
        raise PenstockError(f"an HPA on {name or source['type']} is not simulated: one of {known}")
    return {
        "metric": metric,
        TARGETS[metric]: _quantity(source["external"]["target"]["averageValue"]),
        "min_replicas": int(spec.get("minReplicas", 1)),
        "max_replicas": int(spec["maxReplicas"]),
        **_given_by_behavior(spec),
    }


def _quantity(text: str) -> float:
    """A whole number, or one of thousandths."""
    return int(text[:-1]) / 1000 if text.endswith("m") else float(text)
