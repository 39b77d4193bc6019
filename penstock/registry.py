"""Finding scalers: by entry point (``penstock.scalers``), or from a file as ``path.py:Class``."""

import dataclasses
import difflib
import importlib.util
import sys
import traceback
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import msgspec

from penstock.contracts import (
    Decision,
    FleetObservation,
    PartitionObservation,
    ReplicaCounts,
    Scaler,
    StreamObservation,
)
from penstock.errors import PenstockError
from penstock.runspec import ScalerSpec

ScalerClass = type[Scaler[Any, Any]]

TUTORIAL = "docs/your-own-scaler.md has a complete one"

UNREAD = dict.fromkeys(("arrived", "completed", "backlog", "in_flight"), "a rehearsal: nothing was read")
"""What an observation says of itself in which nothing is known."""


def _registered() -> dict[str, EntryPoint]:
    """The entry points by name, sorted."""
    return _installed_on(tuple(sys.path))


@cache
def _installed_on(paths: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Reading what is installed takes tens of milliseconds: once for each search path."""
    del paths  # importlib.metadata looks there by itself
    points = sorted(entry_points(group="penstock.scalers"), key=lambda point: point.name)
    return {point.name: point for point in points}


def scaler_classes() -> dict[str, ScalerClass]:
    """Every registered scaler by its name, sorted."""
    return {name: point.load() for name, point in _registered().items()}


def scaler_names() -> list[str]:
    """Names of the registered scalers, without importing them."""
    return list(_registered())


def is_clairvoyant(kind: ScalerClass) -> bool:
    """Whether it wants the total arrival rates of the whole run as its parameter ``rates_per_s``, which only a world of
    virtual time can give.
    """
    return getattr(kind, "clairvoyant", False)


def clairvoyant_scalers() -> frozenset[str]:
    """Names of the registered ones."""
    return frozenset(name for name, kind in scaler_classes().items() if is_clairvoyant(kind))


def emulated_system(kind: ScalerClass) -> str:
    """The system whose scaler this class is our own version of, by its attribute ``emulates``; "" for any other."""
    return getattr(kind, "emulates", "")


def emulated_scalers() -> Mapping[str, str]:
    """Names of the registered ones, each with the system that it emulates."""
    return {name: system for name, kind in scaler_classes().items() if (system := emulated_system(kind))}


def find_scaler(spec: ScalerSpec) -> ScalerClass:
    """The class behind a spec; one from a file is complete and has been rehearsed. PenstockError with the nearest
    names, or with what is wrong with the file.
    """
    if spec.file:
        kind = _complete(_from_file(spec.file), spec.file)
        _rehearse(kind, spec)
        return kind
    point = _registered().get(spec.name)
    if point is not None:
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
        if key.partition(".")[0] not in known:
            raise unknown("parameter", f"{name}.{key}", [f"{name}.{k}" for k in known], f"it has {', '.join(known)}")
    try:
        return msgspec.convert(_with_entries(given), type=kind, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        values = ", ".join(f"{name}.{key}={value}" for key, value in given.items())
        raise PenstockError(f"{values}: {error}") from None


def _with_entries(given: Mapping[str, Any]) -> dict[str, Any]:
    """``target_by_fleet_per_s.pdf`` is the entry ``pdf`` of that parameter, beside those that it has."""
    values: dict[str, Any] = {}
    for key, value in given.items():
        parameter, dot, entry = key.partition(".")
        there = values.get(parameter)
        values[parameter] = {**(there if isinstance(there, Mapping) else {}), entry: value} if dot else value
    return values


def parse_scaler(text: str, settings: Mapping[str, Mapping[str, str]] | None = None) -> ScalerSpec:
    """``name`` or ``path.py:Class`` with the ``--set`` values that name it."""
    if ".py:" in text:
        kind = _from_file(text)
        path, _, class_name = text.rpartition(":")
        # Absolute: the process that will run it may have another working directory.
        file = f"{Path(path).resolve()}:{class_name}"
        return ScalerSpec(name=kind.name, file=file, parameters=dict((settings or {}).get(kind.name, {})))
    spec = ScalerSpec(name=text, parameters=dict((settings or {}).get(text, {})))
    find_scaler(spec)
    return spec


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
        settings.setdefault(scaler, {})[parameter] = value
    return settings


def unknown(kind: str, name: str, known: Iterable[str], way_out: str) -> PenstockError:
    """One line for a name that does not exist, with the nearest that do."""
    near = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    hint = f" (did you mean {' or '.join(near)}?)" if near else ""
    return PenstockError(f"unknown {kind} {name!r}{hint}: {way_out}")


def _from_file(text: str) -> ScalerClass:
    """The class that ``path.py:Class`` names. PenstockError if it is not there, or has no name."""
    path_text, _, class_name = text.rpartition(":")
    path = Path(path_text)
    if not path.is_file():
        raise PenstockError(f"{path}: no such file; a scaler from a file is given as path.py:Class")
    # Two files of the same name are two modules: dataclasses look their types up by module.
    module_name = f"penstock_scaler_{path.stem}_{zlib.crc32(str(path.resolve()).encode()):08x}"
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    if module_spec is None or module_spec.loader is None:
        raise PenstockError(f"{path}: cannot be imported as Python")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[module_name] = module
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        told = error.msg if isinstance(error, SyntaxError) else _one_line(error)
        raise PenstockError(f"{path}{_line(error, path)}: {type(error).__name__} while importing it: {told}") from error
    kind = getattr(module, class_name, None)
    if not isinstance(kind, type) or not hasattr(kind, "decide"):
        own = [
            name
            for name, each in vars(module).items()
            if isinstance(each, type) and each.__module__ == module_name and hasattr(each, "decide")
        ]
        way_out = f"it has {', '.join(own)}" if own else "it has none"
        raise PenstockError(f"{path}: no scaler class {class_name!r} in it (a class with start and decide); {way_out}")
    if not isinstance(getattr(kind, "name", None), str):
        raise PenstockError(f"{text}: the class has no `name`, a text such as name = 'my-scaler'; {TUTORIAL}")
    return kind


def _complete(kind: ScalerClass, file: str) -> ScalerClass:
    """The class if it has all that a scaler has to have; else PenstockError names the first thing that is missing."""
    checks = {
        "fleets": (
            _is_observation(getattr(kind, "fleets", None)),
            "the kind of observation it reads, FleetObservation",
        ),
        "paper": (isinstance(getattr(kind, "paper", None), str), "a text: where it comes from"),
        "Parameters": (dataclasses.is_dataclass(getattr(kind, "Parameters", None)), "a frozen dataclass"),
        "State": (isinstance(getattr(kind, "State", None), type), "a msgspec.Struct that is written down as JSON"),
        "period_s": (hasattr(kind, "period_s"), "seconds between two decisions"),
        "start": (callable(getattr(kind, "start", None)), "a method that gives the first state"),
    }
    for name, (there, what) in checks.items():
        if not there:
            raise PenstockError(f"{file}: scaler {kind.name} has no `{name}` ({what}); {TUTORIAL}")
    return kind


def _is_observation(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, FleetObservation)


def _rehearse(kind: ScalerClass, spec: ScalerSpec) -> None:
    """Ask a scaler a few times beforehand. What fails here would fail in the middle of a run, where a scaler that fails
    holds. It has to answer each time, with a state that can be written down and read. PenstockError with the line if it
    does not. Parameters that are not all there yet, or wrong, are told when the scaler is made.
    """
    path = Path(spec.file.rpartition(":")[0])
    try:
        parameters = make_parameters(spec.name, kind.Parameters, spec.parameters)
    except PenstockError:
        return
    doing = "is made"
    try:
        scaler: Scaler[Any, Any] = kind(parameters)  # type: ignore[call-arg]
        doing = "starts"
        state = msgspec.json.decode(msgspec.json.encode(scaler.start(1)), type=kind.State)
        for what, observation in _rehearsals(kind.fleets, scaler.period_s):
            doing = f"decides on {what}"
            answer = scaler.decide(observation, state)
            if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], Decision)):
                raise TypeError(f"decide answers {answer!r:.60}, expected a Decision and a state")
            state = msgspec.json.decode(msgspec.json.encode(answer[1]), type=kind.State)
    except Exception as error:
        raise PenstockError(
            f"{path}{_line(error, path)}: scaler {kind.name} fails when it {doing}: "
            f"{type(error).__name__}: {_one_line(error)}"
        ) from error


def _rehearsals(kind: type[FleetObservation], period_s: float) -> Iterator[tuple[str, FleetObservation]]:
    """A fleet of which nothing is known; then, of the kinds that are little more than counters, one that is in demand,
    in three decision intervals.
    """
    replicas = ReplicaCounts(joined=1)
    yield "what is unknown", kind(time_s=0.0, fleet="rehearsal", replicas=replicas, unknown=UNREAD)
    if kind not in (FleetObservation, StreamObservation):
        return
    for tick in (1, 2, 3):
        arrived, completed = 400 * tick, 300 * tick
        partitions: dict[str, Any] = (
            {"partitions": (PartitionObservation(0, arrived, completed),)} if kind is StreamObservation else {}
        )
        yield (
            f"reading {tick} of a fleet in demand",
            kind(
                time_s=tick * period_s,
                fleet="rehearsal",
                replicas=replicas,
                arrived=arrived,
                completed=completed,
                backlog=arrived - completed,
                in_flight=1,
                service_rate_per_s=100.0,
                **partitions,
            ),
        )


def _line(error: BaseException, path: Path) -> str:
    """``:12``: the last line of that file on the way to the error; nothing if it never came there."""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        return f":{error.lineno}"
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).resolve() == path.resolve()
    ]
    return f":{lines[-1]}" if lines else ""


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or "no message"
