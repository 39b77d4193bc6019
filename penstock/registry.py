"""Finding scalers: by entry point (``penstock.scalers``), or from a file as ``path.py:Class``."""

import dataclasses
import difflib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec

from penstock.contracts import Scaler
from penstock.errors import PenstockError
from penstock.runspec import ScalerSpec

ScalerClass = type[Scaler[Any, Any]]


def scaler_classes() -> dict[str, ScalerClass]:
    """Every registered scaler by its name, sorted."""
    return {
        point.name: point.load()
        for point in sorted(entry_points(group="penstock.scalers"), key=lambda point: point.name)
    }


def scaler_names() -> list[str]:
    """Names of the registered scalers, without importing them."""
    return sorted(point.name for point in entry_points(group="penstock.scalers"))


def find_scaler(spec: ScalerSpec) -> ScalerClass:
    """The class behind a spec. Raises PenstockError with the nearest names."""
    if spec.file:
        return _from_file(spec.file)
    for point in entry_points(group="penstock.scalers"):
        if point.name == spec.name:
            loaded: ScalerClass = point.load()
            return loaded
    raise unknown("scaler", spec.name, scaler_names(), "see `penstock scalers`, or name a file as path.py:Class")


def make_scaler(spec: ScalerSpec) -> Scaler[Any, Any]:
    """A scaler with the parameters of its spec. PenstockError for an unknown parameter or an impossible value."""
    scaler = find_scaler(spec)
    return scaler(make_parameters(spec.name, scaler.Parameters, spec.parameters))  # type: ignore[call-arg]


def make_parameters(name: str, kind: type[Any], given: Mapping[str, Any]) -> Any:
    """``kind`` (a frozen dataclass) from values that may be text. A ``ValueError`` of its ``__post_init__`` is told."""
    known = [field.name for field in dataclasses.fields(kind)]
    for key in given:
        if key not in known:
            raise unknown("parameter", f"{name}.{key}", [f"{name}.{k}" for k in known], f"it has {', '.join(known)}")
    try:
        return msgspec.convert(dict(given), type=kind, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        values = ", ".join(f"{name}.{key}={value}" for key, value in given.items())
        raise PenstockError(f"{values}: {error}") from None


def parse_scaler(text: str, settings: Mapping[str, Mapping[str, str]] | None = None) -> ScalerSpec:
    """``name`` or ``path.py:Class`` with the ``--set`` values that name it."""
    if ".py:" in text:
        kind = _from_file(text)
        return ScalerSpec(name=kind.name, file=text, parameters=dict((settings or {}).get(kind.name, {})))
    spec = ScalerSpec(name=text, parameters=dict((settings or {}).get(text, {})))
    find_scaler(spec)
    return spec


def parse_settings(assignments: Iterable[str]) -> dict[str, dict[str, str]]:
    """``["binpack.f_up=0.8"]`` → ``{"binpack": {"f_up": "0.8"}}``."""
    settings: dict[str, dict[str, str]] = {}
    for text in assignments:
        target, equals, value = text.partition("=")
        scaler, dot, parameter = target.rpartition(".")
        if not (equals and dot and scaler and parameter):
            raise PenstockError(f"--set {text}: expected scaler.parameter=value, such as binpack.f_up=0.8")
        settings.setdefault(scaler, {})[parameter] = value
    return settings


def unknown(kind: str, name: str, known: Iterable[str], way_out: str) -> PenstockError:
    """One line for a name that does not exist, with the nearest that do."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    return PenstockError(f"unknown {kind} {name!r}{hint}: {way_out}")


def _from_file(text: str) -> ScalerClass:
    path_text, _, class_name = text.rpartition(":")
    path = Path(path_text)
    if not path.is_file():
        raise PenstockError(f"{path}: no such file; a scaler from a file is given as path.py:Class")
    module_name = f"penstock_scaler_{path.stem}"
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    if module_spec is None or module_spec.loader is None:
        raise PenstockError(f"{path}: cannot be imported as Python")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_name] = module
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        raise PenstockError(f"{path}: {type(error).__name__} while importing it: {error}") from error
    kind = getattr(module, class_name, None)
    if not isinstance(kind, type) or not hasattr(kind, "decide"):
        raise PenstockError(f"{path}: no scaler class {class_name!r} in it (a class with start and decide)")
    return kind
