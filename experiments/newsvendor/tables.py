"""The cheapest run of each scaler that keeps a contract: newsvendor as it is, rivals tuned by an oracle.

A rival's threshold f_up is bisected on the first of the seeds that are scored, without hold time and with narrow
hysteresis, and then refined in steps of 1 % until the mean of all seeds keeps the share; a rival may choose its tick
phase, newsvendor has the one of a rule. What can only be dearer than a newsvendor that keeps the share is not tried.
Lost cells come first. ``penstock paper newsvendor``; with a ``file``, in parts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from math import ceil, inf
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np

from experiments.binpack.experiments import EXPERIMENTS, WORKLOAD_1
from experiments.bound import least_minutes
from experiments.experiment import Experiment, Options
from experiments.newsvendor.phases import tick_phase_s
from experiments.paper import UNKNOWN, Cells, PaperTable, Request, Settings, spread
from experiments.run_result import simulate
from penstock.measures import slo_share
from penstock.parameters import unknown
from penstock.runspec import Arrivals
from penstock.systems import StreamSystem
from producers.workloads import parse_workload

RIVALS: Final = ("binpack-tail", "linear")
SHARES: Final = (0.99, 0.999)
PHASES_S: Final = (0.12, 0.62)
"""After the burst, while it can still be regrouped; and after its limit. Beside the one of the rule."""
LEAST_THRESHOLD, LARGEST_THRESHOLD = 0.3, 1.05
LOWEST: Final = 0.02
"""A rival that misses the share with all thresholds between those is searched from here on: one replica for each
partition all the time.
"""
MOST = 0.995
"""A rival's threshold is below 1."""
FINER: Final = (1.04, 1.03, 1.02, 1.01, 1.0, 0.99, 0.98, 0.97)
"""Multiples of the bisected threshold, tried in this order until all seeds together keep the share."""
NARROW: Final = 0.9
"""f_down of a rival, as a part of its f_up."""
INSTANT: Final = {
    "start_up_s": "0", "rebalance_s": "0.05", "stop_s": "0", "leaving_rebalances": "false", "staleness_s": "0",
    "service_scv": "0", "batch": "0",
}  # fmt: skip
"""Replicas come and go at once, each rebalance stops all for 50 ms, every event takes 5 ms, in order of arrival."""
SYSTEMS: Final[dict[str, dict[str, str]]] = {
    "instant": INSTANT,
    "instant-10": {**INSTANT, "start_up_s": "10"},
    "default": {},
}
"""Others are named by start-up and rebalance time in seconds, as in ``2/0.5``."""
DEARER: Final = 1.03
"""A rival that costs so many times what newsvendor pays for the share has lost."""


def with_workload(name: str, workload: str, arrivals: Arrivals = "burst") -> Experiment:
    """Workload 1's fleet with another load, and enough replicas for its first second."""
    load = parse_workload(workload)
    slo_s, service_s = WORKLOAD_1.slo_s, WORKLOAD_1.worker.service_time_s
    first = min(WORKLOAD_1.max_replicas, max(1, ceil(float(load.rate_at(0.0)) * service_s / slo_s)))
    return replace(
        WORKLOAD_1,
        name=name,
        workload=workload,
        seconds=load.duration_s,
        arrivals=arrivals,
        initial_replicas=first,
        printed={},
    )


LOADS: Final = (
    *EXPERIMENTS,
    with_workload("step", "step:before_per_s=100,after_per_s=300,at_s=200,duration_s=600"),
    with_workload("on-off", "on-off:on_per_s=300,on_s=60,off_s=60,off_per_s=60,duration_s=600"),
    with_workload("poisson", "binpack-workload-1", "poisson"),
    # An hour in which the last of every ten minutes is a spike.
    with_workload("spikes", "on-off:on_per_s=100,on_s=540,off_per_s=350,off_s=60,duration_s=3600"),
)
BY_NAME: Final = {experiment.name: experiment for experiment in LOADS}


def system_of(name: str) -> dict[str, str]:
    """The fields of a system. PenstockError for a name that is none."""
    if name in SYSTEMS:
        return SYSTEMS[name]
    start_up_s, slash, rebalance_s = name.partition("/")
    if not slash:
        raise unknown("system", name, SYSTEMS, "or START-UP/REBALANCE in seconds, as in 2/0.5")
    return {"start_up_s": start_up_s, "rebalance_s": rebalance_s}


class NewsvendorSettings(Settings, frozen=True, kw_only=True):
    """``penstock paper newsvendor``. ``rounds`` of bisection for each rival and tick phase; ``experiments``,
    ``systems`` and ``shares`` separated by commas; ``file``: of cells, which are read from it if they are there and
    appended if they are not. ``announced``: newsvendor knows the largest rate of each load
    (``announced_peak_per_s``). Table ``functions`` reads only ``seeds``, ``pipelines`` and ``rivals``.
    Table ``queues`` reads only ``seeds``, table ``loads`` only ``first``, ``loads`` and ``announced``.
    """

    seeds: tuple[int, ...] = (11, 12, 13, 14, 15)
    rounds: int = 4
    experiments: str = "binpack-workload-1,binpack-workload-1-skewed"
    systems: str = "default,instant"
    shares: str = "0.99,0.999"
    file: str = ""
    announced: bool = False
    pipelines: Annotated[
        str, msgspec.Meta(description="Table functions: one or more of them, separated by commas.")
    ] = "document,synthetic,matrix"
    first: Annotated[int, msgspec.Meta(ge=0, description="Table loads: number of the first load.")] = 1
    loads: Annotated[int, msgspec.Meta(ge=1, description="Table loads: how many.")] = 200
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
    """The cheapest of each scaler that keeps the share, or the one that comes closest. ``least``: the lower bound;
    None for other arrivals than bursts.
    """

    cell: Cell
    found: Sequence[Found]
    least: float | None

    @property
    def lost(self) -> bool:
        """A rival keeps the share and newsvendor does not, or is dearer."""
        own, *rivals = self.found
        keeping = [rival for rival in rivals if rival.share >= self.cell.share]
        return any(own.share < self.cell.share or rival.cost < own.cost for rival in keeping)

    @property
    def verdict(self) -> str:
        """Won only with the share kept."""
        if self.lost:
            return "lost"
        return "won" if self.found[0].share >= self.cell.share else "kept by none"


class MeasuredCell(msgspec.Struct, omit_defaults=True):
    """A line of a file of cells. ``announced``: newsvendor knew the largest rate."""

    seeds: tuple[int, ...]
    result: CellResult
    announced: bool = False


@cache
def run(experiment: str, system: str, seed: int, phase_s: float, scaler: str, given: tuple[Any, ...]) -> Any:
    """(share, replica-minutes) of one run in virtual time."""
    settings = {scaler: {name: str(value) for name, value in given}}
    fields = system_of(system)
    worker = {"commit_interval_s": "0"} if fields.get("staleness_s") == "0" else {}
    options = Options(world="sim", seed=seed, tick_phase_s=phase_s, system=fields, worker=worker, settings=settings)
    finished = simulate(BY_NAME[experiment], scaler, options)
    _, response_s = finished.responses()
    return slo_share(np.round(response_s, 9), BY_NAME[experiment].slo_s), finished.replica_minutes()


def runs(
    cell: Cell, seeds: Sequence[int], phase_s: float, scaler: str, threshold: float | None, *, announced: bool = False
) -> Found:
    """A scaler's runs on all seeds; a rival has a ``threshold``. ``announced``: newsvendor knows the largest rate."""
    given: tuple[Any, ...] = (("slo_share", cell.share),)
    if announced:
        given += (("announced_peak_per_s", peak_per_s(BY_NAME[cell.experiment])),)
    if threshold is not None:
        given = (("f_up", threshold), ("f_down", NARROW * threshold), ("hold_s", 0))
    shares, minutes = zip(
        *(run(cell.experiment, cell.system, seed, phase_s, scaler, given) for seed in seeds), strict=True
    )
    return Found(scaler, phase_s, threshold, shares, minutes)


def bisected(
    cell: Cell, s: NewsvendorSettings, phase_s: float, scaler: str, most_minutes: float = inf
) -> Iterator[Found]:
    """The thresholds of a rival that are tried at one tick phase, on the first seed. A lower threshold costs more: one
    that misses the share for ``most_minutes`` is the last.
    """
    for low, high in ((LEAST_THRESHOLD, LARGEST_THRESHOLD), (LOWEST, LEAST_THRESHOLD)):
        kept = False
        for _ in range(s.rounds):
            middle = min(MOST, round((low + high) / 2, 4))
            tried = runs(cell, s.seeds[:1], phase_s, scaler, middle)
            yield tried
            keeps = tried.share >= cell.share
            if not keeps and tried.cost > most_minutes:
                return
            low, high, kept = (middle, high, True) if keeps else (low, middle, kept)
        if kept:
            return


def tuned(cell: Cell, s: NewsvendorSettings, scaler: str, most_minutes: float = inf) -> Found:
    """A rival at its best tick phase and threshold, on all seeds."""
    phases_s = dict.fromkeys((*PHASES_S, phase_of(cell)) if BY_NAME[cell.experiment].arrivals == "burst" else (0.62,))
    chosen = best(
        cell.share, [each for phase_s in phases_s for each in bisected(cell, s, phase_s, scaler, most_minutes)]
    )
    assert chosen.threshold is not None
    found = []
    for factor in FINER:
        threshold = min(MOST, round(chosen.threshold * factor, 4))
        found.append(runs(cell, s.seeds, chosen.phase_s, scaler, threshold))
        if found[-1].share >= cell.share or found[-1].cost > most_minutes:
            break
    return best(cell.share, found)


def peak_per_s(experiment: Experiment) -> float:
    """The largest rate of its load, in whole seconds."""
    load = parse_workload(experiment.workload)
    return max(float(load.rate_at(float(at_s))) for at_s in range(int(load.duration_s)))


def phase_of(cell: Cell) -> float:
    """The tick phase by rule."""
    system = msgspec.convert(system_of(cell.system), StreamSystem, strict=False)
    return tick_phase_s(
        slo_s=BY_NAME[cell.experiment].slo_s,
        start_up_s=system.start_up_s,
        rebalance_s=system.rebalance_s,
        stop_s=system.stop_s,
    )


def best(share: float, found: Sequence[Found]) -> Found:
    """The cheapest that keeps the share, or the one that comes closest."""
    keeping = [each for each in found if each.share >= share]
    return min(keeping, key=lambda each: each.cost) if keeping else max(found, key=lambda each: each.share)


def contract(request: Request) -> Iterator[CellResult]:
    """All cells, those that newsvendor loses first."""
    s: NewsvendorSettings = request.settings
    names, systems, shares = s.experiments.split(","), s.systems.split(","), map(float, s.shares.split(","))
    for name in names:
        if name not in BY_NAME:
            raise unknown("load", name, BY_NAME, f"choose of {', '.join(BY_NAME)}")
    cells = [Cell(*each) for each in product(names, systems, shares)]
    known = known_cells(Path(s.file), s) if s.file else {}
    results = [known[cell] for cell in cells if cell in known]
    for cell in request.each([each for each in cells if each not in known]):
        results.append(compared(cell, s))
        if s.file:
            with Path(s.file).open("ab") as file:
                file.write(msgspec.json.encode(MeasuredCell(s.seeds, results[-1], s.announced)) + b"\n")
    yield from sorted(results, key=lambda each: not each.lost)


def compared(cell: Cell, s: NewsvendorSettings) -> CellResult:
    """newsvendor beside each rival and the bound."""
    own = runs(cell, s.seeds, phase_of(cell), "newsvendor", None, announced=s.announced)
    most_minutes = DEARER * own.cost if own.share >= cell.share else inf
    rivals = [tuned(cell, s, rival, most_minutes) for rival in RIVALS]
    least = [least_of(cell, seed) for seed in s.seeds] if BY_NAME[cell.experiment].arrivals == "burst" else []
    return CellResult(cell, [own, *rivals], float(np.mean(least)) if least else None)


def known_cells(file: Path, s: NewsvendorSettings) -> dict[Cell, CellResult]:
    """The cells of a file that have these seeds and the same ``announced``; none if the file does not exist yet."""
    lines = file.read_bytes().splitlines() if file.exists() else []
    read = [msgspec.json.decode(line, type=MeasuredCell) for line in lines]
    return {each.result.cell: each.result for each in read if (each.seeds, each.announced) == (s.seeds, s.announced)}


def least_of(cell: Cell, seed: int) -> float:
    """The lower bound for decisions between bursts."""
    options = Options(world="sim", seed=seed, tick_phase_s=0.62, system=system_of(cell.system))
    return least_minutes(BY_NAME[cell.experiment], options, cell.share)


def cells_of(result: CellResult) -> Cells:
    """A row."""
    row: dict[str, Any] = {
        "cell": f"{result.cell.experiment}, {result.cell.system}, {100 * result.cell.share:g} %",
        "result": result.verdict,
        "bound": UNKNOWN if result.least is None else f"{result.least:.2f}",
    }
    for found in result.found:
        kept = "" if found.share >= result.cell.share else "missed: "
        choice = f"phase {found.phase_s:g} s" + ("" if found.threshold is None else f", f {found.threshold:g}")
        row[found.scaler] = (
            f"{kept}{spread([100 * share for share in found.shares], 2)} % @ {spread(found.minutes, 2)} ({choice})"
        )
    row["above bound"] = UNKNOWN if result.least is None else f"{100 * (result.found[0].cost / result.least - 1):.1f} %"
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
        note=note,
    ),
)
