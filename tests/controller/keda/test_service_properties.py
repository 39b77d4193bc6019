"""The service while Kafka is away or frozen: every answer comes at once, and nothing is scaled in."""

from collections.abc import Iterator

import grpc
import pytest

from controller.keda import health_pb2, service
from infra.local.ports import free_port
from tests.controller.keda.keda_client import ScaledObject, Trigger, health
from tests.controller.keda.scaler_service import frozen_broker, serving
from tests.support.eventually import PATIENCE_S, eventually

# kafka-python leaves a socket that could not connect to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

METADATA = {"topic": "orders", "group": "shop", "scaler": "linear"}


@pytest.fixture(scope="module", params=["away", "frozen"])
def broker(request: pytest.FixtureRequest) -> Iterator[str]:
    """An address where nothing listens, or where connections are taken and nothing is ever answered."""
    if request.param == "away":
        yield f"127.0.0.1:{free_port()}"
    else:
        with frozen_broker() as address:
            yield address


@pytest.fixture(scope="module")
def channel(broker: str) -> Iterator[grpc.Channel]:
    """To a service in a thread."""
    with serving(broker) as address, grpc.insecure_channel(address) as made:
        yield made


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
    for name, status in (("", "SERVING"), ("another", "SERVICE_UNKNOWN")):
        answers = watch(health_pb2.HealthCheckRequest(service=name), timeout=PATIENCE_S)
        assert next(answers) == health_pb2.HealthCheckResponse(status=status)
        answers.cancel()


def test_settings_for_tls_are_refused_by_name(channel: grpc.Channel) -> None:
    for setting in ("enableTLS", "unsafeSsl", "caCert"):
        with pytest.raises(grpc.RpcError) as refused:
            Trigger(channel, "orders", **METADATA, **{setting: "true"}).spec()
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert setting in str(refused.value.details())


def refused(trigger: Trigger) -> tuple[grpc.StatusCode, str]:
    """Status and text of the answer to a request for the spec."""
    with pytest.raises(grpc.RpcError) as found:
        trigger.spec()
    return found.value.code(), str(found.value.details())


def test_a_request_that_is_too_large_is_refused_and_the_next_one_is_answered() -> None:
    with frozen_broker() as broker, serving(broker) as address, grpc.insecure_channel(address) as channel:
        huge = Trigger(channel, "orders", **{**METADATA, "group": "x" * service.MOST_MESSAGE_BYTES})
        assert refused(huge)[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert Trigger(channel, "orders", **METADATA).spec()[1] == 1.0


def test_triggers_beyond_the_limit_are_refused_and_those_before_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST_TRIGGERS", 2)
    with frozen_broker() as broker, serving(broker) as address, grpc.insecure_channel(address) as channel:
        names = [f"orders-{number}" for number in range(2)]
        for name in names:
            Trigger(channel, name, **METADATA).spec()
        for number in range(20):  # wrong ones take no room
            wrong = Trigger(channel, f"wrong-{number}", **{**METADATA, "scaler": "none"})
            assert refused(wrong)[0] == grpc.StatusCode.INVALID_ARGUMENT
        code, text = refused(Trigger(channel, "one-more", **METADATA))
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert text == "2 triggers are served already; start another `penstock keda`"
        assert [Trigger(channel, name, **METADATA).spec()[1] for name in names] == [1.0, 1.0]


def test_calls_beyond_the_limit_are_refused_until_one_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST_CALLS", 3)
    with frozen_broker() as broker, serving(broker) as address, grpc.insecure_channel(address) as channel:
        watch = channel.unary_stream(
            "/grpc.health.v1.Health/Watch",
            health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )
        streams = [watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S) for _ in range(3)]
        assert [next(each).status for each in streams] == [1, 1, 1]
        trigger = Trigger(channel, "orders", **METADATA)
        assert refused(trigger)[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
        streams[0].cancel()

        def answered() -> bool:
            try:
                return trigger.spec()[1] == 1.0
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
                return False

        eventually(answered, "the place of the stream that has ended")
        for each in streams[1:]:
            each.cancel()
