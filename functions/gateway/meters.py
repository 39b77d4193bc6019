"""The gateway's metrics, under OpenFaaS' names, from HAProxy's request log.

HAProxy buffers at least the last ten thousand lines. Counters start at 0 with every control plane, unlike the counters
of the replicas at ``/penstock/functions``.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric, UntypedMetricFamily
from prometheus_client.registry import Collector

from penstock.openfaas import NAMESPACE

log = logging.getLogger("meters")

READ_S = 0.1
CHUNK = 1 << 20
STARTED = "gateway_function_invocation_started"
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Meters(Collector):
    """Metrics of all functions, with label NAME.NAMESPACE. ``now``: (wanted replicas, requests in progress) of each."""

    def __init__(self, registry: CollectorRegistry, now: Callable[[], Mapping[str, tuple[int, int]]]) -> None:
        self._now = now
        self._finished: dict[str, int] = {}
        self._started: dict[str, int] = {}
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
        """Count one line of HAProxy: function, status, ms in the queue, ms to the answer, ms in all, server."""
        function, status, queued_ms, _, total_ms, _ = line.split()
        self._finished[function] = self._finished.get(function, 0) + 1
        label = f"{function}.{NAMESPACE}"
        self._invocations.labels(label, status).inc()
        self._seconds.labels(label, status).observe(int(total_ms.lstrip("+")) / 1000)
        if int(queued_ms) >= 0:
            self._queued.labels(label).observe(int(queued_ms) / 1000)

    def collect(self) -> Iterator[Metric]:
        """Those of this moment."""
        replicas = GaugeMetricFamily("gateway_service_count", "Wanted replicas", labels=("function_name",))
        started = UntypedMetricFamily(STARTED, "Invocations, those in progress included", labels=("function_name",))
        for function, (count, in_progress) in self._now().items():
            label = f"{function}.{NAMESPACE}"
            replicas.add_metric((label,), count)
            # The two numbers are read at different times; their sum must not fall.
            now = self._finished.get(function, 0) + in_progress
            self._started[function] = max(now, self._started.get(function, 0))
            started.add_metric((label,), self._started[function])
        yield replicas
        yield started


def exposition(registry: CollectorRegistry) -> bytes:
    """All metrics as text, with OpenFaaS' names and types. To the client library every counter's name ends in
    ``_total``.
    """
    typed = f"# TYPE {STARTED} ".encode()
    return generate_latest(registry).replace(typed + b"untyped", typed + b"counter")


async def read_request_log(path: Path, take: Callable[[str], None], functions: Container[str]) -> asyncio.Server:
    """Pass HAProxy's lines about ``functions`` from a socket to ``take``. It reads in bunches: a wake-up per request
    would cost more than HAProxy needs for the request.
    """

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        rest = b""
        with contextlib.closing(writer), contextlib.suppress(OSError):
            while received := await reader.read(CHUNK):
                *lines, rest = (rest + received).split(b"\n")
                for line in (each.decode(errors="replace").strip() for each in lines):
                    if line.partition(" ")[0] in functions:
                        try:
                            take(line)
                        except ValueError:
                            log.warning("not a line of a request: %s", line)
                await asyncio.sleep(READ_S)

    path.unlink(missing_ok=True)
    return await asyncio.start_unix_server(read, str(path))
