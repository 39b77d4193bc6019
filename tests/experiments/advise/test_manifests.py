"""The YAML of a scaler that Kubernetes has itself is what its API takes, and says what was simulated."""

import dataclasses
import inspect
from typing import Any

import pytest
import yaml
from kubernetes import client

from experiments.advise.manifests import manifest
from penstock.parameters import make_parameters
from penstock.registry import find_scaler
from penstock.runspec import ScalerSpec
from tests.support.manifest_schema import crd_schema, violations


def of(name: str, **given: Any) -> Any:
    kind = find_scaler(ScalerSpec(name=name))
    parameters = make_parameters(name, kind.Parameters, given)
    text = manifest(ScalerSpec(name=name, parameters=dataclasses.asdict(parameters)), max_replicas=12)
    return yaml.safe_load(text)


def test_a_scaled_object_keeps_the_schema_of_keda_and_has_the_simulated_values() -> None:
    found = of("keda-kafka", lag_threshold=7, min_replicas=2, stabilisation_s=30, max_replicas=50)
    assert list(violations(found, crd_schema("keda.yaml"))) == []
    spec = found["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (2, 12), "no more than the fleet has"
    assert spec["triggers"][0]["metadata"]["lagThreshold"] == "7"
    assert spec["triggers"][0]["metadata"]["allowIdleConsumers"] == "false"
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == 30


def test_the_schema_finds_what_is_wrong() -> None:
    found = of("keda-kafka")
    found["spec"]["minReplicaCount"] = "2"
    found["spec"]["minimum"] = 1
    del found["spec"]["scaleTargetRef"]["name"]
    assert len(list(violations(found, crd_schema("keda.yaml")))) == 3


def checked(kind: str, document: Any) -> None:
    """Against the classes that the Kubernetes client generates from its OpenAPI document: fields, and required ones."""
    model = getattr(client, kind)
    types, fields = model.openapi_types, {json: name for name, json in model.attribute_map.items()}
    assert set(document) <= set(fields), (kind, set(document) - set(fields))
    model(**{fields[name]: value for name, value in document.items()})  # ValueError without a required field
    assert set(inspect.signature(model).parameters) >= set(fields.values())
    for name, value in document.items():
        inner = types[fields[name]]
        if inner.startswith("list["):
            for each in value:
                checked(inner[5:-1], each)
        elif hasattr(client, inner):
            checked(inner, value)


@pytest.mark.parametrize(("metric", "target", "written"), [("backlog", 2.5, "2500m"), ("rate", 80.0, "80000m")])
def test_an_hpa_is_one_of_autoscaling_v2(metric: str, target: float, written: str) -> None:
    name = "target_per_replica" if metric == "backlog" else "target_rate_per_s"
    found = of("hpa", metric=metric, min_replicas=3, stabilisation_s=0, **{name: target})
    assert (found["apiVersion"], found["kind"]) == ("autoscaling/v2", "HorizontalPodAutoscaler")
    checked("V2HorizontalPodAutoscaler", found)
    assert found["spec"]["minReplicas"] == 3 and found["spec"]["maxReplicas"] == 12
    assert found["spec"]["metrics"][0]["external"]["target"]["averageValue"] == written


def test_a_scaler_that_no_object_of_kubernetes_expresses_has_no_manifest() -> None:
    assert of("rps") is None
