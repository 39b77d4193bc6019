"""The data of the pub/sub paper's figures 4 to 8, and finished runs in their measures.

Responses are simulated, beside those of the model. In an overloaded network they grow as long as it runs: such values
depend on ``hours``.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from controller.journal import TickRecord
from controller.queueing.network import Job, Network, NetworkTopic, measure
from controller.scalers.random_allocation import lot
from controller.scalers.shared.allocation import Consumers, min_cost, min_time, random_path
from experiments.experiment import Options
from experiments.paper import TWENTY, UNKNOWN, Cells, PaperTable, Request, Settings, median_range
from experiments.pubsub.experiments import (
    BUDGET,
    DYNAMIC_CHANGE_S,
    EXPERIMENTS,
    HIGH_PER_MIN,
    LIMIT_S,
    MIDDLE_PER_MIN,
    MINUTE_S,
    ROUTES,
    TOPICS,
    WINDOW_S,
    network,
)
from experiments.run_result import conditions, finished_run, recorded, simulate, simulation
from penstock.contracts import Decision
from penstock.distributions import Floats
from penstock.systems import NetworkSystem
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData
from simulator.in_memory_run import FinishedRun

GROWING_PER_MIN: Final = (0.2, 0.4, 0.6, 0.8, 1.0, 1.1, 1.2)
"""Figure 5, rates of all job types alike; D is saturated at 1.275. The paper prints none."""
DYNAMIC: Final = next(experiment for experiment in EXPERIMENTS if experiment.name == "pubsub-dynamic")


class PubsubSettings(Settings, frozen=True, kw_only=True):
    """``penstock paper pubsub``."""

    seeds: tuple[int, ...] = TWENTY
    hours: Annotated[float, msgspec.Meta(ge=0.1, description="Figures 5 to 7: length of each run.")] = 6.0
    limit_s: Annotated[float, msgspec.Meta(ge=1, description="Figure 8: response that reschedules.")] = 100.0
    window_s: Annotated[float, msgspec.Meta(ge=1, description="Figure 8: the monitor's sliding window.")] = WINDOW_S
    world: Annotated[str, msgspec.Meta(description="Pairs: sim, or local on RabbitMQ.")] = "sim"
    seconds: Annotated[float, msgspec.Meta(ge=600, description="Pairs: length of a run, the paper's seconds.")] = 3600.0
    speed: Annotated[float | None, msgspec.Meta(description="Pairs; None: 1, live 60.")] = None


def model(rates_per_min: Sequence[float]) -> Network:
    """The network for the formulas, per minute."""
    system = network(rates_per_min)
    return Network(
        topics=tuple(
            NetworkTopic(name=t.topic, service_rate=t.service_rate_per_s * MINUTE_S, service_scv=t.service_scv)
            for t in TOPICS
        ),
        jobs=tuple(
            Job(name=j.job, route=j.route, arrival_rate=rate, arrival_scv=j.arrival_scv)
            for j, rate in zip(system.jobs, rates_per_min, strict=True)
        ),
    )


def simulated(system: NetworkSystem, consumers: Consumers, seed: int, duration_s: float) -> Floats:
    """Mean response of all jobs and of each type at a fixed allocation, seconds; the first tenth is left out."""
    experiment = dataclasses.replace(DYNAMIC, system=system, seconds=duration_s)
    run = simulation(experiment, "min-time", Options(world="sim", seed=seed))
    targets = {topic.topic: m for topic, m in zip(TOPICS, consumers, strict=True)}
    run.engine.actuator.apply(Decision(action="up", targets=targets))
    run.engine.advance(1e9)
    intended_s, response_s = FinishedRun(duration_s, [], [], run.engine.results()).responses()
    steady = intended_s >= duration_s / 10
    kinds = run.schedule.partition
    by_kind = (response_s[steady & (kinds == kind)].mean() for kind in range(len(system.jobs)))
    return np.asarray([response_s[steady].mean(), *by_kind])


def lots(seed: int, iterations: int) -> tuple[Consumers, ...]:
    """Random's allocations with a seed."""
    draws = iter(range(iterations))
    return random_path(len(TOPICS), iterations, lambda topics: lot(seed, next(draws), topics))


# --- figures ---------------------------------------------------------------------------------------------------------


@cache
def work_in_progress(consumers: tuple[int, ...]) -> float:
    """By the formulas at experiment B's rates, with these consumers of the four topics."""
    return measure(model(HIGH_PER_MIN), consumers).work_in_progress


def figure_4(draws: int = 1000) -> Iterator[Cells]:
    """Experiment B: rates (3.0, 3.5, 3.0), M = 10, by the formulas. Work in progress after an iteration; Random over
    many draws, of which some leave a topic overloaded, and the share of those that keep the limit of experiment E.
    """
    high = model(HIGH_PER_MIN)
    random = [lots(seed, 10) for seed in range(draws)]
    # R in minutes is the work in progress divided by all arrivals a minute.
    wip_limit = LIMIT_S / MINUTE_S * sum(HIGH_PER_MIN)
    for iteration, m in enumerate(min_time(high, 10)):
        values = np.asarray([work_in_progress(path[iteration]) for path in random])
        yield {
            "iteration": iteration,
            "mintime_m": text(m),
            "mintime_wip": work_in_progress(m),
            "random_overloaded_share": float(np.isinf(values).mean()),
            "random_wip_median": float(np.median(values)),
            "random_wip_best": float(values.min()),
            "random_within_limit_share": float((values <= wip_limit).mean()),
        }


def figure_5(request: Request) -> Iterator[Cells]:
    """Experiment C: the same, growing rate for all three job types; one consumer of each topic. Medians and ranges over
    the seeds.
    """
    ones, duration_s = (1,) * len(TOPICS), 3600 * request.settings.hours
    for rate in request.each(GROWING_PER_MIN):
        rates = (rate,) * 3
        expected = measure(model(rates), ones).job_response_time
        seen = np.asarray([simulated(network(rates), ones, seed, duration_s) for seed in request.settings.seeds])
        yield {
            "rate_per_min": rate,
            **{f"model_{job}_s": MINUTE_S * response for job, response in enumerate(expected, 1)},
            **by_type(seen),
        }


def by_type(seen: Floats) -> dict[str, Any]:
    """Of runs (rows, as ``simulated`` has them) the median response of each job type, and its range."""
    types = range(1, seen.shape[1])
    medians = {f"simulated_{job}_s": float(np.median(seen[:, job])) for job in types}
    return medians | {f"range_{job}_s": median_range(seen[:, job].tolist(), 1) for job in types}


def keep_limit(responses_s: Sequence[float]) -> str:
    """How many of the responses are within the limit."""
    return f"{sum(value <= LIMIT_S for value in responses_s)} of {len(responses_s)}"


def iterations(request: Request, rates_per_min: Sequence[float], path: Sequence[Consumers]) -> Iterator[Cells]:
    """Figures 6 and 7: response after each iteration of the greedy algorithm, whose allocations are the path, of all
    jobs and by job type; and of Random, a draw for each seed: its best one by the formulas and simulated (the paper
    takes the best result of several runs), and the share of draws that keep the limit. Medians and ranges.
    """
    system, formulas = network(rates_per_min), model(rates_per_min)
    seeds, duration_s = request.settings.seeds, 3600 * request.settings.hours
    random = {seed: lots(seed, len(path) - 1) for seed in seeds}
    for iteration, m in enumerate(request.each(path, text)):
        seen = np.asarray([simulated(system, m, seed, duration_s) for seed in seeds])
        drawn = [simulated(system, lot[iteration], seed, duration_s)[0] for seed, lot in random.items()]
        by_formula = [measure(formulas, lot[iteration]).response_time for lot in random.values()]
        yield {
            "iteration": iteration,
            "m": text(m),
            "model_s": MINUTE_S * measure(formulas, m).response_time,
            "simulated_s": float(np.median(seen[:, 0])),
            "range_s": median_range(seen[:, 0].tolist(), 1),
            "within_limit": keep_limit(seen[:, 0].tolist()),
            **by_type(seen),
            "random_s": median_range(drawn, 1),
            "random_best_s": float(np.min(drawn)),
            "random_best_model_s": MINUTE_S * min(by_formula),
            "random_within_limit": keep_limit(drawn),
        }


@cache
def figure_8(seed: int, limit_s: float, window_s: float) -> tuple[Cells, list[Cells]]:
    """A run of experiment F: time and result of its first rescheduling, the share of affected requests, which took
    longer than the limit that triggers a rescheduling, and of those beyond 100 s; and all its requests.
    """
    options = Options(
        world="sim",
        seed=seed,
        system={"window_s": str(window_s)},
        settings={"min-time": {"response_limit_s": str(limit_s)}},
    )
    played = simulate(DYNAMIC, "min-time", options)
    intended_s, response_s = played.responses()
    m = dict.fromkeys((topic.topic for topic in TOPICS), 1)
    done = []
    for tick in played.ticks:
        if tick.accepted is not None:
            m |= tick.accepted.targets
            done.append((tick.time_s, text(tuple(m.values()))))
    low = intended_s < DYNAMIC_CHANGE_S
    (first_s, first_m), (_, last_m) = (done[0], done[-1]) if done else ((inf, ""), (inf, ""))
    run = {
        "seed": seed,
        "requests": len(response_s),
        "before_change_s": float(response_s[low].mean()),
        "after_change_s": float(response_s[~low].mean()),
        "first_reschedule_s": first_s,
        "first_m": first_m,
        "last_m": last_m,
        "reschedules": len(done),
        "affected_share": float((response_s > limit_s).mean()),
        "beyond_100_s_share": float((response_s > 100).mean()),
    }
    return run, [
        {"seed": seed, "intended_s": round(t, 3), "response_s": round(r, 3)}
        for t, r in zip(intended_s, response_s, strict=True)
    ]


def text(m: Consumers) -> str:
    """An allocation as in the tables: 2 2 1 4."""
    return " ".join(map(str, m))


def first_within(steps: Sequence[Cells], field: str) -> int | None:
    """The iteration after which the response keeps the limit for the first time."""
    return next((step["iteration"] for step in steps if step[field] <= LIMIT_S), None)


def _stops(steps: Sequence[Cells]) -> str:
    path = min_cost(model(HIGH_PER_MIN), LIMIT_S / MINUTE_S).path
    return (
        f"MinCost stops after {first_within(steps, 'model_s')} iterations by the model (paper: 5) and after "
        f"{first_within(steps, 'simulated_s')} by measurement; its path by the formulas is {', '.join(map(text, path))}"
    )


def _dynamics(request: Request) -> Iterator[tuple[Cells, list[Cells]]]:
    settings = request.settings
    for seed in request.each(settings.seeds):
        yield figure_8(seed, settings.limit_s, settings.window_s)


def _affected(runs: Sequence[Cells]) -> str:
    own, late = ([100 * run[name] for run in runs] for name in ("affected_share", "beyond_100_s_share"))
    return (
        f"affected: {median_range(own, 1)} % of the requests took longer than the limit (paper: about 15 %), "
        f"{median_range(late, 1)} % longer than 100 s"
    )


def allocations(ticks: Iterable[TickRecord]) -> Iterator[tuple[float, Consumers]]:
    """The allocations that were decided on, each with the second of its tick."""
    for tick in ticks:
        decision = tick.decisions.get(tick.acting)
        why = {} if decision is None else decision.why.get(tick.observation.fleet, {})
        if isinstance(m := why.get("m"), list):
            yield tick.time_s, tuple(int(consumers) for consumers in m)


def live(run: RunData) -> Cells:
    """A finished run in the measures of figures 5 to 8, in the paper's seconds, whatever its speed.

    Reschedules: at what second, to how many consumers of each topic. Responses are of all jobs of a run, of those of
    its second half (where the allocation has settled, figures 6 and 7), and of each type (figure 5); the share beyond
    the limit that triggers a rescheduling are the affected requests of figure 8.
    """
    spec, one = run.spec, finished_run(run)
    table = one.results
    response_s = table.finished_s - table.intended_s
    kinds = run.schedule().partition[table.id]
    changes = (next(group) for _, group in groupby(allocations(one.ticks), key=itemgetter(1)))

    def mean(values: Floats) -> str:
        return f"{values.mean():.1f}" if len(values) else UNKNOWN

    return {
        "experiment": spec.experiment,
        "scaler": spec.scaler.name,
        **conditions(spec),
        "requests": str(len(table)),
        "reschedules": "; ".join(f"{time_s:g}: {text(m)}" for time_s, m in changes),
        "mean s": mean(response_s),
        "second half s": mean(response_s[table.intended_s >= one.duration_s / 2]),
        "by type s": ", ".join(mean(response_s[kinds == kind]) for kind in range(len(ROUTES))),
        "beyond limit": f"{np.mean(response_s > spec.slo_s * spec.speed):.1%}",
        "verdict": summary_of(run).verdict,
    }


TABLES: Final = (
    PaperTable("figure4", "Figure 4: work in progress, M = 10", lambda _: figure_4()),
    PaperTable("figure5", "Figure 5: response by job, one consumer each", figure_5),
    PaperTable(
        "figure6",
        "Figure 6: MinTime, rates 2.0, 2.5, 2.0",
        lambda request: iterations(request, MIDDLE_PER_MIN, min_time(model(MIDDLE_PER_MIN), BUDGET)),
    ),
    PaperTable(
        "figure7",
        f"Figure 7: MinCost, rates 3.0, 3.5, 3.0, limit {LIMIT_S:g} s",
        lambda request: iterations(request, HIGH_PER_MIN, min_time(model(HIGH_PER_MIN), 10)),
        note=_stops,
    ),
    PaperTable(
        "figure8", "Figure 8: change of rates", lambda request: (run for run, _ in _dynamics(request)), note=_affected
    ),
    PaperTable(
        "figure8-requests",
        "Figure 8: response of every request",
        lambda request: (row for _, requests in _dynamics(request) for row in requests),
        shown=lambda _: False,
    ),
    PaperTable(
        "live",
        "Finished runs, in the paper's seconds",
        lambda request: recorded(request, EXPERIMENTS),
        cells=live,
        source="recorded",
    ),
)
