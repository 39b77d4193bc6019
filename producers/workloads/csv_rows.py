"""Rows of a CSV trace file; errors name file, line and remedy."""

import csv
import math
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from penstock.errors import PenstockError


def rows_of(path: Path, remedy: str = "") -> Iterator[tuple[int, list[str]]]:
    """(line, stripped cells) of each row that is not blank; the header first, also an empty one.

    Raises PenstockError, with ``remedy`` for a missing file.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file)
            yield 1, [name.strip() for name in next(rows, [])]
            for row in rows:
                if any(cells := [cell.strip() for cell in row]):
                    yield rows.line_num, cells
    except FileNotFoundError:
        raise PenstockError(f"{path}: no such trace file{remedy}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise PenstockError(f"{path}: not a CSV text file ({error}); save it as CSV in UTF-8") from None
    except OSError as error:
        raise PenstockError(f"{path}: cannot be read ({error.strerror}); name a CSV file") from None


def number_in(text: str) -> float:
    """The number in a cell; NaN if there is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def time_in(text: str) -> float:
    """The time in a cell, seconds, from a number or ISO 8601 date and time; NaN if there is none. A time without offset
    is UTC: on a machine's own clock a trace would have a gap, or go back, where summer time changes.
    """
    time_s = number_in(text)
    if math.isnan(time_s):
        with suppress(ValueError):
            at = datetime.fromisoformat(text)
            return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    return time_s
