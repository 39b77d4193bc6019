"""Live runs of the pipelines beside simulated ones: ``penstock paper amesos live runs/*``.

Runs of both worlds form a case if they have the same requests and conditions. Each case has three tables, as the README
has them: every scaler's misses, queue, cost and latencies, live and simulated; AMESoS against its rivals, as the paper
prints it; and whether both worlds put the scalers in the same order.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from experiments.amesos.experiments import EXPERIMENTS
from experiments.amesos.figures import CLAIMS, SCALERS, change
from experiments.measured import verdicts
from experiments.paper import UNKNOWN, Cells, PaperTable, Request, spread
from experiments.ranking import kendall_tau
from experiments.run_result import finished
from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData
from report.analysis.summary import RunSummary

WORLDS: Final = ("local", "sim")
TOLERANCE: Final = 0.10
"""Live and simulated values agree within this share of the simulated one (p50, p95, p99, cost)."""
OWN: Final = ("world", "analytics", "system.call_s")
"""Conditions that differ between a live run and its simulation, which has the live run's call time as a parameter."""


class Figures(NamedTuple):
    """Measures of a run. ``missed``: acknowledged requests that did not leave in time. ``peak_queue``: the most
    requests that waited at all functions together, at whole seconds of the run. The rest in seconds.
    """

    requests: float
    missed: float
    peak_queue: float
    replica_s: float
    p50_s: float
    p95_s: float
    p99_s: float


class Measure(NamedTuple):
    """A column: its value, its digits, and whether both worlds have to agree in it (``held``)."""

    title: str
    of: Callable[[Figures], float]
    digits: int
    unit: str = ""
    held: bool = False


MEASURES: Final = (
    Measure("misses", lambda found: found.missed, 0),
    Measure("peak queue", lambda found: found.peak_queue, 0),
    Measure("replica-seconds", lambda found: found.replica_s, 0, held=True),
    Measure("p50", lambda found: 1000 * found.p50_s, 1, " ms", held=True),
    Measure("p95", lambda found: 1000 * found.p95_s, 1, " ms", held=True),
    Measure("p99", lambda found: 1000 * found.p99_s, 1, " ms", held=True),
)
RANKED: Final = ("misses", "replica-seconds", "p99")
COMPARED: Final = {"misses": "missed", "peak queue": "peak_queue", "replica-minutes": "replica_s"}
"""The measures of the paper's claims, as ``Figures`` has them."""

Runs = dict[tuple[str, str], list[tuple[RunSummary, Figures]]]
"""By world and scaler."""


def figures(run: RunData, summary: RunSummary) -> Figures:
    """Of one finished run. PenstockError if nothing completed."""
    latency = summary.latency
    if latency.p50_s is None or latency.p95_s is None or latency.p99_s is None or summary.slo_share is None:
        raise PenstockError(f"{run.directory.path}: no request completed in this run; leave it out")
    in_time = round(summary.slo_share * summary.acknowledged_events)
    return Figures(
        requests=summary.acknowledged_events,
        missed=summary.acknowledged_events - in_time,
        peak_queue=peak_queue(run),
        replica_s=60 * summary.replica_minutes,
        p50_s=latency.p50_s,
        p95_s=latency.p95_s,
        p99_s=latency.p99_s,
    )


def peak_queue(run: RunData) -> int:
    """The most requests that wait for a function at a whole second. From the results, not from the controller's
    observations: scalers look at different times.
    """
    spec = run.spec
    table = pq.read_table(run.directory.results_folder, columns=["received_ns", "started_ns"])
    came_ns, began_ns = (np.sort(table[name].to_numpy()) for name in ("received_ns", "started_ns"))
    seconds_ns = spec.start_ns + NANOS_PER_SECOND * np.arange(int(spec.duration_s) + 1)
    waiting = np.searchsorted(came_ns, seconds_ns, "right") - np.searchsorted(began_ns, seconds_ns, "right")
    return int(waiting.max())


def cases(recorded: Iterable[RunData]) -> dict[str, Runs]:
    """Runs by case, in the given order; the name of a case is its experiment, workload and slice."""
    found: dict[str, tuple[str, Runs]] = {}
    for run in recorded:
        summary = summary_of(run)
        if summary.world not in WORLDS:
            continue
        key = repr(sorted((name, value) for name, value in summary.conditions.items() if _is_shared(name)))
        _, runs = found.setdefault(key, (_name(summary), {}))
        runs.setdefault((summary.world, summary.scaler), []).append((summary, figures(run, summary)))
    names = [name for name, _ in found.values()]
    return {
        name if names.count(name) == 1 else f"{name} ({number})": runs
        for number, (name, runs) in enumerate(found.values(), start=1)
    }


def _is_shared(name: str) -> bool:
    return name not in OWN and not name.startswith("scaler.")


def _name(summary: RunSummary) -> str:
    conditions = summary.conditions
    from_s, seconds = float(conditions["workload.from_s"]), float(conditions["workload.seconds"])
    speed = f", {summary.speed:g} times as fast" if summary.speed != 1 else ""
    return f"{summary.experiment}, {conditions['workload.workload']}, {from_s:g}–{from_s + seconds:g} s{speed}"


# --- tables ----------------------------------------------------------------------------------------------------------


def mean(runs: Runs, world: str, scaler: str) -> Figures | None:
    """Means over the repetitions; None if there is none."""
    some = [found for _, found in runs.get((world, scaler), [])]
    return Figures(*np.mean(some, axis=0).tolist()) if some else None


def scalers(runs: Runs) -> list[str]:
    """Those of the paper in its order, then others."""
    there = dict.fromkeys(scaler for _, scaler in runs)
    return [*(name for name in SCALERS if name in there), *(name for name in there if name not in SCALERS)]


def side_by_side(request: Request) -> Iterator[tuple[list[float], Cells]]:
    """A row for each scaler of each case, live / simulated, each with its range; and the differences of the means where
    they have to agree, as shares of the simulated ones.
    """
    for case, runs in cases_of(request):
        for scaler in scalers(runs):
            both = [[found for _, found in runs.get((world, scaler), [])] for world in WORLDS]
            requests = (np.mean([found.requests for found in some]) if some else None for some in both)
            row = {
                "case": case,
                "scaler": scaler,
                "runs": " / ".join(str(len(some)) for some in both),
                "live verdicts": verdicts(summary for summary, _ in runs.get(("local", scaler), [])) or UNKNOWN,
                "requests": " / ".join(UNKNOWN if mean is None else f"{mean:.0f}" for mean in requests),
            }
            differences: list[float] = []
            for measure in MEASURES:
                live, simulated = values = [[measure.of(found) for found in some] for some in both]
                row[measure.title] = " / ".join(spread(each, measure.digits) for each in values) + measure.unit
                if measure.held and live and any(simulated):
                    differences.append(float(np.mean(live) / np.mean(simulated)) - 1)
                    shown = f"{differences[-1]:+.0%}".replace("%", " %")
                    row[measure.title] += f" ({shown})" if abs(differences[-1]) <= TOLERANCE else f" (**{shown}**)"
            yield differences, row


def within(rows: Sequence[tuple[list[float], Cells]]) -> str:
    """How many of the values that have to agree do so."""
    held = [difference for differences, _ in rows for difference in differences]
    agreed = sum(abs(difference) <= TOLERANCE for difference in held)
    return (
        f"{agreed} of {len(held)} values (p50, p95, p99, replica-seconds) lie within {100 * TOLERANCE:g} % of the "
        "simulated ones."
    )


def claims(request: Request) -> Iterator[Cells]:
    """AMESoS against its rivals on the pipeline of each case."""
    for case, runs in cases_of(request):
        pipeline = next(iter(runs.values()))[0][0].conditions["pipeline"]
        for what, rival, where, printed, _ in map(dict.values, CLAIMS):
            if where == pipeline:
                live, simulated = (_against(runs, world, rival, COMPARED[what]) for world in WORLDS)
                head = {"case": case, "measure": what, "AMESoS against": rival, "printed": printed}
                yield {**head, "live": live, "simulated": simulated}


def _against(runs: Runs, world: str, rival: str, field: str) -> str:
    ours, theirs = mean(runs, world, "amesos"), mean(runs, world, rival)
    return UNKNOWN if ours is None or theirs is None else change(getattr(ours, field), getattr(theirs, field))


def rankings(request: Request) -> Iterator[Cells]:
    """The scalers from the lowest to the highest value in each world, and Kendall's τ of the two orders."""
    for case, runs in cases_of(request):
        both = {
            scaler: (here, there)
            for scaler in scalers(runs)
            if (here := mean(runs, "local", scaler)) and (there := mean(runs, "sim", scaler))
        }
        for measure in (measure for measure in MEASURES if measure.title in RANKED):
            first, second = ([measure.of(each[world]) for each in both.values()] for world in (0, 1))
            live_order, simulated_order = (_order(both, each) for each in (first, second))
            tau = kendall_tau(first, second)
            yield {
                "case": case,
                "ranked by": measure.title,
                "live": live_order,
                "simulated": simulated_order,
                "Kendall's τ": UNKNOWN if tau is None else f"{tau:.2f}",
            }


def _order(names: Iterable[str], values: Sequence[float]) -> str:
    ranked = groupby(sorted(zip(values, names, strict=True), key=itemgetter(0)), key=itemgetter(0))
    return " < ".join(" = ".join(name for _, name in equal) for _, equal in ranked) or UNKNOWN


def cases_of(request: Request) -> Iterable[tuple[str, Runs]]:
    """The cases of the given run directories."""
    return cases(finished(request.runs, (experiment.name for experiment in EXPERIMENTS))).items()


TABLES: Final = (
    PaperTable(
        "live",
        "Live / simulated, means over the runs",
        side_by_side,
        section="case",
        cells=itemgetter(1),
        note=within,
        source="recorded",
    ),
    PaperTable("live-claims", "AMESoS compared, live and simulated", claims, section="case", source="recorded"),
    PaperTable(
        "live-rankings", "Order of the scalers, live and simulated", rankings, section="case", source="recorded"
    ),
)
