"""The external-scaler service: KEDA asks over gRPC, control loops in threads have the answers ready.

One loop per trigger. It starts with KEDA's first request and ends ``FORGET_S`` after the last: KEDA does not report a
deleted ScaledObject. No request waits for Kafka: KEDA evaluates a ScaledObject's fallback only if it has the metric's
spec, and takes a trigger that answers too late for an inactive one.
"""

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from controller.keda import externalscaler_pb2 as wire
from controller.keda import health_pb2 as health
from controller.keda.fleet import ScaledFleet
from controller.keda.hpa import TARGET
from controller.keda.metadata import Trigger, read_trigger
from controller.keda.tls import TlsFiles
from penstock.errors import PenstockError
from penstock.event_wait import set_within

log = logging.getLogger(__name__)

FORGET_S: Final = 600.0
"""KEDA asks every pollingInterval, 30 s unless a ScaledObject says otherwise; the HPA every 15 s."""
STREAM_CHECK_S: Final = 5.0
"""How often an idle stream is checked."""
GRACE_S: Final = 1.0

MOST_CALLS: Final = 1000
"""At once, of all clients; each ScaledObject of type external-push has one that lasts. More are RESOURCE_EXHAUSTED."""
MOST_TRIGGERS: Final = 200
"""Each is a thread with connections to Kafka."""
MOST_MESSAGE_BYTES: Final = 65_536
"""Of one request: metadata of a trigger."""

MOST_TEXT: Final = 500
"""Characters of an error's text, which can quote what was sent: gRPC refuses to carry 8 KiB of it."""

SCALER: Final = wire.DESCRIPTOR.services_by_name["ExternalScaler"]
HEALTH: Final = health.DESCRIPTOR.services_by_name["Health"]
SERVICES: Final = ("", SCALER.full_name)
"""Whose health can be asked; empty: the server's."""

Key = tuple[str, tuple[tuple[str, str], ...]]
"""A trigger: namespace/name of its ScaledObject, and its metadata."""

Context = grpc.aio.ServicerContext[Any, Any]


class TooManyError(PenstockError):
    """There is no room for one more."""


class Fleets:
    """Every requested trigger with its loop. ``tls``: KEDA reaches the service by TLS. Thread-safe."""

    def __init__(self, bootstrap: str, defaults: Mapping[str, str], *, tls: bool = False) -> None:
        self._bootstrap, self._tls = bootstrap, tls
        self._defaults = dict(defaults)
        self._lock = threading.Lock()
        self._fleets: dict[Key, ScaledFleet] = {}
        self._asked_s: dict[Key, float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()

    def of(self, reference: wire.ScaledObjectRef) -> ScaledFleet:
        """The fleet of a trigger, started if it is new; returns at once. PenstockError if its metadata is wrong,
        TooManyError if it would be one too many.
        """
        name = f"{reference.namespace or 'default'}/{reference.name}"
        key = (name, tuple(sorted(reference.scalerMetadata.items())))
        with self._lock:
            if (known := self._fleets.get(key)) is not None:
                self._asked_s[key] = time.monotonic()
                return known
            trigger = read_trigger(reference.scalerMetadata, self._defaults, tls=self._tls)
            if len(self._fleets) >= MOST_TRIGGERS:
                raise TooManyError(f"{MOST_TRIGGERS} triggers are served already; start another `penstock keda`")
            self._asked_s[key] = time.monotonic()
            log.info("%s: %s on group %s of topic %s", name, trigger.scaler.name, trigger.group, trigger.topic)
            fleet = self._fleets[key] = ScaledFleet(name, trigger, bootstrap=self._bootstrap, notify=self._notify)
            fleet.start()
            return fleet

    def forget(self) -> None:
        """End the loops that are no longer requested."""
        now_s = time.monotonic()
        with self._lock:
            old = [key for key, asked_s in self._asked_s.items() if now_s - asked_s > FORGET_S]
            fleets = [fleet for key in old if (fleet := self._fleets.pop(key, None)) is not None]
            for key in old:
                del self._asked_s[key]
        for fleet in fleets:
            log.info("%s: no longer requested", fleet.name)
            fleet.stop()

    def stop(self) -> None:
        """End all loops."""
        with self._lock:
            fleets = list(self._fleets.values())
        for fleet in fleets:  # all at once: each may wait for an absent broker
            fleet.end()
        for fleet in fleets:
            fleet.stop()

    def news(self) -> asyncio.Event:
        """An event that the next change of any fleet sets."""
        self._loop = asyncio.get_running_loop()
        return self._news

    def _notify(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # closed meanwhile
                self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        """Wake the current waiters; later ones wait for the next change."""
        self._news.set()
        self._news = asyncio.Event()


class Facade:
    """KEDA's gRPC methods; each answers at once. Wrong metadata give INVALID_ARGUMENT with one line. An unknown value
    gives UNAVAILABLE; after the first decision the last value is kept.
    """

    def __init__(self, fleets: Fleets) -> None:
        self._fleets = fleets

    async def GetMetricSpec(self, request: wire.ScaledObjectRef, context: Context) -> wire.GetMetricSpecResponse:
        """Target 1: the value is the number of replicas. From the metadata alone."""
        return _spec(await self._fleet(request, context))

    async def GetMetrics(self, request: wire.GetMetricsRequest, context: Context) -> wire.GetMetricsResponse:
        """The scaler's target as a metric for the HPA."""
        fleet = await self._fleet(request.scaledObjectRef, context)
        value = fleet.value()
        if value is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"{fleet.name}: not known yet ({fleet.state.why})")
        metric = wire.MetricValue(
            metricName=request.metricName or metric_name(fleet.trigger),
            metricValue=math.ceil(value.value),
            metricValueFloat=value.value,
        )
        return wire.GetMetricsResponse(metricValues=[metric])

    async def IsActive(self, request: wire.ScaledObjectRef, context: Context) -> wire.IsActiveResponse:
        """Whether there is work."""
        fleet = await self._fleet(request, context)
        active = fleet.state.active
        if active is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"{fleet.name}: not known yet ({fleet.state.why})")
        return wire.IsActiveResponse(result=active)

    async def StreamIsActive(
        self, request: wire.ScaledObjectRef, context: Context
    ) -> AsyncIterator[wire.IsActiveResponse]:
        """At once, if it is known, and after each change."""
        sent: bool | None = None
        while True:
            news = self._fleets.news()
            fleet = await self._fleet(request, context)
            if (active := fleet.state.active) is not None and active != sent:
                sent = active
                yield wire.IsActiveResponse(result=active)
            await set_within(news, STREAM_CHECK_S)

    async def StreamMetricSpec(
        self, request: wire.ScaledObjectRef, context: Context
    ) -> AsyncIterator[wire.GetMetricSpecResponse]:
        """At once; a trigger's spec never changes."""
        yield _spec(await self._fleet(request, context))
        while True:
            await asyncio.sleep(STREAM_CHECK_S)
            await self._fleet(request, context)  # keeps it from being forgotten

    async def _fleet(self, reference: wire.ScaledObjectRef, context: Context) -> ScaledFleet:
        try:
            return self._fleets.of(reference)
        except PenstockError as error:
            text = str(error)[:MOST_TEXT]
            log.warning("%.200r/%.200r: %s", reference.namespace, reference.name, text)
            full = isinstance(error, TooManyError)
            code = grpc.StatusCode.RESOURCE_EXHAUSTED if full else grpc.StatusCode.INVALID_ARGUMENT
            await context.abort(code, text)
            raise


class Health:
    """gRPC's health service: it answers, so the process serves. Kafka does not count, or an outage of it would have the
    kubelet restart the scaler, which then has no memory.
    """

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop

    async def Check(self, request: health.HealthCheckRequest, context: Context) -> health.HealthCheckResponse:
        """SERVING until the end."""
        if request.service not in SERVICES:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r}")
        return self._status()

    async def Watch(self, request: health.HealthCheckRequest, _: Context) -> AsyncIterator[health.HealthCheckResponse]:
        """The same, and the end."""
        known = request.service in SERVICES
        yield self._status() if known else health.HealthCheckResponse(status="SERVICE_UNKNOWN")
        await self._stop.wait()
        if known:
            yield self._status()

    def _status(self) -> health.HealthCheckResponse:
        return health.HealthCheckResponse(status="NOT_SERVING" if self._stop.is_set() else "SERVING")


def metric_name(trigger: Trigger) -> str:
    """As KEDA shows it: the group and its scaler."""
    return f"penstock-{trigger.group}-{trigger.scaler.name}"


def _spec(fleet: ScaledFleet) -> wire.GetMetricSpecResponse:
    spec = wire.MetricSpec(metricName=metric_name(fleet.trigger), targetSize=int(TARGET), targetSizeFloat=TARGET)
    return wire.GetMetricSpecResponse(metricSpecs=[spec])


def _handlers(service: ServiceDescriptor, implementation: object) -> grpc.GenericRpcHandler:
    """The methods of a service, which ``implementation`` has under their names."""

    def handler(method: MethodDescriptor) -> Any:
        streamed = method.server_streaming
        make = grpc.unary_stream_rpc_method_handler if streamed else grpc.unary_unary_rpc_method_handler
        request, answer = GetMessageClass(method.input_type), getattr(implementation, method.name)
        read = _streamed(answer, request) if streamed else _single(answer, request)
        return make(read, None, GetMessageClass(method.output_type).SerializeToString)

    return grpc.method_handlers_generic_handler(
        service.full_name, {method.name: handler(method) for method in service.methods}
    )


def _single(answer: Any, request: type[Message]) -> Any:
    async def single(content: bytes, context: Context) -> Any:
        return await answer(await _read(content, request, context), context)

    return single


def _streamed(answer: Any, request: type[Message]) -> Any:
    async def streamed(content: bytes, context: Context) -> AsyncIterator[Any]:
        async for each in answer(await _read(content, request, context), context):
            yield each

    return streamed


async def _read(content: bytes, request: type[Message], context: Context) -> Message:
    """The request in these bytes. A deserializer that fails would have the library log a traceback for each of them."""
    try:
        return request.FromString(content)
    except DecodeError as error:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)[:MOST_TEXT])
        raise


async def serve(fleets: Fleets, listen: str, stop: asyncio.Event, tls: TlsFiles | None = None) -> None:
    """The gRPC server on ``listen`` (HOST:PORT, port 0 for a free one) until ``stop`` is set. PenstockError if the
    address is not available.
    """
    server = grpc.aio.server(
        options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", MOST_MESSAGE_BYTES)],
        maximum_concurrent_rpcs=MOST_CALLS,
    )
    server.add_generic_rpc_handlers((_handlers(SCALER, Facade(fleets)), _handlers(HEALTH, Health(stop))))
    try:
        port = server.add_insecure_port(listen) if tls is None else server.add_secure_port(listen, tls.credentials())
    except RuntimeError:
        raise PenstockError(f"--listen {listen}: cannot listen there; name a free HOST:PORT") from None
    await server.start()
    log.info("external scaler at %s:%d", listen.rpartition(":")[0], port)
    try:
        while not stop.is_set():
            await asyncio.to_thread(fleets.forget)
            await set_within(stop, STREAM_CHECK_S)
    finally:
        await server.stop(GRACE_S)
        await asyncio.to_thread(fleets.stop)
