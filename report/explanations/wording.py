"""Sentences with places for the terms of a decision.

A sentence such as ``|G| = {replicas}`` is printed at the first of its terms, if the decision has all of them; its other
terms are not printed again. Places:

- ``{name}``: the value; ``{name.0}``: an element of a list
- ``{name:none}``: no value reads "none" instead of "unknown", ``{name:unbounded}``: ∞; ``{name:%}``: in per cent;
  ``{name:groups}``: partitions by consumer; ``{name:seconds}``: with its unit unless it is a text; ``{name:fields}``:
  text with the fields of observations in words
- ``{one > other}`` (also <, ≥, ≤, =): whether that holds, yes or no, or unknown
"""

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from string import Formatter
from typing import Any, NamedTuple

from penstock.contracts import Term
from penstock.parameters import split_unit

MANY = 24
"""Longer lists are cut, with the number of elements left out."""

Terms = Mapping[str, Term]

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    "≥": operator.ge,
    "≤": operator.le,
    "=": operator.eq,
}
FIELDS: Mapping[str, str] = {
    name: split_unit(name)[0].replace("_", " ")
    for name in (
        *("arrival_rate_per_s", "service_rate_per_s", "response_time_s", "deadline_s"),
        *("backlog", "depth", "committed_offset", "end_offset"),
    )
} | {
    "arrival_scv": "scv of the interarrival time",
    "arrivals_by_slot": "number of arrivals by slot",
    "arrived": "number of arrivals",
    "busy_s": "busy time",
    "delivery_s": "time from an event's intended time to an idle replica",
    "completed": "number of completions",
    "concurrency": "concurrency limit",
    "after": "order of the functions",
    "finished": "number of finished requests",
    "in_flight": "number in flight",
    "last_rebalance_s": "time of the last rebalance",
    "last_scale_s": "time of the last scale",
    "late": "number of late events",
    "laxity_s": "laxity",
    "missed": "number of missed deadlines",
    "offered": "number of events offered first",
    "refused": "number of events refused at first",
    "rejected": "number of rejections",
    "servers": "number of servers",
    "service_scv": "scv of the service time",
}
"""Fields of observations that may be unknown, as they read in a reason."""

FIELD = re.compile(r"\b(?:([a-z]+)s\.([\w-]+)\.)?([a-z]+(?:_[a-z]+)*)(?= is unknown|:)")
"""``backlog is unknown``, ``partitions.3.committed_offset: no commit yet``."""

ABSENT = {"none": "none", "unbounded": "∞"}
COMPARISON = re.compile(r" ([<>≥≤=]) ")
ELEMENT = re.compile(r"(.+)\.(\d+)")
UNBOUNDED = re.compile(r"\+?inf\b")
AT_LEAST = re.compile(r"≥ (\d+)")


class Sentence(NamedTuple):
    """The wording of these terms: ``say`` returns one or several lines of text."""

    names: frozenset[str]
    say: Callable[[Terms], Sequence[str]]


class Table(NamedTuple):
    """Lists of equal length: one row per quantity, by its heading, one column per element of the list ``key``."""

    key: str
    headings: dict[str, str]
    elements: str
    """What the columns are, in the plural."""


class Family(NamedTuple):
    """The wording of scalers with the same terms; the first sentence that fits is used.

    ``marks``: terms that assign the decision of an unregistered scaler to the family.
    """

    scalers: frozenset[str]
    sentences: tuple[Sentence, ...]
    tables: tuple[Table, ...] = ()
    marks: frozenset[str] = frozenset()


def sentences(*parts: str | Sentence) -> tuple[Sentence, ...]:
    """Sentences, of which most are texts with places."""

    def sentence(text: str) -> Sentence:
        return Sentence(frozenset(places(text)), lambda terms: [fill(text, terms)])

    return tuple(sentence(part) if isinstance(part, str) else part for part in parts)


def places(text: str) -> list[str]:
    """The terms that a text needs."""
    fields = [field for _, field, _, _ in _parsed(text) if field]
    return [ELEMENT.sub(r"\1", side) for field in fields for side in COMPARISON.split(field)[::2]]


def fill(text: str, terms: Terms) -> str:
    """The text with the values of its terms."""
    return "".join(literal + _filled(field, spec, terms) for literal, field, spec, _ in _parsed(text))


def _filled(field: str | None, spec: str | None, terms: Terms) -> str:
    if not field:
        return ""
    one, *compared = COMPARISON.split(field)
    if compared:
        sign, (left, right) = compared[0], (_quantity(_get(side, terms)) for side in (one, compared[1]))
        return "unknown" if left is None or right is None else number(COMPARISONS[sign](left, right))
    term = _get(field, terms)
    if term is None and spec in ABSENT:
        return ABSENT[spec]
    return FORMATS.get(spec or "", value)(term)


def value(term: Any) -> str:
    """Any value as text."""
    if isinstance(term, list | tuple):
        shown = ", ".join(value(item) for item in term[:MANY])
        return f"[{shown}{f', … {len(term) - MANY} more' if len(term) > MANY else ''}]"
    return number(term)


def number(term: Any) -> str:
    """Floats with at most three decimals, or two significant digits if smaller."""
    if isinstance(term, bool) or term is None:
        return {True: "yes", False: "no", None: "unknown"}[term]
    if isinstance(term, float) and math.isfinite(term):
        return f"{term:.3f}".rstrip("0").rstrip(".") if abs(term) >= 0.001 or term == 0 else f"{term:.2g}"
    return "∞" if term in ("inf", math.inf) else str(term)


def readable(reason: str) -> str:
    """Why a scaler holds, with ``committed offset of partition 3`` for ``partitions.3.committed_offset``."""

    def said(found: re.Match[str]) -> str:
        kind, which, field = found.groups()
        if field not in FIELDS:
            return found[0]
        return f"{FIELDS[field]} of {kind} {which}" if kind else FIELDS[field]

    return FIELD.sub(said, reason)


def groups(of: Sequence[Sequence[int]]) -> str:
    """Partitions by consumer."""
    said = ["{" + ", ".join(map(str, group[:MANY])) + (", …" if len(group) > MANY else "") + "}" for group in of]
    return " ".join(said[:MANY]) + (f" … and {len(said) - MANY} groups more" if len(said) > MANY else "")


def table(of: Table, terms: Terms, width: int) -> list[str]:
    """One row per quantity, one column per element, in blocks of at most ``width``; empty without the list ``key``."""
    columns = {heading: as_list(terms[name]) for name, heading in of.headings.items() if tabled(of, name, terms)}
    if not columns:
        return []
    shown = {heading: [number(cell) for cell in cells[:MANY]] for heading, cells in columns.items()}
    head = max(map(len, shown))
    cell = max((len(cell) for cells in shown.values() for cell in cells), default=0)
    fit = max(1, (width - head) // (cell + 2))
    elements = max(map(len, columns.values()))
    rows = [
        f"{heading:<{head}}" + "".join(f"  {each:>{cell}}" for each in cells[begin : begin + fit])
        for begin in range(0, min(elements, MANY) or 1, fit)
        for heading, cells in shown.items()
    ]
    return rows + ([f"… and {elements - MANY} {of.elements} more"] if elements > MANY else [])


def tabled(of: Table, name: str, terms: Terms) -> bool:
    """Whether a term is a row of that table: a list as long as the one that heads it."""
    keys, column = terms.get(of.key), terms.get(name)
    return name in of.headings and isinstance(keys, list) and isinstance(column, list) and len(column) == len(keys)


def as_list(term: Term) -> list[Any]:
    """The list itself, an empty one for any other value."""
    return term if isinstance(term, list) else []


@cache
def _parsed(text: str) -> tuple[tuple[str, str | None, str | None, str | None], ...]:
    return tuple(Formatter().parse(text))


def _get(field: str, terms: Terms) -> Any:
    element = ELEMENT.fullmatch(field)
    if element is None:
        return terms[field]
    elements, index = as_list(terms[element[1]]), int(element[2])
    return elements[index] if index < len(elements) else None


def _quantity(term: Any) -> float | None:
    """A number to compare with: ``≥ 4`` is at least four, a text that begins with ``inf`` has no bound."""
    if isinstance(term, str):
        least = AT_LEAST.fullmatch(term)
        return float(least[1]) if least else math.inf if UNBOUNDED.match(term) else None
    return float(term) if isinstance(term, float | int) else None


FORMATS: Mapping[str, Callable[[Any], str]] = {
    "%": lambda term: f"{number(100 * term)} %" if isinstance(term, float | int) else value(term),
    "seconds": lambda term: term if isinstance(term, str) else f"{value(term)} s",
    "groups": lambda term: groups(as_list(term)),
    "fields": lambda term: readable(term) if isinstance(term, str) else value(term),
}
"""How a place with a format reads."""
