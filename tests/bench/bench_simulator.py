"""What simulating costs: events per second of the stream engine, the loop's share of a tick, whole experiments, a day
of load, and a textbook queue against SimPy and Ciw.

Run as ``python -m tests.bench.bench_simulator``; the rivals need ``uv sync --group bench``. Figures are CPU time of
this process with compiled code loaded, the best of a few rounds; claims are for an otherwise idle machine.
"""

import importlib
import importlib.util
import math
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from controller.journal import DecisionsFile
from controller.loop import Loop
from experiments.catalogue import find_experiment
from experiments.driver import describe, schedule_of
from experiments.experiment import Options
from penstock.clock import NANOS_PER_SECOND
from penstock.measures import bucket_of, bucket_upper_s, histogram_percentiles
from penstock.registry import make_scaler
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, ScalerSpec
from penstock.schedule import Schedule
from report.analysis.measurement import analyse
from report.analysis.run_data import RunData
from simulator.clock import EPOCH_NS, VirtualClock
from simulator.engine import EventTable, Floats
from simulator.stream import StreamEngine, make_engine
from simulator.world import SimWorld
from tests.support.shared_queue import shared_queue

INSTALL = "not installed: uv sync --group bench"
MU, SERVERS, RHO = 1.0, 4, 0.8
CUSTOMERS = 100_000


def say(what: str, value: str, target: str = "") -> None:
    """One line."""
    print(f"{what:62} {value:>26}  {target}")


def cpu_s(work: Callable[[], Any], rounds: int = 1) -> float:
    """CPU seconds of the fastest of some rounds."""
    best = math.inf
    for _ in range(rounds):
        began_s = time.process_time()
        work()
        best = min(best, time.process_time() - began_s)
    return best


def steady_spec(rate_per_s: float, seconds: float, partitions: int) -> RunSpec:
    """A fleet that is 80 % busy, under ``linear``."""
    replicas = math.ceil(rate_per_s / 160)
    parameters = {"max_replicas": partitions, "service_rate_per_s": 200.0, "hold_s": 10.0, "f_up": 0.9, "slo_s": 1.0}
    return RunSpec(
        run="bench",
        experiment="bench",
        world="sim",
        scaler=ScalerSpec(name="linear", parameters=parameters),
        duration_s=seconds,
        partitions=partitions,
        initial_replicas=replicas,
        max_replicas=partitions,
    )


def even(rate_per_s: float, seconds: float, partitions: int, from_s: float = 0.0) -> Schedule:
    """Events at equal distances on partitions drawn at random."""
    events = int(rate_per_s * seconds)
    offsets = round(from_s * NANOS_PER_SECOND) + (np.arange(events) * (NANOS_PER_SECOND / rate_per_s)).astype(np.int64)
    draw = np.random.default_rng(round(from_s))
    return Schedule(offsets, draw.integers(0, partitions, events).astype(np.int16), duration_s=seconds)


class Nowhere:
    """A journal that forgets."""

    def tick(self, record: object) -> None: ...


def loop_over(spec: RunSpec, engine: StreamEngine, clock: VirtualClock, journal: Any) -> Loop:
    return Loop(
        fleet=spec.fleet,
        clock=clock,
        monitor=engine.monitor,
        actuator=engine.actuator,
        acting=make_scaler(spec.scaler),
        journals=(journal,),
        tick_phase_s=spec.tick_phase_s,
    )


def run_through(spec: RunSpec, engine: StreamEngine) -> None:
    """Tick every second to the end of the run."""
    clock = VirtualClock(engine.advance)
    loop_over(spec, engine, clock, Nowhere()).run(lambda: clock.now() >= spec.duration_s)


def bench_stream() -> None:
    """Ten thousand events per second on 112 partitions, two of them a replica."""
    spec, schedule = steady_spec(10_000, 120, 112), even(10_000, 120, 112)
    engines = [make_engine(spec, schedule) for _ in range(4)]
    run_through(spec, engines.pop())
    took_s = min(cpu_s(lambda: run_through(spec, engines.pop())) for _ in range(3))
    say(
        "stream engine, 10,000 events/s, 112 partitions, linear each second",
        f"{len(schedule) / took_s / 1e6:.1f} M events/s",
        "≥ 5 M",
    )


def bench_tick() -> None:
    """A tick of a five-partition group with one scaler, its journal lines included, without ``decide``."""
    spec, schedule = steady_spec(300, 600, 5), even(300, 600, 5)

    def once() -> list[float]:
        engine = make_engine(spec, schedule)
        directory = RunDirectory.create(Path(tempfile.mkdtemp()), "bench", "linear")
        clock, deciding_s = VirtualClock(engine.advance), 0.0
        loop = loop_over(spec, engine, clock, DecisionsFile(directory, EPOCH_NS))
        scaler = loop._acting
        decide = scaler.decide

        def timed(observation: Any, state: Any) -> Any:
            nonlocal deciding_s
            began_s = time.process_time()
            answer = decide(observation, state)
            deciding_s += time.process_time() - began_s
            return answer

        scaler.decide = timed  # type: ignore[method-assign]
        took: list[float] = []
        for point in range(int(spec.duration_s)):
            deciding_s = 0.0
            tick_s = cpu_s(partial(tick, loop, clock, point))
            took.append(tick_s - deciding_s)
        return took

    def tick(loop: Loop, clock: VirtualClock, point: int) -> None:
        clock.sleep_until(loop.grid.time_s(point))
        loop.tick(point)

    took_us = 1e6 * np.array([once() for _ in range(5)])
    say(
        "loop, monitor, actuator, engine, journal: a tick beyond decide",
        f"{np.median(took_us):.0f} µs (least {took_us.min():.0f})",
        "≤ 150 µs",
    )


def bench_experiment(name: str, target: str) -> None:
    """A whole run with all its shadows: what is the engine's and the loop's, and what is not."""
    experiment, options = find_experiment(name), Options(world="sim")

    def once() -> dict[str, float]:
        with tempfile.TemporaryDirectory() as folder, SimWorld() as world:
            directory, spec = describe(experiment, "binpack-tail", options, Path(folder))
            took = {"schedule": cpu_s(lambda: schedule_of(experiment, options, spec).write(directory.schedule_file))}
            took["prepare"] = cpu_s(lambda: world.prepare(spec, directory))
            world.run.start()
            deciding_s = 0.0
            decide = Loop._decide

            def timed(loop: Loop, *arguments: Any) -> Any:
                nonlocal deciding_s
                began_s = time.process_time()
                answer = decide(loop, *arguments)
                deciding_s += time.process_time() - began_s
                return answer

            Loop._decide = timed  # type: ignore[method-assign,assignment]
            try:
                run_s = cpu_s(lambda: play_out(world, spec))
            finally:
                Loop._decide = decide  # type: ignore[method-assign]
            took |= {"engine + loop": run_s - deciding_s, "decide": deciding_s}
            took["raw results"] = cpu_s(world.run.collect)
            took["analysis"] = cpu_s(lambda: analyse(RunData(directory), in_flight=0))
            return took

    rounds = [once() for _ in range(3)]
    for part in rounds[0]:
        best_s = min(each[part] for each in rounds)
        say(f"{name}, {part}", f"{best_s:.3f} s", target if part == "engine + loop" else "")


def play_out(world: SimWorld, spec: RunSpec) -> None:
    """To the last event."""
    world.run.wait_until(spec.duration_s)
    world.run.drain()


def bench_day() -> None:
    """86.4 million events in parts of two minutes, which stay in the cache: nothing is kept but a histogram."""
    rate_per_s, seconds, part_s, partitions = 1000.0, 86_400.0, 120.0, 24
    spec = steady_spec(rate_per_s, seconds, partitions)
    buckets = np.zeros(4000, np.int64)

    def parts() -> Iterator[tuple[float, Schedule]]:
        for begin_s in np.arange(0.0, seconds, part_s):
            yield float(begin_s), even(rate_per_s, part_s, partitions, from_s=float(begin_s))

    def keep(table: EventTable) -> None:
        buckets[:] += np.bincount(bucket_of(table.finished_s - table.intended_s), minlength=len(buckets))

    def day() -> None:
        following = parts()
        ((_, first),) = islice(following, 1)
        engine = StreamEngine(spec, first, more=following, sink=keep)
        run_through(spec, engine)
        engine.advance(seconds + 60)
        keep(engine.results())

    took_s = cpu_s(day)
    assert buckets.sum() == rate_per_s * seconds, "every event of the day is in the histogram"
    p99 = bucket_upper_s(histogram_percentiles(np.arange(len(buckets)), buckets, (99.0,)))[0]
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    say("a day at 1,000 events/s, linear each second", f"{took_s:.1f} s, p99 {1000 * p99:.0f} ms", "≤ 30 s")
    say("  largest memory of this process by then", f"{peak_gib:.2f} GiB", "≤ 1 GiB")


# --- a textbook queue ------------------------------------------------------------------------------------------------


def m_m_4_ours() -> Floats:
    draw = np.random.default_rng(1)
    arrival_s = np.cumsum(draw.exponential(1 / (SERVERS * RHO * MU), CUSTOMERS))
    start_s, _ = shared_queue(arrival_s, draw.exponential(1 / MU, CUSTOMERS), SERVERS)
    return start_s - arrival_s


def m_m_4_simpy() -> Floats:
    simpy: Any = importlib.import_module("simpy")

    draw = np.random.default_rng(1)
    environment = simpy.Environment()
    servers = simpy.Resource(environment, capacity=SERVERS)
    waited: list[float] = []

    def customer() -> Any:
        came = environment.now
        with servers.request() as turn:
            yield turn
            waited.append(environment.now - came)
            yield environment.timeout(draw.exponential(1 / MU))

    def source() -> Any:
        for _ in range(CUSTOMERS):
            yield environment.timeout(draw.exponential(1 / (SERVERS * RHO * MU)))
            environment.process(customer())

    environment.process(source())
    environment.run()
    return np.array(waited)


def m_m_4_ciw() -> Floats:
    ciw: Any = importlib.import_module("ciw")

    ciw.seed(1)
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=SERVERS * RHO * MU)],
        service_distributions=[ciw.dists.Exponential(rate=MU)],
        number_of_servers=[SERVERS],
    )
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_customers(CUSTOMERS, method="Finish")
    return np.array([record.waiting_time for record in simulation.get_all_records()])


def bench_rivals() -> None:
    """M/M/4 at ρ = 0.8: the same mean wait, at which price."""
    offered = SERVERS * RHO
    busy = offered**SERVERS / math.factorial(SERVERS) / (1 - RHO)
    erlang = busy / (sum(offered**k / math.factorial(k) for k in range(SERVERS)) + busy) / (SERVERS * MU * (1 - RHO))
    say(f"M/M/4 at ρ = 0.8, {CUSTOMERS:,} customers, mean wait by Erlang C", f"{erlang:.3f}")
    runners = {"Penstock": m_m_4_ours, "SimPy": m_m_4_simpy, "Ciw": m_m_4_ciw}
    for name, run in runners.items():
        if name != "Penstock" and importlib.util.find_spec(name.lower()) is None:
            say(f"  {name}", INSTALL)
            continue
        waited: list[Floats] = []
        took_s = cpu_s(lambda run=run, waited=waited: waited.append(run()), rounds=3)  # type: ignore[misc]
        say(f"  {name}", f"{CUSTOMERS / took_s:,.0f} customers/s", f"mean wait {waited[0].mean():.3f}")


def main() -> None:
    """All of it, or what is named: day, stream, tick, experiments, rivals."""
    Console().print(f"Python {sys.version.split()[0]}, numpy {np.__version__}", highlight=False)
    benches: dict[str, list[Callable[[], None]]] = {
        "day": [bench_day],
        "stream": [bench_stream],
        "tick": [bench_tick],
        "experiments": [
            lambda: bench_experiment("binpack-workload-1", "≤ 0.2 s"),
            lambda: bench_experiment("binpack-nyc", "≤ 2 s"),
        ],
        "rivals": [bench_rivals],
    }
    for name in sys.argv[1:] or benches:
        for bench in benches[name]:
            bench()


if __name__ == "__main__":
    main()
