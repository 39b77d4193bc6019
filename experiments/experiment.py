"""What an experiment is, and how one run of it is described for one acting scaler.

The parameters that an experiment fixes for all scalers (service rate, SLO, hold …) are handed to each scaler by the
names of its own parameters; ``speed`` is applied to everything that carries a unit in its name.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.contracts import FleetObservation, StreamObservation
from penstock.errors import PenstockError
from penstock.registry import ScalerClass, find_scaler, make_parameters, parse_scaler, scaler_classes, unknown
from penstock.runspec import Arrivals, Fault, RunSpec, ScalerSpec, WorkerSpec, WorldName
from producers.workloads import parse_workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A workload, a fleet and an SLO, fixed before anything is run.

    ``workload`` is what ``penstock workloads`` lists. ``partition_weights`` are shares of the rate (None: equal).
    ``common`` are parameters for every scaler that has them; ``printed`` the paper's values by scaler.
    """

    name: str
    title: str
    paper: str
    workload: str
    seconds: float
    arrivals: Arrivals = "burst"
    partitions: int = 5
    partition_weights: tuple[float, ...] | None = None
    slo_s: float = 0.5
    fleets: type[FleetObservation] = StreamObservation
    worker: WorkerSpec = field(default_factory=WorkerSpec)
    tick_phase_s: float = 0.1
    initial_replicas: int = 1
    max_replicas: int = 5
    common: Mapping[str, Any] = field(default_factory=dict)
    printed: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line may change of an experiment."""

    world: WorldName = "local"
    from_s: float = 0.0
    seconds: float | None = None
    speed: float = 1.0
    seed: int = 1
    tick_phase_s: float | None = None
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    worker: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    analytics: bool = True
    initial_replicas: int | None = None
    max_replicas: int | None = None


def run_spec(experiment: Experiment, scaler: str, options: Options, run: str) -> RunSpec:
    """One run with ``scaler`` (a name or path.py:Class) acting and all others of its kind as shadows."""
    if options.speed <= 0:
        raise PenstockError(f"--speed {options.speed:g}: must be greater than 0, such as 2 for twice as fast")
    duration_s = slice_seconds(experiment, options)
    worker = _worker(experiment, options)
    acting = parse_scaler(scaler, options.settings)
    kind = find_scaler(acting)
    if not issubclass(experiment.fleets, kind.fleets):
        raise PenstockError(
            f"{acting.name} scales {_fleet(kind.fleets)}, but {experiment.name} has {_fleet(experiment.fleets)}: "
            f"choose one of {', '.join(fitting_scalers(experiment))}"
        )
    known = {*scaler_classes(), acting.name}
    for name in options.settings:
        if name not in known:
            raise unknown("scaler", name, known, "in --set scaler.parameter=value; see `penstock scalers`")
    max_replicas = options.max_replicas or experiment.max_replicas
    shadows = [ScalerSpec(name=name) for name in fitting_scalers(experiment) if name != acting.name]

    def with_parameters(spec: ScalerSpec) -> ScalerSpec:
        return _with_parameters(spec, find_scaler(spec), experiment, worker, max_replicas, options)

    return RunSpec(
        run=run,
        experiment=experiment.name,
        world=options.world,
        scaler=with_parameters(acting),
        shadows=tuple(with_parameters(shadow) for shadow in shadows),
        seed=options.seed,
        speed=options.speed,
        partitions=experiment.partitions,
        slo_s=experiment.slo_s / options.speed,
        duration_s=duration_s / options.speed,
        tick_phase_s=_either(options.tick_phase_s, experiment.tick_phase_s) / options.speed,
        initial_replicas=min(_initial_replicas(experiment, worker, options), max_replicas),
        max_replicas=max_replicas,
        worker=WorkerSpec(**at_speed(msgspec.structs.asdict(worker), options.speed)),
        faults=_faults(options, duration_s),
        analytics=options.analytics,
        workload={
            "workload": experiment.workload,
            "from_s": options.from_s,
            "seconds": duration_s,
            "arrivals": experiment.arrivals,
            "partition_weights": experiment.partition_weights,
        },
    )


def slice_seconds(experiment: Experiment, options: Options) -> float:
    """Length of the slice in seconds of the workload (before ``speed``); PenstockError if it lies outside."""
    left = experiment.seconds - options.from_s
    if options.from_s < 0 or left <= 0:
        raise PenstockError(f"--from {options.from_s:g}: {experiment.name} lasts {experiment.seconds:g} s, from 0")
    wanted = left if options.seconds is None else options.seconds
    if not 0 < wanted <= left:
        raise PenstockError(f"--seconds {wanted:g}: {experiment.name} has {left:g} s from second {options.from_s:g} on")
    return wanted


def _initial_replicas(experiment: Experiment, worker: WorkerSpec, options: Options) -> int:
    """As told; else the experiment's; for a slice, what a run that came there would about have: enough that a
    second's arrivals wait no longer than the SLO, ⌈λ · 1 s / (μ · w)⌉, the same for every scaler.
    """
    if options.initial_replicas is not None or options.from_s == 0 or not worker.service_time_s:
        return options.initial_replicas or experiment.initial_replicas
    arrival_rate_per_s = float(parse_workload(experiment.workload).rate_at(options.from_s))
    return max(1, math.ceil(arrival_rate_per_s * worker.service_time_s / experiment.slo_s))


def fitting_scalers(experiment: Experiment) -> list[str]:
    """Registered scalers that can read this experiment's fleet and may act or advise in a live world."""
    return [name for name, kind in scaler_classes().items() if issubclass(experiment.fleets, kind.fleets)]


def _with_parameters(
    spec: ScalerSpec,
    kind: ScalerClass,
    experiment: Experiment,
    worker: WorkerSpec,
    max_replicas: int,
    options: Options,
) -> ScalerSpec:
    """The experiment's values for all, then ``--set``, then ``speed`` on whatever has a unit in its name."""
    known = {parameter.name for parameter in dataclasses.fields(kind.Parameters)}
    common: dict[str, Any] = {
        "slo_s": experiment.slo_s,
        "max_replicas": max_replicas,
        **({"service_rate_per_s": 1 / worker.service_time_s} if worker.service_time_s else {}),
        **experiment.common,
    }
    given = {name: value for name, value in common.items() if name in known}
    parameters = make_parameters(spec.name, kind.Parameters, {**given, **options.settings.get(spec.name, {})})
    values = at_speed(dataclasses.asdict(parameters), options.speed)
    make_parameters(spec.name, kind.Parameters, values)
    return msgspec.structs.replace(spec, parameters=values)


def at_speed(values: Mapping[str, Any], speed: float) -> dict[str, Any]:
    """Rates × speed, durations ÷ speed (design, measurement rule 7), told apart by the unit in the name."""

    def scaled(name: str, value: Any) -> Any:
        if not isinstance(value, int | float) or isinstance(value, bool) or speed == 1:
            return value
        if name.endswith("_per_s"):
            return value * speed
        return value / speed if name.endswith("_s") else value

    return {name: scaled(name, value) for name, value in values.items()}


def _worker(experiment: Experiment, options: Options) -> WorkerSpec:
    values = msgspec.structs.asdict(experiment.worker)
    for name, value in options.worker.items():
        if name not in values:
            raise unknown(
                "worker setting", f"worker.{name}", [f"worker.{n}" for n in values], f"it has {', '.join(values)}"
            )
        values[name] = value
    try:
        return msgspec.convert(values, type=WorkerSpec, strict=False)
    except msgspec.ValidationError as error:
        given = ", ".join(f"worker.{name}={value}" for name, value in options.worker.items())
        raise PenstockError(f"--set {given}: {error}") from None


def _faults(options: Options, duration_s: float) -> tuple[Fault, ...]:
    for fault in options.faults:
        if not 0 <= fault.at_s < duration_s:
            raise PenstockError(f"--fault {fault}: the run has {duration_s:g} s; choose a second within it")
    return tuple(
        Fault(fault.kind, fault.at_s / options.speed, fault.seconds / options.speed)
        for fault in sorted(options.faults, key=lambda fault: fault.at_s)
    )


def parse_faults(texts: Iterable[str]) -> tuple[Fault, ...]:
    """``kill-worker@60``, ``stop-broker@30+5``: what, at which second of the run, for how long."""
    faults = []
    for text in texts:
        kind, _, when = text.partition("@")
        at_s, _, seconds = when.partition("+")
        try:
            faults.append(
                msgspec.convert({"kind": kind, "at_s": at_s, "seconds": seconds or "0"}, type=Fault, strict=False)
            )
        except msgspec.ValidationError:
            raise PenstockError(
                f"--fault {text}: expected kind@second or kind@second+duration, such as stop-broker@30+5; kinds are "
                "kill-worker, freeze-workers, stop-broker, restart-redis, kill-controller, blind-monitor"
            ) from None
    return tuple(faults)


def _fleet(kind: type[FleetObservation]) -> str:
    names = {"FleetObservation": "any fleet", "StreamObservation": "Kafka consumer groups"}
    return names.get(kind.__name__, kind.__name__.removesuffix("Observation").lower() + " fleets")


def _either(given: float | None, default: float) -> float:
    return default if given is None else given
