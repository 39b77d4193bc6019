"""``penstock keda`` on a real Kafka, asked over gRPC as KEDA's operator and the HPA ask."""

import math
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import grpc
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from google.protobuf.message import Message

from controller.fleets.stream.group_members import GroupReader
from controller.keda import externalscaler_pb2 as wire
from infra.local.ports import free_port
from infra.local.services import LocalServices
from penstock.settings import Endpoints
from tests.support.eventually import eventually

SCALER = Path(__file__).parent / "scaler_by_backlog.py"
PARTITIONS = 4
PATIENCE_S = 60.0
SERVICE = "/externalscaler.ExternalScaler"

Answer = TypeVar("Answer", bound=Message)


def hpa(value: float, current: int) -> int:
    """What the HPA makes of an average-value metric with target 1."""
    return current if 0.9 <= value / current <= 1.1 else math.ceil(value)


class Keda:
    """KEDA's side of one ScaledObject."""

    def __init__(self, channel: grpc.Channel, name: str, **metadata: str) -> None:
        self._channel = channel
        self.object = wire.ScaledObjectRef(
            name=name, namespace="shop", scalerMetadata={"scalerAddress": "here", **metadata}
        )

    def ask(self, method: str, request: Message, answer: type[Answer]) -> Answer:
        call = self._channel.unary_unary(f"{SERVICE}/{method}", type(request).SerializeToString, answer.FromString)
        answered: Answer = call(request, timeout=30)
        return answered

    def spec(self) -> tuple[str, float]:
        found = self.ask("GetMetricSpec", self.object, wire.GetMetricSpecResponse).metricSpecs
        assert len(found) == 1
        return found[0].metricName, found[0].targetSizeFloat

    def value(self) -> float:
        request = wire.GetMetricsRequest(scaledObjectRef=self.object, metricName=self.spec()[0])
        return float(self.ask("GetMetrics", request, wire.GetMetricsResponse).metricValues[0].metricValueFloat)

    def known_value(self) -> float | None:
        try:
            return self.value()
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE
            return None

    def pushed(self, into: "queue.Queue[bool]") -> None:
        with suppress(grpc.RpcError):
            call = self._channel.unary_stream(
                f"{SERVICE}/StreamIsActive", wire.ScaledObjectRef.SerializeToString, wire.IsActiveResponse.FromString
            )
            for answer in call(self.object):
                into.put(answer.result)


@pytest.fixture
def group(services: Endpoints, topic: Callable[[int], str]) -> Iterator["Group"]:
    made = Group(services.kafka, topic(PARTITIONS))
    yield made
    made.consumer.close()


class Group:
    """A topic, and a consumer group whose commits are set by hand."""

    def __init__(self, kafka: str, topic: str) -> None:
        self.kafka, self.topic, self.name = kafka, topic, f"{topic}-group"
        self.consumer = Consumer(
            {"bootstrap.servers": kafka, "group.id": self.name, "enable.auto.commit": False, "log_level": 0}
        )
        self.producer = Producer({"bootstrap.servers": kafka, "log_level": 0})
        self.ends = [0] * PARTITIONS

    def send(self, count: int) -> None:
        for number in range(count):
            self.producer.produce(self.topic, b"{}", partition=number % PARTITIONS)
            self.ends[number % PARTITIONS] += 1
        assert self.producer.flush(30) == 0

    def commit(self, *, lag: int = 0) -> None:
        """Everything was consumed but ``lag`` events of the first partition."""
        ends = [end - (lag if partition == 0 else 0) for partition, end in enumerate(self.ends)]
        offsets = [TopicPartition(self.topic, partition, end) for partition, end in enumerate(ends)]
        self.consumer.commit(offsets=offsets, asynchronous=False)


@pytest.fixture
def facade(group: Group, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], grpc.Channel, Path]]:
    address = f"127.0.0.1:{free_port()}"
    command = ("keda", "--kafka", group.kafka, "--topic", group.topic, "--group", group.name, "--listen", address)
    log = tmp_path / "facade.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", "from penstock.command import main; main()", *command,
             "--scaler", f"{SCALER}:ByBacklog"],
            stdout=output, stderr=output, env={"PATH": os.environ["PATH"]},
        )  # fmt: skip
    channel = grpc.insecure_channel(address)
    try:
        grpc.channel_ready_future(channel).result(timeout=PATIENCE_S)
        yield process, channel, log
    finally:
        channel.close()
        process.kill()
        process.wait()


@pytest.mark.live
def test_keda_and_the_hpa_carry_out_what_the_scaler_decides(
    facade: tuple[subprocess.Popen[bytes], grpc.Channel, Path], group: Group, local_services: LocalServices
) -> None:
    process, channel, log = facade
    keda = Keda(channel, "orders")
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
    ten = Keda(channel, "orders-of-ten", replicas="10")
    eventually(lambda: ten.known_value() is not None, "a decision")
    assert hpa(11, current=10) == 10
    assert hpa(ten.value(), current=10) == 12
    twelve = Keda(channel, "orders-of-twelve", replicas="12")
    eventually(lambda: twelve.known_value() is not None, "a decision")
    assert hpa(twelve.value(), current=12) == 11

    # Another scaler with its own parameters, on the same group.
    other = Keda(channel, "orders-linear", scaler="linear", set="linear.service_rate_per_s=50")
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
    for wrong, message in (
        (Keda(channel, "typo", scaler="linaer"), "did you mean linear"),
        (Keda(channel, "lost", topic="nowhere"), "topic 'nowhere'"),
    ):
        with pytest.raises(grpc.RpcError) as told:
            wrong.spec()
        assert told.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert message in str(told.value.details())
    assert keda.value() == 4

    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=PATIENCE_S) == 0
    assert "Traceback" not in log.read_text()


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
