"""MinTime against Random in pairs of equal runs: ``penstock paper pubsub paired --world local``.

Both run the experiment ``pubsub`` with the same seeds: the same jobs arrive at the same times, and each of their tasks
takes the same time. Both allocate their five additional consumers anew when the mean response is above the limit;
Random draws them, and three of four draws leave a topic overloaded (``unstable_share``, exactly). The mean response is
of all jobs that arrive within the run, whose length is fixed, however long the last ones take.

Runs are kept: the same command makes the missing ones, or shows the table of finished ones again.
"""

from collections.abc import Iterator, Sequence
from functools import cache, reduce
from itertools import product
from typing import Final, NamedTuple

from controller.queueing.network import measure
from controller.scalers.shared.allocation import Consumers, one_more, overloaded_topics
from experiments.compare import ComparisonRequest, run_comparisons
from experiments.experiment import Options
from experiments.paper import Cells, PaperTable, Request
from experiments.pubsub.experiments import BUDGET, EXPERIMENTS, HIGH_PER_MIN, TOPICS
from experiments.pubsub.figures import allocations, lots, model, text
from experiments.worlds import world_name
from penstock.rundir import RunDirectory, Verdict
from penstock.settings import Folders
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData

SCALERS: Final = ("min-time", "random")
CLAIMED_SHARE: Final = 0.9
"""Of the pairs: MinTime's mean response is the lower one."""
EXPERIMENT: Final = next(each for each in EXPERIMENTS if each.name == "pubsub")
LIVE_SPEED: Final = 60.0
"""An hour in a minute: ten pairs, with the time until the overloaded ones are empty, in about half an hour."""


class PairedRun(NamedTuple):
    """One run: its allocations, its mean response in the paper's seconds, and its verdict."""

    allocations: tuple[Consumers, ...]
    response_s: float
    verdict: Verdict

    @property
    def unstable(self) -> int:
        """How many of the allocations leave a topic overloaded."""
        return sum(not stable(consumers) for consumers in self.allocations)


class Pair(NamedTuple):
    """Both runs with one seed."""

    seed: int
    mintime: PairedRun
    random: PairedRun

    @property
    def lower(self) -> bool:
        """Whether MinTime's mean response is below Random's."""
        return self.mintime.response_s < self.random.response_s


@cache
def stable(consumers: Consumers) -> bool:
    """Whether, by the formulas and the true rates, no topic's queue grows without end."""
    network = model(HIGH_PER_MIN)
    return not overloaded_topics(network, measure(network, consumers))


def unstable_share(budget: int = BUDGET) -> float:
    """The share of Random's allocations that leave a topic overloaded, exactly: each sequence of draws is as likely."""
    draws = product(range(len(TOPICS)), repeat=budget)
    allocations = [reduce(one_more, topics, (1,) * len(TOPICS)) for topics in draws]
    return sum(not stable(consumers) for consumers in allocations) / len(allocations)


def drawn_share(seeds: int = 1000) -> float:
    """The same share of Random's first allocations with seeds 1, 2, …; ten runs have too few draws for it."""
    return sum(not stable(lots(seed, BUDGET)[-1]) for seed in range(1, seeds + 1)) / seeds


def outcome(run: RunData) -> PairedRun:
    """Measures of a finished run. A response time at another speed is a fraction of the paper's."""
    summary = summary_of(run)
    mean_s = summary.latency.mean_s
    response_s = float("nan") if mean_s is None else mean_s * summary.speed
    return PairedRun(tuple(m for _, m in allocations(run.ticks)), response_s, summary.verdict)


def pairs(runs: Sequence[RunDirectory]) -> Iterator[Pair]:
    """The runs of one comparison by seed."""
    by_cell = {(spec.seed, spec.scaler.name): run for run in runs for spec in (run.spec(),)}
    for seed in sorted({seed for seed, _ in by_cell}):
        yield Pair(seed, *(outcome(RunData(by_cell[seed, scaler])) for scaler in SCALERS))


def cells(pair: Pair) -> Cells:
    """A pair in the table."""
    seed, mintime, random = pair
    return {
        "seed": seed,
        "MinTime m": ", ".join(dict.fromkeys(map(text, mintime.allocations))),
        "MinTime R, s": mintime.response_s,
        "Random m (unstable in brackets)": ", ".join(
            text(m) if stable(m) else f"({text(m)})" for m in random.allocations
        ),
        "Random R, s": random.response_s,
        "lower": "MinTime" if pair.lower else "Random",
        "verdicts": f"{mintime.verdict}, {random.verdict}",
    }


def conclusion(found: Sequence[Pair]) -> str:
    """Both claims as text."""
    lower = sum(pair.lower for pair in found)
    draws, unstable = sum(len(pair.random.allocations) for pair in found), sum(pair.random.unstable for pair in found)
    share = f" = {unstable / draws:.3f}" if draws else ""
    return (
        f"MinTime's mean response is the lower one in {lower} of {len(found)} pairs (claimed: {CLAIMED_SHARE:.0%}, "
        f"{'holds' if lower >= CLAIMED_SHARE * len(found) else 'DOES NOT HOLD'}). Random's draws that leave a topic "
        f"overloaded: {unstable} of {draws}{share} (exact: {unstable_share():.3f}; first draws of 1000 seeds: "
        f"{drawn_share():.3f})"
    )


def paired(request: Request) -> list[Pair]:
    """The pairs; missing runs are made."""
    settings = request.settings
    first, *_ = settings.seeds
    name = world_name(settings.world)
    options = Options(
        world=name,
        seed=first,
        seconds=settings.seconds,
        speed=settings.speed or (1.0 if name == "sim" else LIVE_SPEED),
        analytics=False,
        compared=SCALERS,
    )
    comparisons = [ComparisonRequest(EXPERIMENT, SCALERS, len(settings.seeds))]
    (comparison,) = run_comparisons(request.console, comparisons, options, Folders().runs.absolute(), resume=True)
    request.console.print(f"runs: {comparison.path}, speed {options.speed:g}", highlight=False, soft_wrap=True)
    return list(pairs(comparison.runs()))


TABLE: Final = PaperTable(
    "paired",
    "MinTime and Random in pairs",
    paired,
    cells=cells,
    formats=dict.fromkeys(("MinTime R, s", "Random R, s"), "{:.1f}"),
    note=conclusion,
    source="run",
)
