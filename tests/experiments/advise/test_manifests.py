"""The YAML of a scaler that Kubernetes has itself is what its API takes, and says exactly what was simulated."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import yaml
from kubernetes import client

from experiments.advise.manifests import manifest, scaler_of, trials_of
from experiments.advise.request import AdviceRequest
from experiments.advise.session import carry_out, prepare
from experiments.advise.trial import simulate
from experiments.advise.trials import Trials, Wanted
from penstock.errors import PenstockError
from penstock.parameters import make_parameters
from penstock.registry import find_scaler
from penstock.runspec import ScalerSpec
from tests.support.manifest_schema import crd_schema, violations

RatesFile = Callable[[Iterable[float]], Path]
WINDOW = {"behavior": True, "stabilisation_s": 30.0}


def text_of(name: str, **given: Any) -> str:
    kind = find_scaler(ScalerSpec(name=name))
    parameters = make_parameters(name, kind.Parameters, given)
    return manifest(ScalerSpec(name=name, parameters=dataclasses.asdict(parameters)), max_replicas=12)


def of(name: str, **given: Any) -> Any:
    return yaml.safe_load(text_of(name, **given))


def test_a_scaled_object_keeps_the_schema_of_keda_and_has_the_simulated_values() -> None:
    found = of("keda-kafka", lag_threshold=7, min_replicas=2, max_replicas=50, **WINDOW)
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
    found = of("hpa", metric=metric, min_replicas=3, **{name: target}, **WINDOW)
    assert (found["apiVersion"], found["kind"]) == ("autoscaling/v2", "HorizontalPodAutoscaler")
    checked("V2HorizontalPodAutoscaler", found)
    assert found["spec"]["minReplicas"] == 3 and found["spec"]["maxReplicas"] == 12
    assert found["spec"]["metrics"][0]["external"]["target"]["averageValue"] == written


def test_a_scaler_that_no_object_of_kubernetes_expresses_has_no_manifest() -> None:
    assert of("rps") is None


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("keda-kafka", {"stabilisation_s": 30.0}),  # without behavior the window is the controller's
        ("keda-kafka", {"decision_interval_s": 5.0}),
        ("keda-kafka", {"poll_interval_s": 2.5}),
        ("keda-kafka", {"tolerance": 0.2}),
        ("hpa", {"target_per_replica": 0.0123}),
        ("hpa", {"behavior": True, "stabilisation_s": 7200.0}),
    ],
)
def test_what_the_yaml_cannot_say_exactly_has_none(name: str, given: dict[str, Any]) -> None:
    assert text_of(name, **given) == ""


def test_an_object_that_is_not_simulated_is_refused() -> None:
    with pytest.raises(PenstockError, match="kind Deployment"):
        scaler_of("kind: Deployment")
    with pytest.raises(PenstockError, match="an HPA on queue_length"):
        scaler_of(text_of("hpa").replace("kafka_consumergroup_lag", "queue_length"))
    with pytest.raises(PenstockError, match="another trigger"):
        scaler_of(text_of("keda-kafka").replace("type: kafka", "type: cpu"))


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("keda-kafka", {"lag_threshold": 3, "min_replicas": 2, **WINDOW}),
        ("keda-kafka", {"lag_threshold": 20, "poll_interval_s": 7.0, "cooldown_s": 11.0}),
        ("keda-kafka", {"lag_threshold": 20, "ensure_even_distribution": True, "behavior": True}),
        ("hpa", {"metric": "rate", "target_rate_per_s": 87.125, **WINDOW}),
        ("hpa", {"metric": "backlog", "target_per_replica": 2.5, "min_replicas": 2, "behavior": True}),
    ],
)
def test_simulated_with_exactly_what_the_yaml_says_it_gives_the_promised_figures(
    name: str, setting: dict[str, Any], tmp_path: Path, rates_file: RatesFile
) -> None:
    request = AdviceRequest(trace=rates_file(([80.0] * 20 + [700.0] * 20) * 4), slo=0.5, scalers=name, seeds=1)
    session = prepare(request, tmp_path)
    known = Trials(session.parts, session.options, tmp_path / "trials.jsonl")
    wanted = Wanted(name, tuple(sorted(setting.items())), "rest", 1)
    text = manifest(known.spec(wanted).scaler, session.plan.experiment.max_replicas)
    (from_yaml,) = trials_of(text, known, [1])
    promised = simulate(known.trial(wanted))
    assert simulate(from_yaml) == promised and promised.error == ""
    # The same YAML with another value gives others: the settings are read from it.
    fewer = yaml.safe_load(text)
    fewer["spec"]["maxReplicas" if name == "hpa" else "maxReplicaCount"] = 2
    (changed,) = trials_of(yaml.safe_dump(fewer), known, [1])
    assert simulate(changed).replica_minutes < promised.replica_minutes


@pytest.mark.long
def test_the_yaml_of_an_advice_gives_the_figures_of_its_row(tmp_path: Path, rates_file: RatesFile) -> None:
    request = AdviceRequest(
        trace=rates_file(([80.0] * 60 + [400.0] * 120) * 4), slo=2.0, share=0.9, scalers="hpa,keda-kafka", jobs=1
    )
    session = prepare(request, tmp_path)
    found = carry_out(session, lambda _: None, lambda _: None)
    assert found.advice.manifests
    known = Trials(session.parts, session.options, tmp_path / "none.jsonl")
    rows = {row.scaler: row for row in found.rows}
    for name, text in found.advice.manifests.items():
        outcomes = [simulate(each) for each in trials_of(text, known, range(1, rows[name].seeds + 1))]
        assert fmean(each.slo_share for each in outcomes) == pytest.approx(rows[name].rest_share)
        assert fmean(each.replica_minutes for each in outcomes) == pytest.approx(rows[name].replica_minutes)
