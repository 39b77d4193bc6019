"""Numbers as words: one way to write a duration, a share or a count, in the report and in the terminal.

As many digits as mean something, a no-break space before the unit, an en dash for what is unknown.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from penstock.contracts import Term
from penstock.measures import bootstrap_interval

UNKNOWN = "–"
SPACE = "\u00a0"
WHY_LENGTH = 280
BESIDE = ("action", "partitions", "replicas")


def duration(seconds: float | None) -> str:
    """Three significant digits in ms below one second, in s above."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if abs(seconds) < 0.9995:
        return f"{_three_digits(1000 * seconds)}{SPACE}ms"
    return f"{_three_digits(seconds)}{SPACE}s"


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
    """Whole number with thousands separated."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def one_decimal(value: float | None) -> str:
    """Replica-minutes, rates, means of counts: one decimal unless it is whole."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value:,.1f}"


def mean_count(value: float | None) -> str:
    """A mean of counts: no decimals where it is whole."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def money(value: float | None) -> str:
    """Three significant digits; the currency is that of the price."""
    return UNKNOWN if value is None or not math.isfinite(value) else _three_digits(value)


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(float(f"{value:.3g}")))))
    return f"{value:,.{decimals}f}"


def mean(values: Sequence[float | None]) -> float | None:
    """Mean of what is known; None of nothing."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def interval(values: Sequence[float | None]) -> tuple[float, float] | None:
    """95 % bootstrap interval of the mean over repetitions; None where there is only one."""
    known = [value for value in values if value is not None]
    return bootstrap_interval(known) if len(known) > 1 else None


def written_interval(write: Callable[[float | None], str], bounds: tuple[float, float]) -> str:
    """ "521–535 ms": the unit once where both ends have the same."""
    low, high = (write(bound) for bound in bounds)
    if low == high:
        return f"±{SPACE}0"
    number, space, unit = low.rpartition(SPACE)
    return f"{number if space and high.endswith(space + unit) else low}–{high}"


def why(terms: Mapping[str, Term]) -> str:
    """The arithmetic of a decision in one line, terms in the order in which they were computed.

    Groupings are left out (they do not fit a line), and what stands beside the line anyway: action and replicas.
    """
    told = {name: value for name, value in terms.items() if name not in BESIDE and not _is_grouping(value)}
    text = all_terms(told)
    return text if len(text) <= WHY_LENGTH else text[: WHY_LENGTH - 1].rstrip() + "…"


def all_terms(terms: Mapping[str, Term]) -> str:
    """Every term with its value."""
    return ", ".join(str(value) if name == "reason" else _named_term(name, value) for name, value in terms.items())


def _is_grouping(value: Term) -> bool:
    return isinstance(value, list) and any(isinstance(item, list) for item in value)


def _named_term(name: str, value: Term) -> str:
    """``rate_per_s`` 212 → "rate 212/s": the unit behind the number."""
    for ending, unit in (("_per_s", "/s"), ("_ms", f"{SPACE}ms"), ("_s", f"{SPACE}s")):
        if name.endswith(ending) and isinstance(value, int | float | list):
            return f"{name.removesuffix(ending).replace('_', ' ')} {_term(value)}{unit}"
    return f"{name.replace('_', ' ')} {_term(value)}"


def _term(value: Term) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return "[" + " ".join(_term(item) for item in value) + "]"
    return str(value)
