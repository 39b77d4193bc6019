"""The service while Kafka is away or frozen: every answer comes at once, and nothing is scaled in."""

import asyncio
import gc
import socket
import threading
import warnings
from collections.abc import Iterator

import grpc
import pytest

from controller.keda import health_pb2
from controller.keda.service import Fleets, serve
from infra.local.ports import free_port
from tests.controller.keda.keda_client import ScaledObject, Trigger, health
from tests.support.eventually import PATIENCE_S, eventually

# kafka-python leaves a socket that could not connect to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

METADATA = {"topic": "orders", "group": "shop", "scaler": "linear"}


@pytest.fixture(scope="module", params=["away", "frozen"])
def broker(request: pytest.FixtureRequest) -> Iterator[str]:
    """An address where nothing listens, or where connections are taken and nothing is ever answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if request.param == "frozen":
            listener.listen(64)
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture(scope="module")
def channel(broker: str) -> Iterator[grpc.Channel]:
    """To a service in a thread."""
    address, stop, loop = f"127.0.0.1:{free_port()}", asyncio.Event(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(Fleets(broker, {}), address, stop),))
    thread.start()
    try:
        with grpc.insecure_channel(address) as made:
            grpc.channel_ready_future(made).result(timeout=PATIENCE_S)
            yield made
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


def test_name_and_target_come_from_the_metadata_alone(channel: grpc.Channel) -> None:
    assert Trigger(channel, "orders", **METADATA).spec() == ("penstock-shop-linear", 1.0)


def test_value_and_activity_are_unavailable_with_the_reason(channel: grpc.Channel) -> None:
    trigger = Trigger(channel, "orders", **METADATA)
    for ask in (trigger.value, trigger.active):
        with pytest.raises(grpc.RpcError) as refused:
            ask()
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    eventually(lambda: "Error" in reason(trigger), "a reason")


def reason(trigger: Trigger) -> str:
    with pytest.raises(grpc.RpcError) as refused:
        trigger.value()
    return str(refused.value.details())


def test_a_loaded_fleet_is_kept_and_the_fallback_acts(channel: grpc.Channel) -> None:
    trigger = Trigger(channel, "orders", **METADATA)
    loaded, small, plain = (
        ScaledObject(trigger, 12, fallback=6),
        ScaledObject(trigger, 1, fallback=6),
        ScaledObject(trigger, 12),
    )
    for sync in range(20):
        for each in (loaded, small, plain):
            if sync == 10:
                each.forget()
            each.sync()
    assert set(loaded.seen) == set(plain.seen) == {12}
    assert small.seen[-1] == 6
    assert loaded.fell_back and small.fell_back


def test_health_does_not_depend_on_kafka(channel: grpc.Channel) -> None:
    assert health(channel) == health(channel, "externalscaler.ExternalScaler") == 1
    with pytest.raises(grpc.RpcError) as refused:
        health(channel, "another")
    assert refused.value.code() == grpc.StatusCode.NOT_FOUND


def test_health_can_be_watched(channel: grpc.Channel) -> None:
    watch = channel.unary_stream(
        "/grpc.health.v1.Health/Watch",
        health_pb2.HealthCheckRequest.SerializeToString,
        health_pb2.HealthCheckResponse.FromString,
    )
    for service, status in (("", "SERVING"), ("another", "SERVICE_UNKNOWN")):
        answers = watch(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE_S)
        assert next(answers) == health_pb2.HealthCheckResponse(status=status)
        answers.cancel()


def test_settings_for_tls_are_refused_by_name(channel: grpc.Channel) -> None:
    for setting in ("enableTLS", "unsafeSsl"):
        with pytest.raises(grpc.RpcError) as refused:
            Trigger(channel, "orders", **METADATA, **{setting: "true"}).spec()
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert setting in str(refused.value.details())
