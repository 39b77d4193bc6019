"""newsvendor-function on AMESoS' three pipelines, beside the paper's scalers, each tuned by an oracle.

A rival's grid is tried on the first of the seeds that are scored. The cheapest settings that keep the contract and the
closest of the cheaper ones go on to more seeds, with finer steps around the best of them, and then to all seeds, the
cheapest first, until one keeps the contract over all seeds together. If none does, a few safer steps follow. Lost cells
come first.
``penstock paper newsvendor functions``.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np

from controller.scalers.amesos import THRESHOLDS_S
from experiments.amesos.experiments import COLD_START_S, EXPERIMENTS, PIPELINES
from experiments.experiment import Options
from experiments.newsvendor.tables import SHARES, NewsvendorSettings
from experiments.paper import Cells, PaperTable, Request
from experiments.processes import Remembered
from experiments.run_result import simulate
from penstock.parameters import unknown
from producers.workloads.azure import Pipeline

OWN: Final = "newsvendor-function"
PUBLISHED: Final = "amesos"
"""The paper's own scaler, which is also shown with the paper's settings."""
RIVALS: Final = ("amesos", "rps", "dwp", "lass")
BY_PIPELINE: Final = dict(zip(PIPELINES, EXPERIMENTS, strict=True))
TOLERANCE_S: Final = 1e-9

INTERVALS_S: Final = (1.0, 2.5)
"""Decision intervals that every rival may choose. newsvendor-function has one of 1 s."""
RHOS: Final = (0.6, 0.7, 0.8, 0.9, 1.0)
RHO_STEP: Final = 0.1
THRESHOLD_PARTS: Final = (0.6, 1.0, 1.4)
"""Of the laxity threshold that the paper gives for a pipeline."""
UP_SHARES: Final = (0.0, 0.1)
WAIT_PARTS: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
"""Of the deadline, how long a request may wait at each function."""
WAIT_STEP: Final = 2.0
PROBABILITIES: Final = (0.8, 0.95)
FIXED: Final[Mapping[str, Mapping[str, str]]] = {"lass": {"long_window_s": "10", "short_window_s": "5"}}
"""For all settings of a rival: LaSS with its published windows of 120 and 10 s follows no load of eight minutes."""

FIRST_SEEDS, FIRST_GOING_ON = 1, 4
CLOSER_SEEDS, CLOSER_GOING_ON = 3, 2
"""On how many of the seeds all settings, and then those that went on, are compared; and how many of those that keep the
contract, and of those that nearly do, go on.
"""
FINER: Final = (0.5, 0.25)
"""Parts of a step of the grid that are tried around the best."""

MORE_STEPS: Final = 4
"""Of the finest kind, if no setting keeps the contract on all seeds, as long as the closest misses it by less than NEAR
times the late requests that are allowed.
"""
NEAR: Final = 2.0

Setting = tuple[tuple[str, Any], ...]


def grid(pipeline: Pipeline, rival: str) -> list[Setting]:
    """The settings of a rival that are tried."""
    if rival == "amesos":
        thresholds_s = [part * THRESHOLDS_S["coherent"][pipeline] for part in THRESHOLD_PARTS]
        return _settings(rho=RHOS, threshold_s=thresholds_s)
    if rival == "dwp":
        return _settings(rho=RHOS, up_share=UP_SHARES)
    if rival == "rps":
        return _settings(rho=RHOS)
    waits_s = [part * PIPELINES[pipeline].deadline_s for part in WAIT_PARTS]
    return _settings(wait_s=waits_s, probability=PROBABILITIES)


def _settings(**values: Sequence[float]) -> list[Setting]:
    values = {**values, "decision_interval_s": INTERVALS_S}
    return [tuple(zip(values, map(_rounded, each), strict=True)) for each in product(*values.values())]


def setting_text(setting: Setting) -> str:
    """As in a table; empty for a scaler's own settings."""
    return ", ".join(f"{name}={value if isinstance(value, str) else f'{value:g}'}" for name, value in setting)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def beside(setting: Setting, part: float) -> list[Setting]:
    """Settings that part of a step away in the parameter that changes the cost most: ρ up to 1, or the wait."""
    values = dict(setting)
    if "rho" in values:
        near = [_rounded(values["rho"] + part * step) for step in (-RHO_STEP, RHO_STEP)]
        return [tuple({**values, "rho": rho}.items()) for rho in near if rho <= 1]
    near = [_rounded(values["wait_s"] * WAIT_STEP**step) for step in (-part, part)]
    return [tuple({**values, "wait_s": wait_s}.items()) for wait_s in near]


def safer(setting: Setting) -> Setting:
    """The finest step towards fewer late requests: ρ or the wait is smaller."""
    return beside(setting, FINER[-1])[0]


class Played(NamedTuple):
    """One run: its requests, how many of them left the pipeline after their deadline, and its replica-minutes."""

    requests: int
    late: int
    minutes: float


@Remembered
def play(pipeline: Pipeline, scaler: str, setting: Setting, seed: int) -> Played:
    """One pipeline under one scaler, from one replica of each function on."""
    values = {**FIXED.get(scaler, {}), **{name: str(value) for name, value in setting}} if setting else {}
    options = Options(world="sim", seed=seed, settings={scaler: values}, initial_replicas=1)
    finished = simulate(BY_PIPELINE[pipeline], scaler, options)
    _, response_s = finished.responses()
    late = int(np.count_nonzero(response_s > PIPELINES[pipeline].deadline_s + TOLERANCE_S))
    return Played(len(response_s), late, finished.replica_minutes())


class Found(NamedTuple):
    """A scaler's setting with its runs, one for each seed."""

    scaler: str
    setting: Setting
    runs: Sequence[Played]

    @property
    def late(self) -> float:
        """Share of the requests of all runs that were late."""
        return sum(run.late for run in self.runs) / sum(run.requests for run in self.runs)

    @property
    def cost(self) -> float:
        """The mean, in replica-minutes."""
        return float(np.mean([run.minutes for run in self.runs]))


class Cell(NamedTuple):
    """One contract for one pipeline."""

    pipeline: Pipeline
    share: float

    @property
    def allowed(self) -> float:
        """Share of the requests that may be late."""
        return round(1 - self.share, 9)

    def __str__(self) -> str:
        return f"{self.pipeline}, {100 * self.share:g} %"


class CellResult(NamedTuple):
    """newsvendor-function, the paper's scaler as published, and the rivals: of each the cheapest that keeps the
    contract, or the one with the fewest late requests.
    """

    cell: Cell
    own: Found
    published: Found
    rivals: Sequence[Found]

    @property
    def lost(self) -> bool:
        """A rival keeps the contract and newsvendor-function does not, or is dearer."""
        keeping = [rival for rival in (self.published, *self.rivals) if rival.late <= self.cell.allowed]
        return any(self.own.late > self.cell.allowed or rival.cost < self.own.cost for rival in keeping)

    @property
    def fewer_late(self) -> list[str]:
        """Tuned rivals that keep the contract with fewer late requests."""
        return [each.scaler for each in self.rivals if each.late <= self.cell.allowed and each.late < self.own.late]


def best(found: Sequence[Found], allowed: float) -> Found:
    """The cheapest with no more late requests than allowed, or the one with the fewest."""
    keeping = [each for each in found if each.late <= allowed]
    return min(keeping, key=lambda each: each.cost) if keeping else min(found, key=lambda each: each.late)


def promising(found: Sequence[Found], allowed: float, number: int) -> list[Setting]:
    """So many of the cheapest settings that keep the contract, and of the closest of those that would be cheaper."""
    keeping = sorted((each for each in found if each.late <= allowed), key=lambda each: each.cost)
    closest = sorted(
        (each for each in found if each.late > allowed and (not keeping or each.cost < keeping[0].cost)),
        key=lambda each: each.late,
    )
    chosen = (*keeping[:number], *closest[:number])
    return [each.setting for each in sorted(chosen, key=lambda each: each.cost)]


def runs(pipeline: Pipeline, scaler: str, settings: Sequence[Setting], seeds: Sequence[int]) -> list[Found]:
    """The settings, each on all these seeds."""
    played = iter(play.each([(pipeline, scaler, setting, seed) for setting in settings for seed in seeds]))
    return [Found(scaler, setting, [next(played) for _ in seeds]) for setting in settings]


def tuned(cell: Cell, rival: str, seeds: Sequence[int]) -> Found:
    """The cheapest setting found that keeps the contract on all seeds, or the one that comes closest."""
    pipeline, allowed = cell.pipeline, cell.allowed
    tried = runs(pipeline, rival, grid(pipeline, rival), seeds[:FIRST_SEEDS])
    tried = runs(pipeline, rival, promising(tried, allowed, FIRST_GOING_ON), seeds[:CLOSER_SEEDS])
    for part in FINER:
        tried += runs(pipeline, rival, beside(best(tried, allowed).setting, part), seeds[:CLOSER_SEEDS])
    final: list[Found] = []
    for setting in promising(tried, allowed, CLOSER_GOING_ON):
        final += runs(pipeline, rival, [setting], seeds)
        if final[-1].late <= allowed:
            break
    setting = best(final, allowed).setting
    for _ in range(MORE_STEPS):
        if not allowed < best(final, allowed).late <= NEAR * allowed:
            break
        setting = safer(setting)
        final += runs(pipeline, rival, [setting], seeds)
    return best(final, allowed)


def functions(request: Request) -> Iterator[CellResult]:
    """All cells: those that newsvendor-function loses first, then those where a rival had fewer late requests."""
    s: NewsvendorSettings = request.settings
    pipelines = s.pipelines.split(",")
    for name in pipelines:
        if name not in PIPELINES:
            raise unknown("pipeline", name, PIPELINES, f"choose one or more of {', '.join(PIPELINES)}")
    rivals = s.rivals.split(",")
    for name in rivals:
        if name not in RIVALS:
            raise unknown("rival", name, RIVALS, f"choose one or more of {', '.join(RIVALS)}")
    cells = [Cell(pipeline, share) for pipeline in PIPELINES if pipeline in pipelines for share in SHARES]
    found: dict[tuple[Cell, str], Found] = {}
    for cell, scaler in request.each(list(product(cells, (OWN, *rivals))), lambda each: f"{each[0]}: {each[1]}"):
        if scaler == OWN:
            setting: Setting = (("slo_share", cell.share),)
            [found[cell, scaler]] = runs(cell.pipeline, scaler, [setting], s.seeds)
        else:
            found[cell, scaler] = tuned(cell, scaler, s.seeds)
    results = []
    for cell in cells:
        [published] = runs(cell.pipeline, PUBLISHED, [()], s.seeds)
        results.append(CellResult(cell, found[cell, OWN], published, [found[cell, rival] for rival in rivals]))
    yield from in_order(results)


class Scored(Protocol):
    """One contract with its outcome."""

    @property
    def lost(self) -> bool:
        """A rival keeps the contract and our scaler does not, or is dearer."""

    @property
    def fewer_late(self) -> list[str]:
        """Rivals that keep the contract with fewer late requests."""


ScoredT = TypeVar("ScoredT", bound=Scored)


def in_order(results: Sequence[ScoredT]) -> list[ScoredT]:
    """Lost cells first, then those where a rival had fewer late requests."""
    return sorted(results, key=lambda each: (not each.lost, not each.fewer_late))


def cells_of(result: CellResult) -> Cells:
    """A row, with the conditions of its runs."""
    row: dict[str, Any] = {
        "pipeline, contract": str(result.cell),
        "result": "lost" if result.lost else "won",
        "seeds": len(result.own.runs),
        OWN: parts_of(result.cell.allowed, result.own),
        f"{PUBLISHED}, published": parts_of(result.cell.allowed, result.published),
    }
    for found in result.rivals:
        row[found.scaler] = {**parts_of(result.cell.allowed, found), "setting": setting_text(found.setting)}
    row["fewer late"] = ", ".join(result.fewer_late)
    return row


def parts_of(allowed: float, found: Found) -> Cells:
    """Late requests, cost with its range, and whether no more than ``allowed`` were late."""
    minutes = [run.minutes for run in found.runs]
    return {
        "late, %": 100 * found.late,
        "replica-minutes": found.cost,
        "least": min(minutes),
        "most": max(minutes),
        "contract": "kept" if found.late <= allowed else "missed",
    }


def note(results: Sequence[CellResult]) -> str:
    """How many cells were lost, and the conditions."""
    lost = sum(result.lost for result in results)
    intervals = " or ".join(f"{each:g}" for each in INTERVALS_S)
    windows = FIXED["lass"]
    return (
        f"{lost} of {len(results)} cells lost. Late requests of all seeds together @ mean replica-minutes (range). "
        f"Simulated, eight minutes, start-up {COLD_START_S:g} s, one replica of each function at the start. Rivals: "
        "the cheapest setting found that keeps the contract on these seeds, or the one with the fewest late requests. "
        f"Each may decide every {intervals} s; lass has windows of {windows['long_window_s']} and "
        f'{windows["short_window_s"]} s. "fewer late": tuned rivals that keep the contract with fewer late requests '
        "than newsvendor-function; nothing is proven at equal misses there."
    )


RESULT: Final = "{:.3f} % @ {:.2f} ({:.2f}–{:.2f}), {}"
TABLE: Final = PaperTable(
    "functions",
    "newsvendor-function beside rivals tuned on the load that is scored: pipelines of functions",
    functions,
    cells_of,
    formats={
        OWN: RESULT,
        f"{PUBLISHED}, published": RESULT,
        **dict.fromkeys(RIVALS, f"{RESULT}; {{}}"),
    },
    note=note,
)
