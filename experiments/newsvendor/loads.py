"""newsvendor's contract on drawn loads: ``penstock paper newsvendor loads``.

Each load is drawn by its number, with its topic and its system: shape and peak of the rate, bursts or Poisson arrivals,
partitions and their shares, start-up and rebalance time. Ten minutes each. Numbers 1 to 200 and 4001 to 7000 are for
scoring only; constants of the scaler were chosen on numbers 1001 to 1060, 2001 to 2350 and 3001 to 3400.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import ceil
from typing import Final, NamedTuple

import numpy as np

from experiments import scheduled_scaler
from experiments.experiment import Experiment, Options
from experiments.newsvendor.phases import tick_phase_s
from experiments.newsvendor.tables import NewsvendorSettings, peak_per_s
from experiments.paper import UNKNOWN, Cells, PaperTable, Request
from experiments.processes import Remembered
from experiments.run_result import simulate
from experiments.scheduled_scaler import ScheduledScaler
from penstock.measures import slo_share
from penstock.runspec import Arrivals, WorkerSpec
from penstock.systems import StreamSystem
from producers.workloads import parse_workload
from producers.workloads.drawn import Drawn
from simulator.in_memory_run import FinishedRun

OWN: Final = "newsvendor"
FIXED: Final = f"{scheduled_scaler.__file__}:{ScheduledScaler.__name__}"
AT_ONCE: Final = 20
"""Loads between two lines of progress."""
STREAM: Final = 21
"""Keeps these draws apart from those of the load's rates."""
SHARE, MARGIN = 0.99, 0.003
"""The contract, and by how much a run may miss it."""
SERVICE_S, SLO_S = 0.005, 0.5
PARTITIONS: Final = (3, 5, 8, 12)
START_UPS_S: Final = (0.0, 1.2, 3.0, 10.0)
REBALANCES_S: Final = (0.05, 0.09, 0.5)
SKEW: Final = 0.5
"""Standard deviation of the logarithm of a skewed partition's share."""
HIGHEST: Final = {"burst": 77.0, "poisson": 160.0}
"""Events per second on the busiest partition at the highest peak: what a replica of its own finishes in time."""


class Load(NamedTuple):
    """A drawn load with its topic and its system."""

    number: int
    arrivals: Arrivals
    weights: tuple[float, ...]
    peak_per_s: float
    start_up_s: float
    rebalance_s: float

    @classmethod
    def drawn(cls, number: int) -> "Load":
        """By its number."""
        rng = np.random.default_rng([STREAM, number])
        arrivals: Arrivals = "poisson" if rng.uniform() < 1 / 3 else "burst"
        partitions = int(rng.choice(PARTITIONS))
        weights = np.exp(SKEW * rng.standard_normal(partitions)) if rng.uniform() < 0.5 else np.ones(partitions)
        weights = weights / weights.sum()
        peak_per_s = rng.uniform(0.3, 1.0) * HIGHEST[arrivals] / weights.max()
        start_up_s, rebalance_s = float(rng.choice(START_UPS_S)), float(rng.choice(REBALANCES_S))
        return cls(number, arrivals, tuple(weights.round(4).tolist()), round(peak_per_s), start_up_s, rebalance_s)

    @property
    def shape(self) -> str:
        """The name of the shape of its rates."""
        return Drawn(self.number).shape

    @property
    def workload(self) -> str:
        """As text."""
        return f"{Drawn.name}:number={self.number},peak_per_s={self.peak_per_s:g}"

    def experiment(self) -> Experiment:
        """It starts with enough replicas for its first second."""
        workload = parse_workload(self.workload)
        first = ceil(float(workload.rate_at(0.0)) * SERVICE_S / SLO_S)
        return Experiment(
            name=f"drawn-{self.number}",
            title=f"Drawn load {self.number}",
            paper="none",
            workload=self.workload,
            seconds=workload.duration_s,
            arrivals=self.arrivals,
            partitions=len(self.weights),
            partition_weights=self.weights,
            slo_s=SLO_S,
            slo_share=SHARE,
            system=StreamSystem(start_up_s=self.start_up_s, rebalance_s=self.rebalance_s),
            worker=WorkerSpec(service_time_s=SERVICE_S),
            initial_replicas=min(len(self.weights), max(1, first)),
            max_replicas=len(self.weights),
        )

    def phase_s(self) -> float:
        """The tick phase by rule."""
        system = StreamSystem(start_up_s=self.start_up_s, rebalance_s=self.rebalance_s)
        return tick_phase_s(slo_s=SLO_S, start_up_s=self.start_up_s, rebalance_s=self.rebalance_s, stop_s=system.stop_s)


class Played(NamedTuple):
    """newsvendor on a load. ``refused``: why it said at the end that no number of replicas that follows from the load
    could have kept the contract; empty if it did not. ``all_share``: what the largest fleet keeps all the time; None
    unless it was played.
    """

    load: Load
    share: float
    minutes: float
    refused: str
    all_share: float | None = None

    @property
    def result(self) -> str:
        """Whether the contract was kept, within the margin."""
        if self.share >= SHARE - MARGIN:
            return "kept"
        return "refused" if self.refused else "missed"


def share_of(run: FinishedRun) -> float:
    """Of the events, those within the SLO."""
    return slo_share(np.round(run.responses()[1], 9), SLO_S)


@Remembered
def play(number: int, announced: bool = False) -> Played:
    """One load, by its number, which is the run's seed too. What was not kept is played with the largest fleet.
    ``announced``: newsvendor knows the largest rate.
    """
    load = Load.drawn(number)
    experiment = load.experiment()
    told = {OWN: {"announced_peak_per_s": str(peak_per_s(experiment))}} if announced else {}
    run = simulate(experiment, OWN, Options(world="sim", seed=number, tick_phase_s=load.phase_s(), settings=told))
    played = Played(load, share_of(run), run.replica_minutes(), refusal(run))
    if played.result == "kept":
        return played
    most = experiment.max_replicas
    settings = {ScheduledScaler.name: {"replicas": str(most), "interval_s": "0"}}
    largest = Options(world="sim", seed=number, initial_replicas=most, settings=settings)
    return played._replace(all_share=share_of(simulate(experiment, FIXED, largest)))


def refusal(run: FinishedRun) -> str:
    """What the last decision says about a contract that cannot be kept."""
    terms = next(iter(run.ticks[-1].decisions.values())).why
    return next((str(each["cannot"]) for each in terms.values() if "cannot" in each), "")


def loads(request: Request) -> Iterator[Played]:
    """All loads: missed ones first, then refused ones, each by its share."""
    s: NewsvendorSettings = request.settings
    end = s.first + s.loads
    parts = [range(first, min(first + AT_ONCE, end)) for first in range(s.first, end, AT_ONCE)]
    played: list[Played] = []
    for part in request.each(parts, lambda each: f"loads {each[0]} to {each[-1]}"):
        played += play.each([(number, s.announced) for number in part])
    order = ("missed", "refused", "kept")
    yield from sorted(played, key=lambda each: (order.index(each.result), each.share))


def cells_of(played: Played) -> Cells:
    """A row."""
    load = played.load
    weights = np.array(load.weights)
    return {
        "load": load.number,
        "result": played.result,
        "shape": load.shape,
        "arrivals": load.arrivals,
        "partitions": len(weights),
        "hottest": f"{100 * weights.max() / weights.sum():.0f} %",
        "peak, events/s": f"{load.peak_per_s:.0f}",
        "start-up, s": f"{load.start_up_s:g}",
        "rebalance, s": f"{load.rebalance_s:g}",
        "tick phase, s": f"{load.phase_s():g}",
        "within SLO": 100 * played.share,
        "replica-minutes": played.minutes,
        "largest fleet": UNKNOWN if played.all_share is None else f"{100 * played.all_share:.2f} %",
        "refused because": played.refused,
    }


def note(played: Sequence[Played]) -> str:
    """How many runs missed, by start-up time too."""
    results = Counter(each.result for each in played)
    slow = [each for each in played if each.load.start_up_s == max(START_UPS_S)]
    numbers = [each.load.number for each in played]
    missed, refused = results["missed"], results["refused"]
    parts = (
        f"{missed} of {len(played)} runs ({100 * missed / len(played):.1f} %) miss the contract of {100 * SHARE:g} %",
        f"by more than {100 * MARGIN:g} points, {refused} more are refused: newsvendor says at the end that no number",
        "of replicas that follows from the load could have kept it.",
        f"With a start-up of {max(START_UPS_S):g} s: {sum(each.result == 'missed' for each in slow)} of {len(slow)}",
        "missed,",
        f"{sum(each.result == 'refused' for each in slow)} refused.",
        f"Loads {min(numbers)} to {max(numbers)}, each with its number as seed; ten minutes, simulated, contract mode,",
        'tick phase by rule. "largest fleet": what all replicas keep from the start to the end.',
    )
    return " ".join(parts)


TABLE: Final = PaperTable(
    "loads",
    "newsvendor's contract on drawn loads",
    loads,
    cells_of,
    formats={"within SLO": "{:.2f} %", "replica-minutes": "{:.1f}"},
    shown=lambda row: row["result"] != "kept",
    note=note,
)
