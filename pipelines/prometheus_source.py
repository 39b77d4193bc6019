"""Prometheus as a streaming source of Spark: named PromQL queries over time, exactly once each instant.

A Python ``DataSource`` whose offsets are instants on a grid of whole seconds; a batch is one range query a name. While
Prometheus is away, batches are empty and the offset stays where it is, so that nothing is skipped.
"""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx
import msgspec
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.types import StructType

from penstock.adapters.tls import tls_context
from penstock.errors import PenstockError

ROW_SCHEMA: Final = "metric string, labels map<string,string>, at_ns bigint, value double"
MAX_POINTS: Final = 10_000
"""Instants a range query asks for at once; Prometheus refuses more than 11,000."""
TIMEOUT_S: Final = 2.0
STEP_MS: Final = 1000
"""Between two instants of the grid."""

Row = tuple[str, dict[str, str], int, float]


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class _Data(msgspec.Struct):
    result: list[_Series]


class _Answer(msgspec.Struct):
    """What ``/api/v1/query_range`` answers."""

    status: str
    data: _Data | None = None
    error: str = ""


class RangeReader:
    """Range queries on a grid of instants, one each ``STEP_MS``, in milliseconds since the epoch.

    ``settle_s``: how long before now the newest instant lies, so that its scrapes have come in.
    """

    def __init__(self, url: str, queries: Mapping[str, str], *, settle_s: float = 2.0) -> None:
        self.url = url.rstrip("/")
        self.queries = dict(queries)
        self.settle_ms = round(settle_s * 1000)

    def newest_ms(self, start_ms: int) -> int:
        """The newest settled instant, as far from ``start_ms`` as one query may reach."""
        settled_ms = (time.time_ns() // 1_000_000 - self.settle_ms) // STEP_MS * STEP_MS
        return min(settled_ms, start_ms + (MAX_POINTS - 1) * STEP_MS)

    def read(self, start_ms: int) -> tuple[list[Row], int]:
        """(rows of all settled instants from ``start_ms`` on, instant to start from next).

        Nothing, and ``start_ms`` again, while Prometheus is away. Raises PenstockError for a query that it refuses.
        """
        end_ms = self.newest_ms(start_ms)
        if end_ms < start_ms:
            return [], start_ms
        try:
            return self.read_between(start_ms, end_ms), end_ms + STEP_MS
        except httpx.HTTPError:
            return [], start_ms

    def read_between(self, start_ms: int, end_ms: int) -> list[Row]:
        """Rows of the instants from ``start_ms`` to ``end_ms``, both included. Raises httpx.HTTPError if it is away."""
        rows: list[Row] = []
        with httpx.Client(timeout=TIMEOUT_S, trust_env=False, verify=tls_context()) as client:
            for name, query in self.queries.items():
                for series in self._query_range(client, name, query, start_ms, end_ms):
                    labels = {key: value for key, value in series.metric.items() if key != "__name__"}
                    rows.extend((name, labels, round(at_s * 1000) * 1_000_000, float(v)) for at_s, v in series.values)
        return rows

    def _query_range(self, client: httpx.Client, name: str, query: str, start_ms: int, end_ms: int) -> list[_Series]:
        response = client.get(
            f"{self.url}/api/v1/query_range",
            params={"query": query, "start": start_ms / 1000, "end": end_ms / 1000, "step": STEP_MS / 1000},
        )
        if response.status_code not in (200, 400, 422):
            response.raise_for_status()
        try:
            answer = msgspec.json.decode(response.content, type=_Answer)
        except msgspec.DecodeError as error:
            raise PenstockError(f"{self.url} does not answer as Prometheus does: {error}") from None
        if answer.data is None:
            raise PenstockError(f"Prometheus refused the query {name!r} ({query}): {answer.error}")
        return answer.data.result


class PrometheusSource(DataSource):
    """``spark.readStream.format("prometheus")``.

    Options: ``url``; ``queries``, a JSON object of name → PromQL; ``start_ns``, wall clock of the first instant.
    """

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return "prometheus"

    def schema(self) -> str:
        """``metric`` is the query's name, ``labels`` those of its series."""
        return ROW_SCHEMA

    def simpleStreamReader(self, schema: StructType) -> "PrometheusStreamReader":  # noqa: N802, ARG002
        """One reader in the driver: a few hundred rows a batch."""
        return PrometheusStreamReader(dict(self.options))


class PrometheusStreamReader(SimpleDataSourceStreamReader):
    """Offsets are ``{"from_ms": instant}``: everything before it has been read."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.start_ns = int(options["start_ns"])
        self.reader = RangeReader(options["url"], json.loads(options["queries"]))

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """The first instant of the grid at or after ``start_ns``."""
        return {"from_ms": -(-self.start_ns // (STEP_MS * 1_000_000)) * STEP_MS}

    def read(self, start: dict[str, int]) -> tuple[Iterator[Row], dict[str, int]]:
        """Rows since ``start`` and the offset behind them."""
        rows, next_ms = self.reader.read(start["from_ms"])
        return iter(rows), {"from_ms": next_ms}

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[Row]:  # noqa: N802
        """The rows of a batch once more, after a restart."""
        return iter(self.reader.read_between(start["from_ms"], end["from_ms"] - STEP_MS))

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to do: Prometheus keeps its samples."""


def options_of(url: str, queries: Mapping[str, str], *, start_ns: int) -> dict[str, Any]:
    """Options of the source."""
    return {"url": url, "queries": json.dumps(dict(queries)), "start_ns": str(start_ns)}
