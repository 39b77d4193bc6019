"""From what was asked for to an experiment and its cells, and what is to be said before anything is run."""

import contextlib
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, get_args

import msgspec
import numpy as np

from controller.scalers.rps import RpsParameters
from experiments.binpack.experiments import FIDELITY
from experiments.compare import Cell, Comparison, ComparisonDirectory, request_of
from experiments.driver import describe, schedule_of
from experiments.experiment import Experiment, Options, fitting_scalers, run_spec
from experiments.replay.cells import CellTask
from experiments.replay.trace import Floats, OwnTrace
from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.registry import parse_scaler, unknown
from penstock.rundir import RunDirectory, slug
from penstock.runspec import Arrivals, ServiceLaw, WorkerSpec
from penstock.schedule import Schedule
from penstock.systems import StreamSystem
from producers.schedule import make_schedule
from producers.streams import streams
from producers.workloads import Trace

MADE_FOR_OTHER_FLEETS: Final[dict[str, str]] = {
    "elastic-faas": "scales the containers behind a bank of queues",
    "elastic-faas-published": "scales the containers behind a bank of queues",
    "faas": "scales the containers behind a bank of queues",
    "provider-ramp": "is the provider's side of a function, not a scaler of one's own",
    "keda-rabbitmq": "reads RabbitMQ; keda-kafka is the one for Kafka",
    "openfaas-ce": "counts HTTP requests at a gateway",
    "openfaas-pro": "counts HTTP requests at a gateway",
    "lass-as-coded": "is lass with the rounding of its authors' code",
}
"""They can read a consumer group, but nobody would put them in front of one; --scalers takes them all the same."""

COMMON: Final = {name: FIDELITY[name] for name in ("hold_s", "f_up", "f_down", "rebalance_time_s")}
"""What the bin-pack paper fixed for its scalers. Decision intervals stay each scaler's own."""

DURATION: Final = re.compile(r"([0-9]*\.?[0-9]+)\s*(us|ms|s|min)")
UNIT_S: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}

INITIAL_UTILISATION: Final = 0.8
BUSIEST_S: Final = 60
"""A partition or a fleet that is overloaded for so long builds up a backlog that no SLO survives."""


Sweep = tuple[str, str, tuple[str, ...]]
"""Scaler (or worker, or system), parameter, values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What ``penstock replay`` was asked for. ``partitions`` and ``arrivals`` None: as the trace says, else 5 and
    poisson.
    """

    trace: OwnTrace
    slo_s: float
    service_time_s: float = 0.005
    service_law: ServiceLaw = "deterministic"
    partitions: int | None = None
    skew: tuple[float, ...] | None = None
    max_replicas: int | None = None
    initial_replicas: int | None = None
    start_up_s: float = 1.2
    price_per_hour: float = 0.04
    scalers: tuple[str, ...] = ()
    share: float = 0.99
    seed: int = 1
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    sweeps: tuple[Sweep, ...] = ()
    arrivals: Arrivals | None = None
    tick_phase_s: float = 0.1


class HotPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that gets more in its busiest minute than one replica serves. Events per second."""

    partition: int
    rate_per_s: float
    service_rate_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What will be run. ``arrivals`` are in words. ``wanted`` is each cell's scaler and options, in order."""

    request: Request
    experiment: Experiment
    arrivals: str
    hot: tuple[HotPartition, ...]
    warnings: tuple[str, ...]
    wanted: tuple[tuple[str, Options], ...]


def duration_s(option: str, text: str, *, zero: bool = False) -> float:
    """``500ms``, ``0.5s``, ``2min`` in seconds. PenstockError for anything else, a number without unit above all."""
    found = DURATION.fullmatch(text.strip())
    if found is None:
        number = text.strip()
        hint = f"say {number}ms or {number}s" if re.fullmatch(r"[0-9]*\.?[0-9]+", number) else "say 500ms or 0.5s"
        if number == "500":
            hint = "say 500ms or 0.5s"
        raise PenstockError(f"{option} {text}: a duration needs a number and a unit (us, ms, s, min); {hint}")
    seconds = float(found[1]) * UNIT_S[found[2]]
    if seconds == 0 and not zero:
        raise PenstockError(f"{option} {text}: has to be more than 0")
    return seconds


def weights(option: str, text: str) -> tuple[float, ...]:
    """``0.25,0.25,0.5`` as shares, one a partition; any scale. PenstockError for what is none."""
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if not values or not all(math.isfinite(value) and value >= 0 for value in values) or sum(values) == 0:
        raise PenstockError(f"{option} {text}: expected a share for each partition, such as 0.25,0.25,0.5")
    return values


def sweep(text: str) -> Sweep:
    """``binpack.f_up=0.7,0.8`` as (scaler, parameter, values). PenstockError for what is none."""
    target, equals, listed = text.partition("=")
    scaler, dot, parameter = target.strip().rpartition(".")
    values = tuple(dict.fromkeys(value.strip() for value in listed.split(",") if value.strip()))
    if not (equals and dot and scaler and parameter and values):
        raise PenstockError(f"--sweep {text}: expected scaler.parameter=a,b,c, such as binpack.f_up=0.7,0.8,0.9")
    return scaler, parameter, values


def default_scalers(experiment: Experiment) -> list[str]:
    """Every registered scaler that reads a consumer group, without those that are made for another kind of fleet."""
    return [name for name in fitting_scalers(experiment) if name not in MADE_FOR_OTHER_FLEETS]


def make_plan(request: Request, workload: str) -> Plan:
    """The experiment, its cells, and warnings. ``workload`` names the trace as a run describes it.

    PenstockError for what cannot be run or cannot come out well.
    """
    _check(request)
    trace = request.trace
    partitions = request.partitions or trace.partitions or (len(request.skew) if request.skew else 5)
    service_rate_per_s = 1 / request.service_time_s
    max_replicas = request.max_replicas or partitions
    peak_per_s = float(trace.rate_per_s.max())
    experiment = Experiment(
        name=f"replay-{slug(trace.path.stem) or 'trace'}",
        title=f"{trace.path.name} replayed: {trace.seconds} s, peak {peak_per_s:.0f} events/s, {partitions} partitions",
        paper="",
        workload=workload,
        seconds=float(trace.seconds),
        arrivals=request.arrivals or "poisson",
        partitions=partitions,
        partition_weights=request.skew,
        slo_s=request.slo_s,
        system=StreamSystem(start_up_s=request.start_up_s),
        worker=WorkerSpec(service_time_s=request.service_time_s, service_law=request.service_law),
        tick_phase_s=request.tick_phase_s,
        initial_replicas=request.initial_replicas or _initial_replicas(trace, service_rate_per_s, max_replicas),
        max_replicas=max_replicas,
        common={
            **COMMON,
            "peak_rate_per_s": peak_per_s,
            # LaSS bounds the wait before service; the SLO has service in it.
            "wait_s": max(request.slo_s - request.service_time_s, 1e-3),
            "probability": request.share,
        },
    )
    hot = _hot_partitions(request, partitions, service_rate_per_s)
    options = Options(
        world="sim",
        seed=request.seed,
        analytics=False,
    )
    recorded = trace.offset_ns is not None and request.arrivals is None
    wanted, impossible = _possible(experiment, list(_cells(request, experiment, options)))
    return Plan(
        request=request,
        experiment=experiment,
        arrivals="as recorded" if recorded else experiment.arrivals,
        hot=hot,
        warnings=(*_warnings(request, hot, max_replicas, partitions, service_rate_per_s), *impossible),
        wanted=tuple(wanted),
    )


def prepare(plan: Plan, directory: ComparisonDirectory) -> list[CellTask]:
    """Describe every cell in a run directory of its own, and note them in ``directory``."""
    exact = exact_schedule(plan)
    schedule_file = directory.path / "schedule.parquet"
    tasks = []
    for scaler, options in plan.wanted:
        run, spec = describe(plan.experiment, scaler, options, directory.path.parent)
        workload = {**spec.workload, "arrivals": plan.arrivals, "trace": str(plan.request.trace.path)}
        priced = msgspec.structs.replace(spec, replica_price_per_hour=plan.request.price_per_hour, workload=workload)
        run.write(run.spec_file, priced)
        if not schedule_file.exists():
            (exact or schedule_of(plan.experiment, options, spec)).write(schedule_file)
        run.schedule_file.hardlink_to(schedule_file)
        tasks.append(CellTask(experiment=plan.experiment, options=options, run=str(run.path)))
    cells = [
        Cell(scaler=scaler, repetition=0, seed=options.seed, directory=Path(task.run).name)
        for (scaler, options), task in zip(plan.wanted, tasks, strict=True)
    ]
    scalers = list(dict.fromkeys(scaler for scaler, _ in plan.wanted))
    asked = request_of(plan.experiment, scalers, plan.wanted[0][1], 1)
    directory.write(Comparison(experiment=plan.experiment.name, request=asked, cells=cells))
    return tasks


def remove_unfinished(tasks: Iterable[CellTask]) -> None:
    """Delete the run directories of cells that did not come to their end."""
    import shutil

    for task in tasks:
        directory = RunDirectory(Path(task.run))
        if not directory.finished:
            shutil.rmtree(directory.path, ignore_errors=True)


def exact_schedule(plan: Plan) -> Schedule | None:
    """Arrivals that rates and fixed weights cannot express: recorded times, or shares that change; else None."""
    trace, experiment, seed = plan.request.trace, plan.experiment, plan.request.seed
    recorded = trace.offset_ns is not None and plan.request.arrivals is None
    shares = None if recorded else trace.share_of(experiment.partitions)
    if not recorded and shares is None:
        return None
    schedule = make_schedule(
        Trace(path=_path_of(experiment.workload)),
        seed=seed,
        partitions=experiment.partitions,
        arrivals=experiment.arrivals,
        partition_weights=experiment.partition_weights,
    )
    offset_ns, partition = schedule.intended_offset_ns, schedule.partition
    draws = streams(seed).partitions
    if recorded and trace.offset_ns is not None:
        offset_ns = trace.offset_ns
        if trace.placed is not None:
            partition = (trace.placed % experiment.partitions).astype(np.int16)
        else:
            weight = np.asarray(experiment.partition_weights or (1.0,) * experiment.partitions)
            upper = np.cumsum(weight / weight.sum())
            upper[-1] = 1.0
            partition = np.searchsorted(upper, draws.random(len(offset_ns)), side="right").astype(np.int16)
    elif shares is not None:
        upper_by_second = np.cumsum(shares, axis=1)
        upper_by_second[:, -1] = 1.0
        drawn = draws.random(len(offset_ns))
        rows = upper_by_second[offset_ns // NANOS_PER_SECOND]
        partition = (drawn[:, None] >= rows).sum(axis=1).astype(np.int16)
    description = {**schedule.description, "arrivals": plan.arrivals}
    return replace(schedule, intended_offset_ns=offset_ns, partition=partition, description=description)


# --- checks ----------------------------------------------------------------------------------------------------------


def _check(request: Request) -> None:
    slo_ms, service_ms = 1000 * request.slo_s, 1000 * request.service_time_s
    if request.slo_s < request.service_time_s:
        raise PenstockError(
            f"--slo {slo_ms:g}ms is below --service-time {service_ms:g}ms: cannot be met by any number of replicas; "
            "ask for a longer SLO or make the service faster"
        )
    if not 0 < request.share <= 1:
        raise PenstockError(f"--share {request.share:g}: a share of the events above 0 and up to 1, such as 0.99")
    if not (math.isfinite(request.price_per_hour) and request.price_per_hour >= 0):
        raise PenstockError(f"--price {request.price_per_hour:g}: the price of a replica for an hour, such as 0.04")
    if request.service_law not in get_args(ServiceLaw):
        raise PenstockError(f"--service-law {request.service_law}: choose deterministic or exponential")
    for option, value in (
        ("--partitions", request.partitions),
        ("--max-replicas", request.max_replicas),
        ("--initial-replicas", request.initial_replicas),
    ):
        if value is not None and value < 1:
            raise PenstockError(f"{option} {value}: has to be at least 1")
    in_file, skew = request.trace.partitions, request.skew
    if skew is not None and (in_file is not None or request.trace.placed is not None):
        raise PenstockError("--skew: the trace tells what comes to each partition already; leave one of them out")
    told, highest = request.partitions, request.trace.highest_partition
    if highest is not None and told is not None:
        if told <= highest:
            raise PenstockError(f"--partitions {told}: the trace has events on partition {highest}; say {highest + 1}")
        return
    for count, whence in ((in_file, "columns of partitions"), (len(skew) if skew else None, "shares in --skew")):
        if told is not None and count is not None and told != count:
            raise PenstockError(f"--partitions {told}: there are {count} {whence}; leave --partitions out")


def _cells(request: Request, experiment: Experiment, options: Options) -> Iterable[tuple[str, Options]]:
    """Every scaler with every combination of the values that are swept for it, or for worker and system."""
    swept = [scaler for scaler, _, _ in request.sweeps if scaler not in ("worker", "system")]
    scalers = request.scalers or tuple(dict.fromkeys(swept)) or tuple(default_scalers(experiment))
    names = [parse_scaler(text).name for text in scalers]
    for scaler in swept:
        if scaler not in names:
            raise unknown("scaler", scaler, names, f"--sweep {scaler}.…: it is not among --scalers {','.join(scalers)}")
    for scaler in request.settings:
        if scaler not in (*names, "worker", "system"):
            raise unknown(
                "scaler", scaler, names, f"--set {scaler}.…: it is not among those that are run: {', '.join(names)}"
            )
    for text, name in zip(scalers, names, strict=True):
        own = [each for each in request.sweeps if each[0] in (name, "worker", "system")]
        for values in itertools.product(*(listed for _, _, listed in own)):
            given = {
                target: dict(parameters)
                for target, parameters in request.settings.items()
                if target in (name, "worker", "system")
            }
            for (target, parameter, _), value in zip(own, values, strict=True):
                given.setdefault(target, {})[parameter] = value
            if name == "rps":
                _give_rps_a_target(given.setdefault("rps", {}), request.service_time_s)
            yield (
                text,
                replace(options, worker=given.pop("worker", {}), system=given.pop("system", {}), settings=given),
            )


def _possible(
    experiment: Experiment, cells: Sequence[tuple[str, Options]]
) -> tuple[list[tuple[str, Options]], list[str]]:
    """The cells that can be run, and a warning for each combination of swept values that its scaler refuses.

    A scaler of which no cell can be run was asked for wrongly: PenstockError.
    """
    possible: list[tuple[str, Options]] = []
    refused: dict[str, list[PenstockError]] = {}
    for scaler, options in cells:
        try:
            run_spec(experiment, scaler, options, run="checked-before-anything-is-made")
        except PenstockError as error:
            refused.setdefault(scaler, []).append(error)
        else:
            possible.append((scaler, options))
    for scaler, errors in refused.items():
        if scaler not in {each for each, _ in possible}:
            raise errors[0]
    return possible, [f"left out: {error}" for errors in refused.values() for error in errors]


def _give_rps_a_target(parameters: dict[str, str], service_time_s: float) -> None:
    """ρ times the service rate, as rps itself does where a rate is measured; offsets of a topic tell none."""
    rho = parameters.get("rho", str(RpsParameters.rho))
    with contextlib.suppress(ValueError):  # what is no number is told by the scaler's own check
        parameters.setdefault("target_per_replica_per_s", repr(float(rho) / service_time_s))


def _initial_replicas(trace: OwnTrace, service_rate_per_s: float, max_replicas: int) -> int:
    """As many as are 80 % busy at the mean rate of the first minute: whoever looks at a trace did not start from 1."""
    first_per_s = float(trace.rate_per_s[:BUSIEST_S].mean())
    return min(max_replicas, max(1, math.ceil(first_per_s / (INITIAL_UTILISATION * service_rate_per_s))))


def _busiest(rate_per_s: Floats) -> float:
    """Highest mean over a minute, or over all where the trace is shorter."""
    window = min(BUSIEST_S, len(rate_per_s))
    area = np.concatenate(([0.0], np.cumsum(rate_per_s)))
    return float((area[window:] - area[:-window]).max() / window)


def _hot_partitions(request: Request, partitions: int, service_rate_per_s: float) -> tuple[HotPartition, ...]:
    trace = request.trace
    equal: Sequence[float] = request.skew or (1.0,) * partitions
    shares = trace.share_of(partitions)
    hot = []
    for partition in range(partitions):
        share = equal[partition] / sum(equal) if shares is None else shares[:, partition]
        rate_per_s = _busiest(np.asarray(trace.rate_per_s * share))
        if rate_per_s > service_rate_per_s:
            hot.append(HotPartition(partition=partition, rate_per_s=rate_per_s, service_rate_per_s=service_rate_per_s))
    return tuple(hot)


def _warnings(
    request: Request, hot: Sequence[HotPartition], max_replicas: int, partitions: int, service_rate_per_s: float
) -> Iterable[str]:
    if hot:
        hottest = max(hot, key=lambda each: each.rate_per_s)
        others = f", and {len(hot) - 1} more like it" if len(hot) > 1 else ""
        yield (
            f"partition {hottest.partition} gets {hottest.rate_per_s:.0f} events/s in its busiest minute, "
            f"a replica serves {service_rate_per_s:.0f} events/s{others}: no scaler can help there; "
            "it takes more partitions, another key or a faster service"
        )
    busiest_per_s, capacity_per_s = (
        _busiest(request.trace.rate_per_s),
        min(max_replicas, partitions) * service_rate_per_s,
    )
    if busiest_per_s > capacity_per_s and len(hot) < partitions:
        yield (
            f"the busiest minute has {busiest_per_s:.0f} events/s, but {min(max_replicas, partitions)} replicas serve "
            f"{capacity_per_s:.0f} events/s at most: raise --max-replicas or --partitions"
        )
    if request.trace.rate_per_s.mean() > 10 * capacity_per_s:
        yield "the mean rate is more than ten times that: are these events per minute? Then say --per minute"
    if max_replicas > partitions:
        yield (
            f"--max-replicas {max_replicas}: a consumer group of {partitions} partitions keeps {partitions} replicas "
            "busy at most; the others cost and do nothing"
        )


def _path_of(workload: str) -> str:
    return workload.removeprefix("trace:path=")
