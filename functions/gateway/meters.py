"""The gateway's metrics, under OpenFaaS' names, from what HAProxy says of each request when it is over.

HAProxy keeps a line a request until it is read, the last few ten thousand at least; counters begin at 0 with every
control plane (the replicas' own counts, which ``/penstock/functions`` gives, do not).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

log = logging.getLogger("meters")

READ_S = 0.1
CHUNK = 1 << 20
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Meters(Collector):
    """Metrics of all functions. ``now`` gives per function the replicas that take requests and the requests in
    progress.
    """

    def __init__(self, registry: CollectorRegistry, now: Callable[[], Mapping[str, tuple[int, int]]]) -> None:
        self._now = now
        self._finished: dict[str, int] = {}
        self._invocations = Counter(
            "gateway_function_invocation", "Invocations by status code", ("function_name", "code"), registry=registry
        )
        self._seconds = Histogram(
            "gateway_functions_seconds",
            "From the first byte of a request to the last of its answer",
            ("function_name", "code"),
            buckets=BUCKETS_S,
            registry=registry,
        )
        self._queued = Histogram(
            "gateway_queue_seconds",
            "Time that a request waited for a free replica",
            ("function_name",),
            buckets=BUCKETS_S,
            registry=registry,
        )
        registry.register(self)

    def take(self, line: str) -> None:
        """One line of HAProxy: function, status, ms in the queue, ms until the answer began, ms in all, server."""
        function, status, queued_ms, _, total_ms, _ = line.split()
        self._finished[function] = self._finished.get(function, 0) + 1
        self._invocations.labels(function, status).inc()
        self._seconds.labels(function, status).observe(int(total_ms.lstrip("+")) / 1000)
        if int(queued_ms) >= 0:
            self._queued.labels(function).observe(int(queued_ms) / 1000)

    def collect(self) -> Iterator[Metric]:
        """What is true at this moment."""
        replicas = GaugeMetricFamily("gateway_service_count", "Replicas", labels=("function_name",))
        started = GaugeMetricFamily(
            "gateway_function_invocation_started", "Invocations, those in progress included", labels=("function_name",)
        )
        for function, (count, in_progress) in self._now().items():
            replicas.add_metric((function,), count)
            started.add_metric((function,), self._finished.get(function, 0) + in_progress)
        yield replicas
        yield started


class RequestLog:
    """The socket that HAProxy sends its lines to. It is read a few times a second: a wake-up for each request would
    cost the machine more than the request's way through HAProxy.
    """

    def __init__(self, take: Callable[[str], None], known: Callable[[str], bool]) -> None:
        self._take = take
        self._known = known

    @classmethod
    async def listen(cls, path: Path, take: Callable[[str], None], known: Callable[[str], bool]) -> asyncio.Server:
        """Listen at ``path``; functions that are not ``known`` are not counted."""
        path.unlink(missing_ok=True)
        return await asyncio.start_unix_server(cls(take, known)._read, str(path))

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rest = b""
        with contextlib.closing(writer):
            while received := await _read_some(reader):
                *lines, rest = (rest + received).split(b"\n")
                for line in lines:
                    self._hear(line.decode(errors="replace").strip())
                await asyncio.sleep(READ_S)

    def _hear(self, line: str) -> None:
        if self._known(line.partition(" ")[0]):
            try:
                self._take(line)
            except ValueError:
                log.warning("not a line of a request: %s", line)


async def _read_some(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(CHUNK)
    except OSError:
        return b""
