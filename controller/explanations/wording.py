"""Sentences with places for the terms of a decision.

A line such as ``|G| = {replicas}`` is printed where the first of its terms comes up, if the decision has all of them;
it then has told all of them. Places:

- ``{name}``: the value; ``{name.0}``: an element of a list
- ``{name:none}``: no value reads "none" instead of "unknown", ``{name:unbounded}``: ∞; ``{name:%}``: in per cent;
  ``{name:groups}``: partitions by consumer; ``{name:words}``: text without its underscores; ``{name:seconds}``: with
  its unit unless it is a text; ``{name:fields}``: text with the fields of observations in words
- ``{one > other}`` (also <, ≥, ≤, =): whether that holds, yes or no; unknown where it cannot be told
"""

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from string import Formatter
from typing import Any, NamedTuple

from penstock.contracts import Term

MANY = 24
"""Longer lists are cut, and the line says by how much."""

Terms = Mapping[str, Term]

COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    "<": operator.lt,
    "≥": operator.ge,
    "≤": operator.le,
    "=": operator.eq,
}
FIELDS: Mapping[str, str] = {
    "arrival_rate_per_s": "arrival rate",
    "arrival_scv": "scv of the interarrival time",
    "arrived": "number of arrivals",
    "backlog": "backlog",
    "busy_s": "busy time",
    "committed_offset": "committed offset",
    "completed": "number of completions",
    "concurrency": "concurrency limit",
    "deadline_s": "deadline",
    "depth": "depth",
    "end_offset": "end offset",
    "finished": "number of finished requests",
    "in_flight": "number in flight",
    "last_rebalance_s": "time of the last rebalance",
    "last_scale_s": "time of the last scale",
    "laxity_s": "laxity",
    "missed": "number of missed deadlines",
    "offered": "number of events offered first",
    "refused": "number of events refused at first",
    "rejected": "number of rejections",
    "response_time_s": "response time",
    "servers": "number of servers",
    "service_rate_per_s": "service rate",
    "service_scv": "scv of the service time",
}
"""Fields of observations that may be unknown, as they read in a reason."""

FIELD = re.compile(r"\b(?:([a-z]+)s\.([\w-]+)\.)?([a-z]+(?:_[a-z]+)*)(?= is unknown|:)")
"""``backlog is unknown``, ``partitions.3.committed_offset: no commit yet``."""

ABSENT = {"none": "none", "unbounded": "∞"}
COMPARISON = re.compile(r"(.+) ([<>≥≤=]) (.+)")
ELEMENT = re.compile(r"(.+)\.(\d+)")
UNBOUNDED = re.compile(r"\+?inf\b")
AT_LEAST = re.compile(r"≥ (\d+)")


class Line(NamedTuple):
    """What tells these terms; ``say`` answers one or several lines of text."""

    names: frozenset[str]
    say: Callable[[Terms], Sequence[str]]


class Table(NamedTuple):
    """Lists that belong together: one row a quantity, by its heading, one column an element of the list ``key``."""

    key: str
    headings: dict[str, str]
    elements: str
    """What the columns are, in the plural."""


class Family(NamedTuple):
    """Wordings of the scalers that share a paper or a way of reckoning. ``marks`` are terms of theirs by which the
    decision of a scaler that nobody here knows is told to be of that family. The first line that fits is taken.
    """

    scalers: frozenset[str]
    lines: tuple[Line, ...]
    tables: tuple[Table, ...] = ()
    marks: frozenset[str] = frozenset()


def lines(*texts: str) -> tuple[Line, ...]:
    """Lines from texts with places."""
    return tuple(map(_line, texts))


def _line(text: str) -> Line:
    return Line(frozenset(places(text)), lambda terms: [fill(text, terms)])


def places(text: str) -> list[str]:
    """The terms that a text needs."""
    return [name for _, field, _, _ in _parsed(text) if field for name in _names(field)]


def fill(text: str, terms: Terms) -> str:
    """The text with the values of its terms."""
    said = []
    for literal, field, spec, _ in _parsed(text):
        said.append(literal)
        if field:
            said.append(_compared(field, terms) if COMPARISON.fullmatch(field) else _said(_get(field, terms), spec))
    return "".join(said)


def value(term: Any) -> str:
    """Any value as text."""
    if isinstance(term, list | tuple):
        shown = ", ".join(value(item) for item in term[:MANY])
        return f"[{shown}{f', … {len(term) - MANY} more' if len(term) > MANY else ''}]"
    return number(term)


def number(term: Any) -> str:
    """Floats with three decimals at most, more where nothing else would be left; whole ones without."""
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
    """One row a quantity, one column an element, in blocks no wider than ``width``; empty if the terms have no list
    ``key``.
    """
    columns = {heading: as_list(terms[name]) for name, heading in of.headings.items() if tabled(of, name, terms)}
    if not columns:
        return []
    shown = {heading: [number(cell) for cell in cells[:MANY]] for heading, cells in columns.items()}
    head = max(len(heading) for heading in shown)
    cell = max((len(cell) for cells in shown.values() for cell in cells), default=0)
    fit = max(1, (width - head) // (cell + 2))
    rows = []
    for begin in range(0, max(map(len, shown.values())) or 1, fit):
        for heading, cells in shown.items():
            rows.append(f"{heading:<{head}}" + "".join(f"  {each:>{cell}}" for each in cells[begin : begin + fit]))
    hidden = max(map(len, columns.values())) - MANY
    return rows + ([f"… and {hidden} {of.elements} more"] if hidden > 0 else [])


def tabled(of: Table, name: str, terms: Terms) -> bool:
    """Whether a term is told by that table: a list as long as the one that heads it."""
    keys = terms.get(of.key)
    if not isinstance(keys, list) or name not in of.headings:
        return False
    column = terms.get(name)
    return isinstance(column, list) and len(column) == len(keys)


def as_list(term: Term) -> list[Any]:
    """The list itself, nothing for any other value."""
    return term if isinstance(term, list) else []


@cache
def _parsed(text: str) -> tuple[tuple[str, str | None, str | None, str | None], ...]:
    return tuple(Formatter().parse(text))


def _names(field: str) -> Iterable[str]:
    found = COMPARISON.fullmatch(field)
    for side in (found[1], found[3]) if found else (field,):
        element = ELEMENT.fullmatch(side)
        yield element[1] if element else side


def _get(field: str, terms: Terms) -> Any:
    element = ELEMENT.fullmatch(field)
    if element is None:
        return terms[field]
    elements, index = as_list(terms[element[1]]), int(element[2])
    return elements[index] if index < len(elements) else None


def _said(term: Any, spec: str | None) -> str:
    if term is None and spec in ABSENT:
        return ABSENT[spec]
    if spec == "%" and isinstance(term, float | int):
        return f"{number(100 * term)} %"
    if spec == "seconds":
        return value(term) if isinstance(term, str) else f"{value(term)} s"
    if spec == "groups":
        return groups(as_list(term))
    if spec == "fields" and isinstance(term, str):
        return readable(term)
    return str(term).replace("_", " ") if spec == "words" else value(term)


def _compared(field: str, terms: Terms) -> str:
    found = COMPARISON.fullmatch(field)
    assert found is not None
    one, other = (_quantity(_get(side, terms)) for side in (found[1], found[3]))
    return "unknown" if one is None or other is None else number(COMPARISONS[found[2]](one, other))


def _quantity(term: Any) -> float | None:
    """A number to compare with: ``≥ 4`` is at least four, a text that begins with ``inf`` has no bound."""
    if isinstance(term, str):
        least = AT_LEAST.fullmatch(term)
        return float(least[1]) if least else math.inf if UNBOUNDED.match(term) else None
    return float(term) if isinstance(term, float | int) else None
