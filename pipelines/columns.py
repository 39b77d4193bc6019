"""Wire records and measures as Spark columns, derived from ``penstock.records`` and ``penstock.measures``."""

import math
import types
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import BooleanType, DataType, LongType, StringType, StructField, StructType

from penstock.clock import NANOS_PER_SECOND
from penstock.measures import BUCKET_FLOOR_S, BUCKET_RATIO
from penstock.records import Result

SPARK_TYPES: Final[dict[type, DataType]] = {int: LongType(), str: StringType(), bool: BooleanType()}


def schema_of(record: type[msgspec.Struct]) -> StructType:
    """Spark schema of a wire record; every field may be absent, as defaults are left out on the wire."""
    hints = get_type_hints(record)
    return StructType(
        [StructField(field.name, _spark_type(hints[field.name])) for field in msgspec.structs.fields(record)]
    )


def parse_results(raw: DataFrame) -> DataFrame:
    """Results from their JSON texts (``value``, string or binary), defaults filled in; all null where a text is none.

    In two projections, for the optimizer would otherwise parse each text once for every field.
    """
    parsed = raw.select(sql.from_json(sql.col("value").cast("string"), schema_of(Result)).alias("parsed"))
    columns = []
    for field in msgspec.structs.fields(Result):
        value = sql.col("parsed")[field.name]
        if field.default is not msgspec.NODEFAULT and field.default is not None:
            value = sql.coalesce(value, sql.lit(field.default))
        columns.append(value.alias(field.name))
    return parsed.select(*columns)


def is_completed(outcome: Column, event_id: Column, intended_ns: Column) -> Column:
    """Whether a latency can be told: the event completed, and is known by id and intended time."""
    return (outcome == "completed") & event_id.isNotNull() & intended_ns.isNotNull()


def seconds(nanos: Column) -> Column:
    """Nanoseconds → seconds, with the one rounding that numpy does too."""
    return nanos.cast("double") / sql.lit(float(NANOS_PER_SECOND))


def bucket_of(latency_s: Column) -> Column:
    """``penstock.measures.bucket_of``, operation by operation."""
    above = sql.greatest(latency_s, sql.lit(BUCKET_FLOOR_S)) / sql.lit(BUCKET_FLOOR_S)
    return sql.ceil(sql.log(above) / sql.lit(math.log(BUCKET_RATIO)) - sql.lit(1e-9))


def _spark_type(hint: Any) -> DataType:
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (argument for argument in get_args(hint) if argument is not type(None))
    if get_origin(hint) is Literal:
        hint = type(get_args(hint)[0])
    return SPARK_TYPES[hint]
