"""The trace in two parts: settings are chosen on the first one and proven on the rest."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from experiments.advise.request import AdviceRequest
from experiments.advise.trials import Part, PartName
from experiments.experiment import Options, run_spec
from experiments.replay.plan import TracePlan, on_trace, schedule_on
from experiments.replay.trace import OwnTrace
from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.schedule import Schedule

SHORTEST_S = 10
"""Of a part."""


def parts_of(
    plan: TracePlan, request: AdviceRequest, options: Options, scaler: str, folder: Path
) -> dict[PartName, Part]:
    """Both parts, with their arrivals by every seed in ``folder``: those of the whole trace, cut in two."""
    seconds = plan.trace.seconds
    split_s = round(seconds * request.chosen_on)
    if min(split_s, seconds - split_s) < SHORTEST_S:
        raise PenstockError(
            f"{plan.trace.path}: {seconds} s, of which settings are chosen on {split_s} s: each part needs at least "
            f"{SHORTEST_S} s; give a longer trace, or another --chosen-on"
        )
    bounds: dict[PartName, tuple[int, int]] = {"first": (0, split_s), "rest": (split_s, seconds)}
    files: dict[PartName, dict[int, Path]] = {"first": {}, "rest": {}}
    for seed in seeds_of(request):
        spec = run_spec(plan.experiment, scaler, replace(options, seed=seed), run="advise")
        schedule = schedule_on(plan, spec)
        for name, (from_s, to_s) in bounds.items():
            files[name][seed] = file = folder / f"{name}-{seed}.parquet"
            _cut(schedule, from_s, to_s).write(file)
    return {
        name: Part(
            on_trace(plan.experiment, request, _cut_trace(plan.trace, *bounds[name]), folder / f"{name}.csv"),
            files[name],
        )
        for name in bounds
    }


def seeds_of(request: AdviceRequest) -> Sequence[int]:
    """The first one is that of the search."""
    return range(request.seed, request.seed + request.seeds)


def _cut(schedule: Schedule, from_s: int, to_s: int) -> Schedule:
    first, last = np.searchsorted(schedule.intended_offset_ns, [from_s * NANOS_PER_SECOND, to_s * NANOS_PER_SECOND])
    return replace(
        schedule,
        intended_offset_ns=schedule.intended_offset_ns[first:last] - from_s * NANOS_PER_SECOND,
        partition=schedule.partition[first:last],
        duration_s=float(to_s - from_s),
    )


def _cut_trace(trace: OwnTrace, from_s: int, to_s: int) -> OwnTrace:
    """Its rates; the events themselves are in the schedule."""
    return replace(trace, rate_per_s=trace.rate_per_s[from_s:to_s], partition_share=None, offset_ns=None, placed=None)
