"""From the request to an experiment, its cells and warnings, before anything is run."""

import contextlib
import itertools
import math
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import numpy as np

from controller.scalers.rps import RpsParameters
from experiments.binpack.experiments import TUNING
from experiments.compare import Cell, Comparison, ComparisonDirectory, request_of
from experiments.driver import describe, schedule_of
from experiments.experiment import Experiment, Options, fitting_scalers, run_spec
from experiments.replay.cells import CellTask
from experiments.replay.request import ReplayRequest
from experiments.replay.trace import MOST_PARTITIONS, Floats, OwnTrace, Per, read_trace
from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.parameters import parse_settings, unknown
from penstock.registry import parse_scaler
from penstock.rundir import RunDirectory, slug
from penstock.runspec import Arrivals, WorkerServiceDistribution, WorkerSpec
from penstock.schedule import Schedule
from penstock.systems import StreamSystem
from producers.random_streams import streams
from producers.schedule import make_schedule
from producers.workloads import Trace

MADE_FOR_OTHER_FLEETS: Final[dict[str, str]] = {
    "elastic-faas": "scales the containers behind a fleet of queues",
    "elastic-faas-published": "scales the containers behind a fleet of queues",
    "faas": "scales the containers behind a fleet of queues",
    "provider-ramp": "is the provider's side of a function, not a user's scaler",
    "keda-rabbitmq": "reads RabbitMQ; keda-kafka is the one for Kafka",
    "openfaas-ce": "counts HTTP requests at a gateway",
    "openfaas-pro": "counts HTTP requests at a gateway",
    "lass-as-coded": "is lass with the rounding of its authors' code",
}
"""They can read a consumer group, but are made for another fleet; --scalers takes them nevertheless."""

DURATION: Final = re.compile(r"([0-9]*\.?[0-9]+)\s*(us|ms|s|min)")
UNIT_S: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}

SHARED: Final = ("worker", "system")
"""Targets of settings besides scalers."""
WORKLOAD: Final = "trace:path="
RECORDED: Final = "as recorded"

INITIAL_UTILISATION: Final = 0.8
HOPELESS_S: Final = 600.0
BUSIEST_S: Final = 60
"""A partition or a fleet that is overloaded for this long builds a backlog that breaks any SLO."""


Sweep = tuple[str, str, tuple[str, ...]]
"""Scaler (or worker, or system), parameter, values."""


class HotPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition whose busiest minute exceeds the service rate of one replica. Events per second."""

    partition: int
    rate_per_s: float
    service_rate_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """The planned runs. ``arrivals`` is a text. ``wanted``: scaler and options of each cell, in order."""

    request: ReplayRequest
    trace: OwnTrace
    experiment: Experiment
    service_time_s: float
    start_up_s: float
    arrivals: str
    sweeps: tuple[Sweep, ...]
    hot: tuple[HotPartition, ...]
    warnings: tuple[str, ...]
    wanted: tuple[tuple[str, Options], ...]


def duration_s(option: str, text: str, *, zero: bool = False) -> float:
    """``500ms``, ``0.5s``, ``2min`` in seconds. PenstockError for anything else, a number without unit above all."""
    found = DURATION.fullmatch(text.strip())
    if found is None:
        number = text.strip()
        bare = number != "500" and re.fullmatch(r"[0-9]*\.?[0-9]+", number)
        hint = f"say {number}ms or {number}s" if bare else "say 500ms or 0.5s"
        raise PenstockError(f"{option} {text}: a duration needs a number and a unit (us, ms, s, min); {hint}")
    seconds = float(found[1]) * UNIT_S[found[2]]
    if seconds == 0 and not zero:
        raise PenstockError(f"{option} {text}: has to be more than 0")
    return seconds


def weights(option: str, text: str) -> tuple[float, ...]:
    """``0.25,0.25,0.5`` as shares, one per partition; any scale. PenstockError for anything else."""
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if not values or not all(math.isfinite(value) and value >= 0 for value in values) or sum(values) == 0:
        raise PenstockError(f"{option} {text}: expected a share for each partition, such as 0.25,0.25,0.5")
    return values


def sweep(text: str) -> Sweep:
    """``binpack.f_up=0.7,0.8`` as (scaler, parameter, values). PenstockError for anything else."""
    target, equals, listed = text.partition("=")
    scaler, dot, parameter = target.strip().rpartition(".")
    values = tuple(dict.fromkeys(value.strip() for value in listed.split(",") if value.strip()))
    if not (equals and dot and scaler and parameter and values):
        raise PenstockError(f"--sweep {text}: expected scaler.parameter=a,b,c, such as binpack.f_up=0.7,0.8,0.9")
    return scaler, parameter, values


def default_scalers(experiment: Experiment) -> list[str]:
    """Every registered scaler that reads a consumer group, without those that are made for another kind of fleet."""
    return [name for name in fitting_scalers(experiment) if name not in MADE_FOR_OTHER_FLEETS]


def make_plan(request: ReplayRequest, folder: Path) -> ReplayPlan:
    """The experiment, its cells, and warnings. The trace is written into ``folder`` as the experiment plays it.

    PenstockError for a request that cannot be run or cannot succeed.
    """
    _check(request)
    slo_s, service_time_s = duration_s("--slo", request.slo), duration_s("--service-time", request.service_time)
    if slo_s < service_time_s:
        raise PenstockError(
            f"--slo {1000 * slo_s:g}ms is below --service-time {1000 * service_time_s:g}ms: cannot be met by any "
            "number of replicas; ask for a longer SLO or make the service faster"
        )
    start_up_s = duration_s("--start-up", request.start_up, zero=True)
    skew = None if request.skew is None else weights("--skew", request.skew)
    trace = read_trace(
        request.trace,
        column=request.column,
        per=_one_of("--per", request.per, get_args(Per)),
        timestamps=request.timestamps,
        partition_columns=names(request.partition_columns),
    )
    _check_partitions(request.partitions, skew, trace)
    trace_file = folder / "trace.csv"
    trace.write(trace_file)
    partitions = request.partitions or trace.partitions or (len(skew) if skew else 5)
    max_replicas = request.max_replicas or partitions
    if (request.initial_replicas or 1) > max_replicas:
        raise PenstockError(f"--initial-replicas {request.initial_replicas}: --max-replicas is {max_replicas}")
    replicas = min(max_replicas, partitions)
    _refuse_hopeless(trace, replicas / service_time_s, replicas)
    peak_per_s = float(trace.rate_per_s.max())
    experiment = Experiment(
        name=f"replay-{slug(trace.path.stem) or 'trace'}",
        title=f"{trace.path.name} replayed: {trace.seconds} s, peak {peak_per_s:.0f} events/s, {partitions} partitions",
        paper="",
        workload=f"{WORKLOAD}{trace_file}",
        seconds=float(trace.seconds),
        arrivals=_one_of("--arrivals", request.arrivals, get_args(Arrivals)) or "poisson",
        partitions=partitions,
        partition_weights=skew,
        slo_s=slo_s,
        system=StreamSystem(start_up_s=start_up_s),
        worker=WorkerSpec(
            service_time_s=service_time_s,
            service_law=_one_of("--service-law", request.service_law, get_args(WorkerServiceDistribution)),
        ),
        tick_phase_s=duration_s("--tick-phase", request.tick_phase, zero=True),
        initial_replicas=request.initial_replicas or _initial_replicas(trace, 1 / service_time_s, max_replicas),
        max_replicas=max_replicas,
        slo_share=request.share,
        tuning=TUNING,
        common={
            "peak_rate_per_s": peak_per_s,
            # LaSS bounds the wait before service; the SLO has service in it.
            "wait_s": max(slo_s - service_time_s, 1e-3),
            "probability": request.share,
        },
    )
    sweeps = tuple(map(sweep, request.sweep or ()))
    wanted, impossible = _possible(experiment, list(_cells(request, sweeps, experiment)))
    hot = _hot_partitions(trace, experiment)
    return ReplayPlan(
        request=request,
        trace=trace,
        experiment=experiment,
        service_time_s=service_time_s,
        start_up_s=start_up_s,
        arrivals=RECORDED if trace.offset_ns is not None and request.arrivals is None else experiment.arrivals,
        sweeps=sweeps,
        hot=hot,
        warnings=(*_warnings(trace, experiment, hot), *impossible),
        wanted=tuple(wanted),
    )


def prepare(plan: ReplayPlan, directory: ComparisonDirectory) -> list[CellTask]:
    """Describe every cell in its own run directory, and record them in ``directory``."""
    exact = exact_schedule(plan)
    schedule_file = directory.path / "schedule.parquet"
    tasks, cells = [], []
    for scaler, options in plan.wanted:
        run, spec = describe(plan.experiment, scaler, options, directory.path.parent)
        workload = {**spec.workload, "arrivals": plan.arrivals, "trace": str(plan.trace.path)}
        priced = msgspec.structs.replace(spec, replica_price_per_hour=plan.request.price, workload=workload)
        run.write(run.spec_file, priced)
        if not schedule_file.exists():
            (exact or schedule_of(plan.experiment, options, spec)).write(schedule_file)
        run.schedule_file.hardlink_to(schedule_file)
        tasks.append(CellTask(experiment=plan.experiment, options=options, run=str(run.path)))
        cells.append(Cell(scaler=scaler, repetition=0, seed=options.seed, directory=run.name))
    scalers = list(dict.fromkeys(scaler for scaler, _ in plan.wanted))
    asked = request_of(plan.experiment, scalers, plan.wanted[0][1], 1)
    directory.write(Comparison(experiment=plan.experiment.name, request=asked, cells=cells))
    return tasks


def remove_unfinished(tasks: Iterable[CellTask]) -> None:
    """Delete the run directories of unfinished cells."""
    for directory in (RunDirectory(Path(task.run)) for task in tasks):
        if not directory.finished:
            shutil.rmtree(directory.path, ignore_errors=True)


def exact_schedule(plan: ReplayPlan) -> Schedule | None:
    """Arrivals that rates and fixed weights cannot express: recorded times, or shares that change; else None."""
    trace, experiment, seed = plan.trace, plan.experiment, plan.request.seed
    recorded_ns = trace.offset_ns if plan.arrivals == RECORDED else None
    shares = trace.share_of(experiment.partitions) if recorded_ns is None else None
    if recorded_ns is None and shares is None:
        return None
    schedule = make_schedule(
        Trace(path=experiment.workload.removeprefix(WORKLOAD)),
        seed=seed,
        partitions=experiment.partitions,
        arrivals=experiment.arrivals,
        partition_weights=experiment.partition_weights,
    )
    offset_ns = schedule.intended_offset_ns if recorded_ns is None else recorded_ns
    if recorded_ns is not None and trace.placed is not None:
        partition = trace.placed % experiment.partitions
    else:
        upper = np.cumsum(np.tile(_fixed_shares(experiment), (trace.seconds, 1)) if shares is None else shares, axis=1)
        upper[:, -1] = 1.0
        drawn = streams(seed).partitions.random(len(offset_ns))
        partition = (drawn[:, None] >= upper[offset_ns // NANOS_PER_SECOND]).sum(axis=1)
    description = {**schedule.description, "arrivals": plan.arrivals}
    return replace(
        schedule, intended_offset_ns=offset_ns, partition=partition.astype(np.int16), description=description
    )


# --- checks ----------------------------------------------------------------------------------------------------------


def names(text: str) -> tuple[str, ...]:
    """The different names of a comma-separated list."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _one_of(option: str, given: str | None, known: Sequence[str]) -> Any:
    if given is not None and given not in known:
        raise PenstockError(f"{option} {given}: choose {' or '.join(known)}")
    return given


def _check(request: ReplayRequest) -> None:
    _one_of("--engine", request.engine, ("local", "spark"))
    if not 0 < request.share <= 1:
        raise PenstockError(f"--share {request.share:g}: a share of the events above 0 and up to 1, such as 0.99")
    if not (math.isfinite(request.price) and request.price >= 0):
        raise PenstockError(f"--price {request.price:g}: the price of a replica for an hour, such as 0.04")
    for name in ("jobs", "partitions", "max_replicas", "initial_replicas"):
        if (value := getattr(request, name)) is not None and not 1 <= value <= MOST_PARTITIONS:
            option = f"--{name.replace('_', '-')}"
            raise PenstockError(f"{option} {value}: has to be at least 1, and at most {MOST_PARTITIONS:,}")


def _check_partitions(given: int | None, skew: Sequence[float] | None, trace: OwnTrace) -> None:
    """PenstockError if trace, ``--partitions`` and ``--skew`` contradict each other."""
    if skew is not None and (trace.partitions is not None or trace.placed is not None):
        raise PenstockError("--skew: the trace tells what comes to each partition already; leave one of them out")
    highest = trace.highest_partition
    if given is None or (highest is not None and given > highest):
        return
    if highest is not None:
        raise PenstockError(f"--partitions {given}: the trace has events on partition {highest}; say {highest + 1}")
    for count, whence in ((trace.partitions, "columns of partitions"), (skew and len(skew), "shares in --skew")):
        if count is not None and given != count:
            raise PenstockError(f"--partitions {given}: there are {count} {whence}; leave --partitions out")


def _cells(request: ReplayRequest, sweeps: Sequence[Sweep], experiment: Experiment) -> Iterable[tuple[str, Options]]:
    """Every scaler with every combination of values swept for it, or for worker and system."""
    settings = parse_settings(request.settings or ())
    options = Options(world="sim", seed=request.seed, analytics=False)
    swept = dict.fromkeys(scaler for scaler, _, _ in sweeps if scaler not in SHARED)
    scalers = names(request.scalers) or tuple(swept) or default_scalers(experiment)
    known = [parse_scaler(text).name for text in scalers]
    for scaler in swept:
        if scaler not in known:
            raise unknown("scaler", scaler, known, f"--sweep {scaler}.…: it is not among --scalers {','.join(scalers)}")
    for scaler in settings:
        if scaler not in (*known, *SHARED):
            remedy = f"--set {scaler}.…: it is not among those that are run: {', '.join(known)}"
            raise unknown("scaler", scaler, known, remedy)
    for text, name in zip(scalers, known, strict=True):
        own = [each for each in sweeps if each[0] in (name, *SHARED)]
        for values in itertools.product(*(listed for _, _, listed in own)):
            given = {target: dict(settings[target]) for target in (name, *SHARED) if target in settings}
            for (target, parameter, _), value in zip(own, values, strict=True):
                given.setdefault(target, {})[parameter] = value
            if name == "rps":
                _give_rps_a_target(given.setdefault("rps", {}), experiment.worker.service_time_s)
            worker, system = (given.pop(target, {}) for target in SHARED)
            yield text, replace(options, worker=worker, system=system, settings=given)


def _possible(
    experiment: Experiment, cells: Sequence[tuple[str, Options]]
) -> tuple[list[tuple[str, Options]], list[str]]:
    """The possible cells, and a warning for each combination of swept values that its scaler refuses. PenstockError for
    a scaler without any possible cell.
    """
    possible: list[tuple[str, Options]] = []
    refused: list[tuple[str, PenstockError]] = []
    for scaler, options in cells:
        try:
            run_spec(experiment, scaler, options, run="checked-before-anything-is-made")
        except PenstockError as error:
            refused.append((scaler, error))
        else:
            possible.append((scaler, options))
    for scaler, refusal in refused:
        if scaler not in {each for each, _ in possible}:
            raise refusal
    return possible, [f"left out: {refusal}" for _, refusal in refused]


def _give_rps_a_target(parameters: dict[str, str], service_time_s: float) -> None:
    """ρ times the service rate, like rps itself with a measured rate; a topic's offsets give none."""
    rho = parameters.get("rho", str(RpsParameters.rho))
    with contextlib.suppress(ValueError):  # the scaler's own check reports a value that is no number
        parameters.setdefault("target_per_replica_per_s", repr(float(rho) / service_time_s))


def _initial_replicas(trace: OwnTrace, service_rate_per_s: float, max_replicas: int) -> int:
    """Replicas that are 80 % busy at the mean rate of the first minute: a recorded fleet did not start from 1."""
    first_per_s = float(trace.rate_per_s[:BUSIEST_S].mean())
    return min(max_replicas, max(1, math.ceil(first_per_s / (INITIAL_UTILISATION * service_rate_per_s))))


def _fixed_shares(experiment: Experiment) -> Floats:
    """The share of each partition, shape (1, partitions)."""
    weights = np.asarray([experiment.partition_weights or (1.0,) * experiment.partitions])
    return np.asarray(weights / weights.sum())


def _busiest(rate_per_s: Floats) -> float:
    """Highest mean over a minute, or over all where the trace is shorter."""
    window = min(BUSIEST_S, len(rate_per_s))
    area = np.concatenate(([0.0], np.cumsum(rate_per_s)))
    return float((area[window:] - area[:-window]).max() / window)


def _refuse_hopeless(trace: OwnTrace, capacity_per_s: float, replicas: int) -> None:
    """PenstockError where the largest fleet would work on the backlog for longer than the trace lasts, and for more
    than ``HOPELESS_S``.
    """
    over = np.concatenate(([0.0], np.cumsum(trace.rate_per_s - capacity_per_s)))
    left = float(over[-1] - over.min())
    late_s = left / capacity_per_s
    if late_s > max(HOPELESS_S, trace.seconds):
        raise PenstockError(
            f"{trace.path}: {left:,.0f} events are left at its end: {replicas} replicas serve {capacity_per_s:,.0f} "
            f"events/s and would need {late_s:,.0f} s for them; no scaler can help: raise --max-replicas and "
            "--partitions, or lower --service-time (are these events per minute? Say --per minute)"
        )


def _hot_partitions(trace: OwnTrace, experiment: Experiment) -> tuple[HotPartition, ...]:
    partitions, service_rate_per_s = experiment.partitions, 1 / experiment.worker.service_time_s
    shares = trace.share_of(partitions)
    shares = _fixed_shares(experiment) if shares is None else shares
    rates_per_s = (_busiest(rates) for rates in (trace.rate_per_s[:, None] * shares).T)
    return tuple(
        HotPartition(partition=partition, rate_per_s=rate_per_s, service_rate_per_s=service_rate_per_s)
        for partition, rate_per_s in enumerate(rates_per_s)
        if rate_per_s > service_rate_per_s
    )


def _warnings(trace: OwnTrace, experiment: Experiment, hot: Sequence[HotPartition]) -> Iterable[str]:
    partitions, service_rate_per_s = experiment.partitions, 1 / experiment.worker.service_time_s
    if hot:
        hottest = max(hot, key=lambda each: each.rate_per_s)
        others = f", and {len(hot) - 1} more like it" if len(hot) > 1 else ""
        yield (
            f"partition {hottest.partition} gets {hottest.rate_per_s:.0f} events/s in its busiest minute, "
            f"a replica serves {service_rate_per_s:.0f} events/s{others}: no scaler can help there; "
            "it takes more partitions, another key or a faster service"
        )
    most = min(experiment.max_replicas, partitions)
    busiest_per_s, capacity_per_s = _busiest(trace.rate_per_s), most * service_rate_per_s
    if busiest_per_s > capacity_per_s and len(hot) < partitions:
        yield (
            f"the busiest minute has {busiest_per_s:.0f} events/s, but {most} replicas serve "
            f"{capacity_per_s:.0f} events/s at most: raise --max-replicas or --partitions"
        )
    if trace.rate_per_s.mean() > 10 * capacity_per_s:
        yield "the mean rate is more than ten times that: are these events per minute? Then say --per minute"
    if experiment.max_replicas > partitions:
        yield (
            f"--max-replicas {experiment.max_replicas}: a consumer group of {partitions} partitions keeps {partitions} "
            "replicas busy at most; the others cost and do nothing"
        )
