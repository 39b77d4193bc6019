"""TLS and login of Kafka clients: what the settings give, what is refused, and what real brokers' answers mean."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from controller.fleets.stream.group_members import GroupReader
from infra.local.services import LocalServices
from penstock.adapters.kafka import BrokerAwayError, make_producer, read_topic, topics_of
from penstock.adapters.kafka_security import (
    ClientSecurity,
    kafka_python_settings,
    librdkafka_settings,
    use_plain_text,
)
from penstock.errors import PenstockError
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.secure_kafka import PASSWORD, STRANGER, USER, SecureKafka

LOGIN = {
    "SECURITY_PROTOCOL": "SASL_SSL",
    "SASL_MECHANISM": "SCRAM-SHA-512",
    "SASL_USERNAME": "shop",
    "SASL_PASSWORD": "s3cret",
}

Configure = Callable[..., None]


@pytest.fixture
def configure(monkeypatch: pytest.MonkeyPatch) -> Configure:
    """``configure(NAME=value)`` sets the variables ``PENSTOCK_KAFKA_NAME``; others are unset."""

    def configured(**values: object) -> None:
        for name in [each for each in os.environ if each.startswith("PENSTOCK_KAFKA_")]:
            monkeypatch.delenv(name)
        for name, value in values.items():
            monkeypatch.setenv(f"PENSTOCK_KAFKA_{name.removeprefix('PENSTOCK_KAFKA_')}", str(value))

    configured()
    return configured


def test_without_settings_clients_have_an_address_alone(configure: Configure) -> None:
    configure(SECURITY_PROTOCOL="", SASL_PASSWORD="")
    assert librdkafka_settings("k:1") == {"bootstrap.servers": "k:1"}
    assert kafka_python_settings("k:1") == {"bootstrap_servers": "k:1"}


def test_both_client_libraries_get_the_same_login_and_neither_text_has_the_password(
    configure: Configure, tmp_path: Path
) -> None:
    authority = Authority()
    ca, cert, key = (tmp_path / name for name in ("ca.crt", "tls.crt", "tls.key"))
    for path, content in zip((ca, cert, key), (authority.pem, *authority.issue("shop")), strict=True):
        path.write_bytes(content)
    (tmp_path / "password").write_text("s3cret\n")
    configure(
        **{**LOGIN, "SASL_PASSWORD": "", "SECURITY_PROTOCOL": "sasl_ssl"},
        SASL_PASSWORD_FILE=tmp_path / "password", TLS_CA=ca, TLS_CERTIFICATE=cert, TLS_KEY=key,
    )  # fmt: skip
    values = ["SASL_SSL", "SCRAM-SHA-512", "shop", "s3cret", str(ca), str(cert), str(key)]
    assert list(librdkafka_settings("k:1").values()) == ["k:1", *values]
    assert list(kafka_python_settings("k:1").values()) == ["k:1", *values]
    assert str(ClientSecurity()) == repr(ClientSecurity()) == "SASL_SSL, SCRAM-SHA-512, user shop"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"SECURITY_PROTOCOL": "TLS"}, "SECURITY_PROTOCOL is 'TLS'; it takes PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"SASL_MECHANISM": ""}, "SASL_MECHANISM is not set; it takes PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"SASL_MECHANISM": "OAUTHBEARER"}, "SASL_MECHANISM is 'OAUTHBEARER'; it takes PLAIN"),
        ({"SASL_USERNAME": ""}, "SASL_USERNAME is not set"),
        ({"SASL_PASSWORD": ""}, "SASL_PASSWORD and PENSTOCK_KAFKA_SASL_PASSWORD_FILE are not set"),
        ({"SASL_PASSWORD_FILE": "/password"}, "SASL_PASSWORD_FILE are both set"),
        ({"SASL_PASSWORD": "", "SASL_PASSWORD_FILE": "/no/file"}, "SASL_PASSWORD_FILE (/no/file): No such file"),
        ({"SASL_PASSWORD": "", "SASL_PASSWORD_FILE": os.devnull}, "SASL_PASSWORD_FILE (/dev/null): empty"),
        ({"SECURITY_PROTOCOL": "SSL"}, "SASL_MECHANISM has no effect with PENSTOCK_KAFKA_SECURITY_PROTOCOL=SSL"),
        ({"SECURITY_PROTOCOL": ""}, "SASL_MECHANISM has no effect with PENSTOCK_KAFKA_SECURITY_PROTOCOL=PLAINTEXT"),
        ({"SECURITY_PROTOCOL": "SASL_PLAINTEXT", "TLS_CA": "/ca"}, "TLS_CA has no effect"),
        ({"TLS_CA": "/no/ca"}, "TLS_CA (/no/ca): No such file"),
        ({"TLS_CA": __file__}, f"TLS_CA ({__file__}): no certificate of a CA (PEM)"),
        ({"TLS_KEY": "/key"}, "TLS_CERTIFICATE and PENSTOCK_KAFKA_TLS_KEY belong together"),
        ({"TLS_KEY": __file__, "TLS_CERTIFICATE": __file__}, "no certificate and its key (PEM, without passphrase)"),
    ],
)
def test_wrong_settings_are_one_line_without_the_password(
    configure: Configure, settings: dict[str, str], told: str
) -> None:
    configure(**{**LOGIN, **settings})
    with pytest.raises(PenstockError) as refused:
        ClientSecurity()
    line = str(refused.value)
    assert line.startswith("PENSTOCK_KAFKA_") and told in line
    assert "\n" not in line and "s3cret" not in line


def test_penstocks_own_broker_is_reached_without_what_is_set_for_another(configure: Configure) -> None:
    configure(**LOGIN)
    use_plain_text()
    assert ClientSecurity().plain
    assert not [name for name in os.environ if name.startswith(("PENSTOCK_KAFKA_SASL", "PENSTOCK_KAFKA_SEC"))]


@pytest.mark.live
def test_the_local_world_is_not_disturbed_by_them(local_services: LocalServices, configure: Configure) -> None:
    configure(**LOGIN)
    address = local_services.endpoints().require("kafka")
    assert all(service.answers() for service, _ in local_services.status() if service.name == "kafka")
    assert topics_of(address, 30) is not None


@pytest.mark.live
@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SSL", ""), *((each, name) for each in ("SASL_SSL", "SASL_PLAINTEXT") for name in ("PLAIN", "SCRAM-SHA-256"))],
)
def test_every_kind_of_client_is_admitted(
    secure_kafka: SecureKafka, configure: Configure, protocol: str, mechanism: str
) -> None:
    topic = f"admitted-{protocol}-{mechanism}"
    secure_kafka.make_topic(topic, 2)
    secure_kafka.allow(ResourceType.TOPIC, topic, AclOperation.READ, AclOperation.WRITE)
    secure_kafka.allow(ResourceType.GROUP, topic, AclOperation.DESCRIBE)
    configure(**secure_kafka.settings(protocol, mechanism))
    address = secure_kafka.address(protocol)
    producer = make_producer(address)
    producer.produce(topic, b"event")
    assert producer.flush(30) == 0
    assert list(read_topic(address, topic, 30)) == [b"event"]
    assert topics_of(address, 30)[topic] == 2
    reader = GroupReader(bootstrap=address, topic=topic, group=topic)
    eventually(lambda: reader.read() == (), lambda: reader.trouble)  # the broker may be making its topic of offsets
    assert reader.count() == 2, reader.trouble
    reader.stop()


@pytest.mark.live
@pytest.mark.parametrize(
    ("listener", "changes", "told"),
    [
        ("SASL_SSL", {"SASL_PASSWORD": "wrong"}, f"it refuses user '{USER}' by SCRAM-SHA-512: is the password in"),
        ("SASL_SSL", {"SASL_USERNAME": "nobody"}, "it refuses user 'nobody'"),
        ("SASL_SSL", {"TLS_CA": None}, "of a trusted CA, or is for another host name (PENSTOCK_KAFKA_TLS_CA: not set"),
        ("SASL_SSL", {"TLS_CA": "other-ca.pem"}, "its certificate is not of a trusted CA"),
        ("PLAINTEXT", {}, "its listener has no TLS; name the TLS port"),
        ("SASL_PLAINTEXT", {}, "its listener has no TLS; name the TLS port"),
    ],
)
def test_what_a_broker_refuses_is_told_by_its_reason_to_both_kinds_of_client(
    secure_kafka: SecureKafka, configure: Configure, listener: str, changes: dict[str, str | None], told: str
) -> None:
    if changes.get("TLS_CA"):
        changes = {"TLS_CA": str(secure_kafka.folder / "other-ca.pem")}
    configure(**secure_kafka.settings("SASL_SSL", **changes))
    address = secure_kafka.address(listener)
    with pytest.raises(BrokerAwayError) as refused:
        topics_of(address, 60)
    assert str(refused.value).startswith(f"Kafka at {address}: ") and told in str(refused.value)
    reader = GroupReader(bootstrap=address, topic="orders", group="shop")
    assert reader.read() is None
    assert told in reader.trouble
    assert PASSWORD not in reader.trouble


@pytest.mark.live
def test_a_missing_client_certificate_a_missing_login_and_missing_rights_are_told(
    secure_kafka: SecureKafka, configure: Configure
) -> None:
    configure(**secure_kafka.settings("SSL", TLS_CERTIFICATE=None, TLS_KEY=None))
    with pytest.raises(BrokerAwayError, match=r"refuses the client's certificate .PENSTOCK_KAFKA_TLS_CERTIFICATE: not"):
        topics_of(secure_kafka.address("SSL"), 60)
    configure(**secure_kafka.settings("SASL_PLAINTEXT", "PLAIN"))
    with pytest.raises(BrokerAwayError, match="its listener has no SASL, not PLAIN"):
        topics_of(secure_kafka.address("PLAINTEXT"), 60)
    configure()
    with pytest.raises(BrokerAwayError, match="is PLAINTEXT what its listener expects"):
        topics_of(secure_kafka.address("SASL_SSL"), 1)
    secure_kafka.make_topic("hidden", 1)
    configure(**secure_kafka.settings("SASL_SSL", SASL_USERNAME=STRANGER))
    reader = GroupReader(bootstrap=secure_kafka.address("SASL_SSL"), topic="hidden", group="shop")
    assert (reader.read(), reader.count()) == (None, None)
    assert f"{STRANGER} needs DESCRIBE on topic hidden and group shop" in reader.trouble
    reader.stop()
