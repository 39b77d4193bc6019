"""The façade's parts, each alone: what metadata mean, when there is something to do, how replicas are counted."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from controller.fleets.stream.group_members import Member
from controller.fleets.stream.offsets import NO_COMMIT
from controller.keda.fleet import TriggerFleet, is_active
from controller.keda.metadata import Trigger, read_trigger
from penstock.adapters.kafka import BrokerAwayError
from penstock.contracts import Decision, PartitionObservation, ReplicaCounts, StreamObservation
from penstock.errors import PenstockError
from penstock.runspec import ScalerSpec

ROOT = Path(__file__).parents[3]
DEFAULTS = {"topic": "orders", "group": "shop", "scaler": "linear", "set": "linear.slo_s=1"}
SCALER_FILE = f"{Path(__file__).parent / 'scaler_by_backlog.py'}:ByBacklog"


def seen(*partitions: PartitionObservation, unknown: dict[str, str] | None = None) -> StreamObservation:
    return StreamObservation(
        time_s=1.0, fleet="shop", replicas=ReplicaCounts(), partitions=partitions, unknown=unknown or {}
    )


# --- metadata --------------------------------------------------------------------------------------------------------


def test_metadata_go_before_what_the_command_was_started_with() -> None:
    trigger = read_trigger({"group": "billing", "scalerAddress": "penstock:6000", "hpaTolerance": "0"}, DEFAULTS)
    assert (trigger.topic, trigger.group, trigger.hpa_tolerance) == ("orders", "billing", 0.0)
    assert trigger.scaler == ScalerSpec(name="linear", parameters={"slo_s": "1"})


def test_another_scaler_than_the_commands_does_not_get_its_settings() -> None:
    trigger = read_trigger({"scaler": "binpack-tail", "membersPerReplica": "4", "maxReplicas": "7"}, DEFAULTS)
    assert trigger.scaler == ScalerSpec(name="binpack-tail")
    assert (trigger.members_per_replica, trigger.max_replicas) == (4, 7)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"topics": "orders"}, "unknown metadata 'topics' (did you mean topic"),
        ({"scaler": "linaer"}, "unknown scaler 'linaer' (did you mean linear"),
        ({"scaler": "multiqueue"}, "scaler 'multiqueue' reads QueueObservation"),
        ({"scaler": "optimal"}, "needs the load in advance"),
        ({"scaler": "/etc/motd.py:Evil"}, "metadata takes names only"),
        ({"set": "linear.slo=1"}, "unknown parameter 'linear.slo'"),
        ({"set": "binpack.f_up=1"}, "is for another scaler than linear"),
        ({"maxReplicas": "many"}, "maxReplicas: 'many' is not a number"),
        ({"membersPerReplica": "0"}, "membersPerReplica: 0 is too small"),
        ({"scaleInHoldSeconds": "-1"}, "scaleInHoldSeconds: -1 is too small"),
        ({"enableTLS": "true"}, "enableTLS: this service has no TLS"),
        ({"caCert": "LS0t"}, "caCert: KEDA does not read it here; a TriggerAuthentication has caCert"),
        ({"tlsClientCert": "LS0t"}, "tlsClientCert: KEDA does not read it here"),
        ({"unsafeSsl": "true"}, "unsafeSsl: this service has no TLS"),
        ({"metricType": "Value"}, "unknown metadata 'metricType'"),
        ({"username": "shop"}, "username: address and login of Kafka are the service's: --kafka, and PENSTOCK_KAFKA_…"),
        ({"bootstrapServers": "kafka:9092"}, "bootstrapServers: address and login of Kafka are the service's"),
    ],
)
def test_wrong_metadata_are_told_in_one_line(metadata: dict[str, str], message: str) -> None:
    with pytest.raises(PenstockError) as told:
        read_trigger(metadata, DEFAULTS)
    assert message in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("key", ["password", "passwordFromEnv", "saslPassword", "sasl_password"])
def test_a_password_in_the_metadata_is_refused_without_its_value(key: str) -> None:
    with pytest.raises(PenstockError) as told:
        read_trigger({key: "s3cret"}, DEFAULTS)
    assert key in str(told.value) and "s3cret" not in str(told.value)


def test_tls_that_is_switched_off_is_no_error() -> None:
    assert read_trigger({"enableTLS": "false", "unsafeSsl": "false", "caCert": ""}, DEFAULTS).topic == "orders"


def test_with_tls_its_settings_are_taken_and_those_of_a_trigger_authentication_are_not() -> None:
    assert read_trigger({"enableTLS": "true", "unsafeSsl": "true"}, DEFAULTS, tls=True).topic == "orders"
    with pytest.raises(PenstockError, match="caCert: KEDA does not read it here"):
        read_trigger({"enableTLS": "true", "caCert": "LS0t"}, DEFAULTS, tls=True)


def test_a_trigger_without_a_topic_is_told_what_it_lacks() -> None:
    with pytest.raises(PenstockError, match="metadata lacks topic, scaler"):
        read_trigger({"group": "shop"}, {})


def test_the_commands_own_scaler_may_come_from_a_file() -> None:
    trigger = read_trigger({}, {**DEFAULTS, "scaler": SCALER_FILE, "set": ""})
    assert (trigger.scaler.name, trigger.scaler.file) == ("by-backlog", SCALER_FILE)


# --- activity --------------------------------------------------------------------------------------------------------


def test_there_is_something_to_do_while_events_wait_or_arrive_or_nobody_ever_looked() -> None:
    uncommitted = {"partitions.0.committed_offset": NO_COMMIT}
    assert is_active(seen(PartitionObservation(0, 10, 9))) is True
    assert is_active(seen(PartitionObservation(0, 10, 10, arrival_rate_per_s=2.0))) is True
    assert is_active(seen(PartitionObservation(0, 10, None), unknown=uncommitted)) is True
    idle = PartitionObservation(0, 10, 10, arrival_rate_per_s=0.0)
    assert is_active(seen(idle, PartitionObservation(1, 0, None, arrival_rate_per_s=0.0))) is False


def test_activity_is_unknown_where_an_offset_is() -> None:
    refused = {"partitions.0.committed_offset": "Broker: Group authorization failed"}
    assert is_active(seen(PartitionObservation(0, 10, None), unknown=refused)) is None
    assert is_active(seen(PartitionObservation(0, None, 9), PartitionObservation(1, 5, 5))) is None
    assert is_active(seen(PartitionObservation(0, None, 9), PartitionObservation(1, 6, 5))) is True
    assert is_active(seen()) is None


def test_a_group_whose_arrivals_were_not_measured_yet_is_not_idle() -> None:
    assert is_active(seen(PartitionObservation(0, 10, 10))) is None


# --- replicas --------------------------------------------------------------------------------------------------------


class Reader:
    """Sees ``readings`` members, one after the other, and a topic that has ``partitions``."""

    trouble = ""

    def __init__(self, readings: Sequence[int | None]) -> None:
        self.left = iter(readings)
        self.partitions: int | None = None

    @property
    def members(self) -> Sequence[Member] | None:
        count = next(self.left, None)
        return None if count is None else [Member(f"m{number}", "c", (number,)) for number in range(count)]


class Monitor:
    """Sees as many partitions as it was made for."""

    def __init__(self, partitions: int, **_: object) -> None:
        self.partitions, self.closed = partitions, False

    def observe(self) -> StreamObservation:
        return seen(*(PartitionObservation(number, 1, 1) for number in range(self.partitions)))

    def close(self) -> None:
        self.closed = True


def target(*readings: int | None, **trigger: int) -> TriggerFleet:
    described = Trigger(topic="orders", group="shop", scaler=ScalerSpec(name="linear"), **trigger)
    return TriggerFleet(described, Reader(readings), Monitor)  # type: ignore[arg-type]


def up(replicas: int) -> Decision:
    return Decision(action="up", targets={"shop": replicas})


def test_what_was_decided_and_is_not_there_counts_as_requested_and_what_is_too_much_as_draining() -> None:
    fleet = target(2, 3, 3)
    fleet.look()
    assert fleet.counts() == ReplicaCounts(joined=2)
    assert fleet.apply(up(5)).targets == {"shop": 5}
    assert fleet.counts() == ReplicaCounts(joined=2, requested=3)
    fleet.look()
    assert fleet.counts() == ReplicaCounts(joined=3, requested=2)
    fleet.apply(up(1))
    assert fleet.counts() == ReplicaCounts(joined=1, draining=2)
    assert fleet.plans().assigned() == {"m0": (0,), "m1": (1,), "m2": (2,)}


def test_the_last_members_stay_while_the_broker_does_not_say() -> None:
    fleet = target(2, None)
    fleet.look()
    fleet.look()
    assert fleet.counts().joined == 2


def test_members_of_several_threads_are_fewer_replicas_and_a_given_number_is_believed() -> None:
    threads = target(7, members_per_replica=3)
    threads.look()
    assert threads.counts().joined == 3
    given = target(7, replicas=2)
    given.look()
    assert given.counts().joined == 2


def test_partitions_that_are_added_later_are_observed() -> None:
    fleet = target(1, 1, 1)
    reader, monitor = fleet._reader, fleet.monitor(0.0, lambda: False)
    reader.trouble = "UnknownTopicOrPartitionError"  # type: ignore[misc]
    with pytest.raises(BrokerAwayError, match="UnknownTopicOrPartitionError"):
        monitor.observe()
    reader.partitions = 12
    assert len(monitor.observe().partitions) == 12
    first = fleet._monitor
    assert len(monitor.observe().partitions) == 12
    assert fleet._monitor is first
    reader.partitions = 16
    assert len(monitor.observe().partitions) == 16
    assert first.closed  # type: ignore[union-attr]


def test_a_decision_is_cut_to_max_replicas_and_says_so() -> None:
    fleet = target(max_replicas=4)
    accepted = fleet.apply(up(9))
    assert accepted.targets == {"shop": 4}
    assert accepted.clamped == {"shop": "9 → 4: maxReplicas 4"}


# --- the generated code ----------------------------------------------------------------------------------------------


def test_the_committed_code_is_what_the_definition_generates(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    protos = [str(each.relative_to(ROOT)) for each in (ROOT / "controller" / "keda").glob("*.proto")]
    outputs = ("--proto_path=.", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}")
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *outputs, *protos], check=True, cwd=ROOT)
    generated = list((tmp_path / "controller" / "keda").iterdir())
    assert len(generated) == 2 * len(protos) == 4
    for made in generated:
        assert made.read_text() == (ROOT / "controller" / "keda" / made.name).read_text(), made.name
