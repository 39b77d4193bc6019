"""The external-scaler service: KEDA asks over gRPC, loops in threads of their own have the answers ready.

One loop a trigger, begun when KEDA first asks for it and ended when nobody has asked for ``FORGET_S``: KEDA does not
tell when a ScaledObject is deleted.
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

from controller.keda import externalscaler_pb2 as wire
from controller.keda.externalscaler_pb2_grpc import ExternalScalerServicer, add_ExternalScalerServicer_to_server
from controller.keda.fleet import ScaledFleet
from controller.keda.hpa import TARGET
from controller.keda.metadata import Trigger, read_trigger
from controller.monitors.group import BrokerAwayError, count_partitions
from penstock.errors import PenstockError

log = logging.getLogger(__name__)

FORGET_S: Final = 600.0
"""KEDA asks every pollingInterval, 30 s unless a ScaledObject says otherwise; the HPA every 15 s."""
STREAM_CHECK_S: Final = 5.0
"""A stream that nothing is sent on is looked after this often."""
GRACE_S: Final = 1.0

Key = tuple[str, tuple[tuple[str, str], ...]]
"""A trigger: namespace/name of its ScaledObject, and its metadata. Whoever changes either begins anew."""

Context = grpc.aio.ServicerContext[Any, Any]


class Fleets:
    """Every trigger that was asked for, with its loop. Safe for threads."""

    def __init__(self, bootstrap: str, defaults: Mapping[str, str]) -> None:
        self._bootstrap = bootstrap
        self._defaults = dict(defaults)
        self._lock = threading.Lock()
        self._fleets: dict[Key, ScaledFleet] = {}
        self._asked_s: dict[Key, float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()

    def of(self, reference: wire.ScaledObjectRef) -> ScaledFleet:
        """The fleet of a trigger, begun if it is new. PenstockError where its metadata or its topic is wrong,
        BrokerAwayError where that cannot be looked up.
        """
        name = f"{reference.namespace or 'default'}/{reference.name}"
        key = (name, tuple(sorted(reference.scalerMetadata.items())))
        with self._lock:
            self._asked_s[key] = time.monotonic()
            if (known := self._fleets.get(key)) is not None:
                return known
        trigger = read_trigger(reference.scalerMetadata, self._defaults)
        partitions = count_partitions(self._bootstrap, trigger.topic)
        with self._lock:
            if key not in self._fleets:
                log.info("%s: %s on group %s of topic %s", name, trigger.scaler.name, trigger.group, trigger.topic)
                self._fleets[key] = ScaledFleet(
                    name, trigger, bootstrap=self._bootstrap, partitions=partitions, told=self._notify
                )
                self._fleets[key].start()
            return self._fleets[key]

    def forget(self) -> None:
        """End the loops that nobody asks for any more."""
        now_s = time.monotonic()
        with self._lock:
            old = [key for key, asked_s in self._asked_s.items() if now_s - asked_s > FORGET_S]
            fleets = [fleet for key in old if (fleet := self._fleets.pop(key, None)) is not None]
            for key in old:
                del self._asked_s[key]
        for fleet in fleets:
            log.info("%s: not asked for any more", fleet.name)
            fleet.stop()

    def stop(self) -> None:
        """End all loops."""
        with self._lock:
            fleets = list(self._fleets.values())
        for fleet in fleets:
            fleet.stop()

    def news(self) -> asyncio.Event:
        """Set when some fleet has news from now on."""
        self._loop = asyncio.get_running_loop()
        return self._news

    def _notify(self) -> None:
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # closed meanwhile
                self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        """Those who wait now; who comes later waits for the next news."""
        self._news.set()
        self._news = asyncio.Event()


class Facade(ExternalScalerServicer):
    """The five methods. What a ScaledObject says wrongly is INVALID_ARGUMENT with one line; what is not known yet is
    UNAVAILABLE, and only before the first decision: later the last value is kept.
    """

    def __init__(self, fleets: Fleets) -> None:
        self._fleets = fleets

    async def GetMetricSpec(  # noqa: N802 - gRPC's names
        self, request: wire.ScaledObjectRef, context: Context
    ) -> wire.GetMetricSpecResponse:
        """Target 1: the value is the number of replicas."""
        return _spec(await self._fleet(request, context))

    async def GetMetrics(self, request: wire.GetMetricsRequest, context: Context) -> wire.GetMetricsResponse:  # noqa: N802
        """What the scaler wants, in the HPA's terms."""
        fleet = await self._fleet(request.scaledObjectRef, context)
        value = fleet.value()
        if value is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"{fleet.name}: no decision yet ({fleet.standing.why})")
        metric = wire.MetricValue(
            metricName=request.metricName or metric_name(fleet.trigger),
            metricValue=math.ceil(value.value),
            metricValueFloat=value.value,
        )
        return wire.GetMetricsResponse(metricValues=[metric])

    async def IsActive(self, request: wire.ScaledObjectRef, context: Context) -> wire.IsActiveResponse:  # noqa: N802
        """Whether there is anything to do."""
        fleet = await self._fleet(request, context)
        active = fleet.standing.active
        if active is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"{fleet.name}: not known yet ({fleet.standing.why})")
        return wire.IsActiveResponse(result=active)

    async def StreamIsActive(  # noqa: N802
        self, request: wire.ScaledObjectRef, context: Context
    ) -> AsyncIterator[wire.IsActiveResponse]:
        """At once, if it is known, and whenever it changes."""
        told: bool | None = None
        while True:
            news = self._fleets.news()
            fleet = await self._fleet(request, context)
            if (active := fleet.standing.active) is not None and active != told:
                told = active
                yield wire.IsActiveResponse(result=active)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), STREAM_CHECK_S)

    async def StreamMetricSpec(  # noqa: N802
        self, request: wire.ScaledObjectRef, context: Context
    ) -> AsyncIterator[wire.GetMetricSpecResponse]:
        """At once; a trigger's spec never changes while it is asked for."""
        yield _spec(await self._fleet(request, context))
        while True:
            await asyncio.sleep(STREAM_CHECK_S)
            await self._fleet(request, context)  # it is being asked for

    async def _fleet(self, reference: wire.ScaledObjectRef, context: Context) -> ScaledFleet:
        try:
            # Looking a topic up waits for the broker, which the other calls need not.
            return await asyncio.to_thread(self._fleets.of, reference)
        except PenstockError as error:
            log.warning("%s/%s: %s", reference.namespace, reference.name, error)
            away = isinstance(error, BrokerAwayError)
            code = grpc.StatusCode.UNAVAILABLE if away else grpc.StatusCode.INVALID_ARGUMENT
            await context.abort(code, str(error))
            raise


def metric_name(trigger: Trigger) -> str:
    """As KEDA shows it: the group and who decides about it."""
    return f"penstock-{trigger.group}-{trigger.scaler.name}"


def _spec(fleet: ScaledFleet) -> wire.GetMetricSpecResponse:
    spec = wire.MetricSpec(metricName=metric_name(fleet.trigger), targetSize=int(TARGET), targetSizeFloat=TARGET)
    return wire.GetMetricSpecResponse(metricSpecs=[spec])


class Service:
    """The gRPC server on ``listen`` (HOST:PORT, port 0 for a free one). ``address`` tells which, once it has begun."""

    def __init__(self, fleets: Fleets, listen: str) -> None:
        self._fleets, self._listen = fleets, listen
        self.address = ""

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set. PenstockError where the address cannot be had."""
        server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        add_ExternalScalerServicer_to_server(Facade(self._fleets), server)  # type: ignore[no-untyped-call]
        try:
            port = server.add_insecure_port(self._listen)
        except RuntimeError:
            raise PenstockError(f"--listen {self._listen}: cannot listen there; name a free HOST:PORT") from None
        self.address = f"{self._listen.rpartition(':')[0]}:{port}"
        await server.start()
        log.info("external scaler at %s", self.address)
        try:
            while not stop.is_set():
                await asyncio.to_thread(self._fleets.forget)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), STREAM_CHECK_S)
        finally:
            await server.stop(GRACE_S)
            await asyncio.to_thread(self._fleets.stop)
