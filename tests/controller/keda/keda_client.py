"""KEDA's operator and the HPA of one ScaledObject, as far as they call an external scaler and scale.

Order of the calls, fallback and cooldown as in KEDA 2.20; the worst that was seen of it: without a metric's spec it
neither evaluates the fallback nor reports an error, and takes the trigger for inactive.
"""

import math
import queue
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import grpc
from google.protobuf.message import Message

from controller.keda import externalscaler_pb2 as wire
from controller.keda import health_pb2

SERVICE = "/externalscaler.ExternalScaler"
DEADLINE_S = 10.0

Answer = TypeVar("Answer", bound=Message)


def hpa(value: float, current: int) -> int:
    """Replicas that an HPA without tolerance settings makes of an average-value metric with target 1."""
    return current if 0.9 <= value / current <= 1.1 else max(1, math.ceil(value))


def call(channel: grpc.Channel, method: str, request: Message, answer: type[Answer]) -> Answer:
    """One answer of a gRPC method, named with its service."""
    asked = channel.unary_unary(method, type(request).SerializeToString, answer.FromString)
    answered: Answer = asked(request, timeout=DEADLINE_S)
    return answered


def health(channel: grpc.Channel, service: str = "") -> int:
    """Status of a service, as a probe of Kubernetes asks for it."""
    request = health_pb2.HealthCheckRequest(service=service)
    return call(channel, "/grpc.health.v1.Health/Check", request, health_pb2.HealthCheckResponse).status


class Trigger:
    """The trigger of a ScaledObject."""

    def __init__(self, channel: grpc.Channel, name: str, **metadata: str) -> None:
        self._channel = channel
        self.object = wire.ScaledObjectRef(
            name=name, namespace="shop", scalerMetadata={"scalerAddress": "here", **metadata}
        )

    def ask(self, method: str, request: Message, answer: type[Answer]) -> Answer:
        return call(self._channel, f"{SERVICE}/{method}", request, answer)

    def spec(self) -> tuple[str, float]:
        found = self.ask("GetMetricSpec", self.object, wire.GetMetricSpecResponse).metricSpecs
        assert len(found) == 1
        return found[0].metricName, found[0].targetSizeFloat

    def value(self) -> float:
        request = wire.GetMetricsRequest(scaledObjectRef=self.object, metricName=self.spec()[0])
        return float(self.ask("GetMetrics", request, wire.GetMetricsResponse).metricValues[0].metricValueFloat)

    def active(self) -> bool:
        return self.ask("IsActive", self.object, wire.IsActiveResponse).result

    def known_value(self) -> float | None:
        return known(self.value)

    def pushed(self, into: "queue.Queue[bool]") -> None:
        """Every answer of the stream of an external-push trigger."""
        with suppress(grpc.RpcError):
            asked = self._channel.unary_stream(
                f"{SERVICE}/StreamIsActive", wire.ScaledObjectRef.SerializeToString, wire.IsActiveResponse.FromString
            )
            for answer in asked(self.object):
                into.put(answer.result)


def known(ask: Callable[[], float]) -> float | None:
    """An answer; None for UNAVAILABLE. No other error may come, a deadline that is missed least of all."""
    try:
        return ask()
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNAVAILABLE, error
        return None


@dataclass
class ScaledObject:
    """One ScaledObject with its Deployment. ``sync`` is one polling interval of KEDA and one sync of the HPA;
    ``cooldown`` counts them. ``fallback``: replicas after more than ``failures`` errors in a row, or the current number
    if it is higher.
    """

    trigger: Trigger
    replicas: int
    fallback: int | None = None
    failures: int = 3
    cooldown: int = 5
    fell_back: bool = False
    _has_spec: bool = False
    _failed: int = 0
    _quiet: int = 0
    seen: list[int] = field(default_factory=list)
    """Replicas after each sync."""

    def sync(self) -> None:
        """One poll, with what the executor makes of it, and one sync of the HPA."""
        value = self.poll()
        if value is not None and self.replicas > 0:
            self.replicas = hpa(value, self.replicas)
        self.seen.append(self.replicas)

    def poll(self) -> float | None:
        """One poll, with what the executor makes of it; the value for the HPA, None if there is none."""
        value, active, error = self._state()
        if active:
            self._quiet = 0
            self.replicas = max(1, self.replicas)
        elif error:
            if self.fallback is not None:  # the executor does not wait for the threshold
                self.replicas = max(self.replicas, self.fallback)
        else:
            self._quiet += 1
            if self._quiet > self.cooldown:
                self.replicas = 0
        return value

    def _state(self) -> tuple[float | None, bool, bool]:
        """Value for the HPA, whether the trigger is active, whether it failed."""
        if not self._has_spec:
            self._has_spec = known(lambda: self.trigger.spec()[1]) is not None
        if not self._has_spec:
            return None, False, False
        value = self.trigger.known_value()
        active = known(self.trigger.active)
        self._failed = 0 if value is not None else self._failed + 1
        if self.fallback is not None and self._failed > self.failures:
            self.fell_back = True
            return float(max(self.replicas, self.fallback)), True, False
        return value, bool(active), value is None or active is None

    def forget(self) -> None:
        """KEDA closes its cache of scalers: specs are asked for again."""
        self._has_spec = False
