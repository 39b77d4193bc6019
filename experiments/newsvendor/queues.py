"""newsvendor-queue on the multi-queue paper's experiments, beside the paper's scalers and others, tuned by an oracle.

Every setting of a rival's grid is played on all seeds that are scored. Beside each contract of newsvendor-queue, a
rival has the setting with the fewest queue-minutes that misses no more events, or the one that misses the fewest. A
cell is lost to a rival with no more misses and no more queue- and container-minutes, and fewer of one of them, by the
means of the seeds. Lost cells come first.
``penstock paper newsvendor queues``.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import fsum
from typing import Any, Final, NamedTuple

import numpy as np

from experiments.experiment import Options
from experiments.multiqueue.tables import BY_NAME, container_minutes, queue_minutes
from experiments.newsvendor.functions import Setting, setting_text
from experiments.newsvendor.tables import NewsvendorSettings
from experiments.paper import Cells, PaperTable, Request
from experiments.processes import Remembered
from experiments.run_result import simulate
from simulator.engine import COMPLETED, REJECTED

OWN: Final = "newsvendor-queue"
CONTRACTS: Final = (0.2, 0.25, 0.3, 0.45, 0.55, 0.75, 0.9)
"""Shares of events within the SLO that newsvendor-queue is asked to keep. A run of two minutes reaches few of them."""
_PROBABILITIES: Final = tuple(
    (("max_p_k", most), ("min_p_k", least)) for most, least in product((0.3, 0.45, 0.6, 0.7), (0.01, 0.1))
)
GRIDS: Final[Mapping[str, Sequence[Setting]]] = {
    "multiqueue-damped": _PROBABILITIES,
    "multiqueue": _PROBABILITIES,
    "rps": tuple((("target_per_replica_per_s", rate),) for rate in (60.0, 80.0, 100.0, 120.0, 140.0)),
    "ds2": tuple(
        (("decision_interval_s", interval_s), ("headroom", part))
        for interval_s, part in product((1.0, 5.0), (0.0, 0.1, 0.3))
    ),
}
"""Settings of the rivals, each beside the one that the experiment gives them."""


class Played(NamedTuple):
    """One run: shares of the events that were rejected or later than the SLO, and that were rejected; queue-minutes
    and container-minutes in service, without spare queues.
    """

    missed: float
    rejected: float
    queue_minutes: float
    container_minutes: float


@Remembered
def play(experiment: str, scaler: str, setting: Setting, seed: int) -> Played:
    """One experiment under one scaler."""
    settings = {scaler: {name: str(value) for name, value in setting}}
    finished = simulate(BY_NAME[experiment], scaler, Options(world="sim", seed=seed, settings=settings))
    table = finished.results
    within = (table.outcome == COMPLETED) & (table.finished_s - table.intended_s <= BY_NAME[experiment].slo_s)
    return Played(
        1 - float(np.mean(within)),
        float(np.mean(table.outcome == REJECTED)),
        queue_minutes(finished),
        container_minutes(finished),
    )


class Found(NamedTuple):
    """A scaler's setting with its runs, one for each seed."""

    scaler: str
    setting: Setting
    runs: Sequence[Played]

    def mean(self, measure: str) -> float:
        """Over the seeds. A median would hide one run of twenty in which a scaler pays for more queues."""
        return fsum(getattr(run, measure) for run in self.runs) / len(self.runs)

    @property
    def result(self) -> tuple[float, ...]:
        """Misses, queue-minutes and container-minutes."""
        return tuple(map(self.mean, ("missed", "queue_minutes", "container_minutes")))

    def no_worse(self, other: "Found") -> bool:
        """No more misses, queue-minutes and container-minutes."""
        return all(own <= others for own, others in zip(self.result, other.result, strict=True))

    def beats(self, other: "Found") -> bool:
        """No worse in all of them and better in one."""
        return self.no_worse(other) and self.result != other.result


class CellResult(NamedTuple):
    """One contract on one experiment: newsvendor-queue and the rivals, each at its best beside it."""

    experiment: str
    contract: float
    own: Found
    rivals: Sequence[Found]
    lost_to: Sequence[str]

    @property
    def won_over(self) -> list[str]:
        """Rivals whose best beside this contract is no better in any of the three."""
        return [rival.scaler for rival in self.rivals if self.own.no_worse(rival)]


def best(own: Found, tried: Sequence[Found]) -> Found:
    """Of those that miss no more the one with the fewest queue-minutes, or the one that misses the fewest."""
    keeping = [each for each in tried if each.mean("missed") <= own.mean("missed")]
    if keeping:
        return min(keeping, key=lambda each: each.result[1:])
    return min(tried, key=lambda each: each.mean("missed"))


def compared(experiment: str, contract: float, own: Found, tried: Mapping[str, Sequence[Found]]) -> CellResult:
    """One contract beside all that was tried of the rivals."""
    lost_to = [scaler for scaler, found in tried.items() if any(each.beats(own) for each in found)]
    return CellResult(experiment, contract, own, [best(own, found) for found in tried.values()], lost_to)


def runs(experiment: str, scaler: str, settings: Sequence[Setting], seeds: Sequence[int]) -> list[Found]:
    """The settings, each on all these seeds."""
    played = iter(play.each([(experiment, scaler, setting, seed) for setting in settings for seed in seeds]))
    return [Found(scaler, setting, [next(played) for _ in seeds]) for setting in settings]


def queues(request: Request) -> Iterator[CellResult]:
    """All cells, the lost ones first."""
    s: NewsvendorSettings = request.settings
    tried: dict[tuple[str, str], list[Found]] = {}
    for name, scaler in request.each(list(product(BY_NAME, (OWN, *GRIDS))), " ".join):
        settings = [(("slo_share", each),) for each in CONTRACTS] if scaler == OWN else [(), *GRIDS[scaler]]
        tried[name, scaler] = runs(name, scaler, settings, s.seeds)
    results = [
        compared(name, contract, own, {scaler: tried[name, scaler] for scaler in GRIDS})
        for name in BY_NAME
        for contract, own in zip(CONTRACTS, tried[name, OWN], strict=True)
    ]
    yield from sorted(results, key=lambda each: not each.lost_to)


def cells_of(result: CellResult) -> Cells:
    """A row."""
    row: dict[str, Any] = {
        "experiment": result.experiment,
        "contract": f"{100 * result.contract:g} %",
        "lost to": ", ".join(result.lost_to) or "–",
        "won over": ", ".join(result.won_over) or "–",
        "seeds": len(result.own.runs),
        OWN: _parts(result.own),
    }
    for found in result.rivals:
        row[found.scaler] = {**_parts(found), "setting": setting_text(found.setting) or "the experiment's"}
    return row


def _parts(found: Found) -> Cells:
    def of(measure: str, factor: float, digits: int) -> str:
        least, most = (factor * each(getattr(run, measure) for run in found.runs) for each in (min, max))
        return f"{factor * found.mean(measure):.{digits}f} ({least:.{digits}f}–{most:.{digits}f})"

    return {
        "missed, %": of("missed", 100, 1),
        "rejected, %": of("rejected", 100, 1),
        "queue-minutes": of("queue_minutes", 1, 2),
        "container-minutes": of("container_minutes", 1, 1),
    }


def note(results: Sequence[CellResult]) -> str:
    """How many cells were lost, and the conditions."""
    lost = sum(bool(result.lost_to) for result in results)
    return (
        f"{lost} of {len(results)} cells lost: a setting of a rival has no more misses, queue-minutes and "
        "container-minutes, and fewer of one of them (means). Missed: rejected, or later than 500 ms. Simulated, two "
        "minutes; mean (range) of the seeds: missed %, rejected %; queue-minutes; container-minutes. A rival has the "
        "setting, of its grid or the experiment's own, with the fewest queue-minutes that misses no more, or the one "
        "that misses the fewest. "
        '"won over": that setting has at least as many misses, queue-minutes and container-minutes.'
    )


RESULT: Final = "{} %, {} %; {}; {}"
TABLE: Final = PaperTable(
    "queues",
    "newsvendor-queue beside rivals tuned on the load that is scored: banks of bounded queues",
    queues,
    cells_of,
    formats={OWN: RESULT, **dict.fromkeys(GRIDS, f"{RESULT}; {{}}")},
    note=note,
)
