"""The arithmetic of one decision, printed from its ``why`` alone so that a reader of the paper recognises it.

How the terms read is in ``controller.explanations``, by family of scalers. Those of a scaler that nobody here knows are
printed by their names, in the order in which they were computed, with the unit that the name ends in.
"""

import textwrap
from collections.abc import Sequence
from functools import cache

from controller.explanations import clusters, consumer_groups, functions, networks, queues
from controller.explanations.consumer_groups import PARTITIONS
from controller.explanations.wording import Family, Line, Terms, groups, lines, table, tabled, value
from penstock.contracts import Decision, Term

WIDTH = 160
"""No line is wider, in characters; longer ones go on below, further in."""

ACTIONS = {
    "up": "scale up",
    "down": "scale down",
    "reassign": "reassign",
    "none": "leave as it is",
    "hold": "hold",
}

SAID_ELSEWHERE = ("action", "current_from")

FAMILIES: tuple[Family, ...] = (
    consumer_groups.PACKING,
    consumer_groups.BINSCALE,
    consumer_groups.BY_RATE,
    clusters.HPA,
    clusters.KEDA,
    clusters.KPA,
    clusters.OPENFAAS,
    clusters.DATAFLOW,
    functions.AMESOS,
    functions.DWP,
    functions.LASS,
    functions.RPS,
    functions.ELASTIC_FAAS,
    queues.QUEUES,
    networks.PUBSUB,
)

ANYBODYS = Family(
    frozenset(),
    lines("reason: {reason:fields}", "replicas = {replicas}", "wanted = {wanted}", "{capped}"),
    (PARTITIONS,),
)

UNITS = {"_per_s": "/s", "_per_min": "/min", "_per_hour": "/h", "_s": " s", "_ms": " ms"}
"""What the name of a term ends in, and how its value goes on."""

GREEK = {"lambda": "λ", "mu": "μ", "rho": "ρ"}


def explain(scaler_name: str, decision: Decision) -> str:
    """Several lines of plain text: one heading per fleet, then each term; no line ends in a blank."""
    headline = ACTIONS[decision.action]
    told = []
    for fleet, terms in decision.why.items() or [("fleet", {})]:
        target = decision.targets.get(fleet)
        action = terms.get("action")  # of this fleet, where a decision is about several
        said = ACTIONS.get(action, headline) if isinstance(action, str) else headline
        aim = f" to {_replicas(target)}" if target is not None and decision.action in ("up", "down") else ""
        told.append(f"{scaler_name} on {fleet}: {said}{aim}")
        told += [f"  {line}" for line in body(scaler_name, terms)]
    if decision.assignment is not None:
        told.append(f"  assignment: {groups(decision.assignment)}")
    if decision.routing is not None:
        told.append(f"  routing: {', '.join(f'{queue} {share:.1%}' for queue, share in decision.routing.items())}")
    if decision.pool is not None:
        told.append(f"  pool: {_replicas(decision.pool)}")
    return "\n".join(part for line in told for part in _wrapped(line.rstrip()))


def family_of(scaler_name: str, terms: Terms) -> Family:
    """By the scaler's name; one's own variant of a scaler is told by its terms."""
    by_name = next((family for family in FAMILIES if scaler_name in family.scalers), None)
    return by_name or next((family for family in FAMILIES if family.marks & terms.keys()), ANYBODYS)


def body(scaler_name: str, terms: Terms) -> list[str]:
    """The terms of one fleet. Tables stand where the first of their terms comes up."""
    family = family_of(scaler_name, terms)
    said: list[str] = []
    told = set(SAID_ELSEWHERE)
    for name, term in terms.items():
        if name in told:
            continue
        found = next((each for each in family.tables if tabled(each, name, terms)), None)
        if found is not None:
            said += table(found, terms, WIDTH - 2)
            told |= {each for each in found.headings if tabled(found, each, terms)}
            continue
        line = find_line(family, name, terms)
        said += line.say(terms) if line is not None else [plain(name, term)]
        told |= line.names if line is not None else {name}
    return said


def find_line(family: Family, name: str, terms: Terms) -> Line | None:
    """The first line that tells this term and whose other terms are all there."""
    candidates: Sequence[Line] = (*family.lines, *ANYBODYS.lines)
    return next((line for line in candidates if name in line.names and line.names <= terms.keys()), None)


def plain(name: str, term: Term) -> str:
    """A term by its own name, with its unit."""
    words, unit = _name_and_unit(name)
    return f"{words}: {value(term)}{unit if isinstance(term, float | int) and not isinstance(term, bool) else ''}"


@cache
def _name_and_unit(name: str) -> tuple[str, str]:
    ending = next((ending for ending in UNITS if name.endswith(ending)), "")
    words = [GREEK.get(word, word) for word in name.removesuffix(ending).split("_")]
    return " ".join(words), UNITS.get(ending, "")


def _wrapped(line: str) -> list[str]:
    if len(line) <= WIDTH:
        return [line]
    return textwrap.wrap(line, WIDTH, subsequent_indent="      ", break_on_hyphens=False)


def _replicas(count: int) -> str:
    return f"{count} replica" if count == 1 else f"{count} replicas"
