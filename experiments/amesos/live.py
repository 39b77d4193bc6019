"""What live runs of the pipelines measured, beside simulated ones: ``python -m experiments.amesos.live runs/*``.

Runs of both worlds belong together where they played the same requests under the same conditions. For each such case
three tables, as the README has them: every scaler's misses, queue, cost and latencies, live and simulated; AMESoS
against its rivals, as the paper prints it; and whether the two worlds put the scalers in the same order.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import typer

from experiments.amesos.experiments import NAMES
from experiments.amesos.figures import CLAIMS, SCALERS, change
from experiments.analysis.measurement import summary_of
from experiments.analysis.summary import Summary
from experiments.played import finished
from experiments.program import run_program
from experiments.ranking import kendall_tau
from experiments.tables import markdown, spread
from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory

WORLDS: Final = ("local", "sim")
TOLERANCE: Final = 0.10
"""Live and simulated are held to be the same within this share of the simulated value (p50, p95, p99, cost)."""
OWN: Final = ("world", "analytics", "system.call_s")
"""Conditions that differ between a live run and the same one simulated, which is told what a call takes live."""
UNKNOWN: Final = "–"


class Figures(NamedTuple):
    """What a run measured. ``missed``: requests that were acknowledged and have not left in time. ``peak_queue``: the
    most requests that waited at all functions together, at whole seconds of the run. The rest in seconds.
    """

    requests: float
    missed: float
    peak_queue: float
    replica_s: float
    p50_s: float
    p95_s: float
    p99_s: float


class Measure(NamedTuple):
    """A column: where it is found, with how many digits it is written, and whether the two worlds are held to agree in
    it.
    """

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

Runs = dict[tuple[str, str], list[tuple[Summary, Figures]]]
"""By world and scaler."""


def figures(directory: RunDirectory, summary: Summary) -> Figures:
    """Of one finished run. PenstockError if nothing completed."""
    latency = summary.latency
    if latency.p50_s is None or latency.p95_s is None or latency.p99_s is None or summary.slo_share is None:
        raise PenstockError(f"{directory.path}: no request completed in this run; leave it out")
    in_time = round(summary.slo_share * summary.acknowledged_events)
    return Figures(
        requests=summary.acknowledged_events,
        missed=summary.acknowledged_events - in_time,
        peak_queue=peak_queue(directory),
        replica_s=60 * summary.replica_minutes,
        p50_s=latency.p50_s,
        p95_s=latency.p95_s,
        p99_s=latency.p99_s,
    )


def peak_queue(directory: RunDirectory) -> int:
    """Requests that wait for a function, at the whole second at which they are most. From the Results, not from what
    the controller saw: scalers look at different times.
    """
    spec = directory.spec()
    table = pq.read_table(directory.results_folder, columns=["received_ns", "started_ns"])
    came_ns, began_ns = (np.sort(table[name].to_numpy()) for name in ("received_ns", "started_ns"))
    seconds_ns = spec.start_ns + NANOS_PER_SECOND * np.arange(int(spec.duration_s) + 1)
    waiting = np.searchsorted(came_ns, seconds_ns, "right") - np.searchsorted(began_ns, seconds_ns, "right")
    return int(waiting.max())


def cases(directories: Iterable[RunDirectory]) -> dict[str, Runs]:
    """Runs by case, in the order in which they are given; a case has a name that says what was played."""
    found: dict[str, tuple[str, Runs]] = {}
    for directory in directories:
        summary = summary_of(directory)
        if summary.world not in WORLDS:
            continue
        key = repr(sorted((name, value) for name, value in summary.conditions.items() if _is_shared(name)))
        _, runs = found.setdefault(key, (_name(summary), {}))
        runs.setdefault((summary.world, summary.scaler), []).append((summary, figures(directory, summary)))
    names = [name for name, _ in found.values()]
    return {
        name if names.count(name) == 1 else f"{name} ({number})": runs
        for number, (name, runs) in enumerate(found.values(), start=1)
    }


def _is_shared(name: str) -> bool:
    return name not in OWN and not name.startswith("scaler.")


def _name(summary: Summary) -> str:
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


def side_by_side(runs: Runs) -> str:
    """A row for each scaler: live / simulated, each with its range where repetitions differ, and by how much the means
    differ where they are held to agree.
    """
    rows = []
    for scaler in scalers(runs):
        live, simulated = (mean(runs, world, scaler) for world in WORLDS)
        some = runs.get(("local", scaler), [])
        verdicts = [summary.verdict for summary, _ in some]
        told = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts)) or UNKNOWN
        counts = " / ".join(str(len(runs.get((world, scaler), []))) for world in WORLDS)
        requests = " / ".join(f"{each.requests:.0f}" if each else UNKNOWN for each in (live, simulated))
        rows.append([scaler, counts, told, requests, *(_cell(measure, runs, scaler) for measure in MEASURES)])
    return markdown(("scaler", "runs", "live verdicts", "requests", *(measure.title for measure in MEASURES)), rows)


def _cell(measure: Measure, runs: Runs, scaler: str) -> str:
    values = [[measure.of(found) for _, found in runs.get((world, scaler), [])] for world in WORLDS]
    text = " / ".join(spread(each, measure.digits) for each in values) + measure.unit
    if (apart := _apart(measure, *(mean(runs, world, scaler) for world in WORLDS))) is None:
        return text
    shown = f"{apart:+.0%}".replace("%", " %")
    return f"{text} ({shown})" if abs(apart) <= TOLERANCE else f"{text} (**{shown}**)"


def _apart(measure: Measure, live: Figures | None, simulated: Figures | None) -> float | None:
    """How far the live value is from the simulated one, as a share of it; None where they are not held to agree."""
    if not measure.held or live is None or simulated is None or not measure.of(simulated):
        return None
    return measure.of(live) / measure.of(simulated) - 1


def claims(runs: Runs, pipeline: str) -> str:
    """AMESoS against its rivals on this pipeline, as printed, live and simulated."""
    rows = []
    for what, rival, where, printed in CLAIMS:
        if where == pipeline:
            compared = [_against(runs, world, rival, COMPARED[what]) for world in WORLDS]
            rows.append([what, rival, printed, *compared])
    return markdown(("measure", "AMESoS against", "printed", "live", "simulated"), rows)


def _against(runs: Runs, world: str, rival: str, field: str) -> str:
    ours, theirs = mean(runs, world, "amesos"), mean(runs, world, rival)
    return UNKNOWN if ours is None or theirs is None else change(getattr(ours, field), getattr(theirs, field))


def rankings(runs: Runs) -> str:
    """The scalers from the lowest to the highest value in each world, and Kendall's τ of the two orders."""
    both = {
        scaler: (live, simulated)
        for scaler in scalers(runs)
        if (live := mean(runs, "local", scaler)) and (simulated := mean(runs, "sim", scaler))
    }
    rows = []
    for measure in MEASURES:
        if measure.title in RANKED:
            values = [[measure.of(each[world]) for each in both.values()] for world in (0, 1)]
            tau = kendall_tau(*values)
            orders = [_order(list(both), each) for each in values]
            rows.append([measure.title, *orders, UNKNOWN if tau is None else f"{tau:.2f}"])
    return markdown(("ranked by", "live", "simulated", "Kendall's τ"), rows)


def _order(names: Sequence[str], values: Sequence[float]) -> str:
    ranked = sorted(zip(values, names, strict=True), key=lambda pair: pair[0])
    text = ""
    for i, (value, name) in enumerate(ranked):
        text += name if i == 0 else f" {'=' if value == ranked[i - 1][0] else '<'} {name}"
    return text or UNKNOWN


def within(found: Mapping[str, Runs]) -> str:
    """How many of the values in which the two worlds are held to agree do so."""
    held = [
        apart
        for runs in found.values()
        for scaler in scalers(runs)
        for measure in MEASURES
        if (apart := _apart(measure, *(mean(runs, world, scaler) for world in WORLDS))) is not None
    ]
    agreed = sum(abs(apart) <= TOLERANCE for apart in held)
    return (
        f"{agreed} of {len(held)} values (p50, p95, p99, replica-seconds) lie within {100 * TOLERANCE:g} % of the "
        "simulated ones."
    )


def main(folders: Annotated[list[Path], typer.Argument(help="Run directories of both worlds.")]) -> None:
    """Set live runs of the pipelines beside simulated ones, as Markdown."""
    found = cases(finished(folders, NAMES.values()))
    for name, runs in found.items():
        pipeline: Any = next(iter(runs.values()))[0][0].conditions["pipeline"]
        typer.echo(f"### {name}\n\nLive / simulated, means over the runs.\n")
        for table in (side_by_side(runs), claims(runs, pipeline), rankings(runs)):
            typer.echo(table)
    typer.echo(within(found))


if __name__ == "__main__":
    run_program(main, "python -m experiments.amesos.live runs/*")
