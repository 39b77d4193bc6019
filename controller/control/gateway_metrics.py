"""Arrivals and service of functions, read from the metrics of their OpenFaaS gateway.

From OpenFaaS' sources: ``gateway_function_invocation_started`` counts calls as they come in,
``gateway_function_invocation_total`` those that were answered, by status; ``gateway_functions_seconds`` has their
durations at the gateway. ``gateway_service_count`` has one series for each deployed function; a function that was never
called has no other. Penstock's gateway also has ``gateway_queue_seconds``.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import httpx
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from penstock.adapters.tls import tls_context
from penstock.errors import PenstockError
from penstock.openfaas import NAMESPACE, function_of

STARTED: Final = "gateway_function_invocation_started"
ANSWERED: Final = "gateway_function_invocation"
SECONDS: Final = "gateway_functions_seconds_sum"
QUEUED: Final = "gateway_queue_seconds_sum"
DEPLOYED: Final = "gateway_service_count"
NAMES: Final = (STARTED, ANSWERED, SECONDS, QUEUED, DEPLOYED)
"""Without the suffix ``_total``, which client libraries append or leave out."""

LATEST_S: Final = 60
"""An older sample of Prometheus' is not used: four of its intervals in OpenFaaS' chart."""
TIMEOUT_S: Final = 1.0
REFUSED: Final = 429
NOT_NEWER: Final = "no newer metrics since the last observation"
ELSEWHERE: Final = (
    "OpenFaaS has them at port 8082: --metrics http://HOST:8082/metrics, or --prometheus http://HOST:9090"
)


class MetricsAwayError(Exception):
    """The metrics cannot be read; the text is the reason in one line."""


class Sample(msgspec.Struct, frozen=True):
    """One sample: a series of ``NAMES`` with its labels, value, and time in s since the epoch."""

    name: str
    labels: Mapping[str, str]
    value: float
    at_s: float


class MetricsSource(Protocol):
    """Where the metrics are."""

    def read(self) -> Iterable[Sample]:
        """The newest sample of every series. MetricsAwayError if there is no answer."""

    def close(self) -> None:
        """Close the connections."""


class Exposition:
    """The gateway's own page of metrics, ``url``."""

    def __init__(self, url: str) -> None:
        self._client = _Client(url)

    def read(self) -> Iterable[Sample]:
        """See ``MetricsSource``."""
        text, now_s = self._client.get().text, time.time()
        try:
            samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
        except ValueError as error:
            raise MetricsAwayError(f"{self._client.where}: no page of metrics: {error}") from None
        return [
            Sample(name, each.labels, each.value, now_s)
            for each in samples
            if (name := each.name.removesuffix("_total")) in NAMES
        ]

    def close(self) -> None:
        """See ``MetricsSource``."""
        self._client.close()


class _Series(msgspec.Struct, frozen=True):
    metric: Mapping[str, str]
    values: tuple[tuple[float, str], ...] = ()


class _Matrix(msgspec.Struct, frozen=True):
    result: tuple[_Series, ...]


class _Answer(msgspec.Struct, frozen=True):
    data: _Matrix


class PrometheusServer:
    """A Prometheus at ``url`` that scrapes the gateway; of ``functions`` only."""

    def __init__(self, url: str, functions: Sequence[str]) -> None:
        self._client = _Client(f"{url.rstrip('/')}/api/v1/query")
        labels = "|".join(f"{name}.{NAMESPACE}" for name in functions).replace(".", "\\\\.")
        names = "|".join(f"{name}(_total)?" for name in NAMES)
        # A range has the samples with their times; an instant vector repeats old ones for minutes.
        self._query = f'{{__name__=~"{names}",function_name=~"{labels}"}}[{LATEST_S}s]'

    def read(self) -> Iterable[Sample]:
        """See ``MetricsSource``."""
        reply = self._client.get(query=self._query)
        try:
            found = msgspec.json.decode(reply.content, type=_Answer)
        except msgspec.DecodeError as error:
            raise MetricsAwayError(f"{self._client.where}: not Prometheus' answer: {error}") from None
        for each in found.data.result:
            at_s, value = each.values[-1]
            yield Sample(each.metric["__name__"].removesuffix("_total"), each.metric, float(value), at_s)

    def close(self) -> None:
        """See ``MetricsSource``."""
        self._client.close()


class _Client:
    """GET of one address. ``where``: without credentials."""

    def __init__(self, url: str) -> None:
        try:
            self._url = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise PenstockError(f"{url}: no URL ({error})") from None
        if self._url.scheme not in ("http", "https") or not self._url.host:
            raise PenstockError(f"{url}: no URL: expected http://HOST:PORT/…")
        self.where = str(self._url.copy_with(userinfo=b""))
        self._client = httpx.Client(timeout=TIMEOUT_S, trust_env=False, verify=tls_context())

    def get(self, **parameters: str) -> httpx.Response:
        try:
            reply = self._client.get(self._url, params=parameters or None)
        except httpx.HTTPError as error:
            raise MetricsAwayError(f"{self.where}: {type(error).__name__}: {error}".rstrip(": ")) from None
        if not reply.is_success:
            raise MetricsAwayError(f"{self.where}: status {reply.status_code}; {ELSEWHERE}")
        return reply

    def close(self) -> None:
        self._client.close()


class Calls(msgspec.Struct, frozen=True):
    """Calls of one function, cumulative over restarts of its gateway: ``arrived`` (refused ones included, they are
    load), ``completed`` (a function has answered: neither 429 nor 5xx) and ``busy_s``, time from a call's arrival to
    its answer less the time in the gateway's queue. ``unanswered``: calls in the gateway and its functions now.
    """

    arrived: int
    completed: int
    busy_s: float
    unanswered: int


class GatewayCounters:
    """The counters of ``functions``. A counter that falls was reset: what it shows since is added."""

    def __init__(self, source: MetricsSource, functions: Sequence[str]) -> None:
        self._source, self._functions = source, functions
        self._values: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        self._sums: dict[str, dict[str, float]] = {name: {} for name in functions}
        self._newest_s: dict[str, float] = {}

    def read(self) -> Mapping[str, Calls | str]:
        """Calls by function, or the reason why they are not known. MetricsAwayError if nothing can be read."""
        samples: dict[str, list[Sample]] = {name: [] for name in self._functions}
        for each in self._source.read():
            if (function := _function(each.labels)) in samples:
                samples[function].append(each)
        return {name: self._calls(name, found) for name, found in samples.items()}

    def close(self) -> None:
        """Close the connections."""
        self._source.close()

    def _calls(self, function: str, samples: Sequence[Sample]) -> Calls | str:
        if not any(each.name == DEPLOYED for each in samples):
            return "the gateway's metrics do not name this function"
        newest_s = max(each.at_s for each in samples)
        if newest_s <= self._newest_s.get(function, 0.0):
            return NOT_NEWER
        self._newest_s[function] = newest_s
        sums, unanswered = self._sums[function], 0.0
        for each in samples:
            key = each.name, frozenset(each.labels.items())
            before = self._values.get(key, 0.0)
            self._values[key] = each.value
            increase = each.value - before if each.value >= before else each.value
            kind = "completed" if each.name == ANSWERED and _completed(each.labels.get("code", "")) else each.name
            sums[kind] = sums.get(kind, 0.0) + increase
            unanswered += {STARTED: each.value, ANSWERED: -each.value}.get(each.name, 0.0)
        return Calls(
            arrived=round(sums.get(STARTED, 0.0)),
            completed=round(sums.get("completed", 0.0)),
            busy_s=max(0.0, sums.get(SECONDS, 0.0) - sums.get(QUEUED, 0.0)),
            unanswered=max(0, round(unanswered)),
        )


def _completed(code: str) -> bool:
    return code.isdecimal() and int(code) != REFUSED and int(code) < 500


def _function(labels: Mapping[str, Any]) -> str:
    try:
        return function_of(labels.get("function_name", ""))
    except PenstockError:  # another namespace's
        return ""


def open_counters(gateway: str, functions: Sequence[str], *, metrics: str, prometheus: str) -> GatewayCounters:
    """Counters from the Prometheus server, else from the page ``metrics``, else from the gateway's own."""
    if prometheus:
        return GatewayCounters(PrometheusServer(prometheus, functions), functions)
    return GatewayCounters(Exposition(metrics or f"{gateway.rstrip('/')}/metrics"), functions)
