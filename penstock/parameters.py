"""Parameters by name and text: ``--set scaler.parameter=value``, their types, their units."""

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_type_hints

import msgspec

from penstock.errors import PenstockError

TYPES = {"float": "a number", "int": "a whole number", "bool": "true or false", "null": "none", "str": "a text"}
UNITS = {
    "_per_s": "1/s",
    "_per_min": "1/min",
    "_per_hour": "1/h",
    "_s": "s",
    "_ms": "ms",
    "_ns": "ns",
    "_percentage": "%",
}
"""Unit by the ending of a name; without one it is a count, a share or a choice."""


def split_unit(name: str) -> tuple[str, str]:
    """``service_rate_per_s`` → ``("service_rate", "1/s")``."""
    ending = next((ending for ending in UNITS if name.endswith(ending)), "")
    return name.removesuffix(ending), UNITS.get(ending, "")


def make_parameters(name: str, kind: type[Any], given: Mapping[str, Any]) -> Any:
    """``kind`` (a frozen dataclass) from values that may be text. PenstockError for an unknown or impossible one."""
    known = [field.name for field in dataclasses.fields(kind)]
    for key in given:
        if key.partition(".")[0] not in known:
            remedy = f"it has {', '.join(known) or 'no parameters'}"
            raise unknown("parameter", f"{name}.{key}", [f"{name}.{k}" for k in known], remedy)
    try:
        return msgspec.convert(_with_entries(given), type=kind, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        named = [key for key in given if re.search(rf"\b{re.escape(key)}\b", str(error))]
        values = ", ".join(f"{name}.{key}={given[key]}" for key in named or given)
        raise PenstockError(reason(name, given, error, kind) or f"{values}: {error}") from None


def reason(name: str, given: Mapping[str, Any], error: Exception, kind: type[Any] | None = None) -> str:
    """Of a missing value, or of one that its type or limits exclude, in the words of the command line; "" for any other
    error. ``kind`` names the choices of a parameter that has some.
    """
    if missing := re.fullmatch(r"Object missing required field `(\w+)`", str(error)):
        key = f"{name}.{missing[1]}"
        return f"{key} has no value: set one (--set {key}=…), or give the parameter a default"
    own = re.match(r"(\w+)=", str(error))
    if own is not None and own[1] in given:  # a dataclass names its value itself
        return f"{name}.{error}"
    found = re.fullmatch(r"(.+) - at `\$\.(\w+).*`", str(error))
    if found is None or found[2] not in given:
        return ""
    said, key = found.groups()
    if wrong := re.fullmatch(r"Expected `(.+)`, got `.+`", said):
        said = "expected " + " or ".join(TYPES.get(each.strip(), each.strip()) for each in wrong[1].split("|"))
    elif limit := re.fullmatch(r"Expected `(\w+)` ([<>]=?) (\S+)", said):
        said = f"expected {TYPES.get(limit[1], limit[1])} {limit[2]} {limit[3]}"
    elif said.startswith("Invalid enum value") and kind is not None:
        said = f"expected {' or '.join(map(str, get_args(get_type_hints(kind)[key])))}"
    return f"{name}.{key}={given[key]}: {said}"


def _with_entries(given: Mapping[str, Any]) -> dict[str, Any]:
    """``target_by_fleet_per_s.pdf`` is the entry ``pdf`` of that parameter, beside its other entries."""
    values: dict[str, Any] = {}
    for key, value in given.items():
        parameter, dot, entry = key.partition(".")
        there = values.get(parameter)
        values[parameter] = {**(there if isinstance(there, Mapping) else {}), entry: value} if dot else value
    return values


def parse_settings(assignments: Iterable[str]) -> dict[str, dict[str, str]]:
    """``["binpack.f_up=0.8"]`` → ``{"binpack": {"f_up": "0.8"}}``. An entry of a parameter that is a mapping has a name
    of its own: ``rps.target_by_fleet_per_s.pdf=50``.
    """
    settings: dict[str, dict[str, str]] = {}
    for text in assignments:
        target, equals, value = text.partition("=")
        scaler, dot, parameter = target.partition(".")
        if not (equals and dot and scaler and parameter):
            raise PenstockError(f"--set {text}: expected scaler.parameter=value, such as binpack.f_up=0.8")
        # People write .5; JSON's numbers, which values are read as, begin with a digit.
        settings.setdefault(scaler, {})[parameter] = re.sub(r"^(-?)\.(?=\d)", r"\g<1>0.", value)
    return settings


def unknown(kind: str, name: str, known: Iterable[str], remedy: str) -> PenstockError:
    """The error for a name that does not exist, with the nearest that do."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    return PenstockError(f"unknown {kind} {name!r}{hint}: {remedy}")
