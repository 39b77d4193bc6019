"""Table 1, its time line and the story of the paper: printed, by formula, simulated; finished runs in the same columns.

``penstock paper elastic-faas`` lists the tables. What is simulated is drawn from fixed seeds. The time line of a
recorded run of the scheduled scaler is Table 1.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import count
from operator import itemgetter
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from controller.fleets.queue.container_ramp import timeline
from controller.scalers.shared.elastic_faas_formulas import nsp_after
from experiments.elastic_faas.experiments import EXPERIMENTS, FUNCTIONS
from experiments.experiment import Options
from experiments.multiqueue.tables import container_minutes
from experiments.paper import TWENTY, Cells, PaperTable, Request, Settings, median_range, medians, printed_values
from experiments.run_result import conditions, finished_run, recorded, simulate, simulation
from experiments.value_classes import accuracy, high_value
from penstock.contracts import Decision, QueueObservation, ReplicaEvent
from penstock.measures import replica_seconds
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from report.analysis.measurement import summary_of
from report.groups import group_runs
from simulator.clock import nanos
from simulator.engine import COMPLETED, REJECTED
from simulator.in_memory_run import FinishedRun
from simulator.queue import make_engine

PRINTED: Final = printed_values(__file__)
"""Table 1: time, containers of FaaS 1 to 3 (0 where a dash is printed), total."""

LIVE: Final = {row["time"]: row for row in printed_values(__file__, "live_table1.csv")}
"""The same of a live run: what ``penstock paper elastic-faas live-table1 RUN --out FOLDER`` wrote."""

STARTS: Final = (0.0, 10.0, 20.0)
"""When the functions of Table 1 start."""

SHOWN_S: Final = 84
"""How far time lines are shown; CSV and JSON have all of them."""

SCALERS: Final = ("faas", "elastic-faas", "elastic-faas-published")
(EXPERIMENT,) = EXPERIMENTS


def simulated_table_1() -> list[tuple[int, ...]]:
    """Containers that the monitor observes at the times of Table 1, with a function requested at each start."""
    spec = simulation(EXPERIMENT, "faas", Options(world="sim", system={"provision_s": "0"})).spec
    engine = make_engine(spec, Schedule(np.zeros(0, np.int64), np.zeros(0, np.int16), spec.duration_s))
    rows = []
    for time in (row["time"] for row in PRINTED):
        engine.advance(float(time))
        wanted = sum(start <= time for start in STARTS)
        engine.actuator.apply(Decision(action="up", targets={spec.fleet: wanted}))
        counts = [queue.servers or 0 for queue in engine.monitor.observe().queues]
        rows.append((time, *counts, *[0] * (len(STARTS) - len(counts)), sum(counts)))
    return rows


def time_to(containers: int, starts: tuple[float, ...]) -> int:
    """First whole time at which functions that start so have that many containers together."""
    return next(time for time in count() if sum(timeline(FUNCTIONS, starts, time)) >= containers)


@cache
def run_experiment(scaler: str, seed: int = 1, **parameters: float) -> FinishedRun:
    """One scaler on the experiment, in virtual time; ``parameters`` differ from the experiment's. Tables share it."""
    settings = {name: str(value) for name, value in parameters.items()}
    system = {name: value for name, value in settings.items() if name == "provision_s"}
    return simulate(EXPERIMENT, scaler, Options(world="sim", seed=seed, settings={scaler: settings}, system=system))


def moments(played: FinishedRun) -> Iterator[dict[str, Any]]:
    """The time line of a run, every two units: containers and functions at the beginning, backlog then, arrived, shed
    and served within them.
    """
    table = played.results
    intended_s = table.intended_s
    shed_s, served_s = intended_s[table.outcome == REJECTED], table.finished_s[table.outcome == COMPLETED]
    for tick in played.ticks:
        if tick.time_s % 2:
            continue
        seen = tick.observation
        assert isinstance(seen, QueueObservation)
        end_s = tick.time_s + 2
        yield {
            "time_s": tick.time_s,
            "functions": seen.replicas.joined,
            "asked_for": seen.replicas.current,
            "containers": " ".join(f"{queue.servers or 0}{'↓' if queue.draining else ''}" for queue in seen.queues),
            "total": sum(queue.servers or 0 for queue in seen.queues),
            "backlog": seen.backlog or 0,
            "arrived": _within(intended_s, tick.time_s, end_s),
            "shed": _within(shed_s, tick.time_s, end_s),
            "served": _within(served_s, tick.time_s, end_s),
        }


def _within(times_s: Any, from_s: float, until_s: float) -> int:
    return int(np.count_nonzero((times_s >= from_s) & (times_s < until_s)))


def outcome(played: FinishedRun, scaler: str, label: str) -> dict[str, Any]:
    """Measures of one run. Latency is of events that were served; shed ones miss the SLO."""
    table = played.results
    done, shed = table.outcome == COMPLETED, table.outcome == REJECTED
    latency_s = table.finished_s[done] - table.intended_s[done]
    actions = [tick.decisions[scaler].action for tick in played.ticks if tick.accepted is not None]
    seen = [tick.observation for tick in played.ticks]
    functions = [event for event in played.events if event.fleet == seen[0].fleet]
    thirty_s = (moment["time_s"] for moment in moments(played) if moment["total"] >= 30)
    return {
        "scaler": label,
        "scheduled": len(table),
        "shed": int(shed.sum()),
        "shed_share": float(shed.mean()),
        "last_shed_s": float(table.intended_s[shed].max()) if shed.any() else None,
        "slo_share": float(np.count_nonzero(latency_s <= EXPERIMENT.slo_s) / len(table)),
        "mean_latency_s": float(latency_s.mean()),
        "thirty_containers_s": next(thirty_s, None),
        "ups": actions.count("up"),
        "downs": actions.count("down"),
        "most_functions": max(observation.replicas.current for observation in seen),
        "function_minutes": replica_seconds(functions, 0, nanos(played.duration_s)) / 60,
        "container_minutes": container_minutes(played),
    }


# --- tables ----------------------------------------------------------------------------------------------------------


def table_1() -> Iterator[Cells]:
    """Time, then printed, formula and simulated of each function and of the total; and those of a live run."""
    for printed, (time, *simulated) in zip(PRINTED, simulated_table_1(), strict=True):
        counts = timeline(FUNCTIONS, STARTS, time)
        three = zip(printed, printed.values(), (time, *counts, sum(counts)), (time, *simulated), strict=True)
        yield (
            {"time": time}
            | {
                title: dict(zip(("printed", "formula", "simulated"), values, strict=True))
                for title, *values in three
                if title != "time"
            }
            | {"live": "{FaaS 1} {FaaS 2} {FaaS 3} = {total}".format(**LIVE[time])}
        )


def live_table_1(request: Request) -> Iterator[Cells]:
    """Containers of each function that had joined half-way to the next time of Table 1, by the replica events of the
    scheduled scaler's runs. The provider adds a container at a time of the table, and its process has to start.
    """
    for run in recorded(request, EXPERIMENTS):
        events = finished_run(run).events
        functions = list(dict.fromkeys(event.fleet for event in events if event.fleet != run.spec.fleet))
        for printed in PRINTED:
            until_ns = nanos(printed["time"] + 1.0)
            counts = [containers_at(events, function, until_ns) for function in functions[: len(STARTS)]]
            counts += [0] * (len(STARTS) - len(counts))
            yield dict(zip(PRINTED[0], (printed["time"], *counts, sum(counts)), strict=True))


def containers_at(events: Sequence[ReplicaEvent], function: str, at_ns: int) -> int:
    """Containers of a function that have joined by then and are not gone."""
    steps = [event.phase for event in events if event.fleet == function and event.at_ns <= at_ns]
    return steps.count("joined") - steps.count("gone")


def claims() -> Iterator[Cells]:
    """Units of time until 30 containers are there."""
    for functions, printed, starts in (
        ("one function", "nearly sixty", (0.0,)),
        ("three, 10 units apart", "less than thirty", STARTS),
        ("three at once", "-", (0.0, 0.0, 0.0)),
    ):
        yield {"functions": functions, "printed": printed, "formula": time_to(30, starts)}


def _formula_2(_: object) -> str:
    return "Formula (2) with c = 5: " + ", ".join(f"n = {n}: {nsp_after(5, n):g}" for n in (1, 2, 3))


SHORT: Final = {"latency_s": 5.0, "provision_s": 5.0, "horizon_s": 10.0}
"""L = PPT = 5; SPc stays 10."""
CASES: Final[Mapping[str, tuple[str, Mapping[str, float]]]] = {
    **{scaler: (scaler, {}) for scaler in SCALERS},
    **{f"{scaler}, L = PPT = 5": (scaler, SHORT) for scaler in ("elastic-faas", "elastic-faas-published")},
}
"""Every scaler, and two at L = PPT = 5."""
OUTCOME_DIGITS: Final = {
    "scheduled": 0, "shed": 0, "shed_share": 4, "last_shed_s": 1, "slo_share": 3, "mean_latency_s": 2,
    "thirty_containers_s": 0, "ups": 0, "downs": 0, "most_functions": 0, "function_minutes": 2, "container_minutes": 1,
}  # fmt: skip


class ElasticFaasSettings(Settings, frozen=True, kw_only=True):
    """``penstock paper elastic-faas``."""

    seeds: Annotated[tuple[int, ...], msgspec.Meta(description="Of the story.")] = TWENTY


def story(request: Request) -> Iterator[Cells]:
    """Every case: medians and ranges over the seeds, in how many runs nothing is shed, nothing is shed in the last
    quarter, and a second function comes into service.
    """
    for label, (scaler, parameters) in request.each(CASES.items(), itemgetter(0)):
        runs = [run_experiment(scaler, seed, **parameters) for seed in request.settings.seeds]
        found = [outcome(run, scaler, label) for run in runs]
        joined = [max(tick.observation.replicas.joined or 0 for tick in run.ticks) for run in runs]
        counts = {
            "nothing shed": [row["shed"] == 0 for row in found],
            "shedding ends": [(row["last_shed_s"] or 0) < 0.75 * EXPERIMENT.seconds for row in found],
            "second function": [most > 1 for most in joined],
        }
        yield {
            "scaler": label,
            **medians(found, OUTCOME_DIGITS),
            **{name: f"{sum(true)} of {len(true)}" for name, true in counts.items()},
        }


def throughput(request: Request) -> Iterator[Cells]:
    """Figure 3d: events that arrive, are served and are shed in every two units of time, over the seeds."""
    for scaler in request.each(SCALERS[:2]):
        runs = [list(moments(run_experiment(scaler, seed))) for seed in request.settings.seeds]
        for some in zip(*runs, strict=True):
            counts = {name: median_range([row[name] for row in some], 0) for name in ("arrived", "served", "shed")}
            yield {"scaler": scaler, "time_s": some[0]["time_s"], **counts}


def accuracies(request: Request) -> Iterator[Cells]:
    """How much of each class of value the results have, in the whole run and in its last quarter."""
    high = {seed: high_value(EXPERIMENT, seed) for seed in request.settings.seeds}
    for scaler in request.each(SCALERS):
        runs = {seed: run_experiment(scaler, seed) for seed in high}
        yield {"scaler": scaler, **accuracy(runs, high, 0.75 * EXPERIMENT.seconds)}


def first_runs(request: Request) -> Iterator[tuple[str, FinishedRun]]:
    """(label, run) of every case with the first seed."""
    first, *_ = request.settings.seeds
    for label, (scaler, parameters) in CASES.items():
        yield f"{label}, seed {first}", run_experiment(scaler, first, **parameters)


def live(request: Request) -> Iterator[tuple[RunSpec, str, FinishedRun]]:
    """Each finished run with the label of its conditions."""
    runs = list(recorded(request, EXPERIMENTS))
    groups = group_runs([summary_of(run) for run in runs])
    labels = {summary.run: group.label for group in groups for summary in group.summaries}
    for run in runs:
        yield run.spec, labels[run.name], finished_run(run)


TABLES: Final = (
    PaperTable(
        "table1",
        "Table 1: printed / formula / simulated",
        lambda _: table_1(),
        formats=dict.fromkeys(PRINTED[0].keys() - {"time"}, "{} / {} / {}"),
    ),
    PaperTable("thirty", "Units of time to 30 containers", lambda _: claims(), note=_formula_2),
    PaperTable(
        "story",
        f"{EXPERIMENT.name}: {EXPERIMENT.title}; medians and ranges over the seeds",
        story,
    ),
    PaperTable(
        "figure3d",
        "Figure 3d: ingestion against throughput, events in two units of time: medians and ranges over the seeds",
        throughput,
        section="scaler",
        shown=lambda row: row["time_s"] % 8 == 0,
    ),
    PaperTable(
        "accuracy",
        "Transactions of high and low value found in the results: medians and ranges over the seeds",
        accuracies,
    ),
    PaperTable(
        "story-timeline",
        "Time lines of one run, every four units",
        lambda request: ({"scaler": label} | moment for label, run in first_runs(request) for moment in moments(run)),
        section="scaler",
        shown=lambda row: row["time_s"] % 4 == 0 and row["time_s"] <= SHOWN_S,
    ),
    PaperTable(
        "live",
        "Finished runs",
        lambda request: (
            conditions(spec) | outcome(run, spec.scaler.name, label) for spec, label, run in live(request)
        ),
        source="recorded",
    ),
    PaperTable(
        "live-table1",
        "Table 1 of a run of the scheduled scaler, by its replica events",
        live_table_1,
        source="recorded",
    ),
    PaperTable(
        "live-timeline",
        "Time lines of finished runs",
        lambda request: (
            {"run": f"{spec.run}: {label}"} | moment for spec, label, run in live(request) for moment in moments(run)
        ),
        section="run",
        shown=lambda row: row["time_s"] <= SHOWN_S,
        source="recorded",
    ),
)
