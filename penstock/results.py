"""Raw results as columns: one schema, in which every world writes them and Spark reads them off the wire."""

import types
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records import Result

COLUMN_TYPES: Final[dict[type, pa.DataType]] = {int: pa.int64(), str: pa.string(), bool: pa.bool_()}
SMALL_COUNTS: Final = frozenset({"visit", "attempt", "schema"})
"""Whole numbers that never grow large: int32."""


def _column_type(name: str, hint: Any) -> pa.DataType:
    if name in SMALL_COUNTS:
        return pa.int32()
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (argument for argument in get_args(hint) if argument is not type(None))
    if get_origin(hint) is Literal:
        hint = type(get_args(hint)[0])
    return COLUMN_TYPES[hint]


def _schema() -> pa.Schema:
    hints = get_type_hints(Result)
    return pa.schema([(name, _column_type(name, hints[name])) for name in Result.__struct_fields__])


RESULT_SCHEMA: Final = _schema()
"""The fields of ``penstock.records.Result`` in their order; any of them may be null. Times in ns since the epoch."""

DEFAULTS: Final[dict[str, Any]] = {
    field.name: field.default
    for field in msgspec.structs.fields(Result)
    if field.default is not msgspec.NODEFAULT and field.default is not None
}
"""What a field that is left out on the wire means."""


def outcomes_among(results: pa.Table, run: str, scheduled: int) -> pa.Table:
    """Those of ``results`` that are terminal results of the events 0 … ``scheduled`` - 1 of ``run``. Nothing else
    counts: anybody with access to the broker can write on the topic. Columns needed: id, run, terminal.
    """
    ids = results["id"]
    inside = pc.fill_null(pc.and_(pc.greater_equal(ids, 0), pc.less(ids, scheduled)), False)
    return results.filter(pc.and_(inside, pc.and_(pc.equal(results["run"], run), results["terminal"])))
