"""newsvendor-network on the pub/sub paper's experiments, beside the paper's scalers and others, tuned by an oracle.

A rival's grid is tried on the first of the seeds that are scored. The cheapest settings that keep the contract and the
closest of the cheaper ones go on to more seeds, and then to all, the cheapest first, until one keeps the contract over
all seeds together. A cell is lost to a rival that keeps the contract and is cheaper. Lost cells come first.
``penstock paper newsvendor networks``.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np

from experiments.experiment import Options
from experiments.newsvendor.functions import (
    RESULT,
    Found,
    Played,
    Setting,
    best,
    in_order,
    parts_of,
    promising,
    setting_text,
)
from experiments.newsvendor.tables import NewsvendorSettings
from experiments.paper import Cells, PaperTable, Request
from experiments.processes import Remembered
from experiments.pubsub.experiments import EXPERIMENTS
from experiments.run_result import simulate

OWN: Final = "newsvendor-network"
BY_NAME: Final = {experiment.name: experiment for experiment in EXPERIMENTS}
CELLS: Final = (
    ("pubsub-mintime", 0.9, 1),
    ("pubsub-mintime", 0.8, 1),
    ("pubsub-mincost", 0.8, 1),
    ("pubsub-mincost", 0.7, 1),
    ("pubsub-dynamic", 0.99, 1),
    ("pubsub-dynamic", 0.9, 1),
    ("pubsub-growing", 0.99, 1),
    ("pubsub-growing", 0.99, 0),
)
"""Experiments, shares of the jobs within their limits, and the least number of consumers of each topic. Services alone
are longer than 60 and 50 s for some 7 and 15 % of the jobs of pubsub-mintime and pubsub-mincost. ``pubsub`` has the
load of pubsub-mincost.
"""
INTERVALS_S: Final = (2.0, 10.0)
"""Decision intervals that every rival may choose, the paper's scalers beside their own. newsvendor-network has 2 s."""
PAPERS_INTERVALS_S: Final = (2.0, 30.0)
TOLERANCE_S: Final = 1e-9
FIRST_SEEDS, FIRST_GOING_ON = 1, 4
CLOSER_SEEDS, CLOSER_GOING_ON = 3, 2


def _settings(**values: Sequence[float | str]) -> list[Setting]:
    return [tuple(zip(values, each, strict=True)) for each in product(*values.values())]


ONE: Final[Setting] = (("min_replicas", 1),)
GRIDS: Final[Mapping[str, Sequence[Setting]]] = {
    "min-time": _settings(budget=(1, 2, 3, 4, 5, 6, 8), decision_interval_s=PAPERS_INTERVALS_S, timer_s=(60.0,)),
    "min-cost": _settings(
        response_limit_s=(35.0, 37.0, 40.0, 45.0, 50.0, 60.0), decision_interval_s=PAPERS_INTERVALS_S, timer_s=(60.0,)
    ),
    "random": _settings(budget=(4, 5, 6, 8, 10), timer_s=(60.0,)),
    "keda-rabbitmq": [
        (*setting, ("stabilisation_s", 0.0), *ONE)
        for setting in (
            *_settings(queue_length=(0.7, 1.0, 1.2, 1.5, 2.0), decision_interval_s=INTERVALS_S[:1]),
            *_settings(queue_length=(1.0, 1.5), decision_interval_s=INTERVALS_S[1:]),
        )
    ],
    "hpa": [
        (*setting, ("stabilisation_s", 0.0))
        for setting in (
            *_settings(metric=("utilisation",), target_per_replica=(0.7, 0.9), decision_interval_s=INTERVALS_S[1:]),
            *_settings(metric=("backlog",), target_per_replica=(0.5, 1.0), decision_interval_s=INTERVALS_S[:1]),
        )
    ],
    "rps": _settings(rho=(0.8, 1.0), decision_interval_s=INTERVALS_S),
    "ds2": _settings(headroom=(0.0, 0.3), decision_interval_s=(INTERVALS_S[1], 60.0)),
}
"""Settings of the rivals, each beside the one that the experiment gives them. All keep one consumer of each topic."""
TO_NONE: Final[Mapping[str, Sequence[Setting]]] = {
    "keda-rabbitmq": _settings(
        queue_length=(1.0, 2.0, 5.0, 20.0),
        poll_interval_s=(2.0, 30.0),
        cooldown_s=(0.0, 30.0),
        decision_interval_s=INTERVALS_S[:1],
        stabilisation_s=(0.0,),
        min_replicas=(0,),
    ),
}
"""Settings of those that can go down to no consumer and come back, where they may. Without work, ds2 stays at none."""


class NewsvendorNetworkSettings(NewsvendorSettings, frozen=True, kw_only=True):
    """``penstock paper newsvendor``. ``rounds`` of bisection for each rival and tick phase; ``experiments`` and
    ``systems`` separated by commas. Table ``functions`` reads only ``seeds``, ``pipelines`` and ``rivals``.
    Table ``queues`` reads only ``seeds``, table ``networks`` only ``seeds``, ``networks`` and
    ``network_rivals``.
    """

    networks: Annotated[
        str, msgspec.Meta(description="Table networks: one or more experiments, separated by commas.")
    ] = ",".join(dict.fromkeys(name for name, *_ in CELLS))
    network_rivals: Annotated[str, msgspec.Meta(description="Table networks: those that are tuned.")] = ",".join(GRIDS)


@Remembered
def play(experiment: str, scaler: str, setting: Setting, seed: int) -> Played:
    """One experiment under one scaler."""
    settings = {scaler: {name: str(value) for name, value in setting}}
    finished = simulate(BY_NAME[experiment], scaler, Options(world="sim", seed=seed, settings=settings))
    _, response_s = finished.responses()
    late = int(np.count_nonzero(response_s > BY_NAME[experiment].slo_s + TOLERANCE_S))
    # Tasks that wait until the end of the run have their consumers after it.
    last_s = float(np.max(finished.results.finished_s))
    until_s = last_s if dict(setting).get("min_replicas") == 0 else None
    return Played(len(response_s), late, finished.replica_minutes(until_s))


class NetworkCell(NamedTuple):
    """One contract for one experiment."""

    experiment: str
    share: float
    least: int = 1

    @property
    def allowed(self) -> float:
        """Share of the jobs that may be late."""
        return round(1 - self.share, 9)

    def __str__(self) -> str:
        return f"{self.experiment}, {100 * self.share:g} %{'' if self.least else ', down to no consumer'}"

    def settings(self, scaler: str) -> list[Setting]:
        """Those that are tried, the experiment's own first."""
        if scaler == OWN:
            return [(("slo_share", self.share), ("min_replicas", self.least))]
        if not self.least and scaler in TO_NONE:
            return [(("min_replicas", 0),), *TO_NONE[scaler]]
        return [ONE if scaler == "keda-rabbitmq" else (), *GRIDS[scaler]]


class NetworkResult(NamedTuple):
    """newsvendor-network and the rivals: of each the cheapest that keeps the contract, or the one with the fewest late
    jobs.
    """

    cell: NetworkCell
    own: Found
    rivals: Sequence[Found]

    @property
    def lost(self) -> bool:
        """A rival keeps the contract and newsvendor-network does not, or is dearer."""
        keeping = [rival for rival in self.rivals if rival.late <= self.cell.allowed]
        return any(self.own.late > self.cell.allowed or rival.cost < self.own.cost for rival in keeping)

    @property
    def fewer_late(self) -> list[str]:
        """Tuned rivals that keep the contract with fewer late jobs."""
        return [each.scaler for each in self.rivals if each.late <= self.cell.allowed and each.late < self.own.late]


def runs(experiment: str, scaler: str, settings: Sequence[Setting], seeds: Sequence[int]) -> list[Found]:
    """The settings, each on all these seeds."""
    played = iter(play.each([(experiment, scaler, setting, seed) for setting in settings for seed in seeds]))
    return [Found(scaler, setting, [next(played) for _ in seeds]) for setting in settings]


def tuned(cell: NetworkCell, rival: str, seeds: Sequence[int]) -> Found:
    """The cheapest setting found that keeps the contract on all seeds, or the one that comes closest."""
    tried = runs(cell.experiment, rival, cell.settings(rival), seeds[:FIRST_SEEDS])
    tried = runs(cell.experiment, rival, promising(tried, cell.allowed, FIRST_GOING_ON), seeds[:CLOSER_SEEDS])
    final: list[Found] = []
    for setting in promising(tried, cell.allowed, CLOSER_GOING_ON):
        final += runs(cell.experiment, rival, [setting], seeds)
        if final[-1].late <= cell.allowed:
            break
    return best(final, cell.allowed)


def networks(request: Request) -> Iterator[NetworkResult]:
    """All cells, the lost ones first."""
    s: NewsvendorNetworkSettings = request.settings
    rivals = s.network_rivals.split(",")
    cells = [NetworkCell(*each) for each in CELLS if each[0] in s.networks.split(",")]
    found = {}
    for cell, scaler in request.each(list(product(cells, (OWN, *rivals))), lambda each: f"{each[0]}, {each[1]}"):
        if scaler == OWN:
            [found[cell, scaler]] = runs(cell.experiment, OWN, cell.settings(OWN), s.seeds)
        else:
            found[cell, scaler] = tuned(cell, scaler, s.seeds)
    yield from in_order(
        [NetworkResult(each, found[each, OWN], [found[each, rival] for rival in rivals]) for each in cells]
    )


def cells_of(result: NetworkResult) -> Cells:
    """A row, with the conditions of its runs."""
    row: dict[str, Any] = {
        "experiment, contract": str(result.cell),
        "result": "lost" if result.lost else "won",
        "seeds": len(result.own.runs),
        OWN: parts_of(result.cell.allowed, result.own),
    }
    for found in result.rivals:
        row[found.scaler] = {
            **parts_of(result.cell.allowed, found),
            "setting": setting_text(found.setting) or "the experiment's",
        }
    row["fewer late"] = ", ".join(result.fewer_late)
    return row


def note(results: Sequence[NetworkResult]) -> str:
    """How many cells were lost, and the conditions."""
    lost = sum(result.lost for result in results)
    return (
        f"{lost} of {len(results)} cells lost. Late jobs of all seeds together @ mean consumer-minutes (range). "
        "Simulated, no start-up, one consumer of each topic at least; or none, then with the consumer-minutes until "
        "the last job has left. Rivals: the cheapest setting found "
        'that keeps the contract on these seeds, or the one with the fewest late jobs. "fewer late": rivals that keep '
        "the contract with fewer late jobs than newsvendor-network; nothing is proven at equal misses there."
    )


TABLE: Final = PaperTable(
    "networks",
    "newsvendor-network beside rivals tuned on the load that is scored: pub/sub networks",
    networks,
    cells_of,
    formats={OWN: RESULT, **dict.fromkeys(GRIDS, f"{RESULT}; {{}}")},
    note=note,
)
