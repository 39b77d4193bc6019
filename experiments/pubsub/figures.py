"""The data of the pub/sub paper's figures 4 to 8: ``python -m experiments.pubsub.figures --out FOLDER``.

Tables go to the terminal, CSV files of the same name into the folder:

- ``figure-04``: work in progress after each iteration, MinTime and Random (by the model, as in the paper)
- ``figure-05``: response time of each job with one consumer each, while the rates grow
- ``figure-06``, ``figure-07``: response time after each iteration of MinTime and MinCost, and of Random
- ``figure-08-runs``, ``figure-08-requests``: a change of rates, MinTime rescheduling in the control loop

Responses are simulated, beside what the model says. In an overloaded network they grow as long as it runs: such values
depend on ``--hours``.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from math import inf, isfinite
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import numpy as np
import typer
from rich.console import Console

from controller.queueing.network import Job, Network, Topic, measure
from controller.scalers.allocation import Consumers, min_cost, min_time, random_path
from controller.scalers.min_time import MinTime
from controller.scalers.random_allocation import lot
from experiments.program import run_program
from experiments.pubsub.experiments import (
    BUDGET,
    DYNAMIC_CHANGE_S,
    DYNAMIC_S,
    HIGH_PER_MIN,
    KNOWN,
    LIMIT_S,
    LOW_PER_MIN,
    MIDDLE_PER_MIN,
    MINUTE_S,
    TOPICS,
    network,
)
from experiments.tables import show, write_csv
from penstock.contracts import Decision
from penstock.laws import Floats
from penstock.runspec import RunSpec, ScalerSpec
from penstock.systems import NetworkSystem
from simulator.network import job_schedule, make_engine
from simulator.network_play import Played, play

GROWING_PER_MIN: Final = (0.2, 0.4, 0.6, 0.8, 1.0, 1.1, 1.2)
"""Figure 5, rates of all job types alike; D is saturated at 1.275. The paper prints none."""


def model(rates_per_min: Sequence[float]) -> Network:
    """The network for the formulas, per minute."""
    system = network(rates_per_min)
    return Network(
        topics=tuple(
            Topic(name=t.topic, service_rate=t.service_rate_per_s * MINUTE_S, service_scv=t.service_scv) for t in TOPICS
        ),
        jobs=tuple(
            Job(name=j.job, route=j.route, arrival_rate=rate, arrival_scv=j.arrival_scv)
            for j, rate in zip(system.jobs, rates_per_min, strict=True)
        ),
    )


def spec_of(system: NetworkSystem, seed: int, duration_s: float) -> RunSpec:
    """A run of the network with one consumer each at the start."""
    return RunSpec(
        run=f"pubsub-{seed}",
        experiment="pubsub",
        world="sim",
        scaler=ScalerSpec(name="min-time"),
        seed=seed,
        pipeline="pubsub",
        fleet="network",
        duration_s=duration_s,
        tick_phase_s=0.0,
        max_replicas=100,
        system=system,
    )


def simulated(system: NetworkSystem, consumers: Consumers, seed: int, duration_s: float) -> Floats:
    """Mean response of all jobs and of each type at a fixed allocation, seconds; the first tenth is left out."""
    schedule = job_schedule(system.jobs, duration_s=duration_s, seed=seed)
    engine = make_engine(spec_of(system, seed, duration_s), schedule)
    engine.actuator.apply(Decision(action="up", targets={t.topic: m for t, m in zip(TOPICS, consumers, strict=True)}))
    engine.advance(1e9)
    intended_s, response_s = Played(duration_s, [], [], engine.results()).responses()
    steady = intended_s >= duration_s / 10
    kinds = schedule.partition
    return np.asarray(
        [
            response_s[steady].mean(),
            *(response_s[steady & (kinds == kind)].mean() for kind in range(len(system.jobs))),
        ]
    )


def lots(seed: int, iterations: int) -> tuple[Consumers, ...]:
    """Random's allocations with a seed."""
    draws = iter(range(iterations))
    return random_path(len(TOPICS), iterations, lambda topics: lot(seed, next(draws), topics))


# --- figures ---------------------------------------------------------------------------------------------------------


class Figure4(NamedTuple):
    """Work in progress after an iteration; Random over many draws, of which some leave a topic overloaded.

    ``random_within_limit_share``: the share of draws that keep the limit of experiment E.
    """

    iteration: int
    mintime_m: str
    mintime_wip: float
    random_overloaded_share: float
    random_wip_median: float
    random_wip_best: float
    random_within_limit_share: float


def figure_4(draws: int = 1000) -> Iterator[Figure4]:
    """Experiment B: rates (3.0, 3.5, 3.0), M = 10, by the formulas."""
    high = model(HIGH_PER_MIN)
    wip = cache(lambda m: measure(high, m).work_in_progress)
    greedy, random = min_time(high, 10), [lots(seed, 10) for seed in range(draws)]
    # R in minutes is the work in progress divided by all arrivals a minute.
    wip_limit = LIMIT_S / MINUTE_S * sum(HIGH_PER_MIN)
    for iteration, m in enumerate(greedy):
        values = np.asarray([wip(path[iteration]) for path in random])
        yield Figure4(
            iteration,
            text(m),
            wip(m),
            float(np.isinf(values).mean()),
            float(np.median(values)),
            float(values.min()),
            float((values <= wip_limit).mean()),
        )


class Figure5(NamedTuple):
    """Response times in seconds, with one consumer of each topic."""

    rate_per_min: float
    model_1_s: float
    model_2_s: float
    model_3_s: float
    simulated_1_s: float
    simulated_2_s: float
    simulated_3_s: float


def figure_5(seeds: int, duration_s: float) -> Iterator[Figure5]:
    """Experiment C: the same, growing rate for all three job types."""
    ones = (1,) * len(TOPICS)
    for rate in GROWING_PER_MIN:
        rates = (rate,) * 3
        expected = [MINUTE_S * r for r in measure(model(rates), ones).job_response_time]
        seen = np.mean([simulated(network(rates), ones, seed + 1, duration_s) for seed in range(seeds)], axis=0)
        yield Figure5(rate, *expected, *(float(value) for value in seen[1:]))


class Iteration(NamedTuple):
    """Mean response time after an iteration of the greedy algorithm, and of Random (mean and best of the seeds)."""

    iteration: int
    m: str
    model_s: float
    simulated_s: float
    simulated_half_s: float
    random_mean_s: float
    random_best_s: float
    random_within_limit_share: float


def iterations(
    rates_per_min: Sequence[float], path: Sequence[Consumers], seeds: int, duration_s: float
) -> Iterator[Iteration]:
    """Figures 6 and 7: every allocation of a path, simulated."""
    system, formulas = network(rates_per_min), model(rates_per_min)
    random = [lots(seed + 1, len(path) - 1) for seed in range(seeds)]
    for iteration, m in enumerate(path):
        seen = [simulated(system, m, seed + 1, duration_s)[0] for seed in range(seeds)]
        drawn = [simulated(system, lot[iteration], seed + 1, duration_s)[0] for seed, lot in enumerate(random)]
        half = 1.96 * float(np.std(seen, ddof=1)) / seeds**0.5 if seeds > 1 else 0.0
        yield Iteration(
            iteration,
            text(m),
            MINUTE_S * measure(formulas, m).response_time,
            float(np.mean(seen)),
            half,
            float(np.mean(drawn)),
            float(np.min(drawn)),
            float(np.mean([value <= LIMIT_S for value in drawn])),
        )


class Dynamic(NamedTuple):
    """One run of experiment F: when the first rescheduling was done, to what, and what it meant for the requests."""

    seed: int
    requests: int
    before_change_s: float
    after_change_s: float
    first_reschedule_s: float
    first_m: str
    last_m: str
    reschedules: int
    affected_share: float


def figure_8(seeds: int, limit_s: float, window_s: float) -> tuple[list[Dynamic], list[tuple[int, float, float]]]:
    """Experiment F. Affected is a request that took longer than the limit that triggers a rescheduling."""
    system = msgspec.structs.replace(network(LOW_PER_MIN, HIGH_PER_MIN), window_s=window_s)
    runs, requests = [], []
    for seed in range(1, seeds + 1):
        spec = spec_of(system, seed, DYNAMIC_S)
        schedule = job_schedule(system.jobs, duration_s=DYNAMIC_S, seed=seed)
        scaler: Any = MinTime(MinTime.Parameters(response_limit_s=limit_s, timer_s=None, budget=BUDGET, **KNOWN))
        played = play(spec, make_engine(spec, schedule), scaler)
        intended_s, response_s = played.responses()
        requests += [(seed, round(t, 3), round(r, 3)) for t, r in zip(intended_s, response_s, strict=True)]
        m = dict.fromkeys((topic.topic for topic in TOPICS), 1)
        done = []
        for tick in played.ticks:
            if tick.accepted is not None:
                m |= tick.accepted.targets
                done.append((tick.time_s, text(tuple(m.values()))))
        low = intended_s < DYNAMIC_CHANGE_S
        runs.append(
            Dynamic(
                seed=seed,
                requests=len(response_s),
                before_change_s=float(response_s[low].mean()),
                after_change_s=float(response_s[~low].mean()),
                first_reschedule_s=done[0][0] if done else inf,
                first_m=done[0][1] if done else "",
                last_m=done[-1][1] if done else "",
                reschedules=len(done),
                affected_share=float((response_s > limit_s).mean()),
            )
        )
    return runs, requests


def text(m: Consumers) -> str:
    """An allocation as the tables have it: 2 2 1 4."""
    return " ".join(map(str, m))


def main(
    out: Annotated[Path, typer.Option(help="Folder for the CSV files.")],
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each allocation, with seeds 1, 2, ….")] = 10,
    hours: Annotated[float, typer.Option(min=0.1, help="Length of each run at a fixed allocation.")] = 6.0,
    limit: Annotated[float, typer.Option(min=1.0, help="Figure 8: response that triggers, seconds.")] = 100.0,
    window: Annotated[float, typer.Option(min=1.0, help="Figure 8: the monitor's sliding window, seconds.")] = 600.0,
) -> None:
    """Compute and simulate figures 4 to 8."""
    out.mkdir(parents=True, exist_ok=True)
    console = Console()
    duration_s = 3600 * hours

    def table(name: str, title: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        write_csv(out / f"{name}.csv", header, rows)
        show(console, title, header, rows)

    table("figure-04", "Figure 4: work in progress, M = 10", Figure4._fields, list(figure_4()))
    with console.status("figure 5"):
        rows = list(figure_5(seeds, duration_s))
    table("figure-05", "Figure 5: response by job, one consumer each", Figure5._fields, rows)
    with console.status("figure 6"):
        path = min_time(model(MIDDLE_PER_MIN), BUDGET)
        steps = list(iterations(MIDDLE_PER_MIN, path, seeds, duration_s))
    table("figure-06", "Figure 6: MinTime, rates 2.0, 2.5, 2.0", Iteration._fields, steps)
    with console.status("figure 7"):
        path = min_time(model(HIGH_PER_MIN), 10)
        steps = list(iterations(HIGH_PER_MIN, path, seeds, duration_s))
    table("figure-07", f"Figure 7: MinCost, rates 3.0, 3.5, 3.0, limit {LIMIT_S:g} s", Iteration._fields, steps)
    console.print(
        f"MinCost stops after {first_within(steps, 'model_s')} iterations by the model (paper: 5) and after "
        f"{first_within(steps, 'simulated_s')} by what is measured; its path by the formulas is "
        f"{', '.join(text(m) for m in min_cost(model(HIGH_PER_MIN), LIMIT_S / MINUTE_S).path)}"
    )
    with console.status("figure 8"):
        runs, requests = figure_8(seeds, limit, window)
    table("figure-08-runs", f"Figure 8: change of rates, limit {limit:g} s, window {window:g} s", Dynamic._fields, runs)
    write_csv(out / "figure-08-requests.csv", ("seed", "intended_s", "response_s"), requests)
    affected = float(np.mean([run.affected_share for run in runs]))
    console.print(f"affected: {100 * affected:.1f} % of the requests (paper: about 15 %); CSV files in {out}")


def first_within(steps: Sequence[Iteration], field: str) -> int | None:
    """The iteration after which the response keeps the limit for the first time."""
    return next((s.iteration for s in steps if isfinite(getattr(s, field)) and getattr(s, field) <= LIMIT_S), None)


if __name__ == "__main__":
    run_program(main, "python -m experiments.pubsub.figures --out figures/pubsub")
