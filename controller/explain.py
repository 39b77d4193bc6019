"""The arithmetic of one decision, printed from its ``why`` alone so that a reader of the paper recognises it.

Any scaler's terms are printed in the order in which they were computed; those that several papers share have a wording
of their own here. Numbers per partition become a table.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.contracts import Decision, Term

MANY = 24
"""Longer lists are cut, and the line says by how much."""

ACTIONS = {
    "up": "scale up",
    "down": "scale down",
    "reassign": "reassign",
    "none": "leave as it is",
    "hold": "hold",
}

SAID_ELSEWHERE = ("action", "current_from")

COLUMNS = {
    "partitions": "partition",
    "lag": "lag (events)",
    "rate_per_s": "λ (events/s)",
    "total_lag": "total lag = lag + λ·t_r",
}


def explain(scaler_name: str, decision: Decision) -> str:
    """Several lines of plain text: one heading per fleet, then each term; no line ends in a blank."""
    headline = ACTIONS[decision.action]
    lines = []
    for fleet, terms in decision.why.items() or [("fleet", {})]:
        target = decision.targets.get(fleet)
        action = terms.get("action")  # of this fleet, where a decision is about several
        said = ACTIONS.get(action, headline) if isinstance(action, str) else headline
        aim = f" to {_replicas(target)}" if target is not None and decision.action in ("up", "down") else ""
        lines.append(f"{scaler_name} on {fleet}: {said}{aim}")
        lines += [f"  {line}".rstrip() for line in _body(terms)]
    if decision.assignment is not None:
        lines.append(f"  assignment: {_groups(decision.assignment)}")
    if decision.routing is not None:
        lines.append(f"  routing: {', '.join(f'{queue} {share:.1%}' for queue, share in decision.routing.items())}")
    if decision.pool is not None:
        lines.append(f"  pool: {_replicas(decision.pool)}")
    return "\n".join(lines)


def _body(terms: Mapping[str, Term]) -> list[str]:
    columns = [name for name in COLUMNS if isinstance(terms.get(name), list)]
    lines = _table({COLUMNS[name]: _list(terms[name]) for name in columns}) if "partitions" in columns else []
    told = set(columns) if lines else set()
    for name, value in terms.items():
        if name in told or name in SAID_ELSEWHERE:
            continue
        groups = terms.get(f"{name}_groups")
        told.add(f"{name}_groups")
        word = WORDING.get(name)
        text = word(value, terms) if word else f"{name.replace('_', ' ')}: {_value(value)}"
        lines.append(f"{text}: {_groups(_list(groups))}" if isinstance(groups, list) else text)
    return lines


def _table(columns: Mapping[str, list[Any]]) -> list[str]:
    """One row a quantity, one column a partition."""
    shown = {head: [_number(value) for value in values[:MANY]] for head, values in columns.items()}
    head_width = max(len(head) for head in shown)
    width = max(len(cell) for cells in shown.values() for cell in cells)
    hidden = max(len(values) for values in columns.values()) - MANY
    rows = [f"{head:<{head_width}}  {'  '.join(f'{cell:>{width}}' for cell in cells)}" for head, cells in shown.items()]
    return rows + ([f"… and {hidden} partitions more"] if hidden > 0 else [])


def _bin(label: str) -> Callable[[Term, Mapping[str, Term]], str]:
    def say(value: Term, _: Mapping[str, Term]) -> str:
        lag, rate = _list(value)
        return f"bin at {label}: lag ≤ μ·w·f = {_number(lag)}, rate ≤ μ·f = {_number(rate)}/s"

    return say


def _packing(label: str, sign: str) -> Callable[[Term, Mapping[str, Term]], str]:
    def say(value: Term, terms: Mapping[str, Term]) -> str:
        current = terms.get("replicas")
        verdict = ""
        if isinstance(value, int) and isinstance(current, int):
            holds = value > current if sign == ">" else value < current
            verdict = f" {sign} {current}? {'yes' if holds else 'no'}"
        elif isinstance(value, str):
            verdict = f" {sign} {current}? no"
        return f"|Least-Loaded({label})| = {value}{verdict}"

    return say


def _violating(value: Term, terms: Mapping[str, Term]) -> str:
    consumers = _list(value)
    limit = _list(terms.get("bin_up"))
    question = "assignment violates the SLO at f_up"
    if not consumers:
        return f"{question}? no"
    said = [f"consumer {index}: lag {_number(lag)}, rate {_number(rate)}/s" for index, lag, rate in consumers[:MANY]]
    above = f" (limits {_number(limit[0])} and {_number(limit[1])}/s)" if limit else ""
    return f"{question}? yes, {'; '.join(said)}{above}"


WORDING: dict[str, Callable[[Term, Mapping[str, Term]], str]] = {
    "reason": lambda value, _: f"reason: {value}",
    "current": lambda value, terms: f"assigned now ({terms.get('current_from', 'plan')}): {_groups(_list(value))}",
    "bin_up": _bin("f_up"),
    "bin_down": _bin("f_down"),
    "rebalance_time_s": lambda value, _: f"t_r = {_value(value)} s",
    "replicas": lambda value, _: f"|G| = {value}",
    "LL_up": _packing("lag, f_up", ">"),
    "LL_down": _packing("lag, f_down", "<"),
    "LL_total_up": _packing("total lag, f_up", ">"),
    "LL_total_down": _packing("total lag, f_down", "<"),
    "violating": _violating,
    "flag": lambda value, _: f"flag: {value or 'none'}",
    "total_rate_per_s": lambda value, _: f"Σλ = {_value(value)}/s",
    "needed_up": lambda value, _: f"⌈Σλ / capacity at f_up⌉ = {value}",
    "needed_down": lambda value, _: f"⌈Σλ / capacity at f_down⌉ = {value}",
    "most": lambda value, _: f"at most {value}",
}


def _groups(groups: Sequence[Sequence[int]]) -> str:
    said = ["{" + ", ".join(map(str, group[:MANY])) + (", …" if len(group) > MANY else "") + "}" for group in groups]
    return " ".join(said[:MANY]) + (f" … and {len(said) - MANY} groups more" if len(said) > MANY else "")


def _list(value: Term) -> list[Any]:
    return value if isinstance(value, list) else []


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        said = ", ".join(_value(item) for item in value[:MANY])
        return f"[{said}{f', … {len(value) - MANY} more' if len(value) > MANY else ''}]"
    return _number(value)


def _number(value: Any) -> str:
    """Floats with three decimals at most, whole ones without."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "unknown"}[value]
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _replicas(count: int) -> str:
    return f"{count} replica" if count == 1 else f"{count} replicas"
