"""The gRPC service before hostile clients: every request gets a status, and the next one is served."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from controller.keda import externalscaler_pb2 as wire
from controller.keda import health_pb2, service
from controller.keda.fleet import TriggerState
from tests.controller.keda.keda_client import SERVICE, Trigger, health
from tests.controller.keda.scaler_service import serving
from tests.support.mutations import mutations

METADATA = {"topic": "orders", "group": "shop", "scaler": "linear"}
REFERENCE = wire.ScaledObjectRef(name="orders", namespace="shop", scalerMetadata=METADATA)
METRICS = wire.GetMetricsRequest(scaledObjectRef=REFERENCE, metricName="penstock-shop-linear")
PROBE = health_pb2.HealthCheckRequest(service="externalscaler.ExternalScaler")
METHODS = {
    f"{SERVICE}/GetMetricSpec": REFERENCE,
    f"{SERVICE}/IsActive": REFERENCE,
    f"{SERVICE}/GetMetrics": METRICS,
    "/grpc.health.v1.Health/Check": PROBE,
    f"{SERVICE}/None": REFERENCE,
}
DEADLINE_S = 20.0
MOST = 5
"""Triggers that the service has room for."""


class QuietFleet:
    """``ScaledFleet`` without Kafka, that knows nothing yet."""

    started = 0

    def __init__(self, name: str, trigger: Any, *, bootstrap: str, notify: Any) -> None:
        del bootstrap, notify
        self.name, self.trigger, self.state = name, trigger, TriggerState()

    def start(self) -> None:
        QuietFleet.started += 1

    def value(self) -> None:
        return None

    def end(self) -> None: ...

    stop = end


@pytest.fixture(scope="module")
def channel() -> Iterator[grpc.Channel]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "ScaledFleet", QuietFleet)
        patch.setattr(service, "MOST_TRIGGERS", MOST)
        with serving("127.0.0.1:1") as address, grpc.insecure_channel(address) as made:
            yield made


def send(channel: grpc.Channel, method: str, content: bytes) -> tuple[grpc.StatusCode, str]:
    """Status and text of the answer to raw bytes."""
    try:
        channel.unary_unary(method, bytes, bytes)(content, timeout=DEADLINE_S)
    except grpc.RpcError as error:
        return error.code(), str(error.details())
    return grpc.StatusCode.OK, ""


def requests() -> st.SearchStrategy[tuple[str, bytes]]:
    """A method, and a good request of it with changes, or any bytes."""
    return st.sampled_from(list(METHODS)).flatmap(
        lambda method: st.tuples(
            st.just(method),
            st.just(METHODS[method].SerializeToString()).flatmap(mutations) | st.binary(max_size=60),
        )
    )


@example(sent=[(f"{SERVICE}/IsActive", wire.ScaledObjectRef(scalerMetadata={"x" * 60_000: ""}).SerializeToString())])
@example(sent=[(f"{SERVICE}/GetMetrics", b"")])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=st.lists(requests(), max_size=6))
def test_any_bytes_get_a_status_and_the_next_request_is_served(
    channel: grpc.Channel, sent: list[tuple[str, bytes]]
) -> None:
    for method, content in sent:
        code, text = send(channel, method, content)
        assert code not in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED), text
        assert len(text) <= 1000
        assert "Traceback" not in text
    assert health(channel) == 1
    assert QuietFleet.started <= MOST, "a trigger beyond the limit"


def test_wrong_metadata_are_refused_with_a_text_that_gets_through(channel: grpc.Channel) -> None:
    wrong = Trigger(channel, "orders", **METADATA, maxReplicas="9" * 50_000)
    code, text = send(channel, f"{SERVICE}/GetMetricSpec", wrong.object.SerializeToString())
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert text.startswith("maxReplicas: '999")


@pytest.mark.parametrize(
    "method", [f"{SERVICE}/StreamIsActive", f"{SERVICE}/StreamMetricSpec", "/grpc.health.v1.Health/Watch"]
)
def test_a_stream_of_no_message_is_refused(channel: grpc.Channel, method: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        next(channel.unary_stream(method, bytes, bytes)(b"\xff\xff", timeout=DEADLINE_S))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
