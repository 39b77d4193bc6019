"""The example in docs: what it says of the scaler, the HPA and KEDA is consistent, and as safe as its README claims."""

from pathlib import Path
from typing import Any

import yaml

from controller.keda.metadata import AUTHENTICATION, read_trigger
from penstock.adapters.kafka_security import MECHANISMS, PROTOCOLS
from penstock.settings import KafkaSecurity

FOLDER = Path(__file__).parents[2] / "docs" / "examples" / "keda"


def documents(name: str) -> dict[str, Any]:
    """Objects of a file by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((FOLDER / name).read_text())}


SCALER = documents("external-scaler.yaml")
SPEC = documents("scaled-object.yaml")["ScaledObject"]["spec"]
(TRIGGER,) = SPEC["triggers"]
DEPLOYMENT = SCALER["Deployment"]
(CONTAINER,) = DEPLOYMENT["spec"]["template"]["spec"]["containers"]


def test_the_trigger_is_understood_and_all_its_values_are_texts() -> None:
    assert all(isinstance(value, str) for value in TRIGGER["metadata"].values())
    read = read_trigger(TRIGGER["metadata"], {})
    assert (read.topic, read.scaler.name) == ("orders", "binpack-tail")
    assert read.max_replicas == SPEC["maxReplicaCount"]
    assert TRIGGER["metricType"] == "AverageValue"  # KEDA has a fallback for no other


def test_the_address_names_service_namespace_and_port() -> None:
    host, _, port = TRIGGER["metadata"]["scalerAddress"].partition(":")
    service, _, namespace = host.partition(".")
    assert service == SCALER["Service"]["metadata"]["name"]
    assert namespace
    assert int(port) == SCALER["Service"]["spec"]["ports"][0]["port"]


def test_no_tolerance_is_set_that_older_api_servers_drop() -> None:
    behavior = SPEC["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert not any("tolerance" in rules for rules in behavior.values())
    assert read_trigger(TRIGGER["metadata"], {}).hpa_tolerance == 0.1


def test_no_failure_scales_a_loaded_fleet_in() -> None:
    fallback = SPEC["fallback"]
    assert fallback["replicas"] == SPEC["maxReplicaCount"]
    assert fallback["behavior"] == "currentReplicasIfHigher"
    assert (
        fallback["failureThreshold"] * SPEC["pollingInterval"] >= read_trigger(TRIGGER["metadata"], {}).scale_in_hold_s
    )
    assert SPEC["minReplicaCount"] == 1
    assert SPEC["cooldownPeriod"] > 300
    behavior = SPEC["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"]["stabilizationWindowSeconds"] >= 60


def test_a_node_with_the_scaler_can_be_drained() -> None:
    replicas, budget = DEPLOYMENT["spec"]["replicas"], SCALER["PodDisruptionBudget"]["spec"]
    assert 0 < budget["maxUnavailable"] < replicas
    assert "minAvailable" not in budget


def test_budget_and_service_select_the_pods() -> None:
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"].items()
    for selector in (
        SCALER["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        SCALER["Service"]["spec"]["selector"],
        DEPLOYMENT["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels


def test_probes_ask_the_health_service_where_it_listens() -> None:
    listen = CONTAINER["args"][CONTAINER["args"].index("--listen") + 1]
    for probe in ("readinessProbe", "livenessProbe"):
        assert CONTAINER[probe]["grpc"]["port"] == int(listen.rpartition(":")[2])
    assert CONTAINER["ports"][0]["containerPort"] == int(listen.rpartition(":")[2])


def test_every_key_of_a_trigger_is_in_the_readme() -> None:
    from controller.keda.metadata import KEYS, TLS

    text = (FOLDER / "README.md").read_text()
    assert [key for key in KEYS if f"`{key}`" not in text] == []
    assert "enableTLS" in TLS and "`enableTLS`" in text


def test_the_login_of_kafka_is_mounted_and_made_of_settings_that_there_are() -> None:
    patch = yaml.safe_load((FOLDER / "kafka-patch.yaml").read_text())["spec"]["template"]["spec"]
    (container,), (volume,) = patch["containers"], patch["volumes"]
    assert container["name"] == CONTAINER["name"]
    names = {each["name"].removeprefix("PENSTOCK_KAFKA_").lower() for each in container["env"]}
    assert names < set(KafkaSecurity.model_fields)
    values = {each["name"]: each["value"] for each in container["env"] if "value" in each}
    assert values["PENSTOCK_KAFKA_SECURITY_PROTOCOL"] in PROTOCOLS
    assert values["PENSTOCK_KAFKA_SASL_MECHANISM"] in MECHANISMS
    (mount,) = container["volumeMounts"]
    assert mount["name"] == volume["name"]
    readme = (FOLDER / "README.md").read_text()
    for name, key in (("SASL_PASSWORD_FILE", "password"), ("TLS_CA", "ca.crt")):
        assert values[f"PENSTOCK_KAFKA_{name}"] == f"{mount['mountPath']}/{key}"
        assert f"--from-file={key}" in readme
    assert f"create secret generic {volume['secret']['secretName']} " in readme


def test_the_page_on_kafka_has_every_setting() -> None:
    page = (FOLDER.parents[1] / "kafka-security.md").read_text()
    assert [name for name in KafkaSecurity.model_fields if f"`{name.upper()}`" not in page] == []
    assert [each for each in (*PROTOCOLS, *MECHANISMS) if f"`{each}`" not in page] == []


def test_tls_is_the_same_on_both_sides() -> None:
    patch = yaml.safe_load((FOLDER / "tls-patch.yaml").read_text())["spec"]["template"]["spec"]
    (container,) = patch["containers"]
    assert container["name"] == CONTAINER["name"]
    options = dict(each.split("=", 1) for each in container["args"][2:])
    plain = CONTAINER["args"]
    assert {"--kafka": options["--kafka"], "--listen": options["--listen"]} == dict(
        zip(plain[2::2], plain[3::2], strict=True)
    )
    (mount,), (volume,) = container["volumeMounts"], patch["volumes"]
    assert mount["name"] == volume["name"]
    for name, file in (("cert", "tls.crt"), ("key", "tls.key"), ("client-ca", "ca.crt")):
        assert options[f"--tls-{name}"] == f"{mount['mountPath']}/{file}"
    for probe in ("readinessProbe", "livenessProbe"):  # the kubelet's know no TLS
        assert container[probe]["tcpSocket"]["port"] == CONTAINER[probe]["grpc"]["port"]
        assert container[probe]["grpc"] is None
    authentication = documents("tls-authentication.yaml")["TriggerAuthentication"]
    given = {each["parameter"] for each in authentication["spec"]["secretTargetRef"]}
    assert given == {"caCert", "tlsClientCert", "tlsClientKey"} < set(AUTHENTICATION)
    readme = (FOLDER / "README.md").read_text()
    assert f"authenticationRef: {{name: {authentication['metadata']['name']}}}" in readme
    assert volume["secret"]["secretName"] in readme
