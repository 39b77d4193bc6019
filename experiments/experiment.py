"""What an experiment is, and how one run of it is described for one acting scaler.

The parameters that an experiment fixes for all scalers (service rate, SLO, hold …) are handed to each scaler by the
names of its own parameters; ``speed`` is applied to everything that carries a unit in its name.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args

import msgspec
import numpy as np

from penstock.contracts import FleetObservation, StreamObservation
from penstock.errors import PenstockError
from penstock.registry import (
    ScalerClass,
    find_scaler,
    is_clairvoyant,
    make_parameters,
    parse_scaler,
    scaler_classes,
    unknown,
)
from penstock.runspec import Arrivals, Fault, FaultKind, RunSpec, ScalerSpec, WorkerSpec, WorldName
from penstock.systems import NetworkSystem, StreamSystem, System
from producers.workloads import Playback, parse_workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A workload, a fleet and an SLO, fixed before anything is run.

    ``workload`` is what ``penstock workloads`` lists. ``partition_weights`` are shares of the rate (None: equal).
    ``system`` describes a fleet that is no consumer group, ``pipeline`` names what it does. ``common`` are parameters
    for every scaler that has them; ``shadows`` advise in a live run unless ``--shadows`` names others; ``printed`` are
    the paper's values by scaler.
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
    system: System = field(default_factory=StreamSystem)
    pipeline: str = "payments"
    worker: WorkerSpec = field(default_factory=WorkerSpec)
    tick_phase_s: float = 0.1
    initial_replicas: int = 1
    max_replicas: int = 5
    common: Mapping[str, Any] = field(default_factory=dict)
    shadows: tuple[str, ...] = ()
    printed: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line may change of an experiment. ``compared`` names all scalers of the same comparison, so that
    one's settings are not taken for a mistake in another's run.
    """

    world: WorldName = "local"
    from_s: float = 0.0
    seconds: float | None = None
    speed: float = 1.0
    seed: int = 1
    tick_phase_s: float | None = None
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    worker: Mapping[str, str] = field(default_factory=dict)
    system: Mapping[str, str] = field(default_factory=dict)
    workload: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    analytics: bool = True
    shadows: tuple[str, ...] | None = None
    compared: tuple[str, ...] = ()
    initial_replicas: int | None = None
    max_replicas: int | None = None


def run_spec(experiment: Experiment, scaler: str, options: Options, run: str) -> RunSpec:
    """One run with ``scaler`` (a name or path.py:Class) acting and the shadows that were asked for."""
    if options.speed <= 0:
        raise PenstockError(f"--speed {options.speed:g}: must be greater than 0, such as 2 for twice as fast")
    duration_s = slice_seconds(experiment, options)
    worker = _worker(experiment, options)
    acting = parse_scaler(scaler, options.settings)
    kind = find_scaler(acting)
    if is_clairvoyant(kind) and options.world != "sim":
        raise PenstockError(f"{scaler} knows the rates of the whole run beforehand: only --world sim can tell it them")
    if not issubclass(experiment.fleets, kind.fleets):
        raise PenstockError(
            f"{acting.name} scales {_fleet(kind.fleets)}, but {experiment.name} has {_fleet(experiment.fleets)}: "
            f"choose one of {', '.join(fitting_scalers(experiment))}"
        )
    known = {*scaler_classes(), acting.name, *options.compared}
    for name in options.settings:
        if name not in known:
            raise unknown("scaler", name, known, "in --set scaler.parameter=value; see `penstock scalers`")
    max_replicas = options.max_replicas or experiment.max_replicas
    shadows = [parse_scaler(name) for name in _shadows(experiment, options) if name != acting.name]

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
        pipeline=experiment.pipeline,
        partitions=experiment.partitions,
        slo_s=experiment.slo_s / options.speed,
        duration_s=duration_s / options.speed,
        tick_phase_s=_either(options.tick_phase_s, experiment.tick_phase_s) / options.speed,
        initial_replicas=min(_initial_replicas(experiment, worker, options), max_replicas),
        max_replicas=max_replicas,
        worker=WorkerSpec(**at_speed(msgspec.structs.asdict(worker), options.speed)),
        system=system_at_speed(_system(experiment, options), options.speed),
        faults=_faults(experiment, options, duration_s),
        analytics=options.analytics and options.world != "sim",
        workload={
            "workload": workload_of(experiment, options),
            "from_s": options.from_s,
            "seconds": duration_s,
            "arrivals": experiment.arrivals,
            "partition_weights": experiment.partition_weights,
        },
    )


def workload_of(experiment: Experiment, options: Options) -> str:
    """The experiment's, with the parameters of ``--set workload.…=`` in place of its own. PenstockError for a pub/sub
    network, whose jobs have their rates in the system.
    """
    if options.workload and isinstance(experiment.system, NetworkSystem):
        raise PenstockError(
            f"--set workload.{next(iter(options.workload))}: the jobs of {experiment.name} arrive by rule"
        )
    name, _, rest = experiment.workload.partition(":")
    own = [part for part in rest.split(",") if part and part.partition("=")[0] not in options.workload]
    parameters = [*own, *(f"{parameter}={value}" for parameter, value in options.workload.items())]
    return f"{name}:{','.join(parameters)}" if parameters else name


def _shadows(experiment: Experiment, options: Options) -> Sequence[str]:
    """As told (``all``: every one that fits); else the experiment's in a live world, none in virtual time."""
    fitting = fitting_scalers(experiment)
    if options.shadows is None:
        return experiment.shadows if options.world != "sim" else ()
    if options.shadows == ("all",):
        return fitting
    for name in options.shadows:
        if name not in fitting and ":" not in name:
            raise unknown("shadow", name, fitting, f"on {experiment.name} these can advise: {', '.join(fitting)}")
    return options.shadows


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
    arrival_rate_per_s = float(parse_workload(workload_of(experiment, options)).rate_at(options.from_s))
    return max(1, math.ceil(arrival_rate_per_s * worker.service_time_s / experiment.slo_s))


def fitting_scalers(experiment: Experiment) -> list[str]:
    """Registered scalers that can read this experiment's fleet and may act or advise in a live world."""
    return [
        name
        for name, kind in scaler_classes().items()
        if issubclass(experiment.fleets, kind.fleets) and not is_clairvoyant(kind)
    ]


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
    if is_clairvoyant(kind):
        common["rates_per_s"] = _rates_per_interval(experiment, options, common.get("decision_interval_s", 1.0))
    given = {name: value for name, value in common.items() if name in known}
    parameters = make_parameters(spec.name, kind.Parameters, {**given, **options.settings.get(spec.name, {})})
    values = at_speed(dataclasses.asdict(parameters), options.speed)
    make_parameters(spec.name, kind.Parameters, values)
    return msgspec.structs.replace(spec, parameters=values)


def _rates_per_interval(experiment: Experiment, options: Options, interval_s: float) -> tuple[float, ...]:
    """Events per second of the run in the middle of each decision interval of its slice."""
    seconds = slice_seconds(experiment, options)
    playback = Playback(parse_workload(workload_of(experiment, options)), options.from_s, seconds, options.speed)
    middles_s = (np.arange(math.ceil(seconds / interval_s)) + 0.5) * interval_s
    rates = playback.rate_at(np.minimum(middles_s, np.nextafter(seconds, 0.0)) / options.speed)
    return tuple(rates.tolist())


def at_speed(values: Mapping[str, Any], speed: float) -> dict[str, Any]:
    """Rates × speed, durations ÷ speed (design, measurement rule 7), told apart by the unit in the name."""

    def scaled(name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: scaled(name, each) for key, each in value.items()}
        if not isinstance(value, int | float) or isinstance(value, bool) or speed == 1:
            return value
        if name.endswith("_per_s"):
            return value * speed
        return value / speed if name.endswith("_s") else value

    return {name: scaled(name, value) for name, value in values.items()}


AnyStruct = TypeVar("AnyStruct", bound=msgspec.Struct)


def system_at_speed(system: AnyStruct, speed: float) -> AnyStruct:
    """The same for a system and the functions, topics and jobs in it; a job's phases are (from second, rate)."""
    values = at_speed(msgspec.structs.asdict(system), speed)
    for name, value in values.items():
        if name == "phases":
            values[name] = tuple((from_s / speed, rate * speed) for from_s, rate in value)
        elif isinstance(value, tuple):
            values[name] = tuple(
                system_at_speed(part, speed) if isinstance(part, msgspec.Struct) else part for part in value
            )
    return type(system)(**values)


def _worker(experiment: Experiment, options: Options) -> WorkerSpec:
    return _with_settings("worker", experiment.worker, options.worker)


def _system(experiment: Experiment, options: Options) -> System:
    return _with_settings("system", experiment.system, options.system)


def _with_settings(what: str, struct: AnyStruct, settings: Mapping[str, str]) -> AnyStruct:
    """A struct with the values of ``--set worker.…=`` or ``--set system.…=``."""
    values = {name: getattr(struct, name) for name in struct.__struct_fields__}
    for name, value in settings.items():
        if name not in values:
            raise unknown(
                f"{what} setting", f"{what}.{name}", [f"{what}.{n}" for n in values], f"it has {', '.join(values)}"
            )
        values[name] = value
    try:
        return msgspec.convert(values, type=type(struct), strict=False, from_attributes=True)
    except msgspec.ValidationError as error:
        given = ", ".join(f"{what}.{name}={value}" for name, value in settings.items())
        raise PenstockError(f"--set {given}: {error}") from None


def _faults(experiment: Experiment, options: Options, duration_s: float) -> tuple[Fault, ...]:
    """In the order in which they are due, at the run's speed. What cannot be done is refused here, before anything is
    made, and not when it is due.
    """
    for fault in options.faults:
        if not 0 <= fault.at_s < duration_s:
            raise PenstockError(f"--fault {fault}: the run has {duration_s:g} s; choose a second within it")
    if options.faults and options.world == "sim":
        from simulator.world import check_faults

        check_faults(experiment.system, options.faults)
    if options.world == "kubernetes":
        from infra.kubernetes.run import check

        check(experiment.system, options.faults)
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
                f"{', '.join(get_args(FaultKind))}"
            ) from None
    return tuple(faults)


def _fleet(kind: type[FleetObservation]) -> str:
    names = {"FleetObservation": "any fleet", "StreamObservation": "Kafka consumer groups"}
    return names.get(kind.__name__, kind.__name__.removesuffix("Observation").lower() + " fleets")


def _either(given: float | None, default: float) -> float:
    return default if given is None else given
