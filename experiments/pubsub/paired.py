"""MinTime against Random in pairs of equal runs: ``python -m experiments.pubsub.paired --world local``.

Both play the experiment ``pubsub`` with the same seeds: the same jobs come at the same times, and each of their tasks
takes the same time. Either allocates its five additional consumers anew when the mean response is above the limit;
Random draws them, and three of four draws leave a topic overloaded (``unstable_share``, exactly). The mean response is
of all jobs that came within the run, whose length is fixed, however long the last ones took.

Runs are kept: the same command goes on with what is missing, or shows the table of what is there again.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import Annotated, Final, NamedTuple

import typer
from rich.console import Console

from controller.queueing.network import measure
from controller.scalers.allocation import Consumers, one_more, overloaded_topics
from experiments.analysis.decisions import read_records
from experiments.analysis.measurement import summary_of
from experiments.catalogue import find_experiment
from experiments.compare import Request, play
from experiments.experiment import Options
from experiments.program import run_program
from experiments.pubsub.experiments import BUDGET, HIGH_PER_MIN, TOPICS
from experiments.pubsub.figures import lots, model, text
from experiments.pubsub.live import allocations
from experiments.tables import markdown
from experiments.worlds import world_name
from penstock.rundir import RunDirectory, Verdict
from penstock.runspec import WorldName
from penstock.settings import Folders

SCALERS: Final = ("min-time", "random")
CLAIMED_SHARE: Final = 0.9
"""Of the pairs: MinTime's mean response is the lower one."""
EXPERIMENT: Final = find_experiment("pubsub")
LIVE_SPEED: Final = 60.0
"""An hour in a minute: ten pairs, with the time until the overloaded ones are empty, in about half an hour."""


class Outcome(NamedTuple):
    """One run: the allocations it decided on, mean response in the paper's seconds, and whether to believe it."""

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
    mintime: Outcome
    random: Outcome

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
    ones = (1,) * len(TOPICS)
    allocations: Counter[Consumers] = Counter()
    for draws in product(range(len(TOPICS)), repeat=budget):
        consumers = ones
        for topic in draws:
            consumers = one_more(consumers, topic)
        allocations[consumers] += 1
    unstable = sum(draws for consumers, draws in allocations.items() if not stable(consumers))
    return unstable / allocations.total()


def drawn_share(seeds: int = 1000) -> float:
    """The same share of Random's first allocations with seeds 1, 2, …: ten runs have too few draws to tell it."""
    return sum(not stable(lots(seed, BUDGET)[-1]) for seed in range(1, seeds + 1)) / seeds


def outcome(run: RunDirectory) -> Outcome:
    """What a finished run came to. A response time at another speed is a fraction of the paper's."""
    summary = summary_of(run)
    mean_s = summary.latency.mean_s
    response_s = float("nan") if mean_s is None else mean_s * summary.speed
    return Outcome(tuple(m for _, m in allocations(read_records(run))), response_s, summary.verdict)


def pairs(runs: Sequence[RunDirectory]) -> Iterator[Pair]:
    """The runs of one comparison by seed."""
    by_cell = {(spec.seed, spec.scaler.name): run for run in runs for spec in (run.spec(),)}
    for seed in sorted({seed for seed, _ in by_cell}):
        yield Pair(seed, *(outcome(by_cell[seed, scaler]) for scaler in SCALERS))


HEADINGS: Final = ("seed", "MinTime m", "R, s", "Random m (unstable in brackets)", "R, s", "lower", "verdicts")


def row(pair: Pair) -> tuple[str, ...]:
    """A line of the table; MinTime's allocations without repeats, Random's one by one."""
    drawn = (text(m) if stable(m) else f"({text(m)})" for m in pair.random.allocations)
    return (
        str(pair.seed),
        ", ".join(dict.fromkeys(map(text, pair.mintime.allocations))),
        f"{pair.mintime.response_s:.1f}",
        ", ".join(drawn),
        f"{pair.random.response_s:.1f}",
        "MinTime" if pair.lower else "Random",
        f"{pair.mintime.verdict}, {pair.random.verdict}",
    )


def conclusion(found: Sequence[Pair]) -> str:
    """The two claims in words."""
    lower = sum(pair.lower for pair in found)
    draws, unstable = sum(len(pair.random.allocations) for pair in found), sum(pair.random.unstable for pair in found)
    share = f" = {unstable / draws:.3f}" if draws else ""
    return (
        f"MinTime's mean response is the lower one in {lower} of {len(found)} pairs (claimed: {CLAIMED_SHARE:.0%}, "
        f"{'holds' if lower >= CLAIMED_SHARE * len(found) else 'DOES NOT HOLD'}). Random's draws that leave a topic "
        f"overloaded: {unstable} of {draws}{share} (exact: {unstable_share():.3f}; first draws of 1000 seeds: "
        f"{drawn_share():.3f})"
    )


def main(
    world: Annotated[str, typer.Option("--world", help="sim: virtual time; local: on RabbitMQ.")] = "sim",
    seeds: Annotated[int, typer.Option(min=1, help="Pairs, with seeds 1, 2, ….")] = 10,
    seconds: Annotated[
        float, typer.Option(min=600.0, help="Length of each run, in the paper's seconds.")
    ] = EXPERIMENT.seconds,
    speed: Annotated[
        float | None,
        typer.Option(help="Rates times this, durations divided by it.", show_default=f"1; live {LIVE_SPEED:g}"),
    ] = None,
) -> None:
    """Play what is not there yet and print the pairs."""
    name: WorldName = world_name(world)
    options = Options(
        world=name,
        seconds=seconds,
        speed=speed or (1.0 if name == "sim" else LIVE_SPEED),
        analytics=False,
        compared=SCALERS,
    )
    request = Request(EXPERIMENT, SCALERS, seeds)
    (comparison,) = play(Console(stderr=True), [request], options, Folders().runs.absolute(), resume=True)
    found = list(pairs(comparison.runs()))
    typer.echo(markdown(HEADINGS, map(row, found)))
    typer.echo(f"{conclusion(found)}; world {name}, speed {options.speed:g}, {seconds:g} s each; {comparison.path}")


if __name__ == "__main__":
    run_program(main, "python -m experiments.pubsub.paired --world local")
