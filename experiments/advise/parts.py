"""The trace in two parts: settings are chosen on the first one and proven on the rest. Of a long first part, most
settings are tried on an excerpt only. Each part begins with a lead-in, which is played and not counted.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from experiments.advise.request import AdviceRequest
from experiments.advise.trial import counted
from experiments.advise.trials import LONG_S, PARTS, Arrivals, Part, PartName
from experiments.experiment import Options, run_spec
from experiments.replay.plan import TracePlan, on_trace, schedule_on
from experiments.replay.trace import Floats, OwnTrace
from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.schedule import Schedule
from report.wording import share

LEAD_IN_S: Final = 60
"""A recorded fleet was running when the part begins: its scaler had the replicas that the load needed, and full windows
of observations.
"""
LEAD_IN_VARIES_S: Final = 60
"""A lead-in is longer by less than this, differently by each seed, so that ticks meet the same load at other times. A
setting whose ticks happen to come just after the spikes of a part keeps the share by one such seed only.
"""
CONFIRMING: Final = 5
"""So many times as many seeds as prove a setting confirm the advised one; ``CONFIRMING_LONG`` where a part is long, on
which each seed meets more bursts, and ``CONFIRMING_LONGEST`` where it is so long that an excerpt is searched.
"""
CONFIRMING_LONG: Final = 2
CONFIRMING_LONGEST: Final = 1
SHORTEST_S: Final = 10
"""Of a part."""
EXCERPT_S: Final = 3600
"""Length of the excerpt of a first part that is at least three times as long; of a very long one
``EXCERPT_SHARE``.
"""
EXCERPT_SHARE: Final = 1 / 12
BLOCKS: Final = 12
"""Of which an excerpt consists at most."""
BLOCK_S: Final = 100
"""The least length of a block: windows and hold times have to fit."""

NAMES: Final[dict[PartName, str]] = {"first": "first part", "rest": "rest"}

Span = tuple[int, int]
"""From, to: seconds."""


def parts_of(
    plan: TracePlan, request: AdviceRequest, options: Options, scaler: str, folder: Path
) -> dict[PartName, Part]:
    """Both parts, with their arrivals by every seed in ``folder``: those of the whole trace, cut in two; and the
    excerpt of a long first part, by the first seed. PenstockError for a part that is too short, or has too few events
    for a proof; such an excerpt is left out.
    """
    spans = _spans_of(plan, request)
    are_long = any(_seconds(spans[name]) > LONG_S for name in PARTS)
    confirming = CONFIRMING_LONGEST if "excerpt" in spans else CONFIRMING_LONG if are_long else CONFIRMING
    seeds = request.seeds * (1 + confirming)
    least = least_events(request.share)
    arrivals: dict[PartName, dict[int, Arrivals]] = {name: {} for name in spans}
    for seed in range(request.seed, request.seed + seeds):
        spec = run_spec(plan.experiment, scaler, replace(options, seed=seed), run="advise")
        schedule = schedule_on(plan, spec)
        for name, each in spans.items():
            if name == "excerpt" and seed != request.seed:
                continue
            lead_in = lead_in_of(each[0], varied_s(seed))
            part, lead_in_s = _cut(schedule, [lead_in, *each]), lead_in[1] - lead_in[0]
            if (events := counted(part, lead_in_s)) >= least:
                arrivals[name][seed] = Arrivals(folder / f"{name}-{seed}.parquet", lead_in_s)
                part.write(arrivals[name][seed].file)
            elif name != "excerpt":
                from_s, to_s = each[0]
                raise PenstockError(
                    f"{plan.trace.path}: the {NAMES[name]} ({from_s} to {to_s} s) has {events} events, and a share of "
                    f"{share(request.share)} can be proven on {least:,} at least; give another --chosen-on, or a "
                    "longer trace"
                )
    return {
        name: Part(
            on_trace(
                plan.experiment,
                request,
                _cut_trace(plan.trace, [lead_in_of(spans[name][0], varied_s(request.seed)), *spans[name]]),
                folder / f"{name}.csv",
            ),
            written,
            _seconds(spans[name]),
        )
        for name, written in arrivals.items()
        if written
    }


def least_events(wanted_share: float) -> int:
    """On which one late event does not break the share already: 100 for 99 %."""
    return math.ceil(round(1 / (1 - wanted_share), 6))


def _spans_of(plan: TracePlan, request: AdviceRequest) -> dict[PartName, Sequence[Span]]:
    """The spans of each part, without its lead-in. PenstockError for a part that is too short."""
    seconds = plan.trace.seconds
    split_s = round(seconds * request.chosen_on)
    if min(split_s, seconds - split_s) < SHORTEST_S:
        raise PenstockError(
            f"{plan.trace.path}: {seconds} s, of which settings are chosen on {split_s} s: each part needs at least "
            f"{SHORTEST_S} s; give a longer trace, or another --chosen-on"
        )
    parts: dict[PartName, Sequence[Span]] = {"first": [(0, split_s)], "rest": [(split_s, seconds)]}
    if excerpt := excerpt_of(plan.trace.rate_per_s[:split_s]):
        parts["excerpt"] = excerpt
    return parts


def varied_s(seed: int) -> int:
    """Seconds by which the lead-in of this seed is longer. Sixty seeds in a row have sixty different values; three in a
    row differ modulo the decision intervals of the usual scalers, which are whole seconds.
    """
    return 37 * seed % LEAD_IN_VARIES_S


def lead_in_of(span: Span, varied_s: int) -> Span:
    """The time before a part. A part that begins within the first minute of the trace has its own first seconds as
    lead-in, which are played twice. A lead-in is no longer than the part: where it would be, ``varied_s`` makes it
    shorter instead of longer.
    """
    from_s, to_s = span
    before = from_s >= LEAD_IN_S
    longest_s = min(to_s - from_s, from_s) if before else to_s - from_s
    length_s = LEAD_IN_S + varied_s
    if length_s > longest_s:
        length_s = longest_s - varied_s % max(1, longest_s // 2)
    begin_s = from_s - length_s if before else from_s
    return begin_s, begin_s + length_s


def excerpt_of(rate_per_s: Floats) -> list[Span]:
    """Blocks that stand for all of a long load, in order of time; none of a short one.

    The blocks of the load are sorted by their highest rate and divided into groups of equal size, of each of which the
    middle one is taken: a spike is about as frequent in the excerpt as in the whole.
    """
    seconds = len(rate_per_s)
    length_s = max(EXCERPT_S, round(EXCERPT_SHARE * seconds))
    if seconds < 3 * length_s:
        return []
    block_s = max(BLOCK_S, length_s // BLOCKS)
    highest = rate_per_s[: seconds // block_s * block_s].reshape(-1, block_s).max(axis=1)
    groups = np.array_split(np.argsort(highest, kind="stable"), length_s // block_s)
    chosen = sorted(int(each[len(each) // 2]) for each in groups)
    return [(number * block_s, (number + 1) * block_s) for number in chosen]


def seeds_of(request: AdviceRequest) -> Sequence[int]:
    """The first one is that of the search."""
    return range(request.seed, request.seed + request.seeds)


def confirming_of(request: AdviceRequest, parts: Mapping[PartName, Part]) -> Sequence[int]:
    """The other seeds of these parts, by which the cheapest proven setting is confirmed."""
    proving = seeds_of(request)
    return [seed for seed in parts["rest"].arrivals if seed not in proving]


def _seconds(spans: Iterable[Span]) -> int:
    return sum(to_s - from_s for from_s, to_s in spans)


def _cut(schedule: Schedule, spans: Sequence[Span]) -> Schedule:
    """The arrivals of these spans, one after the other."""
    offset_ns, rows, start_s = [], [], 0
    for from_s, to_s in spans:
        bounds_ns = [from_s * NANOS_PER_SECOND, to_s * NANOS_PER_SECOND]
        within = slice(*np.searchsorted(schedule.intended_offset_ns, bounds_ns))
        offset_ns.append(schedule.intended_offset_ns[within] + (start_s - from_s) * NANOS_PER_SECOND)
        rows.append(schedule.partition[within])
        start_s += to_s - from_s
    return replace(
        schedule,
        intended_offset_ns=np.concatenate(offset_ns),
        partition=np.concatenate(rows),
        duration_s=float(start_s),
    )


def _cut_trace(trace: OwnTrace, spans: Sequence[Span]) -> OwnTrace:
    """Its rates; the events themselves are in the schedule."""
    rate_per_s = np.concatenate([trace.rate_per_s[from_s:to_s] for from_s, to_s in spans])
    return replace(trace, rate_per_s=rate_per_s, partition_share=None, offset_ns=None, placed=None)
