"""What a ScaledObject's trigger says in its metadata: which group to look at, and who decides.

Its keys are those of ``KEYS``; what it leaves out is what the command was started with. Keys that KEDA itself reads
(the service's address, certificates) are passed over; any other is an error, for a misspelt one would be a silent
default.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from controller.foreign import make_stream_scaler
from penstock.errors import PenstockError
from penstock.registry import parse_scaler, parse_settings, unknown
from penstock.runspec import ScalerSpec

KEYS: Final = {
    "topic": "Kafka topic",
    "group": "consumer group",
    "scaler": "a name of `penstock scalers`",
    "set": "scaler.parameter=value, several with blanks between them",
    "replicas": "replicas to tell the scaler instead of counting the group's members",
    "membersPerReplica": "members of the group that one replica is (its threads); 1 by default",
    "maxReplicas": "what the scaler's decision is cut to; the ScaledObject's maxReplicaCount",
    "hpaTolerance": "the HPA's tolerance; 0.1 by default, 0 where behavior.*.tolerance is 0",
}
KEDAS_OWN: Final = frozenset(
    {"scalerAddress", "enableTLS", "unsafeSsl", "tlsCertFile", "caCert", "tlsClientCert", "tlsClientKey",
     "insecureSkipVerify", "metricType"}
)  # fmt: skip
HPA_TOLERANCE: Final = 0.1


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """One trigger, understood. Equal triggers share a loop."""

    topic: str
    group: str
    scaler: ScalerSpec
    replicas: int | None = None
    members_per_replica: int = 1
    max_replicas: int | None = None
    hpa_tolerance: float = HPA_TOLERANCE


def read_trigger(metadata: Mapping[str, str], defaults: Mapping[str, str]) -> Trigger:
    """A trigger from its metadata, with ``defaults`` (same keys) for what it leaves out. PenstockError in one line."""
    for key in metadata:
        if key not in KEYS and key not in KEDAS_OWN:
            raise unknown("metadata", key, KEYS, f"a trigger of Penstock's has {', '.join(KEYS)}")
    given = {**defaults, **{key: value for key, value in metadata.items() if key in KEYS and value}}
    if "scaler" in metadata and "set" not in metadata:
        given.pop("set", None)  # those of the command are for the command's scaler
    if missing := [key for key in ("topic", "group", "scaler") if not given.get(key)]:
        raise PenstockError(f"metadata lacks {', '.join(missing)}, and the service was started without")
    if ".py:" in metadata.get("scaler", ""):
        # Whoever may write a ScaledObject could run any file of this machine otherwise.
        raise PenstockError("scaler: metadata takes names only; a scaler from a file is given to the command, --scaler")
    trigger = Trigger(
        topic=given["topic"],
        group=given["group"],
        scaler=_scaler(given["scaler"], given.get("set", "")),
        replicas=_number("replicas", given, int, least=0),
        members_per_replica=_number("membersPerReplica", given, int, least=1) or 1,
        max_replicas=_number("maxReplicas", given, int, least=1),
        hpa_tolerance=HPA_TOLERANCE if "hpaTolerance" not in given else _number("hpaTolerance", given, float, least=0),
    )
    make_stream_scaler(trigger.scaler)  # what is wrong with it is told now
    return trigger


def _scaler(name: str, settings: str) -> ScalerSpec:
    """Values for other scalers are an error: they would do nothing."""
    by_scaler = parse_settings(settings.split())
    spec = parse_scaler(name, by_scaler)
    if strangers := [each for each in by_scaler if each != spec.name]:
        raise PenstockError(f"set: {strangers[0]}.… is for another scaler than {spec.name}")
    return spec


def _number(key: str, given: Mapping[str, str], kind: type[Any], *, least: float) -> Any:
    """The value of a key as a number, None where it is not there."""
    if key not in given:
        return None
    try:
        value = kind(given[key])
    except ValueError:
        raise PenstockError(f"{key}: {given[key]!r} is not a number") from None
    if not value >= least:
        raise PenstockError(f"{key}: {given[key]} is too small; {least:g} or more")
    return value
