"""From a workload to a schedule: the intended time and the partition of every event, drawn before the run.

``burst`` is how the bin-pack paper's authors sent: ceil(rate) events at the start of each second. ``uniform`` spaces
events evenly under the rate curve, ``poisson`` is the inhomogeneous Poisson process of that curve.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.runspec import Arrivals
from penstock.schedule import Schedule
from producers.random_streams import Streams, streams
from producers.workloads.catalogue import describe
from producers.workloads.contract import Floats, Playback, Workload

MAX_EVENTS = 100_000_000
MAX_PARTITIONS = 32_767


def make_schedule(
    workload: Workload,
    *,
    seed: int,
    partitions: int,
    arrivals: Arrivals | None = None,
    partition_weights: Sequence[float] | None = None,
    from_s: float = 0.0,
    seconds: float | None = None,
    speed: float = 1.0,
) -> Schedule:
    """The schedule of a workload, or of ``seconds`` of it from ``from_s`` on, ``speed`` times as fast.

    ``arrivals`` None takes the workload's own. ``partition_weights`` are each partition's share of the events (any
    scale; None: equal). ``from_s`` and ``seconds`` are in the workload's own time, before ``speed``. The same arguments
    always give the same schedule. Raises PenstockError for what cannot be scheduled.
    """
    playback = Playback(workload, from_s=from_s, seconds=seconds, speed=speed)
    pattern = _arrivals(workload, arrivals)
    shares = _shares(partition_weights, partitions)
    draws = streams(seed)
    own_s = _arrival_times_s(playback, pattern, draws)
    if not len(own_s):
        raise PenstockError(
            f"{workload.name} has no events in the {playback.played_s:g} s from {from_s:g} s on; "
            "take another part or a higher rate"
        )
    return Schedule(
        intended_offset_ns=_offsets_ns(own_s, playback),
        partition=_partitions(shares, len(own_s), draws.partitions),
        duration_s=playback.duration_s,
        description={
            "workload": describe(workload),
            "arrivals": pattern,
            "seed": seed,
            "partitions": partitions,
            "partition_weights": None if partition_weights is None else shares.tolist(),
            "from_s": from_s,
            "seconds": playback.played_s,
            "speed": speed,
        },
    )


def hot_weights(partitions: int, hot_partitions: int, hot_share: float) -> tuple[float, ...]:
    """Weights under which the first ``hot_partitions`` equally take ``hot_share`` of the events, the others the rest.

    The bin-pack paper's skew is ``hot_weights(9, 2, 0.5)``. Raises PenstockError for an impossible split.
    """
    if not 0 < hot_partitions < partitions:
        raise PenstockError(f"hot partitions {hot_partitions}: has to be between 1 and {partitions - 1}")
    if not 0 <= hot_share <= 1:
        raise PenstockError(f"hot share {hot_share:g}: has to be between 0 and 1, the part of the events they take")
    cold = partitions - hot_partitions
    return (hot_share / hot_partitions,) * hot_partitions + ((1 - hot_share) / cold,) * cold


def _arrivals(workload: Workload, wanted: Arrivals | None) -> Arrivals:
    if wanted is not None and wanted != workload.arrivals and workload.arrivals_fixed:
        raise PenstockError(
            f"arrivals {wanted}: {workload.name} draws its own ({workload.arrivals}); "
            "leave arrivals out, or use constant"
        )
    return wanted or workload.arrivals


def _shares(weights: Sequence[float] | None, partitions: int) -> Floats:
    if not 0 < partitions <= MAX_PARTITIONS:
        raise PenstockError(f"partitions {partitions}: has to be between 1 and {MAX_PARTITIONS}")
    values = np.asarray([1.0] * partitions if weights is None else weights, dtype=np.float64)
    shown = ",".join(f"{value:g}" for value in values)
    if len(values) != partitions:
        raise PenstockError(f"weights {shown}: {len(values)} values for {partitions} partitions; give one a partition")
    if not (np.isfinite(values).all() and (values >= 0).all() and values.sum() > 0):
        raise PenstockError(f"weights {shown}: each has to be a number of at least 0, one of them above 0")
    return np.asarray(values / values.sum())


def _arrival_times_s(playback: Playback, pattern: Arrivals, draws: Streams) -> Floats:
    """Ascending times from the start of the slice, in the workload's own seconds."""
    rates = playback.step_rates()
    # The last second may be cut short.
    widths_s = np.minimum(1.0, playback.played_s - np.arange(len(rates)))
    if (total := float(rates @ widths_s)) > MAX_EVENTS:
        raise PenstockError(f"{playback.workload.name}: {total:.3g} events; a schedule holds {MAX_EVENTS:.0e} at most")
    if pattern == "burst":
        return _burst(rates * widths_s)
    if pattern == "uniform":
        return _uniform(rates * widths_s, widths_s)
    return _poisson(rates * widths_s, widths_s, draws)


def _burst(expected: Floats) -> Floats:
    # Interpolation noise must not turn 200 into 201.
    counts = np.ceil(expected - 1e-9).astype(np.int64)
    return np.repeat(np.arange(len(counts), dtype=np.float64), counts)


def _uniform(expected: Floats, widths_s: Floats) -> Floats:
    """Event i stands where the area under the rate curve reaches i + ½: fractions carry over from second to second."""
    area = np.concatenate(([0.0], np.cumsum(expected)))
    edges_s = np.concatenate(([0.0], np.cumsum(widths_s)))
    events = int(np.ceil(area[-1] - 0.5))
    return np.asarray(np.interp(np.arange(events) + 0.5, area, edges_s))


def _poisson(expected: Floats, widths_s: Floats, draws: Streams) -> Floats:
    counts = draws.counts.poisson(expected)
    second = np.repeat(np.arange(len(counts)), counts)
    return np.sort(second + draws.positions.random(len(second)) * widths_s[second])


def _offsets_ns(own_s: Floats, playback: Playback) -> npt.NDArray[np.int64]:
    offsets = np.floor(own_s * (NANOS_PER_SECOND / playback.speed)).astype(np.int64)
    return np.asarray(np.minimum(offsets, int(np.ceil(playback.duration_s * NANOS_PER_SECOND)) - 1))


def _partitions(shares: Floats, events: int, draws: np.random.Generator) -> npt.NDArray[np.int16]:
    upper = np.cumsum(shares)
    upper /= upper[-1]
    return np.searchsorted(upper, draws.random(events), side="right").astype(np.int16)
