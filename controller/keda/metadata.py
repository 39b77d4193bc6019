"""Metadata of a ScaledObject's trigger: the group and its scaler.

Keys are those of ``KEYS``; the command's options are their defaults. KEDA reads the service's address and its settings
for TLS itself; those that would have no effect are refused. Any other key is an error, since a misspelt one would be a
silent default.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from controller.assembly import make_live_scaler
from penstock.contracts import StreamObservation
from penstock.errors import PenstockError
from penstock.parameters import parse_settings, unknown
from penstock.registry import parse_scaler
from penstock.runspec import ScalerSpec

KEYS: Final = {
    "topic": "Kafka topic",
    "group": "consumer group",
    "scaler": "a name of `penstock scalers`",
    "set": "scaler.parameter=value, several with blanks between them",
    "replicas": "replicas for the scaler, instead of the group's member count",
    "membersPerReplica": "members of the group that one replica is (its threads); 1 by default",
    "maxReplicas": "maximum of the scaler's decision; the ScaledObject's maxReplicaCount",
    "hpaTolerance": "the HPA's tolerance; 0.1 by default, 0 where behavior.*.tolerance is 0",
    "scaleInHoldSeconds": "no scale-in for so long after a start or an outage; 60 by default",
}
ADDRESS: Final = "scalerAddress"
TLS: Final = ("enableTLS", "unsafeSsl")
"""KEDA's own settings of an encrypted connection to the service."""
AUTHENTICATION: Final = ("caCert", "tlsClientCert", "tlsClientKey", "tlsCertFile", "insecureSkipVerify")
"""Settings that KEDA does not read here: it takes the first three from a TriggerAuthentication."""
KAFKA: Final = (
    "bootstrapServers", "sasl", "tls", "username", "password", "ca", "cert", "key", "keyPassword", "saslTokenType",
)  # fmt: skip
"""Settings of KEDA's own Kafka trigger that would be a login here; ``…FromEnv``, too, which KEDA resolves."""
OFF: Final = ("", "false")


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """One trigger, parsed."""

    topic: str
    group: str
    scaler: ScalerSpec
    replicas: int | None = None
    members_per_replica: int = 1
    max_replicas: int | None = None
    hpa_tolerance: float = 0.1
    scale_in_hold_s: float = 60.0


def read_trigger(metadata: Mapping[str, str], defaults: Mapping[str, str], *, tls: bool = False) -> Trigger:
    """A trigger from its metadata, with ``defaults`` (same keys) for what it leaves out. ``tls``: the service has it.
    PenstockError in one line, which an error names a key and a value in: white space is one blank, and other characters
    that are not printed are refused.
    """
    metadata = {key: " ".join(value.split()) for key, value in metadata.items()}
    for key, value in metadata.items():
        if not (key + value).isprintable():
            raise PenstockError(f"{key!a}: {value!a} has a character that cannot be printed")
        off = value.lower() in OFF
        if key in TLS and not off and not tls:
            raise PenstockError(
                f"{key}: this service has no TLS; leave it out, or start it with --tls-cert and --tls-key"
            )
        if key in AUTHENTICATION and not off:
            raise PenstockError(
                f"{key}: KEDA does not read it here; a TriggerAuthentication has caCert, tlsClientCert, tlsClientKey"
            )
        if key.removesuffix("FromEnv") in KAFKA:
            raise PenstockError(
                f"{key}: address and login of Kafka are the service's: --kafka, and PENSTOCK_KAFKA_… in its environment"
            )
        if key not in KEYS and key not in (*TLS, *AUTHENTICATION, ADDRESS):
            raise unknown("metadata", key, KEYS, f"a trigger of Penstock's has {', '.join(KEYS)}")
    given = {**defaults, **{key: value for key, value in metadata.items() if key in KEYS and value}}
    if "scaler" in metadata and "set" not in metadata:
        given.pop("set", None)  # the command's settings are for its own scaler
    if missing := [key for key in ("topic", "group", "scaler") if not given.get(key)]:
        raise PenstockError(f"metadata lacks {', '.join(missing)}, and the service was started without")
    if ".py:" in metadata.get("scaler", ""):
        # Otherwise a ScaledObject could run any file of this machine.
        raise PenstockError("scaler: metadata takes names only; a scaler from a file is given to the command, --scaler")
    return Trigger(
        topic=given["topic"],
        group=given["group"],
        scaler=read_scaler(given),
        replicas=_number("replicas", given, int, least=0),
        members_per_replica=_number("membersPerReplica", given, int, least=1) or 1,
        max_replicas=_number("maxReplicas", given, int, least=1),
        hpa_tolerance=_number("hpaTolerance", {"hpaTolerance": "0.1", **given}, float, least=0),
        scale_in_hold_s=_number("scaleInHoldSeconds", {"scaleInHoldSeconds": "60", **given}, float, least=0),
    )


def read_scaler(given: Mapping[str, str]) -> ScalerSpec:
    """The scaler of ``scaler`` and ``set``. PenstockError for one that does not scale a consumer group, and for
    settings that it does not have.
    """
    by_scaler = parse_settings(given.get("set", "").split())
    scaler = parse_scaler(given["scaler"], by_scaler)
    if others := [each for each in by_scaler if each != scaler.name]:  # they would have no effect
        raise PenstockError(f"set: {others[0]}.… is for another scaler than {scaler.name}")
    make_live_scaler(scaler, StreamObservation)  # reports a wrong scaler now
    return scaler


def _number(key: str, given: Mapping[str, str], kind: type[Any], *, least: float) -> Any:
    """The value of a key as a number, None if it is absent."""
    if key not in given:
        return None
    try:
        value = kind(given[key])
    except ValueError:
        raise PenstockError(f"{key}: {given[key]!r} is not a number") from None
    if not value >= least:
        raise PenstockError(f"{key}: {given[key]} is too small; {least:g} or more")
    return value
