"""From the request to an experiment and its warnings, before anything is run."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, get_args

import msgspec
import numpy as np

from experiments.binpack.experiments import TUNING
from experiments.driver import schedule_of
from experiments.experiment import Experiment, Options, fitting_scalers, run_spec, with_settings, world_facts
from experiments.replay.request import TraceRequest
from experiments.replay.trace import MOST_PARTITIONS, Floats, OwnTrace, Per, read_trace
from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.parameters import parse_settings, unknown
from penstock.registry import parse_scaler
from penstock.rundir import slug
from penstock.runspec import Arrivals, RunSpec, WorkerServiceDistribution, WorkerSpec
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

SHARED: Final = ("worker", "system")
"""Targets of ``--set`` that are no scaler. Their settings belong to the experiment."""
WORKLOAD: Final = "trace:path="
RECORDED: Final = "as recorded"

INITIAL_UTILISATION: Final = 0.8
STARTING_S: Final = (10, 60)
"""A trace that begins within a spike was recorded with a fleet that had the replicas for it, or was about to."""
HOPELESS_S: Final = 600.0
BUSIEST_S: Final = 60
"""A partition or a fleet that is overloaded for this long builds a backlog that breaks any SLO."""


class HotPartition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition whose busiest minute exceeds the service rate of one replica. Events per second."""

    partition: int
    rate_per_s: float
    service_rate_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePlan:
    """A trace and its fleet, checked. ``arrivals`` is a text. ``hopeless``: why no scaler can help, else empty."""

    request: TraceRequest
    trace: OwnTrace
    experiment: Experiment
    arrivals: str
    hot: tuple[HotPartition, ...]
    warnings: tuple[str, ...]
    hopeless: str

    @property
    def facts(self) -> dict[str, Any]:
        """The simulated fleet as a scaler's parameters describe it, with ``--set``: ``service_rate_per_s``,
        ``start_up_s``, ``rebalance_time_s``.
        """
        experiment = self.experiment
        return world_facts(experiment, experiment.worker, experiment.system, experiment.max_replicas)


def weights(option: str, text: str) -> tuple[float, ...]:
    """``0.25,0.25,0.5`` as shares, one per partition; any scale. PenstockError for anything else."""
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if not values or not all(math.isfinite(value) and value >= 0 for value in values) or sum(values) == 0:
        raise PenstockError(f"{option} {text}: expected a share for each partition, such as 0.25,0.25,0.5")
    return values


def default_scalers(experiment: Experiment) -> list[str]:
    """Every registered scaler that reads a consumer group, without those that are made for another kind of fleet."""
    return [name for name in fitting_scalers(experiment) if name not in MADE_FOR_OTHER_FLEETS]


def make_plan(request: TraceRequest, folder: Path) -> TracePlan:
    """The experiment and its warnings. The trace is written into ``folder`` as the experiment plays it.

    PenstockError for a request that cannot be run.
    """
    _check(request)
    worker, system = _fleet_of(request)
    slo_s, service_time_s = request.slo, worker.service_time_s
    if slo_s < service_time_s:
        raise PenstockError(
            f"--slo {1000 * slo_s:g}ms is below the service time of {1000 * service_time_s:g}ms: cannot be met by any "
            "number of replicas; ask for a longer SLO or make the service faster"
        )
    skew = None if request.skew is None else weights("--skew", request.skew)
    trace = read_trace(
        request.trace,
        column=request.column,
        per=_one_of("--per", request.per, get_args(Per)),
        timestamps=request.timestamps,
        partition_columns=names(request.partition_columns),
    )
    _check_partitions(request.partitions, skew, trace)
    partitions = request.partitions or trace.partitions or (len(skew) if skew else 5)
    max_replicas = request.max_replicas or partitions
    if (request.initial_replicas or 1) > max_replicas:
        raise PenstockError(f"--initial-replicas {request.initial_replicas}: --max-replicas is {max_replicas}")
    replicas = min(max_replicas, partitions)
    experiment = Experiment(
        name=f"replay-{slug(trace.path.stem) or 'trace'}",
        title="",
        paper="",
        workload="",
        seconds=0.0,
        arrivals=_one_of("--arrivals", request.arrivals, get_args(Arrivals)) or "poisson",
        partitions=partitions,
        partition_weights=skew,
        slo_s=slo_s,
        system=system,
        worker=worker,
        max_replicas=max_replicas,
        slo_share=request.share,
        tuning=TUNING,
        # LaSS bounds the wait before service; the SLO has service in it.
        common={"wait_s": max(slo_s - service_time_s, 1e-3), "probability": request.share},
    )
    experiment = on_trace(experiment, request, trace, folder / "trace.csv")
    hot = _hot_partitions(trace, experiment)
    return TracePlan(
        request=request,
        trace=trace,
        experiment=experiment,
        arrivals=RECORDED if trace.offset_ns is not None and request.arrivals is None else experiment.arrivals,
        hot=hot,
        warnings=tuple(_warnings(trace, experiment, hot)),
        hopeless=_hopeless(trace, replicas / service_time_s, replicas),
    )


def on_trace(experiment: Experiment, request: TraceRequest, trace: OwnTrace, file: Path) -> Experiment:
    """The experiment on a trace, which is written to ``file``: length, peak, and the replicas at the start."""
    trace.write(file)
    peak_per_s = float(trace.rate_per_s.max())
    initial_replicas = request.initial_replicas or _initial_replicas(
        trace, 1 / experiment.worker.service_time_s, experiment.max_replicas
    )
    return replace(
        experiment,
        title=f"{trace.path.name} replayed: {trace.seconds} s, peak {peak_per_s:.0f} events/s, "
        f"{experiment.partitions} partitions",
        workload=f"{WORKLOAD}{file}",
        seconds=float(trace.seconds),
        initial_replicas=initial_replicas,
        common={**experiment.common, "peak_rate_per_s": max(peak_per_s, 1e-3)},
    )


def options_of(plan: TracePlan, scalers: Sequence[str]) -> dict[str, Options]:
    """The options of a run with each scaler. PenstockError for a setting of none of them, or of a parameter that its
    scaler does not have.
    """
    settings = parse_settings(plan.request.settings or ())
    for target in SHARED:
        settings.pop(target, None)
    own = {text: parse_scaler(text).name for text in scalers}
    for scaler in settings:
        if scaler not in own.values():
            remedy = f"--set {scaler}.…: it is not among those that are run: {', '.join(own.values())}"
            raise unknown("scaler", scaler, own.values(), remedy)
    found = {}
    for text, name in own.items():
        given = dict(settings.get(name, {}))
        options = Options(
            world="sim",
            seed=plan.request.seed,
            analytics=False,
            settings={name: given},
            replica_price_per_hour=plan.request.price,
        )
        run_spec(plan.experiment, text, options, run="checked-before-anything-is-made")
        found[text] = options
    return found


def schedule_on(plan: TracePlan, spec: RunSpec) -> Schedule:
    """The arrivals of the whole trace by the seed of a run."""
    return exact_schedule(plan, spec.seed) or schedule_of(plan.experiment, Options(seed=spec.seed), spec)


def exact_schedule(plan: TracePlan, seed: int) -> Schedule | None:
    """Arrivals that rates and fixed weights cannot express: recorded times, or shares that change; else None."""
    trace, experiment = plan.trace, plan.experiment
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


def _check(request: TraceRequest) -> None:
    for option, seconds in (("--slo", request.slo), ("--service-time", request.service_time)):
        if seconds == 0:
            raise PenstockError(f"{option} 0: has to be more than 0")
    if not 0 < request.share < 1:
        raise PenstockError(
            f"--share {request.share:g}: a share of the events between 0 and 1, such as 0.99; no scaler promises all "
            "of them"
        )
    if not (math.isfinite(request.price) and request.price >= 0):
        raise PenstockError(f"--price {request.price:g}: the price of a replica for an hour, such as 0.04")
    for name in ("partitions", "max_replicas", "initial_replicas"):
        if (value := getattr(request, name)) is not None and not 1 <= value <= MOST_PARTITIONS:
            option = f"--{name.replace('_', '-')}"
            raise PenstockError(f"{option} {value}: has to be at least 1, and at most {MOST_PARTITIONS:,}")


def _fleet_of(request: TraceRequest) -> tuple[WorkerSpec, StreamSystem]:
    """Consumers and system with what ``--set worker.…`` and ``--set system.…`` change of them."""
    settings = parse_settings(request.settings or ())
    law = _one_of("--service-law", request.service_law, get_args(WorkerServiceDistribution))
    worker = WorkerSpec(service_time_s=request.service_time, service_law=law)
    worker = with_settings("worker", worker, settings.get("worker", {}))
    if not 0 < worker.service_time_s < math.inf:
        raise PenstockError(f"--set worker.service_time_s={worker.service_time_s:g}: has to be more than 0")
    return worker, with_settings("system", StreamSystem(start_up_s=request.start_up), settings.get("system", {}))


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


def _initial_replicas(trace: OwnTrace, service_rate_per_s: float, max_replicas: int) -> int:
    """Replicas that are 80 % busy at the mean rate of the first ten seconds or of the first minute, the higher one: a
    recorded fleet did not start from 1.
    """
    first_per_s = max(float(trace.rate_per_s[:seconds].mean()) for seconds in STARTING_S)
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


def _hopeless(trace: OwnTrace, capacity_per_s: float, replicas: int) -> str:
    """Why no scaler can help, where the largest fleet would work on the backlog for longer than the trace lasts, and
    for more than ``HOPELESS_S``.
    """
    over = np.concatenate(([0.0], np.cumsum(trace.rate_per_s - capacity_per_s)))
    left = float(over[-1] - over.min())
    late_s = left / capacity_per_s
    if late_s <= max(HOPELESS_S, trace.seconds):
        return ""
    return (
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
    if experiment.partition_weights and not 0.99 < (total := sum(experiment.partition_weights)) < 1.01:
        yield f"--skew adds up to {total:g}: each is taken as its part of that"
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
