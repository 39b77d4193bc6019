"""Numbers as words, in the report and in the terminal: as many digits as mean something, a no-break space before the
unit, an en dash for what is unknown.
"""

import math
from collections.abc import Callable

UNKNOWN = "–"
SPACE = "\u00a0"


def duration(seconds: float | None) -> str:
    """Three significant digits in ms below one second, in s above."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    value, unit = _in_unit(seconds)
    return f"{_three_digits(value)}{SPACE}{unit}"


def recovered(seconds: float | None) -> str:
    """A time to recover, which is 0 if there was nothing to recover from."""
    return "never late" if seconds == 0 else duration(seconds)


def short_duration(seconds: float) -> str:
    """Without trailing zeros, for ticks of an axis and a terminal that is redrawn."""
    value, unit = _in_unit(seconds)
    return f"{float(f'{value:.3g}'):,.10g} {unit}"


def _in_unit(seconds: float) -> tuple[float, str]:
    return (1000 * seconds, "ms") if abs(seconds) < 0.9995 else (seconds, "s")


def share(value: float | None, *, unit: bool = True) -> str:
    """Per cent with one decimal; more where one decimal would round it to a full 100 %."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    per_cent = 100 * value
    decimals = 1
    while value < 1 and decimals < 4 and round(per_cent, decimals) >= 100:
        decimals += 1
    return f"{per_cent:.{decimals}f}" + (f"{SPACE}%" if unit else "")


def count(value: float | None) -> str:
    """With thousands separated; one decimal unless it is whole, as a mean of counts may not be."""
    return one_decimal(value).removesuffix(".0")


def one_decimal(value: float | None) -> str:
    """Replica-minutes, rates: always one decimal."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value:,.1f}"


def times(value: float | None) -> str:
    """A ratio with two decimals."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value:,.2f}"


def money(value: float | None) -> str:
    """Three significant digits; the currency is that of the price."""
    return UNKNOWN if value is None or not math.isfinite(value) else _three_digits(value)


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(float(f"{value:.3g}")))))
    return f"{value:,.{decimals}f}"


def written_interval(write: Callable[[float | None], str], bounds: tuple[float, float]) -> str:
    """ "521–535 ms": the unit once where both ends have the same."""
    low, high = (write(bound) for bound in bounds)
    if low == high:
        return f"±{SPACE}0"
    number, space, unit = low.rpartition(SPACE)
    return f"{number if space and high.endswith(space + unit) else low}–{high}"
