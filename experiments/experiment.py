"""Experiments, and the description of one run with one acting scaler.

A scaler's parameters come from, each before the next: its own defaults; what the run knows of its world (``known``) and
of the experiment's system (``Experiment.common``), for every scaler that has a parameter of that name; the tuning of a
paper, for the scalers of that paper only; ``--set all.…``; ``--set <scaler>.…``. ``speed`` applies to every value with
a unit in its name.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec
import numpy as np
import typer

from controller.loop import Grid
from penstock.contracts import FleetObservation
from penstock.durations import duration_s
from penstock.errors import PenstockError
from penstock.fleet_kinds import fleet_kinds, kind_of
from penstock.measured import JOIN_TIMEOUT_S, POD_JOIN_TIMEOUT_S
from penstock.parameters import make_parameters, reason, unknown
from penstock.registry import (
    ScalerClass,
    check_interval,
    find_scaler,
    is_clairvoyant,
    make_scaler,
    parse_scaler,
    reads_arrivals,
    scaler_classes,
    scaler_names,
)
from penstock.runspec import (
    LASTING_FAULTS,
    Arrivals,
    Fault,
    FaultKind,
    GuardSpec,
    RunSpec,
    ScalerSpec,
    WorkerSpec,
    WorldName,
)
from penstock.systems import DEPLOYMENT, FunctionSystem, NetworkSystem, QueueSystem, StreamSystem, System
from producers.workloads import Playback, Trace, join_workload, parse_workload, split_workload

ALL = "all"
"""``--set all.parameter=value``: for every scaler that has the parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A workload, a fleet and an SLO, fixed before any run."""

    name: str
    """Name on the command line."""
    title: str
    """One line for `penstock experiments`."""
    paper: str
    """Where it comes from."""
    workload: str
    """A workload of `penstock workloads`, with parameters."""
    seconds: float
    """Length in seconds of the workload."""
    arrivals: Arrivals = "burst"
    """How events arrive within a second."""
    partitions: int = 5
    """Partitions of the topic of events."""
    partition_weights: tuple[float, ...] | None = None
    """Each partition's share of the events, in any scale; None: equal."""
    slo_s: float = 0.5
    """Latency limit in seconds."""
    system: System = field(default_factory=StreamSystem)
    """The fleet, by kind."""
    pipeline: str = "payments"
    """Name of the processing that events go through."""
    worker: WorkerSpec = field(default_factory=WorkerSpec)
    """Settings of the consumers."""
    tick_phase_s: float = 0.1
    """The controller ticks this many seconds after each whole second of the run."""
    initial_replicas: int = 1
    """Replicas that serve before the start."""
    max_replicas: int = 5
    """Upper limit of the fleet."""
    slo_share: float = 0.99
    """Share of the events that is to be within the SLO."""
    common: Mapping[str, Any] = field(default_factory=dict)
    """Facts of the system, for every scaler that has parameters of these names."""
    tuning: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Parameters that a paper fixed for its experiments, by its authors: for scalers whose ``paper`` names them."""
    shadows: tuple[str, ...] = ()
    """Shadows of a live run unless ``--shadows`` names others."""
    printed: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Values printed in the paper, by scaler and measure."""

    @property
    def fleets(self) -> type[FleetObservation]:
        """The observation of the fleet; scalers that read it can act."""
        observation: type[FleetObservation] = kind_of(self.system).load("observation")
        return observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line can change of an experiment. Units are the experiment's, before ``speed``."""

    world: WorldName = "local"
    """sim: virtual time. local: processes. kubernetes: pods."""
    from_s: float = 0.0
    """First second of the workload."""
    seconds: float | None = None
    """Length in seconds of the slice; None: to the end."""
    speed: float = 1.0
    """Factor on rates; durations are divided by it."""
    seed: int = 1
    """Seed of the schedule and of all random draws."""
    tick_phase_s: float | None = None
    """Replaces the experiment's."""
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Parameters by scaler (``--set scaler.parameter=value``)."""
    worker: Mapping[str, str] = field(default_factory=dict)
    """Fields of ``WorkerSpec`` (``--set worker.…``)."""
    system: Mapping[str, str] = field(default_factory=dict)
    """Fields of the system (``--set system.…``)."""
    own_workload: str | None = None
    """Replaces the experiment's (``--workload``); ``changed`` applies it."""
    workload: Mapping[str, str] = field(default_factory=dict)
    """Parameters of the workload (``--set workload.…``)."""
    faults: tuple[Fault, ...] = ()
    """Faults to inject."""
    analytics: bool = True
    """Run Spark in a live world."""
    shadows: tuple[str, ...] | None = None
    """Replaces the experiment's; ``("all",)``: every scaler that fits."""
    compared: tuple[str, ...] = ()
    """All scalers of the comparison; settings of these are accepted in every run."""
    initial_replicas: int | None = None
    """Replaces the experiment's."""
    max_replicas: int | None = None
    """Replaces the experiment's."""
    slo_s: float | None = None
    """Replaces the experiment's; ``changed`` applies it."""
    partitions: int | None = None
    """Replaces the experiment's; ``changed`` applies it."""
    replica_price_per_hour: float = 0.04
    """Price per replica-hour."""
    guard: bool = False
    """Guards around the acting scaler."""
    join_timeout_s: float | None = None
    """Seconds for which an assignment waits for members that have not joined; None: as ``penstock.measured`` says."""


def changed(experiment: Experiment, options: Options) -> Experiment:
    """The experiment with the workload, the SLO and the partitions of the options. PenstockError where it has none to
    change.
    """
    if options.own_workload is not None:
        experiment = _with_workload(experiment, options.own_workload, options)
    if options.slo_s == 0:
        raise PenstockError("--slo 0: has to be more than 0")
    if options.slo_s is not None:
        system = experiment.system
        if isinstance(system, FunctionSystem):  # its deadline is the SLO
            system = msgspec.structs.replace(system, deadline_s=options.slo_s)
        experiment = dataclasses.replace(experiment, slo_s=options.slo_s, system=system)
    if options.partitions is None:
        return experiment
    if not isinstance(experiment.system, StreamSystem):
        raise PenstockError(f"--partitions: {experiment.name} has {_fleet(experiment.fleets)}, which have none")
    if experiment.partition_weights is not None:
        raise PenstockError(f"--partitions: {experiment.name} fixes the share of each of its partitions")
    return dataclasses.replace(experiment, partitions=options.partitions)


def _with_workload(experiment: Experiment, text: str, options: Options) -> Experiment:
    """The experiment on another workload, which has its own length and arrivals, and a name that says so: nothing that
    a paper printed is beside it.
    """
    if isinstance(experiment.system, NetworkSystem):
        raise PenstockError(f"--workload {text}: the rates of {experiment.name} are in its system")
    experiment = dataclasses.replace(experiment, workload=text, printed={})
    workload = parse_workload(workload_of(experiment, options))
    name = Path(workload.path).name if isinstance(workload, Trace) else workload.name
    return dataclasses.replace(
        experiment,
        name=f"{experiment.name} with {name}",
        seconds=workload.duration_s,
        arrivals=workload.arrivals,
    )


def run_spec(experiment: Experiment, scaler: str, options: Options, run: str) -> RunSpec:
    """One run with the acting ``scaler`` (a name or path.py:Class) and the requested shadows."""
    if options.speed <= 0:
        raise PenstockError(f"--speed {options.speed:g}: must be above 0; 2 runs twice as fast")
    duration_s = slice_seconds(experiment, options)
    worker = _worker(experiment, options)
    acting = parse_scaler(scaler, options.settings)
    kind = find_scaler(acting)
    if is_clairvoyant(kind) and options.world != "sim":
        raise PenstockError(f"{scaler} needs the rates of the whole run in advance: use --world sim")
    if not issubclass(experiment.fleets, kind.fleets):
        raise PenstockError(
            f"{acting.name} scales {_fleet(kind.fleets)}, but {experiment.name} has {_fleet(experiment.fleets)}: "
            f"choose one of {', '.join(fitting_scalers(experiment))}"
        )
    known = {*scaler_names(), acting.name, *options.compared}
    for name in options.settings:
        if name not in (*known, ALL):
            raise unknown("scaler", name, known, "in --set scaler.parameter=value; see `penstock scalers`")
    max_replicas = experiment.max_replicas if options.max_replicas is None else options.max_replicas
    initial_replicas = _initial_replicas(experiment, worker, options, max_replicas)
    system, join_timeout_s = _system(experiment, options), _join_timeout_s(options)
    shadows = [parse_scaler(name) for name in _shadows(experiment, options) if name != acting.name]

    facts = world_facts(experiment, worker, system, max_replicas)

    def with_parameters(spec: ScalerSpec) -> ScalerSpec:
        return _with_parameters(spec, find_scaler(spec), experiment, {**facts, **experiment.common}, options)

    scalers = [with_parameters(each) for each in (acting, *shadows)]
    _check_periods(scalers, options.speed)
    return RunSpec(
        run=run,
        experiment=experiment.name,
        world=options.world,
        scaler=scalers[0],
        shadows=tuple(scalers[1:]),
        guard=_guard(facts, options.speed) if options.guard else None,
        seed=options.seed,
        speed=options.speed,
        pipeline=experiment.pipeline,
        partitions=experiment.partitions,
        slo_s=experiment.slo_s / options.speed,
        slo_share=experiment.slo_share,
        duration_s=duration_s / options.speed,
        tick_phase_s=_either(options.tick_phase_s, experiment.tick_phase_s) / options.speed,
        initial_replicas=initial_replicas,
        max_replicas=max_replicas,
        join_timeout_s=join_timeout_s / options.speed,
        reads_arrivals=options.guard or reads_arrivals((acting, *shadows)),
        worker=WorkerSpec(**at_speed(msgspec.structs.asdict(worker), options.speed)),
        system=system_at_speed(system, options.speed),
        faults=_faults(experiment, options, duration_s),
        analytics=options.analytics and options.world != "sim",
        replica_price_per_hour=options.replica_price_per_hour,
        workload={
            "workload": workload_of(experiment, options),
            "from_s": options.from_s,
            "seconds": duration_s,
            "arrivals": experiment.arrivals,
            "partition_weights": experiment.partition_weights,
        },
    )


def _check_periods(scalers: Sequence[ScalerSpec], speed: float) -> None:
    """Raise PenstockError for decision periods that a scaler or the control loop would refuse once the services run."""
    made = [make_scaler(each) for each in scalers]
    for scaler in made:
        check_interval(scaler, speed)
    try:
        Grid(sorted({scaler.period_s for scaler in made}), phase_s=0.0)
    except PenstockError as error:
        raise error if speed == 1 else PenstockError(f"--speed {speed:g}: {error}") from None


def _guard(facts: Mapping[str, Any], speed: float) -> GuardSpec:
    """The facts that the guards read."""
    known = {name: facts[name] for name in GuardSpec.__struct_fields__ if name in facts}
    return GuardSpec(**at_speed(known, speed))


def workload_of(experiment: Experiment, options: Options) -> str:
    """The experiment's workload with the parameters of ``--set workload.…=``. PenstockError for a network, whose jobs
    have their rates in the system.
    """
    if options.workload and isinstance(experiment.system, NetworkSystem):
        raise PenstockError(
            f"--set workload.{next(iter(options.workload))}: the rates of {experiment.name} are in its system"
        )
    name, parameters = split_workload(experiment.workload)
    return join_workload(name, {**parameters, **options.workload})


def _shadows(experiment: Experiment, options: Options) -> Sequence[str]:
    """The requested shadows (``all``: every one that fits); by default the experiment's, none in the sim world."""
    if options.shadows is None:
        return experiment.shadows if options.world != "sim" else ()
    fitting = fitting_scalers(experiment)
    if options.shadows == ("all",):
        return fitting
    for name in options.shadows:
        if name not in fitting and ":" not in name:
            raise unknown("shadow", name, fitting, f"shadows for {experiment.name}: {', '.join(fitting)}")
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


def _initial_replicas(experiment: Experiment, worker: WorkerSpec, options: Options, max_replicas: int) -> int:
    """The requested number, or the experiment's; for a slice or another workload, enough that a second's arrivals wait
    no longer than the SLO, ⌈λ · 1 s / (μ · w)⌉, the same for every scaler. PenstockError for impossible numbers.
    """
    if max_replicas < 1:
        raise PenstockError(f"--max-replicas {max_replicas}: has to be at least 1")
    given = options.initial_replicas
    if given is not None:
        least = 0 if isinstance(experiment.system, StreamSystem) else 1
        if not least <= given <= max_replicas:
            raise PenstockError(
                f"--initial-replicas {given}: from {least} to {max_replicas}, the limit of the fleet (--max-replicas)"
            )
        return given
    whole = options.from_s == 0 and options.own_workload is None
    if whole or not worker.service_time_s:
        return min(experiment.initial_replicas, max_replicas)
    arrival_rate_per_s = float(parse_workload(workload_of(experiment, options)).rate_at(options.from_s))
    return min(max_replicas, max(1, math.ceil(arrival_rate_per_s * worker.service_time_s / experiment.slo_s)))


def _join_timeout_s(options: Options) -> float:
    """The requested one, or that of the world."""
    given = options.join_timeout_s
    if given is not None and not 0 < given < math.inf:
        raise PenstockError(f"--join-timeout {given:g}: must be above 0 seconds")
    return _either(given, POD_JOIN_TIMEOUT_S if options.world == "kubernetes" else JOIN_TIMEOUT_S)


def world_facts(experiment: Experiment, worker: WorkerSpec, system: System, max_replicas: int) -> dict[str, Any]:
    """What a run knows of its world, by the name that a scaler's parameter has for it; docs/your-own-scaler.md lists
    them. Seconds and events per second.
    """
    facts: dict[str, Any] = {"slo_s": experiment.slo_s, "slo_share": experiment.slo_share, "max_replicas": max_replicas}
    if worker.service_time_s:
        facts["service_rate_per_s"] = 1 / worker.service_time_s
    if isinstance(system, FunctionSystem):
        facts["start_up_s"] = system.cold_start_s
    if isinstance(system, NetworkSystem):
        facts["start_up_s"] = system.start_up_s
    if isinstance(system, QueueSystem):
        facts["container_ramp_s"], facts["first_container_s"] = system.ramp_s, system.first_container_s
    if isinstance(system, StreamSystem):
        facts["start_up_s"], facts["cooperative"] = system.start_up_s, system.cooperative
        facts["rebalance_time_s"] = system.rebalance_s + worker.rebalance_pause_s
    return facts


def fitting_scalers(experiment: Experiment) -> list[str]:
    """Registered scalers for this experiment's fleet that work in a live world."""
    offered = experiment.fleets
    return [
        name for name, kind in scaler_classes().items() if issubclass(offered, kind.fleets) and not is_clairvoyant(kind)
    ]


def _with_parameters(
    spec: ScalerSpec, kind: ScalerClass, experiment: Experiment, facts: Mapping[str, Any], options: Options
) -> ScalerSpec:
    """Facts, then the tuning of its paper, then ``--set``, then ``speed``."""
    known = {parameter.name for parameter in dataclasses.fields(kind.Parameters)}
    common = {**facts, **tuning_of(kind, experiment), **options.settings.get(ALL, {})}
    if is_clairvoyant(kind):
        interval_s = float(common.get("decision_interval_s", 1.0))
        common["rates_per_s"] = _rates_per_interval(experiment, options, interval_s)
    given = {name: value for name, value in common.items() if name in known}
    parameters = make_parameters(spec.name, kind.Parameters, {**given, **options.settings.get(spec.name, {})})
    values = at_speed(dataclasses.asdict(parameters), options.speed)
    make_parameters(spec.name, kind.Parameters, values)
    return msgspec.structs.replace(spec, parameters=values)


def tuning_of(kind: ScalerClass, experiment: Experiment) -> dict[str, Any]:
    """What the papers that a scaler comes from fixed for it in this experiment."""
    paper = getattr(kind, "paper", "")
    return {
        name: value for authors, own in experiment.tuning.items() if authors in paper for name, value in own.items()
    }


def tuning_line(experiment: Experiment, scalers: Sequence[ScalerSpec], options: Options) -> str:
    """One line that says which scalers run as tuned by their paper, which at their own defaults, and what is set."""
    groups: dict[str, list[str]] = {}
    for spec in scalers:
        kind = find_scaler(spec)
        tuned = ", ".join(f"{name} {value:g}" for name, value in tuning_of(kind, experiment).items())
        known = {parameter.name for parameter in dataclasses.fields(kind.Parameters)}
        everywhere = {name: value for name, value in options.settings.get(ALL, {}).items() if name in known}
        own = {**everywhere, **options.settings.get(spec.name, {})}
        changes = ", ".join(f"{name} {value}" for name, value in own.items())
        text = (tuned or "its own defaults") + (f", set: {changes}" if changes else "")
        groups.setdefault(text, []).append(spec.name)
    return "Parameters: " + "; ".join(f"{', '.join(names)}: {text}" for text, names in groups.items())


def _rates_per_interval(experiment: Experiment, options: Options, interval_s: float) -> tuple[float, ...]:
    """Events per second of the run in the middle of each decision interval of its slice."""
    seconds = slice_seconds(experiment, options)
    playback = Playback(parse_workload(workload_of(experiment, options)), options.from_s, seconds, options.speed)
    middles_s = (np.arange(math.ceil(seconds / interval_s)) + 0.5) * interval_s
    rates = playback.rate_at(np.minimum(middles_s, np.nextafter(seconds, 0.0)) / options.speed)
    return tuple(rates.tolist())


def at_speed(values: Mapping[str, Any], speed: float) -> dict[str, Any]:
    """Rates × speed, durations ÷ speed; the unit in the name decides."""

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
    return with_settings("worker", experiment.worker, options.worker)


def _system(experiment: Experiment, options: Options) -> System:
    system = with_settings("system", experiment.system, options.system)
    if isinstance(system, FunctionSystem) and options.world == "sim" and (live := DEPLOYMENT & options.system.keys()):
        raise PenstockError(f"--set system.{min(live)}: nothing is deployed in world sim")
    return system


def with_settings(what: str, struct: AnyStruct, settings: Mapping[str, str]) -> AnyStruct:
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
        raise PenstockError(f"--set {reason(what, settings, error, type(struct)) or f'{given}: {error}'}") from None


def _faults(experiment: Experiment, options: Options, duration_s: float) -> tuple[Fault, ...]:
    """In order of time, at the run's speed. Raises PenstockError for a fault that the run cannot inject."""
    for fault in options.faults:
        if not 0 <= fault.at_s < duration_s:
            raise PenstockError(f"--fault {fault}: the run has {duration_s:g} s; choose a second within it")
    if options.faults and options.world == "sim":
        from simulator.world import check_faults

        check_faults(experiment.system, options.faults)
    elif options.faults:
        from infra.runs.kinds import check_live_faults

        check_live_faults(experiment.system, options.world, options.faults)
    return tuple(
        Fault(fault.kind, fault.at_s / options.speed, fault.seconds / options.speed)
        for fault in sorted(options.faults, key=lambda fault: fault.at_s)
    )


def parse_faults(texts: Iterable[str]) -> tuple[Fault, ...]:
    """Parse ``kind@time[+duration]``, such as ``kill-worker@1m`` or ``stop-broker@30+500ms``."""
    faults: list[Fault] = []
    for text in texts:
        kind, _, when = text.partition("@")
        at, _, lasting = when.partition("+")
        try:
            fields = {"kind": kind, "at_s": duration_s(at), "seconds": duration_s(lasting or 0)}
            faults.append(msgspec.convert(fields, type=Fault))
        except (msgspec.ValidationError, typer.BadParameter):
            raise PenstockError(
                f"--fault {text}: expected kind@time or kind@time+duration, such as stop-broker@30s+500ms; kinds are "
                f"{', '.join(get_args(FaultKind))}"
            ) from None
        if faults[-1].seconds and faults[-1].kind not in LASTING_FAULTS:
            raise PenstockError(f"--fault {text}: {kind} happens at once and has no duration; leave out +{lasting}")
    return tuple(faults)


def _fleet(kind: type[FleetObservation]) -> str:
    name = str(kind.__struct_config__.tag)
    return fleet_kinds()[name].title if name in fleet_kinds() else "any fleet"


def _either(given: float | None, default: float) -> float:
    return default if given is None else given
