"""The data of AMESoS' figures 4 to 12, simulated: ``python -m experiments.amesos.figures --out FOLDER``.

Figure 4 are the rates. The others are, for each pipeline and scaler, deadline misses, queue lengths and replicas over
time. Tables go to the terminal, CSV files into the folder:

- ``figure-04-rates.csv``: time_s, events per second of each pipeline
- ``figures-05-12-series.csv``: pipeline, scaler, time_s, missed (so far), waiting, replicas; means over the seeds
- ``figures-05-12-runs.csv``: one row for each run
- ``summary.csv``, ``claims.csv``: what the terminal shows
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np
import typer
from rich.console import Console

from controller.scalers.amesos import Amesos as AmesosScaler
from controller.scalers.amesos import Thresholds
from controller.scalers.dwp import Dwp
from controller.scalers.lass import Lass
from controller.scalers.rps import Rps
from experiments.amesos.experiments import COLD_START_S, PIPELINES
from experiments.program import run_program
from experiments.tables import show, write_csv
from penstock.contracts import Scaler
from penstock.laws import Floats
from penstock.runspec import RunSpec, ScalerSpec
from penstock.systems import ServiceLaw
from producers.schedule import make_schedule
from producers.workloads.azure import KNOT_S, KNOTS_PER_S, Amesos, Pipeline
from simulator.network_play import Played, play
from simulator.pipeline import make_engine

SCALERS: Final[Mapping[str, type[Any]]] = {"amesos": AmesosScaler, "rps": Rps, "dwp": Dwp, "lass": Lass}

CLAIMS: Final = (
    ("misses", "rps", "document", "up to 70 % fewer (any pipeline)"),
    ("misses", "rps", "synthetic", "up to 70 % fewer (any pipeline)"),
    ("misses", "rps", "matrix", "up to 70 % fewer (any pipeline)"),
    ("misses", "dwp", "matrix", "60 % fewer"),
    ("misses", "lass", "document", "slightly fewer"),
    ("misses", "lass", "synthetic", "22 % fewer"),
    ("misses", "lass", "matrix", "slightly fewer"),
    ("peak queue", "rps", "document", "up to 20 % lower"),
    ("peak queue", "dwp", "document", "up to 20 % lower"),
    ("peak queue", "rps", "synthetic", "30 % better"),
    ("peak queue", "dwp", "synthetic", "70 % better"),
    ("peak queue", "lass", "synthetic", "50 % better"),
    ("peak queue", "rps", "matrix", "up to 20 % higher, cleared faster"),
    ("peak queue", "dwp", "matrix", "up to 20 % higher, cleared faster"),
    ("peak queue", "lass", "matrix", "up to 20 % higher, cleared faster"),
    ("replica-minutes", "lass", "document", "up to 28 % fewer"),
    ("replica-minutes", "lass", "synthetic", "13 % more"),
    ("replica-minutes", "lass", "matrix", "up to 28 % fewer"),
)
"""(measure, AMESoS compared with, pipeline, what the paper says). It prints no absolute numbers."""


class Run(NamedTuple):
    """One run: its figures and its series at whole seconds."""

    pipeline: Pipeline
    scaler: str
    seed: int
    requests: int
    missed: int
    mean_waiting: float
    peak_waiting: float
    replica_minutes: float
    scale_actions: int
    series: tuple[Floats, Floats, Floats]


class Conditions(NamedTuple):
    """What a figure may be made anew under: the part that is played, cold start, service law, and the assignment of
    AMESoS' thresholds to the pipelines (reading A9).
    """

    from_s: float = 0.0
    seconds: float = 480.0
    cold_start_s: float = COLD_START_S
    law: ServiceLaw = "deterministic"
    thresholds: Thresholds = "coherent"


def make(scaler: str, thresholds: Thresholds) -> Scaler[Any, Any]:
    """A scaler with the parameters of its paper's experiments."""
    kind = SCALERS[scaler]
    made: Scaler[Any, Any] = kind(kind.Parameters(**({"thresholds": thresholds} if scaler == "amesos" else {})))
    return made


def simulate(pipeline: Pipeline, scaler: str, seed: int, conditions: Conditions) -> Run:
    """One pipeline under one scaler."""
    from_s, seconds, cold_start_s, law, thresholds = conditions
    schedule = make_schedule(Amesos(pipeline), seed=seed, partitions=1, from_s=from_s, seconds=seconds)
    functions = tuple(msgspec.structs.replace(f, service_law=law) for f in PIPELINES[pipeline].functions)
    system = msgspec.structs.replace(PIPELINES[pipeline], functions=functions, cold_start_s=cold_start_s)
    spec = RunSpec(
        run=f"{pipeline}-{scaler}-{seed}",
        experiment=f"amesos-{pipeline}",
        world="sim",
        scaler=ScalerSpec(name=scaler),
        seed=seed,
        pipeline=pipeline,
        fleet=pipeline,
        duration_s=schedule.duration_s,
        tick_phase_s=0.0,
        max_replicas=100,
        system=system,
    )
    return _measured(pipeline, scaler, seed, play(spec, make_engine(spec, schedule), make(scaler, thresholds)))


def _measured(pipeline: Pipeline, scaler: str, seed: int, played: Played) -> Run:
    deadline_s = PIPELINES[pipeline].deadline_s
    times_s = np.arange(played.duration_s + 1)
    _, response_s = played.responses()
    waiting = played.waiting(times_s)
    acted = [tick for tick in played.ticks if tick.accepted is not None]
    return Run(
        pipeline=pipeline,
        scaler=scaler,
        seed=seed,
        requests=len(response_s),
        missed=int(np.count_nonzero(response_s > deadline_s + 1e-9)),
        mean_waiting=float(waiting.mean()),
        peak_waiting=float(waiting.max()),
        replica_minutes=played.replica_minutes(),
        scale_actions=len(acted),
        series=(played.missed(times_s, deadline_s), waiting, played.replicas(times_s)),
    )


# --- tables ----------------------------------------------------------------------------------------------------------


def rates() -> Iterator[tuple[float, ...]]:
    """Figure 4: the knots of the three rate curves."""
    for knot, at_knot in enumerate(zip(*(KNOTS_PER_S[pipeline] for pipeline in PIPELINES), strict=True)):
        yield (knot * KNOT_S, *map(float, at_knot))


def series(runs: Sequence[Run]) -> Iterator[tuple[Any, ...]]:
    """Means over the seeds at each second."""
    for (pipeline, scaler), some in _grouped(runs).items():
        means = [np.mean([run.series[i] for run in some], axis=0) for i in range(3)]
        for second, values in enumerate(zip(*means, strict=True)):
            yield (pipeline, scaler, second, *(round(float(value), 3) for value in values))


class Summary(NamedTuple):
    """Means over the seeds; ``missed_half``: half of the 95 % interval of the share."""

    pipeline: str
    scaler: str
    requests: float
    missed: float
    missed_share: float
    missed_half: float
    mean_waiting: float
    peak_waiting: float
    replica_minutes: float
    scale_actions: float


def summaries(runs: Sequence[Run]) -> list[Summary]:
    """One row for each pipeline and scaler."""
    rows = []
    for (pipeline, scaler), some in _grouped(runs).items():
        shares = np.asarray([run.missed / run.requests for run in some])
        half = 1.96 * float(shares.std(ddof=1)) / len(some) ** 0.5 if len(some) > 1 else 0.0
        means = {
            field: float(np.mean([getattr(run, field) for run in some]))
            for field in ("requests", "missed", "mean_waiting", "peak_waiting", "replica_minutes", "scale_actions")
        }
        rows.append(
            Summary(pipeline=pipeline, scaler=scaler, missed_share=float(shares.mean()), missed_half=half, **means)
        )
    return rows


def claims(rows: Sequence[Summary]) -> Iterator[tuple[str, str, str, str, str]]:
    """(measure, compared with, pipeline, AMESoS against it, what the paper says)."""
    fields = {"misses": "missed", "peak queue": "peak_waiting", "replica-minutes": "replica_minutes"}
    found = {(row.pipeline, row.scaler): row for row in rows}
    for measure, rival, pipeline, said in CLAIMS:
        ours, theirs = (getattr(found[pipeline, name], fields[measure]) for name in ("amesos", rival))
        yield measure, rival, pipeline, change(ours, theirs), said


def change(ours: float, theirs: float) -> str:
    """``ours`` against ``theirs`` in words."""
    if theirs == 0:
        return "both none" if ours == 0 else f"{round(ours, 1):g} against none"
    percent = 100 * (ours / theirs - 1)
    return f"{abs(percent):.0f} % {'more' if percent > 0 else 'fewer'}"


def _grouped(runs: Sequence[Run]) -> Mapping[tuple[str, str], list[Run]]:
    grouped: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        grouped.setdefault((run.pipeline, run.scaler), []).append(run)
    return grouped


def main(
    out: Annotated[Path, typer.Option(help="Folder for the CSV files.")],
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each scaler, with seeds 1, 2, ….")] = 5,
    cold_start: Annotated[float, typer.Option(min=0.0, help="Seconds until a new replica serves.")] = COLD_START_S,
    law: Annotated[str, typer.Option(help="Service times: deterministic, exponential.")] = "deterministic",
    thresholds: Annotated[str, typer.Option(help="AMESoS: coherent, or as printed.")] = "coherent",
    from_s: Annotated[float, typer.Option("--from", help="First second to play.")] = 0.0,
    seconds: Annotated[float, typer.Option(help="Seconds to play.")] = 480.0,
) -> None:
    """Simulate AMESoS, RPS, DwP and LaSS on the three pipelines."""
    try:
        conditions = msgspec.convert((from_s, seconds, cold_start, law, thresholds), Conditions)
    except msgspec.ValidationError as error:
        raise typer.BadParameter(f"--law {law}, --thresholds {thresholds}: {error}") from None
    out.mkdir(parents=True, exist_ok=True)
    console = Console()
    runs = []
    for pipeline in PIPELINES:
        for scaler in SCALERS:
            with console.status(f"{pipeline}: {scaler}"):
                runs += [simulate(pipeline, scaler, seed + 1, conditions) for seed in range(seeds)]
    rows = summaries(runs)
    write_csv(out / "figure-04-rates.csv", ("time_s", *(f"{name}_per_s" for name in PIPELINES)), rates())
    write_csv(
        out / "figures-05-12-series.csv",
        ("pipeline", "scaler", "time_s", "missed", "waiting", "replicas"),
        series(runs),
    )
    write_csv(out / "figures-05-12-runs.csv", Run._fields[:-1], (run[:-1] for run in runs))
    write_csv(out / "summary.csv", Summary._fields, rows)
    compared = list(claims(rows))
    header = ("measure", "AMESoS against", "pipeline", "obtained", "printed")
    write_csv(out / "claims.csv", header, compared)
    show(console, f"Means over {seeds} seeds, cold start {cold_start:g} s, service times {law}", Summary._fields, rows)
    show(console, "AMESoS compared", header, compared)
    console.print(f"CSV files in {out}")


if __name__ == "__main__":
    run_program(main, "python -m experiments.amesos.figures --out figures/amesos")
