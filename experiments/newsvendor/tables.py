"""The cheapest run of each scaler that keeps a contract: newsvendor as it is, rivals tuned by an oracle.

A rival's threshold f_up is bisected on the first of the seeds that are scored, without hold time and with narrow
hysteresis, and then refined in steps of 1 % until the mean of all seeds keeps the share; all scalers may choose their
tick phase. Lost cells come first. ``penstock paper newsvendor``.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np

from experiments.binpack.experiments import EXPERIMENTS
from experiments.bound import least_minutes
from experiments.experiment import Options
from experiments.paper import Cells, PaperTable, Request, Settings, spread
from experiments.run_result import simulate
from penstock.measures import slo_share

BY_NAME: Final = {experiment.name: experiment for experiment in EXPERIMENTS}
SHARES: Final = (0.99, 0.999)
PHASES_S: Final = (0.12, 0.62, 0.71)
"""After the burst, while it can still be regrouped; after its limit; and so that no step of a replica that comes or
goes meets the next burst.
"""
LEAST_THRESHOLD, LARGEST_THRESHOLD = 0.3, 1.05
FINER: Final = (1.04, 1.03, 1.02, 1.01, 1.0, 0.99, 0.98, 0.97)
"""Multiples of the bisected threshold, tried in this order until all seeds together keep the share."""
NARROW: Final = 0.9
"""f_down of a rival, as a part of its f_up."""
INSTANT: Final = {
    "start_up_s": "0", "rebalance_s": "0.05", "stop_s": "0", "leaving_rebalances": "false", "staleness_s": "0",
    "service_scv": "0", "batch": "0",
}  # fmt: skip
"""Replicas come and go at once, each rebalance stops all for 50 ms, every event takes 5 ms, in order of arrival."""
SYSTEMS: Final[dict[str, dict[str, str]]] = {"instant": INSTANT, "default": {}}


class NewsvendorSettings(Settings, frozen=True, kw_only=True):
    """``penstock paper newsvendor``. ``rounds`` of bisection for each rival and tick phase; ``experiments`` and
    ``systems`` separated by commas. Table ``functions`` reads only ``seeds``, ``pipelines`` and ``rivals``.
    Table ``queues`` reads only ``seeds``.
    """

    seeds: tuple[int, ...] = (11, 12, 13, 14, 15)
    rounds: int = 4
    experiments: str = "binpack-workload-1,binpack-workload-1-skewed"
    systems: str = "default,instant"
    pipelines: Annotated[
        str, msgspec.Meta(description="Table functions: one or more of them, separated by commas.")
    ] = "document,synthetic,matrix"
    rivals: Annotated[str, msgspec.Meta(description="Table functions: those that are tuned.")] = "amesos,rps,dwp,lass"


class Cell(NamedTuple):
    """One contract on one load."""

    experiment: str
    system: str
    share: float


class Found(NamedTuple):
    """A scaler's runs, one for each seed, with its choice of tick phase and threshold."""

    scaler: str
    phase_s: float
    threshold: float | None
    shares: tuple[float, ...]
    minutes: tuple[float, ...]

    @property
    def share(self) -> float:
        """The mean."""
        return float(np.mean(self.shares))

    @property
    def cost(self) -> float:
        """The mean, in replica-minutes."""
        return float(np.mean(self.minutes))


class CellResult(NamedTuple):
    """The cheapest of each scaler that keeps the share, or the one that comes closest. ``least``: the lower bound."""

    cell: Cell
    found: Sequence[Found]
    least: float

    @property
    def lost(self) -> bool:
        """A rival keeps the share and newsvendor does not, or is dearer."""
        own, *rivals = self.found
        keeping = [rival for rival in rivals if rival.share >= self.cell.share]
        return any(own.share < self.cell.share or rival.cost < own.cost for rival in keeping)


@cache
def run(experiment: str, system: str, seed: int, phase_s: float, scaler: str, given: tuple[Any, ...]) -> Any:
    """(share, replica-minutes) of one run in virtual time."""
    worker = {"commit_interval_s": "0"} if system == "instant" else {}
    settings = {scaler: {name: str(value) for name, value in given}}
    options = Options(
        world="sim", seed=seed, tick_phase_s=phase_s, system=SYSTEMS[system], worker=worker, settings=settings
    )
    finished = simulate(BY_NAME[experiment], scaler, options)
    _, response_s = finished.responses()
    return slo_share(np.round(response_s, 9), BY_NAME[experiment].slo_s), finished.replica_minutes()


def runs(cell: Cell, seeds: Sequence[int], phase_s: float, scaler: str, threshold: float | None) -> Found:
    """A scaler's runs on all seeds."""
    given: tuple[Any, ...] = (("slo_share", cell.share),)
    if threshold is not None:
        given = (("f_up", threshold), ("f_down", NARROW * threshold), ("hold_s", 0))
    shares, minutes = zip(
        *(run(cell.experiment, cell.system, seed, phase_s, scaler, given) for seed in seeds), strict=True
    )
    return Found(scaler, phase_s, threshold, shares, minutes)


def bisected(cell: Cell, s: NewsvendorSettings, phase_s: float, scaler: str) -> list[Found]:
    """The thresholds of a rival that were tried at one tick phase, on the first seed."""
    low, high, found = LEAST_THRESHOLD, LARGEST_THRESHOLD, []
    for _ in range(s.rounds):
        middle = round((low + high) / 2, 4)
        tried = runs(cell, s.seeds[:1], phase_s, scaler, middle)
        found.append(tried)
        low, high = (middle, high) if tried.share >= cell.share else (low, middle)
    return found


def tuned(cell: Cell, s: NewsvendorSettings, scaler: str) -> Found:
    """A rival at its best tick phase and threshold, on all seeds."""
    chosen = best(cell.share, [each for phase_s in PHASES_S for each in bisected(cell, s, phase_s, scaler)])
    assert chosen.threshold is not None
    found = []
    for factor in FINER:
        found.append(runs(cell, s.seeds, chosen.phase_s, scaler, round(chosen.threshold * factor, 4)))
        if found[-1].share >= cell.share:
            break
    return best(cell.share, found)


def untuned(cell: Cell, s: NewsvendorSettings) -> Found:
    """newsvendor at its best tick phase, on all seeds."""
    chosen = best(cell.share, [runs(cell, s.seeds[:1], phase_s, "newsvendor", None) for phase_s in PHASES_S])
    return runs(cell, s.seeds, chosen.phase_s, "newsvendor", None)


def best(share: float, found: Sequence[Found]) -> Found:
    """The cheapest that keeps the share, or the one that comes closest."""
    keeping = [each for each in found if each.share >= share]
    return min(keeping, key=lambda each: each.cost) if keeping else max(found, key=lambda each: each.share)


def contract(request: Request) -> Iterator[CellResult]:
    """All cells, those that newsvendor loses first."""
    s: NewsvendorSettings = request.settings
    experiments, systems = s.experiments.split(","), s.systems.split(",")
    cells = [Cell(name, system, share) for name in experiments for system in systems for share in SHARES]
    results = []
    for cell in request.each(cells):
        found = [untuned(cell, s), *(tuned(cell, s, rival) for rival in ("binpack-tail", "linear"))]
        least = [least_of(cell, seed) for seed in s.seeds]
        results.append(CellResult(cell, found, float(np.mean(least))))
    yield from sorted(results, key=lambda each: not each.lost)


def least_of(cell: Cell, seed: int) -> float:
    """The lower bound for decisions between bursts."""
    options = Options(world="sim", seed=seed, tick_phase_s=0.62, system=SYSTEMS[cell.system])
    return least_minutes(BY_NAME[cell.experiment], options, cell.share)


def cells_of(result: CellResult) -> Cells:
    """A row."""
    row: dict[str, Any] = {
        "cell": f"{result.cell.experiment}, {result.cell.system}, {100 * result.cell.share:g} %",
        "result": "lost" if result.lost else "won",
        "bound": result.least,
    }
    for found in result.found:
        kept = "" if found.share >= result.cell.share else "missed: "
        choice = f"phase {found.phase_s:g} s" + ("" if found.threshold is None else f", f {found.threshold:g}")
        row[found.scaler] = (
            f"{kept}{spread([100 * share for share in found.shares], 2)} % @ {spread(found.minutes, 2)} ({choice})"
        )
    row["above bound"] = f"{100 * (result.found[0].cost / result.least - 1):.1f} %"
    return row


def note(results: Sequence[CellResult]) -> str:
    """How many cells were lost."""
    lost = sum(result.lost for result in results)
    return (
        f"{lost} of {len(results)} cells lost. Share within the SLO and replica-minutes: mean and range of the seeds. "
        "The bound is for one decision a second, between bursts."
    )


TABLES: Final = (
    PaperTable(
        "contract",
        "newsvendor in contract mode beside rivals tuned on the load that is scored",
        contract,
        cells_of,
        formats={"bound": "{:.2f}"},
        note=note,
    ),
)
