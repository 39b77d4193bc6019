"""Tables 1 and 2, the data of Figures 3a to 3f and the story of both: printed, by formula, simulated; finished runs in
the same columns.

``penstock paper multiqueue`` lists the tables. What is simulated is drawn from fixed seeds. Recorded runs of the
scheduled scaler are replications of Figure 3: queues with equal shares from the start, whose functions start with
nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np

from controller.queueing.mmsk import Mmsk, mmsk
from experiments.experiment import Experiment, Options
from experiments.multiqueue.experiments import (
    CAPACITY,
    CONTAINERS,
    EXPERIMENTS,
    MOST_CONTAINERS,
    SERVICE_RATE_PER_S,
    mmsk_experiment,
)
from experiments.paper import Cells, PaperTable, Request, half_width, median_range, medians, printed_values
from experiments.run_result import conditions, finished_run, outcomes, recorded, simulate, simulation
from experiments.scheduled_scaler import ScheduledScaler
from experiments.value_classes import accuracy, high_value
from penstock.contracts import QueueObservation
from penstock.measures import replica_seconds
from penstock.runspec import RunSpec
from report.analysis.run_data import RunData
from simulator.clock import nanos
from simulator.engine import COMPLETED, REJECTED, EventTable, Floats
from simulator.in_memory_run import FinishedRun
from simulator.queue_measures import QueueMeasures, measure

STUDENT_97_5: Final = 2.093
"""For 20 replications: the half-width of a 95 % interval in standard errors."""
REPLICATIONS: Final = 20
RAMP_REPLICATIONS: Final = 200
WARM_UP_S, STEADY_S = 20.0, 200.0
LAST_TIME: Final = 12
MAIN: Final = "main"
BY_NAME: Final = {experiment.name: experiment for experiment in EXPERIMENTS}

Row = tuple[float, ...]
MEASURES: Final = ("p_full", "entered_per_s", "lost_per_s", "waiting", "in_system", "waiting_time_s", "response_time_s")
HEADINGS: Final = ("P_K", "λ(1-P_K)", "λ P_K", "L_q", "L", "W_q", "W")

PRINTED_ROWS: Final[Mapping[int, list[Row]]] = {
    rate_per_s: [tuple(map(row.__getitem__, HEADINGS)) for row in printed_values(__file__) if row["λ"] == rate_per_s]
    for rate_per_s in (200, 100)
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


def measures_of(measured: Sequence[QueueMeasures]) -> Floats:
    """As an array, shape (replications, measures in the order of ``HEADINGS``)."""
    return np.array([[getattr(one, name) for name in MEASURES] for one in measured])


def estimate(values: Floats) -> Estimate:
    """Mean and half-width over ``REPLICATIONS`` rows, or as many batches; NaN (no event, no times) is left out."""
    half = half_width(values, STUDENT_97_5)
    return Estimate(tuple(np.nanmean(values, axis=0).tolist()), tuple(half.tolist()))


def _events(experiment: Experiment, seed: int, replicas: int) -> EventTable:
    """Of a run with a fixed number of replicas."""
    options = Options(world="sim", seed=seed, initial_replicas=replicas)
    engine = simulation(experiment, "single-queue", options).engine
    engine.advance(experiment.seconds + 1e6)
    return engine.results()


def steady(rate_per_s: float, servers: int, replications: int = REPLICATIONS) -> Estimate:
    """One queue with a fixed number of containers, after a warm-up."""
    experiment = mmsk_experiment(rate_per_s, WARM_UP_S + STEADY_S, scaled="containers")
    first = round(1000 * rate_per_s) + 100 * servers
    tables = (_events(experiment, seed, servers) for seed in range(first, first + replications))
    return estimate(measures_of([measure(table, WARM_UP_S, experiment.seconds) for table in tables]))


def ramps(rate_per_s: float, queues: int, replications: int = RAMP_REPLICATIONS) -> list[Estimate]:
    """Queues of equal shares whose functions start with nothing: the measures of the first queue in each time unit."""
    experiment = mmsk_experiment(rate_per_s, LAST_TIME)
    seeds = (round(rate_per_s) + 1000 * replication + 1 for replication in range(replications))
    tables = [_events(experiment, seed, queues) for seed in seeds]
    return [
        estimate(measures_of([measure(table, unit, unit + 1, table.queues[1]) for table in tables]))
        for unit in range(LAST_TIME)
    ]


# --- the closed loop -------------------------------------------------------------------------------------------------

SCALERS: Final = ("single-queue", "multiqueue", "multiqueue-damped")


@cache
def run_experiment(experiment: str, scaler: str, seed: int = 1) -> FinishedRun:
    """One scaler on one experiment, in virtual time; tables share it."""
    return simulate(BY_NAME[experiment], scaler, Options(world="sim", seed=seed))


def outcome(played: FinishedRun, scaler: str) -> dict[str, Any]:
    """Measures of one run, over the whole of it and over its second half (``late``). Latency is of events that were
    served; ``queue_minutes`` are of queues in service, without the spare ones.
    """
    table, seconds = played.results, played.duration_s
    done = table.outcome == COMPLETED
    actions = [tick.decisions[scaler].action for tick in played.ticks if tick.accepted is not None]
    queues = [tick.observation.replicas.current for tick in played.ticks]
    return {
        "scaler": scaler,
        "lost_share": float(np.mean(table.outcome == REJECTED)),
        "late_lost_share": float(np.mean(table.outcome[table.intended_s >= seconds / 2] == REJECTED)),
        "mean_latency_s": float((table.finished_s - table.intended_s)[done].mean()),
        "queue_minutes": queue_minutes(played),
        "container_minutes": container_minutes(played),
        "ups": actions.count("up"),
        "downs": actions.count("down"),
        "most_queues": max(queues),
        "queues_at_end": queues[-1],
    }


def container_minutes(played: FinishedRun) -> float:
    """From requested to gone within the run, over the containers of all functions."""
    fleet = played.ticks[0].observation.fleet
    containers = [event for event in played.events if event.fleet != fleet]
    return replica_seconds(containers, 0, nanos(played.duration_s)) / 60


def queue_minutes(played: FinishedRun) -> float:
    """Of queues in service within the run, without the spare ones."""
    fleet, seconds = played.ticks[0].observation.fleet, played.duration_s
    since: dict[str, float] = {}
    total_s = 0.0
    for event in played.events:
        if event.fleet != fleet:
            continue
        at_s = min(event.at_ns / 1e9, seconds)
        if event.phase == "joined":
            since[event.replica] = at_s
        elif event.phase in ("gone", "pooled"):
            total_s += at_s - since.pop(event.replica, at_s)
    return (total_s + sum(seconds - at_s for at_s in since.values())) / 60


def timeline(played: FinishedRun, scaler: str) -> Iterator[dict[str, str]]:
    """Containers (↓ while a queue drains) and shares of the queues, P_K of the last second as in the scaler's decision,
    and its action, second by second.
    """
    for tick in played.ticks:
        seen = tick.observation
        assert isinstance(seen, QueueObservation)
        decision = tick.decisions[scaler]
        why = decision.why[seen.fleet]
        p_ks = why.get("P_K")
        yield {
            "second": f"{tick.time_s:g}",
            "containers": " ".join(f"{queue.servers}{'↓' if queue.draining else ''}" for queue in seen.queues),
            "shares": " ".join(f"{share:.2f}" for share in seen.routing.values()),
            "P_K": " ".join(f"{p_k:.2f}" for p_k in p_ks) if isinstance(p_ks, list) else "-",
            "cycle": str(why.get("cycle", why.get("reason", decision.action))),
        }


# --- tables ----------------------------------------------------------------------------------------------------------


def measured(**parts: Row) -> Cells:
    """A cell for each measure with these parts of it."""
    return {
        heading: dict(zip(parts, values, strict=True))
        for heading, *values in zip(HEADINGS, *parts.values(), strict=True)
    }


def formats(form: str) -> Cells:
    """The format of these cells."""
    return dict.fromkeys(HEADINGS, form)


def table_rows(request: Request, rate_per_s: int) -> Iterator[Cells]:
    """Rows of Table 1 or 2: s, then printed, formula, simulated and half-width of each measure."""
    printed_rows = PRINTED_ROWS[rate_per_s]
    for servers in request.each(range(1, len(printed_rows) + 1)):
        (simulated, half), formula = steady(rate_per_s, servers), by_formula(rate_per_s, servers)
        yield {
            "s": servers,
            **measured(printed=printed_rows[servers - 1], formula=formula, simulated=simulated, half=half),
        }


def differences(rate_per_s: int) -> list[str]:
    """Printed cells that the formula does not give to half a digit of print."""
    return [
        f"λ = {rate_per_s}, s = {servers}, {heading}: printed {p:g}, exact {exact:.5f}"
        for servers, printed in enumerate(PRINTED_ROWS[rate_per_s], 1)
        for heading, p, exact in zip(HEADINGS, printed, by_formula(rate_per_s, servers), strict=True)
        if abs(p - exact) > 0.005 + 1e-9
    ]


def figure_rows(request: Request) -> Iterator[Cells]:
    """Figures 3a to 3f: single queue (λ = 200) and one of two queues (λ = 100 each), times 1 to 12."""
    for label, rate_per_s, queues in (("single", 200, 1), ("multi", 100, 2)):
        request.progress(label)
        for time, (simulated, half) in enumerate(ramps(200, queues), 1):
            s = containers_at(time)
            parts = measured(formula=by_formula(rate_per_s, s), simulated=simulated, half=half)
            yield {"queue": label, "time": time, "s": s, **parts}


OUTCOME_DIGITS: Final = {
    "lost_share": 3, "late_lost_share": 3, "mean_latency_s": 3, "queue_minutes": 2, "container_minutes": 1, "ups": 0,
    "downs": 0, "most_queues": 0, "queues_at_end": 0,
}  # fmt: skip


def story(request: Request) -> Iterator[Cells]:
    """Every scaler on every experiment: medians and ranges over the seeds, and in how many runs a queue was removed."""
    for experiment, scaler in request.each(product(BY_NAME, SCALERS), ", ".join):
        found = [outcome(run_experiment(experiment, scaler, seed), scaler) for seed in request.settings.seeds]
        removed = f"{sum(row['downs'] > 0 for row in found)} of {len(found)}"
        yield {"experiment": experiment, "scaler": scaler, **medians(found, OUTCOME_DIGITS), "with removals": removed}


def accuracies(request: Request) -> Iterator[Cells]:
    """How much of each class of value every scaler's results have, in the whole run and in its second half."""
    for name, experiment in request.each(BY_NAME.items(), itemgetter(0)):
        high = {seed: high_value(experiment, seed) for seed in request.settings.seeds}
        for scaler in SCALERS:
            runs = {seed: run_experiment(name, scaler, seed) for seed in high}
            yield {"experiment": name, "scaler": scaler, **accuracy(runs, high, experiment.seconds / 2)}


def containers_by_load(request: Request) -> Iterator[Cells]:
    """Events that arrive and are lost in each second, backlog and containers at its beginning, over the seeds."""
    runs = [simulate(CONTAINERS, "provider-ramp", Options(world="sim", seed=seed)) for seed in request.settings.seeds]
    for second, ticks in enumerate(zip(*(run.ticks for run in runs), strict=True)):
        tables = [run.results for run in runs]
        within = [(table.intended_s >= second) & (table.intended_s < second + 1) for table in tables]
        lost = (here & (table.outcome == REJECTED) for here, table in zip(within, tables, strict=True))
        seen = [tick.observation for tick in ticks]
        yield {
            "second": second,
            "arrived": median_range([int(here.sum()) for here in within], 0),
            "lost": median_range([int(here.sum()) for here in lost], 0),
            "backlog": median_range([each.backlog for each in seen], 0),
            "containers": median_range([each.replicas.current for each in seen], 0),
        }


def first_runs(request: Request) -> Iterator[tuple[str, str, FinishedRun]]:
    """(name, scaler, run) of every scaler on every experiment with the first seed."""
    first, *_ = request.settings.seeds
    for experiment, scaler in request.each(product(BY_NAME, SCALERS), ", ".join):
        yield f"{experiment}, {scaler}, seed {first}", scaler, run_experiment(experiment, scaler, first)


def timelines(runs: Iterable[tuple[str, str, FinishedRun]]) -> Iterator[Cells]:
    """The time lines of runs (name, scaler, run) whose scaler uses P_K."""
    for name, scaler, run in runs:
        if scaler.startswith("multiqueue"):
            for line in timeline(run, scaler):
                yield {"run": name, **line}


def live(request: Request) -> Iterator[tuple[RunSpec, FinishedRun]]:
    """The finished runs of scalers."""
    return ((run.spec, finished_run(run)) for run in recorded(request, EXPERIMENTS) if not _is_scheduled(run))


def _is_scheduled(run: RunData) -> bool:
    return run.spec.scaler.name == ScheduledScaler.name


def live_figure_3(request: Request) -> Iterator[tuple[int, Cells]]:
    """How many runs there are, and a row: measures of the first queue in each unit of time, means over the runs and
    halves of 95 % intervals.
    """
    runs = list(filter(_is_scheduled, recorded(request, EXPERIMENTS)))
    for label, queues in (("single", 1), ("multi", 2)):
        tables = [outcomes(run) for run in runs if run.spec.scaler.parameters["replicas"] == queues]
        firsts = [next(queue for queue in table.queues if queue != MAIN) for table in tables]
        for unit in range(LAST_TIME if len(tables) > 1 else 0):
            units = [measure(table, unit, unit + 1, queue) for table, queue in zip(tables, firsts, strict=True)]
            mean, half = estimate(measures_of(units))
            head = {"queue": label, "time": unit + 1, "s": containers_at(unit + 1)}
            yield len(tables), {**head, **measured(mean=mean, half=half)}


def _replications(rows: Sequence[tuple[int, Cells]]) -> str:
    """How many replications there are, of how many."""
    runs = {cells["queue"]: number for number, cells in rows}
    return "; ".join(f"{label}: {runs.get(label, 0)} of {REPLICATIONS} runs" for label in ("single", "multi"))


def _printed_table(number: int, rate_per_s: int) -> PaperTable:
    return PaperTable(
        f"table{number}",
        f"Table {number}, λ = {rate_per_s}: printed / formula / simulated ± 95 %",
        lambda request: table_rows(request, rate_per_s),
        formats=formats("{:g} / {:.4g} / {:.4g} ± {:.2g}"),
        note=lambda _: f"Printed values off by more than half a digit: {'; '.join(differences(rate_per_s)) or 'none'}",
    )


SHOWN_S: Final = 36
"""Seconds of a time line that are shown; CSV and JSON have all of them."""

TABLES: Final = (
    _printed_table(1, 200),
    _printed_table(2, 100),
    PaperTable(
        "figure3",
        "Figures 3a to 3f: formula / simulated ramp ± 95 % (mean within the time unit)",
        figure_rows,
        formats=formats("{:.4g} / {:.4g} ± {:.2g}"),
    ),
    PaperTable(
        "story",
        "From one queue to two and more: medians and ranges over the seeds",
        story,
        section="experiment",
    ),
    PaperTable(
        "accuracy",
        "Transactions of high and low value found in the results: medians and ranges over the seeds",
        accuracies,
        section="experiment",
    ),
    PaperTable(
        "containers",
        f"Figure 2a: {CONTAINERS.title}; medians and ranges over the seeds",
        containers_by_load,
        shown=lambda row: row["second"] % 6 == 0,
    ),
    PaperTable(
        "story-timeline",
        "From one queue to two: the first seconds of one run",
        lambda request: timelines(first_runs(request)),
        section="run",
        shown=lambda row: float(row["second"]) < SHOWN_S,
    ),
    PaperTable(
        "live",
        "Finished runs",
        lambda request: (
            {"experiment": spec.experiment} | conditions(spec) | outcome(run, spec.scaler.name)
            for spec, run in live(request)
        ),
        source="recorded",
    ),
    PaperTable(
        "live-timeline",
        "Time lines of finished runs",
        lambda request: timelines((spec.run, spec.scaler.name, run) for spec, run in live(request)),
        section="run",
        shown=lambda row: float(row["second"]) <= SHOWN_S,
        source="recorded",
    ),
    PaperTable(
        "live-figure3",
        "Figures 3a to 3f, runs of the scheduled scaler: mean ± 95 %",
        live_figure_3,
        formats=formats("{:.4g} ± {:.2g}"),
        cells=itemgetter(1),
        note=_replications,
        source="recorded",
    ),
)
