"""Tables 1 and 2, the data of Figures 3a to 3f and the story of both: printed, by formula, simulated.

``python -m experiments.multiqueue.tables`` prints them as Markdown; with ``--out FOLDER`` it writes the figures' data,
too (``figure-3.csv``). Virtual time throughout; everything is drawn from fixed seeds.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np
import typer

from controller.queueing.mmsk import Mmsk, mmsk
from controller.scalers.multiqueue import Multiqueue
from controller.scalers.multiqueue_damped import MultiqueueDamped
from controller.scalers.single_queue import SingleQueue
from experiments.experiment import Experiment
from experiments.multiqueue.experiments import BANK, CAPACITY, EXPERIMENTS, MOST_CONTAINERS, SERVICE_RATE_PER_S
from experiments.program import run_program
from experiments.tables import markdown, write_csv
from penstock.contracts import QueueObservation, ReplicaEvent
from penstock.measures import replica_seconds
from penstock.registry import make_parameters
from penstock.runspec import RunSpec, ScalerSpec
from penstock.schedule import Schedule
from penstock.systems import QueueSystem
from producers.schedule import make_schedule
from producers.workloads import Poisson, parse_workload
from simulator.clock import nanos
from simulator.engine import COMPLETED, REJECTED, Floats
from simulator.network_play import Played, play
from simulator.queue_bank import make_engine
from simulator.queue_measures import QueueMeasures, measure

STUDENT_97_5: Final = 2.093
"""For 20 replications: the half-width of a 95 % interval in standard errors."""
REPLICATIONS: Final = 20
RAMP_REPLICATIONS: Final = 200
WARM_UP_S, STEADY_S = 20.0, 200.0
LAST_TIME: Final = 12

Row = tuple[float, ...]
MEASURES: Final = ("p_full", "entered_per_s", "lost_per_s", "waiting", "in_system", "waiting_time_s", "response_time_s")
HEADINGS: Final = ("P_K", "λ(1-P_K)", "λ P_K", "L_q", "L", "W_q", "W")

PRINTED_ROWS: Final[Mapping[int, tuple[Row, ...]]] = {
    200: (
        (0.95, 10, 190, 48.95, 49.95, 4.89, 4.99),
        (0.90, 20, 180, 47.89, 49.89, 2.39, 2.49),
        (0.85, 30, 170, 46.82, 49.82, 1.56, 1.66),
        (0.80, 40, 160, 45.75, 49.75, 1.14, 1.24),
        (0.75, 50, 150, 44.67, 49.67, 0.89, 0.99),
        (0.70, 60, 140, 43.57, 49.57, 0.73, 0.83),
        (0.65, 70, 130, 42.46, 49.46, 0.61, 0.71),
        (0.60, 80, 120, 41.33, 49.33, 0.52, 0.62),
        (0.55, 90, 110, 40.18, 49.18, 0.45, 0.55),
        (0.50, 100, 100, 39.00, 49.00, 0.39, 0.49),
    ),
    100: (
        (0.90, 10, 90, 48.89, 49.89, 4.89, 4.99),
        (0.80, 20, 80, 47.75, 49.75, 2.39, 2.49),
        (0.70, 30, 70, 46.57, 49.57, 1.55, 1.65),
        (0.60, 40, 60, 45.33, 49.33, 1.13, 1.23),
        (0.50, 50, 50, 44.00, 49.00, 0.88, 0.98),
        (0.40, 60, 40, 42.50, 48.50, 0.71, 0.81),
        (0.30, 70, 30, 40.67, 47.67, 0.58, 0.68),
        (0.20, 80, 20, 38.00, 46.00, 0.48, 0.58),
        (0.10, 89.91, 10.09, 32.39, 41.38, 0.36, 0.46),
        (0.02, 100.00, 0.00, 18.64, 28.64, 0.19, 0.29),
    ),
}
"""Table 1 (λ = 200) and Table 2 (λ = 100): rows by s in the order of ``HEADINGS``. Times 11 and 12 repeat s = 10."""


def containers_at(time: int) -> int:
    """S at the paper's times 1, 2, …"""
    return min(time, MOST_CONTAINERS)


def by_formula(rate_per_s: float, servers: int, capacity: int = CAPACITY) -> Row:
    """The exact steady state, in the order of ``HEADINGS``."""
    m: Mmsk = mmsk(rate_per_s, SERVICE_RATE_PER_S, servers, capacity)
    return (m.p_full, m.entered_rate, m.lost_rate, m.waiting, m.in_system, m.waiting_time, m.response_time)


class Estimate(NamedTuple):
    """Means over replications or batches and the half-widths of their 95 % intervals, in the order of ``HEADINGS``."""

    mean: Row
    half: Row


def over_replications(measured: Sequence[QueueMeasures]) -> Estimate:
    """Mean and half-width of each measure; replications in which nothing arrived or entered tell no times."""
    return estimate(measures_of(measured))


def measures_of(measured: Sequence[QueueMeasures]) -> Floats:
    """As an array, shape (replications, measures in the order of ``HEADINGS``)."""
    return np.array([[getattr(one, name) for name in MEASURES] for one in measured])


def estimate(values: Floats) -> Estimate:
    """Mean and half-width over ``REPLICATIONS`` rows, or as many batches; NaN says nothing."""
    half = STUDENT_97_5 * np.nanstd(values, axis=0, ddof=1) / sqrt(len(values))
    return Estimate(tuple(np.nanmean(values, axis=0).tolist()), tuple(half.tolist()))


def _spec(system: QueueSystem, seconds: float, seed: int, replicas: int, scaler: str = "none") -> RunSpec:
    return RunSpec(
        run=f"{scaler}-{seed}",
        experiment="multiqueue",
        world="sim",
        scaler=ScalerSpec(name=scaler),
        seed=seed,
        duration_s=seconds,
        initial_replicas=replicas,
        max_replicas=100,
        tick_phase_s=0.0,
        system=system,
    )


def _poisson(rate_per_s: float, seconds: float, seed: int) -> Schedule:
    return make_schedule(Poisson(rate_per_s=rate_per_s, duration_s=seconds), seed=seed, partitions=1)


def steady(rate_per_s: float, servers: int, replications: int = REPLICATIONS) -> Estimate:
    """One queue with a fixed number of containers, after a warm-up."""
    system = msgspec.structs.replace(BANK, scaled="containers")
    seconds = WARM_UP_S + STEADY_S
    measured = []
    for replication in range(replications):
        seed = round(1000 * rate_per_s) + 100 * servers + replication
        engine = make_engine(_spec(system, seconds, seed, servers), _poisson(rate_per_s, seconds, seed))
        engine.advance(seconds + 1e6)
        measured.append(measure(engine.results(), WARM_UP_S, seconds))
    return over_replications(measured)


def ramps(rate_per_s: float, queues: int, replications: int = RAMP_REPLICATIONS) -> list[Estimate]:
    """Queues of equal shares whose functions start with nothing: the measures of the first queue in each time unit."""
    measured: list[list[QueueMeasures]] = [[] for _ in range(LAST_TIME)]
    for replication in range(replications):
        seed = round(rate_per_s) + 1000 * replication + 1
        engine = make_engine(_spec(BANK, LAST_TIME, seed, queues), _poisson(rate_per_s, LAST_TIME, seed))
        engine.advance(1e6)
        table = engine.results()
        for unit in range(LAST_TIME):
            measured[unit].append(measure(table, unit, unit + 1, table.queues[1]))
    return [over_replications(one) for one in measured]


# --- the closed loop -------------------------------------------------------------------------------------------------

SCALERS: Final[Mapping[str, type[Any]]] = {
    "single-queue": SingleQueue,
    "multiqueue": Multiqueue,
    "multiqueue-damped": MultiqueueDamped,
}


class Outcome(NamedTuple):
    """What a scaler made of an experiment, over the whole run and over its second half (``late``).

    ``queue_minutes``: queues in service, without the spare ones.
    """

    scaler: str
    lost_share: float
    late_lost_share: float
    mean_latency_s: float
    queue_minutes: float
    container_minutes: float
    ups: int
    downs: int
    most_queues: int
    queues_at_end: int


def run_experiment(experiment: Experiment, scaler: str, seed: int = 1) -> Played:
    """One scaler on one experiment, in virtual time."""
    assert isinstance(experiment.system, QueueSystem)
    kind = SCALERS[scaler]
    known = {name: value for name, value in experiment.common.items() if hasattr(kind.Parameters(), name)}
    spec = _spec(experiment.system, experiment.seconds, seed, experiment.initial_replicas, scaler)
    spec = msgspec.structs.replace(spec, max_replicas=experiment.max_replicas)
    schedule = make_schedule(parse_workload(experiment.workload), seed=seed, partitions=1)
    return play(spec, make_engine(spec, schedule), kind(make_parameters(scaler, kind.Parameters, known)))


def outcome(played: Played, scaler: str) -> Outcome:
    """The figures of one run. Latency is of events that were served."""
    table, seconds = played.results, played.duration_s
    done = table.outcome == COMPLETED
    actions = [tick.decisions[scaler].action for tick in played.ticks if tick.accepted is not None]
    queues = [tick.observation.replicas.current for tick in played.ticks]
    fleet = played.ticks[0].observation.fleet
    return Outcome(
        scaler=scaler,
        lost_share=float(np.mean(table.outcome == REJECTED)),
        late_lost_share=float(np.mean(table.outcome[table.intended_s >= seconds / 2] == REJECTED)),
        mean_latency_s=float((table.finished_s - table.intended_s)[done].mean()),
        queue_minutes=_minutes_in_service([event for event in played.events if event.fleet == fleet], seconds),
        container_minutes=container_minutes(played),
        ups=actions.count("up"),
        downs=actions.count("down"),
        most_queues=max(queues),
        queues_at_end=queues[-1],
    )


def container_minutes(played: Played) -> float:
    """From requested to gone within the run, over the containers of all functions."""
    fleet = played.ticks[0].observation.fleet
    containers = [event for event in played.events if event.fleet != fleet]
    return replica_seconds(containers, 0, nanos(played.duration_s)) / 60


def _minutes_in_service(events: Iterable[ReplicaEvent], seconds: float) -> float:
    since: dict[str, float] = {}
    total_s = 0.0
    for event in events:
        at_s = min(event.at_ns / 1e9, seconds)
        if event.phase == "joined":
            since[event.replica] = at_s
        elif event.phase in ("gone", "pooled"):
            total_s += at_s - since.pop(event.replica, at_s)
    return (total_s + sum(seconds - at_s for at_s in since.values())) / 60


def timeline(played: Played, scaler: str) -> list[tuple[str, ...]]:
    """Second, containers (↓ while a queue drains) and shares of the queues, P_K of the last second as the scaler
    reckoned with it, and what it did.
    """
    rows: list[tuple[str, ...]] = []
    for tick in played.ticks:
        seen = tick.observation
        assert isinstance(seen, QueueObservation)
        decision = tick.decisions[scaler]
        why = decision.why[seen.fleet]
        p_ks = why.get("P_K")
        rows.append(
            (
                f"{tick.time_s:g}",
                " ".join(f"{queue.servers}{'↓' if queue.draining else ''}" for queue in seen.queues),
                " ".join(f"{share:.2f}" for share in seen.routing.values()),
                " ".join(f"{p_k:.2f}" for p_k in p_ks) if isinstance(p_ks, list) else "-",
                str(why.get("cycle", why.get("reason", decision.action))),
            )
        )
    return rows


# --- printing --------------------------------------------------------------------------------------------------------


def table_rows(rate_per_s: int) -> list[tuple[str, ...]]:
    """Rows of Table 1 or 2: s, then ``printed / formula / simulated ± half-width`` for each measure."""
    rows = []
    for servers, printed in enumerate(PRINTED_ROWS[rate_per_s], 1):
        exact, simulated = by_formula(rate_per_s, servers), steady(rate_per_s, servers)
        cells = (
            f"{p:g} / {e:.4g} / {m:.4g} ± {h:.2g}"
            for p, e, m, h in zip(printed, exact, simulated.mean, simulated.half, strict=True)
        )
        rows.append((str(servers), *cells))
    return rows


def differences(rate_per_s: int) -> list[str]:
    """Printed cells that the formula does not give to half a digit of print."""
    found = []
    for servers, printed in enumerate(PRINTED_ROWS[rate_per_s], 1):
        for heading, p, exact in zip(HEADINGS, printed, by_formula(rate_per_s, servers), strict=True):
            if abs(p - exact) > 0.005 + 1e-9:
                found.append(f"λ = {rate_per_s}, s = {servers}, {heading}: printed {p:g}, exact {exact:.5f}")
    return found


FIGURE_COLUMNS: Final = (
    "queue",
    "time",
    "s",
    *(f"{name}_{how}" for name in MEASURES for how in ("formula", "simulated", "half")),
)


def figure_rows() -> list[tuple[float | str, ...]]:
    """Figures 3a to 3f: single queue (λ = 200) and one of two queues (λ = 100 each), times 1 to 12."""
    rows: list[tuple[float | str, ...]] = []
    for label, rate_per_s, queues in (("single", 200, 1), ("multi", 100, 2)):
        for time, simulated in enumerate(ramps(200, queues), 1):
            exact = by_formula(rate_per_s, containers_at(time))
            values = (each for triple in zip(exact, simulated.mean, simulated.half, strict=True) for each in triple)
            rows.append((label, time, containers_at(time), *values))
    return rows


def main(
    out: Annotated[Path | None, typer.Option(help="Folder for figure-3.csv.")] = None,
) -> None:
    """Print everything; some minutes."""
    for number, rate_per_s in ((1, 200), (2, 100)):
        typer.echo(f"## Table {number}, λ = {rate_per_s}: printed / formula / simulated ± 95 %\n")
        typer.echo(markdown(("s", *HEADINGS), table_rows(rate_per_s)))
    typer.echo(
        "Printed values off by more than half a digit: " + ("; ".join(differences(200) + differences(100))) + "\n"
    )
    figures = figure_rows()
    typer.echo("## Figures 3a to 3f: formula / simulated ramp (mean within the time unit)\n")
    cells = []
    for label, time, servers, *values in figures:
        numbers = [float(value) for value in values]
        pairs = (f"{numbers[3 * k]:.4g} / {numbers[3 * k + 1]:.4g}" for k in range(len(MEASURES)))
        cells.append((str(label), str(time), str(servers), *pairs))
    typer.echo(markdown(("queue", "time", "s", *HEADINGS), cells))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_csv(out / "figure-3.csv", FIGURE_COLUMNS, figures)
    for experiment in EXPERIMENTS:
        typer.echo(f"## {experiment.name}: {experiment.title}\n")
        played = {scaler: run_experiment(experiment, scaler) for scaler in SCALERS}
        outcomes = (outcome(run, scaler) for scaler, run in played.items())
        typer.echo(
            markdown(
                Outcome._fields,
                ([text if isinstance(text, str) else f"{text:.4g}" for text in one] for one in outcomes),
            )
        )
        for scaler in ("multiqueue", "multiqueue-damped"):
            typer.echo(f"{scaler}, the first seconds:\n")
            headings = ("second", "containers", "shares", "P_K", "cycle")
            typer.echo(markdown(headings, timeline(played[scaler], scaler)[:36]))


if __name__ == "__main__":
    run_program(main, "python -m experiments.multiqueue.tables --out figures/multiqueue")
