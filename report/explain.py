"""The arithmetic of one decision in the paper's notation, from its ``why`` alone.

``report.explanations`` has the wording of the terms, by family of scalers. Other terms are printed by name, with the
unit in which the name ends, in the order of computation.
"""

import textwrap
from functools import cache

from penstock.contracts import Decision, Term
from penstock.fleet_kinds import fleet_kinds
from penstock.parameters import split_unit
from report.explanations import platform, stream
from report.explanations.wording import Family, Sentence, Table, Terms, groups, sentences, table, tabled, value

WIDTH = 160
"""Characters per line; longer lines are wrapped and indented."""

ACTIONS = {"up": "scale up", "down": "scale down", "reassign": "reassign", "none": "leave as it is", "hold": "hold"}

COMMON = Family(
    frozenset(),
    sentences(
        "reason: {reason:fields}",
        "replicas = {replicas}, ready = {ready}",
        "replicas = {replicas}",
        "wanted = {wanted} (bounds {min_replicas} … {max_replicas:unbounded})",
        "wanted = {wanted}",
        "{capped}",
    ),
    (stream.PARTITIONS,),
)
"""The wording of terms that many scalers have."""

GREEK = {"lambda": "λ", "mu": "μ", "rho": "ρ"}


def explain(scaler_name: str, decision: Decision) -> str:
    """Several lines of plain text: one heading per fleet, then each term; no line ends in a blank."""
    headline = ACTIONS[decision.action]
    lines = []
    for fleet, terms in decision.why.items() or [("fleet", {})]:
        target = decision.targets.get(fleet)
        action = terms.get("action")  # of this fleet, where a decision is about several
        heading = ACTIONS.get(action, headline) if isinstance(action, str) else headline
        aim = f" to {_replicas(target)}" if target is not None and decision.action in ("up", "down") else ""
        lines.append(f"{scaler_name} on {fleet}: {heading}{aim}")
        lines += [f"  {line}" for line in body(scaler_name, terms)]
    if decision.assignment is not None:
        lines.append(f"  assignment: {groups(decision.assignment)}")
    if decision.routing is not None:
        lines.append(f"  routing: {', '.join(f'{queue} {share:.1%}' for queue, share in decision.routing.items())}")
    if decision.pool is not None:
        lines.append(f"  pool: {_replicas(decision.pool)}")
    wrap = textwrap.TextWrapper(WIDTH, subsequent_indent="      ", break_on_hyphens=False).wrap
    return "\n".join(part for line in lines for part in ([line.rstrip()] if len(line) <= WIDTH else wrap(line)))


def family_of(scaler_name: str, terms: Terms) -> Family:
    """The family by the scaler's name; that of an unregistered variant by its terms."""
    families = all_families()
    by_name = next((family for family in families if scaler_name in family.scalers), None)
    return by_name or next((family for family in families if family.marks & terms.keys()), COMMON)


@cache
def all_families() -> tuple[Family, ...]:
    """Families of platform scalers and of every kind of fleet."""
    kinds = (kind.load("explanations") for kind in fleet_kinds().values() if kind.explanations)
    return (*platform.FAMILIES, *(family for families in kinds for family in families))


def body(scaler_name: str, terms: Terms) -> list[str]:
    """The terms of one fleet. A table stands at the first of its terms."""
    family = family_of(scaler_name, terms)
    lines: list[str] = []
    shown = {"action", "current_from"}  # elsewhere
    for name, term in terms.items():
        if name in shown:
            continue
        if (found := find_table(family, name, terms)) is not None:
            lines += table(found, terms, WIDTH - 2)
            shown |= {each for each in found.headings if tabled(found, each, terms)}
        elif (sentence := find_sentence(family, name, terms)) is not None:
            lines += sentence.say(terms)
            shown |= sentence.names
        else:
            lines.append(plain(name, term))
    return lines


def find_table(family: Family, name: str, terms: Terms) -> Table | None:
    """The table that has this term as a row."""
    return next((each for each in (*family.tables, *COMMON.tables) if tabled(each, name, terms)), None)


def find_sentence(family: Family, name: str, terms: Terms) -> Sentence | None:
    """The first sentence with this term whose other terms exist."""
    known = (*family.sentences, *COMMON.sentences)
    return next((each for each in known if name in each.names and each.names <= terms.keys()), None)


def plain(name: str, term: Term) -> str:
    """A term by its own name, with its unit."""
    stem, unit = split_unit(name)
    words = " ".join(GREEK.get(word, word) for word in stem.split("_"))
    if isinstance(term, bool) or not isinstance(term, float | int):
        unit = ""
    return f"{words}: {value(term)}{unit[1:] if unit.startswith('1/') else f' {unit}'.rstrip()}"


def _replicas(count: int) -> str:
    return f"{count} replica" if count == 1 else f"{count} replicas"
