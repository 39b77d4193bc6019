"""Finding scalers: by entry point (``penstock.scalers``), or from a file as ``path.py:Class``.

A class from a file is tried before a run: what fails in a trial call would fail during the run, where a scaler that
fails holds.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from math import isclose
from pathlib import Path
from threading import Timer
from typing import Any, Final

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
from penstock.fleet_kinds import registered
from penstock.own_class import failure, is_own, load_own, page_of
from penstock.parameters import make_parameters, unknown
from penstock.runspec import ScalerSpec

ScalerClass = type[Scaler[Any, Any]]

GROUP: Final = "penstock.scalers"
LONG_TRIAL_S: Final = 5.0
"""A scaler that decides for longer is named while it does."""


def scaler_classes() -> dict[str, ScalerClass]:
    """Every registered scaler by its name, sorted."""
    return {name: point.load() for name, point in registered(GROUP).items()}


def scaler_names() -> list[str]:
    """Names of the registered scalers, without importing them."""
    return list(registered(GROUP))


def is_clairvoyant(kind: ScalerClass) -> bool:
    """Whether it needs the rates of the whole run (``rates_per_s``), which only virtual time can give."""
    return getattr(kind, "clairvoyant", False)


def emulated_system(kind: ScalerClass) -> str:
    """The system whose scaler this class emulates, by its attribute ``emulates``; "" for any other."""
    return getattr(kind, "emulates", "")


def emulated_scalers() -> Mapping[str, str]:
    """Names of the registered emulations, each with its system."""
    return {name: system for name, kind in scaler_classes().items() if (system := emulated_system(kind))}


def groups_partitions(kind: ScalerClass) -> bool:
    """Whether this class decides which partitions a consumer reads, by its attribute of that name."""
    return getattr(kind, "groups_partitions", False)


def reads_arrivals(specs: Iterable[ScalerSpec]) -> bool:
    """Whether one of the scalers wants arrivals by slot and counts of late events (``StreamObservation``)."""
    return any(getattr(find_scaler(each), "reads_arrivals", False) for each in specs)


def check_interval(scaler: Scaler[Any, Any], speed: float = 1.0) -> None:
    """Raise PenstockError where a scaler can compute with one decision interval only, which it names as
    ``interval_of_run_s`` in seconds of the run, and has another one.
    """
    only_s = getattr(scaler, "interval_of_run_s", None)
    if only_s is not None and not isclose(scaler.period_s * speed, only_s):
        raise PenstockError(
            f"{scaler.name}.decision_interval_s={scaler.period_s * speed:g}: {scaler.name} decides every {only_s:g} s, "
            "the time that the arrivals which it reads cover; leave the parameter out"
        )


def find_scaler(spec: ScalerSpec) -> ScalerClass:
    """The class of a spec. PenstockError with the nearest names, or with the fault of a file's class."""
    if spec.file:
        return validate(load(spec.file), spec)
    point = registered(GROUP).get(spec.name)
    if point is None:
        raise unknown("scaler", spec.name, scaler_names(), "see `penstock scalers`, or name a file as path.py:Class")
    kind: ScalerClass = point.load()
    return kind


def make_scaler(spec: ScalerSpec) -> Scaler[Any, Any]:
    """A scaler with the parameters of its spec. PenstockError for an unknown parameter or an impossible value."""
    scaler = find_scaler(spec)
    return scaler(make_parameters(spec.name, scaler.Parameters, spec.parameters))  # type: ignore[call-arg]


def parse_scaler(text: str, settings: Mapping[str, Mapping[str, str]] | None = None) -> ScalerSpec:
    """``name`` or ``path.py:Class`` with the ``--set`` values of that scaler."""
    settings = settings or {}
    if not is_own(text):
        spec = ScalerSpec(name=text, parameters=dict(settings.get(text, {})))
        find_scaler(spec)
        return spec
    name = load(text).name
    if name in scaler_names():
        raise PenstockError(f"{text}: the name {name!r} is that of a registered scaler; choose another one")
    path, _, class_name = text.rpartition(":")
    # Absolute: the process that will run it may have another working directory.
    return ScalerSpec(name=name, file=f"{Path(path).resolve()}:{class_name}", parameters=dict(settings.get(name, {})))


def load(text: str) -> ScalerClass:
    """The class that ``path.py:Class`` names. PenstockError if it does not exist, or has no name."""
    return load_own(text, "scaler", "decide")


def validate(kind: ScalerClass, spec: ScalerSpec) -> ScalerClass:
    """The class if it has all members of a scaler and answers in trial calls, with a state that survives JSON.

    PenstockError names the first missing member, or the line that failed. Missing or wrong parameters are reported when
    the scaler is made.
    """
    _check_members(kind, spec.file)
    try:
        parameters = make_parameters(spec.name, kind.Parameters, spec.parameters)
    except PenstockError:
        return kind
    doing = "is made"
    try:
        scaler: Scaler[Any, Any] = kind(parameters)  # type: ignore[call-arg]
        doing = "starts"
        state = msgspec.json.decode(msgspec.json.encode(scaler.start(1)), type=kind.State)
        for title, observation in _trials(kind.fleets, scaler.period_s):
            doing = f"decides on {title}"
            with _told_if_long(f"{spec.file}: scaler {kind.name} {doing}, a trial before the run,"):
                answer = scaler.decide(observation, state)
            if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], Decision)):
                raise TypeError(f"decide answers {answer!r:.60}, expected a Decision and a state")
            state = msgspec.json.decode(msgspec.json.encode(answer[1]), type=kind.State)
    except Exception as error:
        raise failure(spec.file, f"scaler {kind.name}", doing, error) from error
    return kind


@contextmanager
def _told_if_long(doing: str) -> Iterator[None]:
    """A ``decide`` that never returns says nothing itself."""
    text = f"{doing} for more than {LONG_TRIAL_S:g} s\n"
    timer = Timer(LONG_TRIAL_S, lambda: sys.stderr.write(text))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _check_members(kind: ScalerClass, file: str) -> None:
    fleets = getattr(kind, "fleets", None)
    reads = isinstance(fleets, type) and issubclass(fleets, FleetObservation)
    checks = {
        "fleets": (reads, "the kind of observation it reads, FleetObservation"),
        "paper": (isinstance(getattr(kind, "paper", None), str), "a text: where it comes from"),
        "Parameters": (is_dataclass(getattr(kind, "Parameters", None)), "a frozen dataclass"),
        "State": (isinstance(getattr(kind, "State", None), type), "a msgspec.Struct that is written down as JSON"),
        "period_s": (hasattr(kind, "period_s"), "seconds between two decisions"),
        "start": (callable(getattr(kind, "start", None)), "a method that gives the first state"),
    }
    for name, (present, what) in checks.items():
        if not present:
            raise PenstockError(f"{file}: scaler {kind.name} has no `{name}` ({what}); {page_of('scaler')}")


def _trials(kind: type[FleetObservation], period_s: float) -> Iterator[tuple[str, FleetObservation]]:
    """A fleet whose values are all unknown; then three ticks of a loaded one, if its kind is mostly counters."""
    common: dict[str, Any] = {"fleet": "trial", "replicas": ReplicaCounts(joined=1)}
    unknown = dict.fromkeys(("arrived", "completed", "backlog", "in_flight"), "a trial call: nothing was read")
    yield "what is unknown", kind(time_s=0.0, unknown=unknown, **common)
    if kind not in (FleetObservation, StreamObservation):
        return
    for tick in (1, 2, 3):
        arrived, completed = 400 * tick, 300 * tick
        counts: dict[str, Any] = {"arrived": arrived, "completed": completed, "backlog": arrived - completed}
        if kind is StreamObservation:
            counts["partitions"] = (PartitionObservation(0, arrived, completed),)
        observation = kind(time_s=tick * period_s, in_flight=1, service_rate_per_s=100.0, **counts, **common)
        yield f"reading {tick} of a fleet in demand", observation
