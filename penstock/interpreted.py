"""Takes the place of numba's decorator ``njit`` where numba is not installed: the same functions, interpreted."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np


class _Rows:
    """An array of aligned records, read as numba reads it: ``rows[3].field``, ``rows["field"]``.

    A memory view gives Python's own numbers, several times as fast as the attributes of ``np.record``.
    """

    def __init__(self, records: Any) -> None:
        self.records = records
        self.row = _row_type(records.dtype.names)
        self.fields = [memoryview(records[name]) for name in records.dtype.names]

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, key: Any) -> Any:
        return self.records[key] if isinstance(key, str) else self.row(self.fields, key)

    def __setitem__(self, key: int, other: Any) -> None:
        for to, of in zip(self.fields, other.fields, strict=True):
            to[key] = of[other.number]


@functools.cache
def _row_type(names: tuple[str, ...]) -> type:
    """Class of a record with these fields."""

    def field(place: int) -> property:
        def get(row: Any) -> Any:
            return row.fields[place][row.number]

        def set_(row: Any, value: Any) -> None:
            row.fields[place][row.number] = value

        return property(get, set_)

    def init(row: Any, fields: list[memoryview], number: int) -> None:
        row.fields, row.number = fields, number

    members = {name: field(place) for place, name in enumerate(names)}
    return type("Row", (), {"__slots__": ("fields", "number"), "__init__": init, **members})


def _readable(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.names:
        return _Rows(value)
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(map(_readable, value))
    return value


def _plain(result: Any) -> Any:
    """Numbers of Python for those of NumPy, as compiled functions return them."""
    if isinstance(result, np.generic):
        return result.item()
    return tuple(map(_plain, result)) if type(result) is tuple else result


def njit(*, cache: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Takes the place of numba's decorator."""
    del cache

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def interpreted(*args: Any) -> Any:
            return _plain(function(*map(_readable, args)))

        return interpreted

    return decorate
