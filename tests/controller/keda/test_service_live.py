"""``penstock keda`` on a real Kafka, asked over gRPC as KEDA's operator and the HPA ask."""

import queue
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AclOperation, ResourceType

from controller.fleets.stream.group_members import GroupReader
from infra.local.services import LocalServices
from penstock.settings import Endpoints
from tests.controller.keda.group_scene import PARTITIONS, Group, Members, Service, ended, frozen
from tests.controller.keda.keda_client import ScaledObject, Trigger, hpa, known
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.secure_kafka import PASSWORD, SecureKafka

AT_ONCE = {"scaleInHoldSeconds": "0"}


@pytest.fixture
def group(services: Endpoints, topic: Callable[[int], str]) -> Iterator[Group]:
    made = Group(services.kafka, topic(PARTITIONS))
    yield made
    made.consumer.close()


@pytest.fixture
def service(group: Group, tmp_path: Path) -> Iterator[Service]:
    with ended(Service(group, tmp_path)) as made:
        yield made


@pytest.mark.live
def test_keda_and_the_hpa_carry_out_what_the_scaler_decides(
    service: Service, group: Group, local_services: LocalServices
) -> None:
    process, channel, log = service.process, service.channel, service.log
    keda = Trigger(channel, "orders", **AT_ONCE)
    assert keda.spec() == (f"penstock-{group.name}-by-backlog", 1.0)
    # Nothing was ever committed: there is no backlog to decide on, and KEDA is told so.
    with pytest.raises(grpc.RpcError) as refused:
        keda.value()
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    pushes: queue.Queue[bool] = queue.Queue()
    threading.Thread(target=keda.pushed, args=(pushes,), daemon=True).start()
    assert pushes.get(timeout=PATIENCE_S) is False

    # Events come: 0 → 1 by activity, 1 → 11 by the metric.
    group.commit()
    group.send(110)
    assert pushes.get(timeout=PATIENCE_S) is True
    eventually(lambda: keda.known_value() == 11, "eleven replicas wanted")
    assert hpa(keda.value(), current=1) == 11

    # Ten are there, says another ScaledObject: a plain 11 would be swallowed.
    ten = Trigger(channel, "orders-of-ten", replicas="10", **AT_ONCE)
    eventually(lambda: ten.known_value() is not None, "a decision")
    assert hpa(11, current=10) == 10
    assert hpa(ten.value(), current=10) == 12
    twelve = Trigger(channel, "orders-of-twelve", replicas="12", **AT_ONCE)
    eventually(lambda: twelve.known_value() is not None, "a decision")
    assert hpa(twelve.value(), current=12) == 11

    # Another scaler with its own parameters, on the same group.
    other = Trigger(channel, "orders-linear", scaler="linear", set="linear.service_rate_per_s=50", **AT_ONCE)
    eventually(lambda: other.known_value() is not None, "a decision")
    assert other.value() == 1

    # Everything is done: the HPA goes down to one, and KEDA to zero.
    group.commit()
    assert pushes.get(timeout=PATIENCE_S) is False
    eventually(lambda: keda.value() == 1, "one replica wanted")

    # While Kafka is away the last value stays; when it is back the loop goes on.
    local_services.stop_service("kafka")
    try:
        eventually(lambda: "holding" in log.read_text(), "blindness")
        assert keda.value() == 1
    finally:
        local_services.start_service("kafka")
    group.send(40)
    eventually(lambda: keda.value() == 4, "four replicas wanted")

    # What is wrong with one ScaledObject is told, and harms no other.
    with pytest.raises(grpc.RpcError) as told:
        Trigger(channel, "typo", scaler="linaer").spec()
    assert told.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "did you mean linear" in str(told.value.details())
    lost = Trigger(channel, "lost", topic="nowhere")
    assert lost.spec()[1] == 1.0
    eventually(lambda: "UnknownTopic" in reason(lost), "the missing topic is named")
    assert keda.value() == 4

    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE_S) == 0
    assert "Traceback" not in log.read_text()


def reason(trigger: Trigger) -> str:
    """Why a trigger has no value."""
    with pytest.raises(grpc.RpcError) as refused:
        trigger.value()
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    return str(refused.value.details())


@pytest.mark.live
@pytest.mark.when_changed("controller/keda", "controller/control", "controller/fleets/stream")
def test_a_loaded_fleet_never_falls_below_what_it_had(
    service: Service, group: Group, local_services: LocalServices
) -> None:
    # Four members; the lag asks for four replicas, then for one, within the hold.
    group.commit()
    group.send(40)
    members = Members(group, 4)
    try:
        trigger = Trigger(service.channel, "orders", scaleInHoldSeconds="600")
        fleet = ScaledObject(trigger, 4, fallback=2)
        eventually(lambda: trigger.known_value() == 4, "four replicas wanted")
        fleet.sync()
        group.commit(lag=10, by=members.consumers[0])  # from now on the lag asks for one

        def syncs(count: int) -> None:
            for _ in range(count):
                fleet.sync()

        def known_again() -> bool:
            fleet.sync()
            return trigger.known_value() is not None

        with frozen(local_services):
            syncs(10)
            service.kill()
            service.start()
            syncs(10)
        eventually(known_again, "a value after the thaw", 2 * PATIENCE_S)
        assert min(fleet.seen) == 4

        # The broker is there: only the scaler is restarted.
        service.kill()
        service.start()
        eventually(known_again, "a value after the restart", 2 * PATIENCE_S)
        assert trigger.value() >= 4
        assert min(fleet.seen) == 4
    finally:
        members.close()


@pytest.mark.live
def test_events_in_partitions_that_were_added_later_are_seen(service: Service, group: Group) -> None:
    group.commit()
    trigger = Trigger(service.channel, "orders", replicas="0", **AT_ONCE)
    eventually(lambda: trigger.known_value() is not None, "a first value")
    eventually(lambda: known(trigger.active) is False, "nothing to do")
    group.add_partitions(2)
    group.commit()
    group.send(60, to=PARTITIONS + 1)
    eventually(lambda: known(trigger.active) is True, "active for a partition that is new")
    eventually(lambda: trigger.known_value() == 6, "six replicas wanted")


@pytest.mark.live
@pytest.mark.parametrize("protocol", ["SASL_SSL", "SSL"])
def test_a_group_behind_tls_is_answered_for_with_the_right_to_describe_it(
    secure_kafka: SecureKafka, tmp_path: Path, protocol: str
) -> None:
    password = {"SASL_PASSWORD": None, "SASL_PASSWORD_FILE": str(secure_kafka.folder / "password")}
    settings = secure_kafka.settings(protocol, "PLAIN", **(password if protocol == "SASL_SSL" else {}))
    topic = f"orders-of-keda-{protocol}"
    secure_kafka.make_topic(topic, PARTITIONS)
    group = Group(secure_kafka.address("PLAINTEXT"), topic)
    group.commit()
    group.send(110)
    with ended(Service(group, tmp_path, secure_kafka.address(protocol), settings)) as service:
        trigger = Trigger(service.channel, "orders", **AT_ONCE)
        eventually(lambda: f"needs DESCRIBE on topic {topic} and group {group.name}" in reason(trigger), "its rights")
        for kind, name in ((ResourceType.TOPIC, topic), (ResourceType.GROUP, group.name)):
            secure_kafka.allow(kind, name, AclOperation.DESCRIBE)
        eventually(lambda: trigger.known_value() == 11, "eleven replicas wanted")
        assert PASSWORD not in service.log.read_text()
    group.consumer.close()


@pytest.mark.live
def test_keda_is_told_of_a_wrong_password_and_still_gets_the_metrics_spec(
    secure_kafka: SecureKafka, tmp_path: Path
) -> None:
    group = Group(secure_kafka.address("PLAINTEXT"), "orders")
    settings = secure_kafka.settings("SASL_SSL", SASL_PASSWORD="wrong-one")
    with ended(Service(group, tmp_path, secure_kafka.address("SASL_SSL"), settings)) as service:
        trigger = Trigger(service.channel, "orders", **AT_ONCE)
        assert trigger.spec()[1] == 1.0
        eventually(lambda: "refuses user 'shop' by SCRAM-SHA-512" in reason(trigger), "the reason")
        assert "wrong-one" not in service.log.read_text() + reason(trigger)
        assert "Traceback" not in service.log.read_text()
    group.consumer.close()


@pytest.mark.live
def test_the_members_of_a_group_are_seen_with_their_partitions(group: Group) -> None:
    reader = GroupReader(bootstrap=group.kafka, topic=group.topic, group=group.name)
    eventually(lambda: reader.read() == (), "an answer")
    consumers = [
        Consumer({"bootstrap.servers": group.kafka, "group.id": group.name, "client.id": f"pod-{number}"})
        for number in range(2)
    ]
    try:
        for consumer in consumers:
            consumer.subscribe([group.topic])

        def shared() -> bool:
            for consumer in consumers:
                consumer.poll(0.1)
            members = reader.read() or ()
            return {each.client_id: len(each.partitions) for each in members} == {"pod-0": 2, "pod-1": 2}

        eventually(shared, "both members with two partitions each")
    finally:
        for consumer in consumers:
            consumer.close()
    eventually(lambda: reader.read() == (), "nobody")
    reader.stop()
