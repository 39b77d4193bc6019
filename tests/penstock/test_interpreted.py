"""Functions without numba take and return what compiled ones do."""

import numba
import numpy as np
import pytest

from penstock.interpreted import njit

RECORD = np.dtype([("at_s", np.float64), ("count", np.int32)], align=True)


def add(rows, more):  # type: ignore[no-untyped-def]
    rows[1].at_s += more
    rows[0] = rows[1]
    return rows[1].at_s, len(rows), rows["count"].sum()


@pytest.mark.parametrize("decorate", [njit, numba.njit], ids=["interpreted", "compiled"])
def test_fields_of_records_are_read_and_written_and_numbers_are_pythons(decorate: object) -> None:
    rows = np.zeros(2, RECORD)
    rows["count"] = 1, 3
    answer = decorate(cache=False)(add)(rows, 2.5)  # type: ignore[operator]
    assert answer == (2.5, 2, 6)
    assert [type(each) for each in answer] == [float, int, int]
    assert rows.tolist() == [(2.5, 3), (2.5, 3)]
