"""The constant fleet that keeps the SLO, and what would have to change where nobody can: found by search."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_DOWN, Context
from pathlib import Path
from typing import Final

import msgspec

from experiments import scheduled_scaler
from experiments.advise.parts import CONFIRMING_LONG, confirming_of, seeds_of
from experiments.advise.request import AdviceRequest
from experiments.advise.search import Proof
from experiments.advise.trial import Outcome, Trial
from experiments.advise.trials import PARTS, Part, PartName, Trials, Wanted
from experiments.advise.workers import CarryOut
from experiments.experiment import Experiment, Options, run_spec
from experiments.replay.plan import TracePlan, schedule_on
from experiments.replay.trace import MOST_PARTITIONS
from penstock.registry import parse_scaler
from penstock.runspec import RunSpec
from penstock.systems import StreamSystem

CONSTANT: Final = f"{scheduled_scaler.__file__}:ScheduledScaler"
FASTER_AT_MOST: Final = 1024
"""Times the service rate that was given."""
CLOSE_ENOUGH: Final = 0.02
"""Of a service rate or of a part of the start-up time that is searched."""
FINEST: Final = 1e-3
"""Seconds of a start-up time, below which nothing is searched."""


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """The least change, one at a time, with which the SLO is kept by every seed; None where no such change is enough.
    ``replicas``: of a constant fleet with as many partitions at least. ``service_rate_per_s``: of a replica, with the
    largest fleet as it is. ``start_up_s``: with the scaler that came closest, also by seeds that confirm, and less
    than now. Service rates, and replicas beyond the largest fleet, are tried on the whole trace, the others on both
    parts.
    """

    replicas: int | None = None
    service_rate_per_s: float | None = None
    start_up_s: float | None = None


class ConstantFleet(msgspec.Struct, frozen=True, kw_only=True):
    """The smallest constant fleet that keeps the SLO on both parts, and its cost on the rest."""

    replicas: int
    replica_minutes: float


def constant_fleet(parts: Mapping[PartName, Part], request: AdviceRequest, carry_out: CarryOut) -> ConstantFleet | None:
    """None if not even the largest one keeps it."""

    def keeps(replicas: int) -> bool:
        return _all_meet(
            [
                part.trial(_constant(part.experiment, replicas, seed))
                for part in (parts[name] for name in PARTS)
                for seed in seeds_of(request)
            ],
            request.share,
            carry_out,
        )

    largest = min(parts["rest"].experiment.max_replicas, parts["rest"].experiment.partitions)
    found = _least(keeps, 1, largest)
    return None if found is None else ConstantFleet(replicas=found, replica_minutes=found * parts["rest"].minutes)


def needs_of(
    plan: TracePlan,
    trials: Trials,
    constant: ConstantFleet | None,
    closest: Proof | None,
    request: AdviceRequest,
    folder: Path,
    carry_out: CarryOut,
    phase: Callable[[str], None],
) -> Needs:
    """Search by simulation: doubling, then bisection. ``constant``: the smallest fleet of those that are allowed."""
    experiment = plan.experiment
    partitions, largest = experiment.partitions, min(experiment.max_replicas, experiment.partitions)
    rate_per_s = 1 / experiment.worker.service_time_s

    def keeps_with(partitions: int, replicas: int, service_time_s: float) -> bool:
        changed = replace(
            experiment,
            partitions=partitions,
            max_replicas=replicas,
            worker=msgspec.structs.replace(experiment.worker, service_time_s=service_time_s),
        )
        whole = replace(plan, experiment=changed)
        tried = []
        for seed in seeds_of(request):
            spec = _constant(changed, replicas, seed)
            file = folder / f"whole-{partitions}-{seed}.parquet"
            if not file.exists():
                schedule_on(whole, spec).write(file)
            tried.append(Trial(spec=spec, schedule=str(file)))
        return _all_meet(tried, request.share, carry_out)

    # Partitions whose shares are given cannot be made more.
    fixed = experiment.partition_weights is not None or plan.trace.partitions is not None
    phase("needs: replicas")
    replicas = (
        _doubled(
            lambda count: keeps_with(max(partitions, count), count, 1 / rate_per_s),
            largest + 1,
            partitions if fixed else MOST_PARTITIONS,
        )
        if constant is None
        else constant.replicas
    )
    phase("needs: service rate")
    factor = _doubled(lambda factor: keeps_with(partitions, largest, 1 / (factor * rate_per_s)), 1, FASTER_AT_MOST)
    faster = None
    if factor is not None:
        faster = rate_per_s * _bisected(
            lambda value: keeps_with(partitions, largest, 1 / (value * rate_per_s)), max(1.0, factor / 2), float(factor)
        )
    phase("needs: start-up")
    return Needs(
        replicas=replicas,
        service_rate_per_s=None if faster is None else float(f"{faster:.3g}"),
        start_up_s=None if closest is None else _start_up_s(plan, closest, request, trials, carry_out),
    )


def _start_up_s(
    plan: TracePlan, closest: Proof, request: AdviceRequest, trials: Trials, carry_out: CarryOut
) -> float | None:
    """The longest with which the closest setting keeps the SLO on both parts; None where the present one does not stand
    in the way.
    """
    now_s = float(plan.facts["start_up_s"])
    # Every one of them has to keep it, not only their mean: no more of them than on long parts.
    further = confirming_of(request, trials.parts)[: CONFIRMING_LONG * request.seeds]

    def keeps(start_up_s: float) -> bool:
        tried = []
        for seed in (*seeds_of(request), *further):
            for part in PARTS:
                trial = trials.trial(Wanted(closest.scaler, closest.setting, part, seed))
                system = trial.spec.system
                assert isinstance(system, StreamSystem)
                system = msgspec.structs.replace(system, start_up_s=start_up_s)
                tried.append(msgspec.structs.replace(trial, spec=msgspec.structs.replace(trial.spec, system=system)))
        return _all_meet(tried, request.share, carry_out)

    if now_s == 0 or keeps(now_s) or not keeps(0.0):
        return None
    found = now_s - _bisected(lambda sooner: keeps(now_s - sooner), 0.0, now_s)
    # Not rounded up, to a time that is too long.
    return float(Context(prec=3, rounding=ROUND_DOWN).create_decimal_from_float(found))


def _constant(experiment: Experiment, replicas: int, seed: int) -> RunSpec:
    """``replicas`` from start to end."""
    name = parse_scaler(CONSTANT).name
    options = Options(
        world="sim",
        analytics=False,
        seed=seed,
        initial_replicas=replicas,
        max_replicas=replicas,
        settings={name: {"replicas": str(replicas), "interval_s": "0"}},
    )
    return run_spec(experiment, CONSTANT, options, run="constant")


def _all_meet(trials: Sequence[Trial], wanted_share: float, carry_out: CarryOut) -> bool:
    outcomes: list[Outcome] = []
    carry_out(trials, lambda _, outcome: outcomes.append(outcome))
    return all(not each.error and each.slo_share >= wanted_share for each in outcomes)


def _least(keeps: Callable[[int], bool], least: int, most: int) -> int | None:
    """The least number that keeps it, if the largest does and more is never worse."""
    if not keeps(most):
        return None
    while least < most:
        middle = (least + most) // 2
        least, most = (least, middle) if keeps(middle) else (middle + 1, most)
    return most


def _doubled(keeps: Callable[[int], bool], start: int, most: int) -> int | None:
    """The same from ``start`` upwards, below which nothing is of interest, without trying what is far too large."""
    if start > most:
        return None
    below, value = start, start
    while not keeps(value):
        if value >= most:
            return None
        below, value = value + 1, min(2 * value, most)
    return _least(keeps, below, value) if value > start else value


def _bisected(keeps: Callable[[float], bool], too_small: float, enough: float) -> float:
    """The least value that keeps it, to two percent or ``FINEST``; ``too_small`` does not keep it."""
    while enough - too_small > max(CLOSE_ENOUGH * enough, FINEST):
        middle = (too_small + enough) / 2
        too_small, enough = (too_small, middle) if keeps(middle) else (middle, enough)
    return enough
