"""Wire records and measures as Spark columns, derived from ``penstock.results`` and ``penstock.measures``."""

import math
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.clock import NANOS_PER_SECOND
from penstock.measures import BUCKET_FLOOR_S, BUCKET_RATIO
from penstock.results import DEFAULTS, RESULT_SCHEMA

RESULT_TYPE: Final = from_arrow_schema(RESULT_SCHEMA)
"""Schema of a Result on the wire; every field may be absent, as defaults are left out there."""


def parse_results(raw: DataFrame) -> DataFrame:
    """Results from their JSON texts (``value``, string or binary), defaults filled in; all null where a text is none.

    In two projections, for the optimizer would otherwise parse each text once for every field.
    """
    parsed = raw.select(sql.from_json(sql.col("value").cast("string"), RESULT_TYPE).alias("parsed"))
    columns = []
    for name in RESULT_TYPE.names:
        value = sql.col("parsed")[name]
        if name in DEFAULTS:
            value = sql.coalesce(value, sql.lit(DEFAULTS[name]))
        columns.append(value.alias(name))
    return parsed.select(*columns)


def is_of_run(run: str, scheduled: int) -> Column:
    """Whether a result is of one of the ``scheduled`` events of ``run``, as in ``penstock.results.outcomes_among``."""
    event_id = sql.col("id")
    return sql.coalesce((sql.col("run") == run) & (event_id >= 0) & (event_id < scheduled), sql.lit(False))


def is_completed(outcome: Column, intended_ns: Column) -> Column:
    """Whether the latency is known: the event completed, and has an intended time."""
    return (outcome == "completed") & intended_ns.isNotNull()


def seconds(nanos: Column) -> Column:
    """Nanoseconds → seconds, with the one rounding that numpy does too."""
    return nanos.cast("double") / sql.lit(float(NANOS_PER_SECOND))


def bucket_of(latency_s: Column) -> Column:
    """``penstock.measures.bucket_of``, operation by operation."""
    above = sql.greatest(latency_s, sql.lit(BUCKET_FLOOR_S)) / sql.lit(BUCKET_FLOOR_S)
    return sql.ceil(sql.log(above) / sql.lit(math.log(BUCKET_RATIO)) - sql.lit(1e-9))
