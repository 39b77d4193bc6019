"""Table 1, its time line and the story of the paper: printed, by formula, simulated.

``python -m experiments.elastic_faas.tables`` prints them as Markdown; with ``--out FOLDER`` it writes the time line of
each scaler, too (``timeline.csv``). Virtual time throughout; everything is drawn from fixed seeds.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np
import typer

from controller.provider import timeline
from controller.scalers.elastic_faas import ElasticFaas
from controller.scalers.elastic_faas_formulas import nsp_after
from controller.scalers.elastic_faas_published import ElasticFaasPublished
from controller.scalers.faas import Faas
from experiments.elastic_faas.experiments import EXPERIMENTS, FUNCTIONS
from experiments.multiqueue.tables import container_minutes
from experiments.program import run_program
from experiments.tables import markdown, write_csv
from penstock.contracts import Decision, QueueObservation
from penstock.measures import replica_seconds
from penstock.registry import make_parameters
from penstock.runspec import RunSpec, ScalerSpec
from penstock.schedule import Schedule
from penstock.systems import QueueSystem
from producers.schedule import make_schedule
from producers.workloads import parse_workload
from simulator.clock import nanos
from simulator.engine import COMPLETED, REJECTED
from simulator.network_play import Played, play
from simulator.queue_bank import make_engine

PRINTED_TABLE_1: Final = (
    (0, 1, 0, 0, 1), (2, 2, 0, 0, 2), (4, 3, 0, 0, 3), (6, 4, 0, 0, 4), (8, 5, 0, 0, 5),
    (10, 6, 1, 0, 7), (12, 7, 2, 0, 9), (14, 8, 3, 0, 11), (16, 9, 4, 0, 13), (18, 10, 5, 0, 15),
    (20, 11, 6, 1, 18), (22, 12, 7, 2, 21), (24, 13, 8, 3, 24), (26, 14, 9, 4, 27), (28, 15, 10, 5, 30),
)  # fmt: skip
"""Time, containers of FaaS 1 to 3 (0 where a dash is printed), total."""

STARTS: Final = (0.0, 10.0, 20.0)
"""When the functions of Table 1 start."""

SHOWN_S: Final = 84
"""How far time lines are printed; the file has all of them."""

SCALERS: Final[Mapping[str, type[Any]]] = {
    "faas": Faas,
    "elastic-faas": ElasticFaas,
    "elastic-faas-published": ElasticFaasPublished,
}


def _spec(system: QueueSystem, seconds: float, scaler: str, replicas: int = 1, seed: int = 1) -> RunSpec:
    return RunSpec(
        run=scaler,
        experiment="elastic-faas",
        world="sim",
        scaler=ScalerSpec(name=scaler),
        seed=seed,
        duration_s=seconds,
        initial_replicas=replicas,
        max_replicas=EXPERIMENTS[0].max_replicas,
        tick_phase_s=0.0,
        system=system,
    )


def _no_events(seconds: float) -> Schedule:
    return Schedule(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int16), seconds)


def simulated_table_1(starts: tuple[float, ...] = STARTS) -> list[tuple[int, ...]]:
    """Containers that the monitor sees at the times of Table 1, where a function is asked for at each start."""
    spec = _spec(msgspec.structs.replace(FUNCTIONS, provision_s=0.0), 60, "table-1")
    engine = make_engine(spec, _no_events(60))
    rows = []
    for time, *_ in PRINTED_TABLE_1:
        engine.advance(float(time))
        wanted = sum(start <= time for start in starts)
        engine.actuator.apply(Decision(action="up", targets={spec.fleet: wanted}))
        counts = [queue.servers or 0 for queue in engine.monitor.observe().queues]
        rows.append((time, *counts, *[0] * (len(starts) - len(counts)), sum(counts)))
    return rows


def time_to(containers: int, starts: tuple[float, ...]) -> int:
    """First whole time at which functions that start so have that many containers together."""
    time = 0
    while sum(timeline(FUNCTIONS, starts, time)) < containers:
        time += 1
    return time


class Outcome(NamedTuple):
    """What a scaler made of the experiment."""

    scaler: str
    scheduled: int
    shed: int
    shed_share: float
    last_shed_s: float
    slo_share: float
    mean_latency_s: float
    thirty_containers_s: float
    ups: int
    downs: int
    most_functions: int
    function_minutes: float
    container_minutes: float


def run_experiment(scaler: str, seed: int = 1, **parameters: float) -> Played:
    """One scaler on the experiment, in virtual time; ``parameters`` differ from the experiment's."""
    experiment = EXPERIMENTS[0]
    assert isinstance(experiment.system, QueueSystem)
    kind = SCALERS[scaler]
    known = {name: value for name, value in experiment.common.items() if hasattr(kind.Parameters(), name)}
    provision_s = parameters.get("provision_s", experiment.system.provision_s)
    system = msgspec.structs.replace(experiment.system, provision_s=provision_s)
    spec = _spec(system, experiment.seconds, scaler, experiment.initial_replicas, seed)
    schedule = make_schedule(
        parse_workload(experiment.workload), seed=seed, partitions=1, arrivals=experiment.arrivals
    )  # fmt: skip
    return play(spec, make_engine(spec, schedule), kind(make_parameters(scaler, kind.Parameters, known | parameters)))


class Moment(NamedTuple):
    """Two units of time: containers and functions at the beginning, backlog then, arrived and shed within them."""

    time_s: float
    functions: int
    asked_for: int
    containers: str
    total: int
    backlog: int
    arrived: int
    shed: int


def moments(played: Played) -> Iterator[Moment]:
    """The time line of a run, every two units."""
    ticks = [tick for tick in played.ticks if tick.time_s % 2 == 0]
    shed_s = played.results.intended_s[played.results.outcome == REJECTED]
    for tick in ticks:
        seen = tick.observation
        assert isinstance(seen, QueueObservation)
        end_s = tick.time_s + 2
        counts = [queue.servers or 0 for queue in seen.queues]
        marks = ["↓" if queue.draining else "" for queue in seen.queues]
        yield Moment(
            time_s=tick.time_s,
            functions=seen.replicas.joined,
            asked_for=seen.replicas.current,
            containers=" ".join(f"{count}{mark}" for count, mark in zip(counts, marks, strict=True)),
            total=sum(counts),
            backlog=seen.backlog or 0,
            arrived=_within(played.results.intended_s, tick.time_s, end_s),
            shed=_within(shed_s, tick.time_s, end_s),
        )


def _within(times_s: Any, from_s: float, until_s: float) -> int:
    return int(np.count_nonzero((times_s >= from_s) & (times_s < until_s)))


def outcome(played: Played, scaler: str, label: str) -> Outcome:
    """The figures of one run. Latency is of events that were served; shed ones miss the SLO."""
    table = played.results
    done, shed = table.outcome == COMPLETED, table.outcome == REJECTED
    latency_s = table.finished_s[done] - table.intended_s[done]
    actions = [tick.decisions[scaler].action for tick in played.ticks if tick.accepted is not None]
    seen = [tick.observation for tick in played.ticks]
    functions = [event for event in played.events if event.fleet == seen[0].fleet]
    totals = [(moment.time_s, moment.total) for moment in moments(played)]
    return Outcome(
        scaler=label,
        scheduled=len(table),
        shed=int(shed.sum()),
        shed_share=float(shed.mean()),
        last_shed_s=float(table.intended_s[shed].max()) if shed.any() else float("nan"),
        slo_share=float(np.count_nonzero(latency_s <= EXPERIMENTS[0].slo_s) / len(table)),
        mean_latency_s=float(latency_s.mean()),
        thirty_containers_s=next((time_s for time_s, total in totals if total >= 30), float("nan")),
        ups=actions.count("up"),
        downs=actions.count("down"),
        most_functions=max(observation.replicas.current for observation in seen),
        function_minutes=replica_seconds(functions, 0, nanos(played.duration_s)) / 60,
        container_minutes=container_minutes(played),
    )


# --- printing --------------------------------------------------------------------------------------------------------


def table_rows() -> Iterator[tuple[str, ...]]:
    """Rows of Table 1: time, then ``printed / formula / simulated`` for each function and the total."""
    for printed, simulated in zip(PRINTED_TABLE_1, simulated_table_1(), strict=True):
        counts = timeline(FUNCTIONS, STARTS, printed[0])
        formula = (printed[0], *counts, sum(counts))
        triples = zip(printed[1:], formula[1:], simulated[1:], strict=True)
        yield (str(printed[0]), *(f"{p} / {f} / {s}" for p, f, s in triples))


def shown(rows: Iterable[tuple[Any, ...]]) -> Iterator[list[str]]:
    """Cells as text; NaN is a dash."""
    for row in rows:
        yield ["-" if value != value else f"{value:.4g}" if isinstance(value, float) else str(value) for value in row]


def main(
    out: Annotated[Path | None, typer.Option(help="Folder for timeline.csv.")] = None,
) -> None:
    """Print everything; some seconds."""
    typer.echo("## Table 1: printed / formula / simulated\n")
    typer.echo(markdown(("time", "FaaS 1", "FaaS 2", "FaaS 3", "total"), table_rows()))
    typer.echo("## Units of time to 30 containers\n")
    claims = (
        ("one function", "nearly sixty", time_to(30, (0.0,))),
        ("three, 10 units apart", "less than thirty", time_to(30, STARTS)),
        ("three at once", "-", time_to(30, (0.0, 0.0, 0.0))),
    )
    typer.echo(markdown(("functions", "printed", "formula"), shown(claims)))
    typer.echo("Formula (2) with c = 5: " + ", ".join(f"n = {n}: {nsp_after(5, n):g}" for n in (1, 2, 3)) + "\n")
    runs = {scaler: (scaler, run_experiment(scaler)) for scaler in SCALERS}
    for scaler in ("elastic-faas", "elastic-faas-published"):
        runs[f"{scaler}, L = PPT = 5"] = (
            scaler,
            run_experiment(scaler, latency_s=5.0, provision_s=5.0, horizon_s=10.0),
        )
    typer.echo(f"## {EXPERIMENTS[0].name}: {EXPERIMENTS[0].title}\n")
    typer.echo(markdown(Outcome._fields, shown(outcome(run, scaler, label) for label, (scaler, run) in runs.items())))
    for label, (_, run) in runs.items():
        typer.echo(f"{label}, every four units:\n")
        every_other = (moment for moment in moments(run) if moment.time_s % 4 == 0 and moment.time_s <= SHOWN_S)
        typer.echo(markdown(Moment._fields, shown(every_other)))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        rows = ((label, *moment) for label, (_, run) in runs.items() for moment in moments(run))
        write_csv(out / "timeline.csv", ("scaler", *Moment._fields), rows)


if __name__ == "__main__":
    run_program(main, "python -m experiments.elastic_faas.tables --out figures/elastic-faas")
