"""Chaos: an experiment again and again, each time with faults that a seed draws from all that its world has.

A run violates conservation if an event is lost, finished twice or left over, if the three counts disagree, or if
anything of the run stays behind.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import numpy as np
import pyarrow.compute as pc

from experiments.compare import Cell, Comparison, ComparisonDirectory, request_of
from experiments.driver import carry_out, describe, schedule_of
from experiments.experiment import Experiment, Options, run_spec
from experiments.progress import RunProgress
from experiments.worlds import make_world
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory, Verdict, slug
from penstock.runspec import LASTING_FAULTS, Fault, FaultKind, WorldName
from penstock.systems import System
from penstock.world import World
from report.analysis.run_data import RunData

MOST_FAULTS: Final = 4
"""A run has one to this many."""
FIRST_SHARE, LAST_SHARE = 0.1, 0.8
"""Faults begin within this part of a run, so that it has time to recover."""
SHORTEST_S, LONGEST_S = 0.5, 6.0
"""Duration of a fault that lasts, in seconds of the clock; at most a fifth of the run."""
MOST_SEEDS: Final = 100_000
CHAOS_SEED: Final = 16
"""Separates the draws of faults from those of the schedule, which has the same seed."""


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds of ``1-20``, ``7`` or ``1-3,9``, ascending and each once. PenstockError otherwise."""
    seeds: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,9})(?:-(\d{1,9}))?\s*", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not first <= last < first + MOST_SEEDS:
            raise PenstockError(f"--seeds {text}: expected numbers and ranges, such as 1-20 or 3,7")
        seeds.update(range(first, last + 1))
    return tuple(sorted(seeds))


def faults_of(system: System, world: WorldName) -> tuple[FaultKind, ...]:
    """All faults that a world has for a system, sorted."""
    if world == "sim":
        from simulator.world import simulated_faults

        return tuple(sorted(simulated_faults(system)))
    from infra.runs.kinds import known_faults

    return tuple(sorted(known_faults(system, world)))


def draw_faults(seed: int, kinds: Sequence[FaultKind], seconds: float) -> tuple[Fault, ...]:
    """The faults of a seed in a run of ``seconds``, in order of time."""
    draws = np.random.default_rng([CHAOS_SEED, seed])
    faults = []
    for _ in range(int(draws.integers(1, MOST_FAULTS + 1))):
        kind = kinds[int(draws.integers(len(kinds)))]
        at_s, lasting_s = draws.uniform((FIRST_SHARE * seconds, SHORTEST_S), (LAST_SHARE * seconds, LONGEST_S))
        lasting_s = min(lasting_s, seconds / 5) if kind in LASTING_FAULTS else 0.0
        faults.append(Fault(kind, round(float(at_s), 3), round(float(lasting_s), 3)))
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


class ChaosRun(msgspec.Struct, frozen=True, kw_only=True):
    """One seed. Counts are events; ``left_behind`` names what stayed of the run; ``error`` ended it."""

    seed: int
    run: str
    faults: tuple[str, ...]
    verdict: Verdict | None = None
    events: int = 0
    failed: int = 0
    """Failed and dead-lettered: they have their result, so this is no violation."""
    lost: int = 0
    finished_twice: int = 0
    in_flight: int = 0
    disagreements: tuple[str, ...] = ()
    left_behind: tuple[str, ...] = ()
    error: str = ""

    @property
    def violations(self) -> list[str]:
        """What must not be; empty for a good run."""
        counted = {"lost": self.lost, "finished twice": self.finished_twice, "still waiting": self.in_flight}
        return [
            *(f"{count} {name}" for name, count in counted.items() if count),
            *self.disagreements,
            *(f"left behind: {name}" for name in self.left_behind),
            *([self.error] if self.error else []),
        ]


@dataclass(frozen=True, kw_only=True)
class ChaosRequest:
    """``seconds``: length of a run on the clock; ``options`` are of every run, its units the experiment's."""

    experiment: Experiment
    scaler: str
    options: Options
    seeds: tuple[int, ...]
    seconds: float

    def options_of(self, seed: int) -> Options:
        """The options of one seed's run."""
        speed = self.options.speed
        drawn = draw_faults(seed, faults_of(self.experiment.system, self.options.world), self.seconds)
        faults = tuple(Fault(each.kind, each.at_s * speed, each.seconds * speed) for each in drawn)
        return replace(self.options, seed=seed, seconds=self.seconds * speed, faults=faults)

    def replay(self, seed: int) -> str:
        """The command that carries out one seed again."""
        options = self.options_of(seed)
        parts = [
            f"penstock run {self.experiment.name} --scaler {self.scaler} --world {options.world} --seed {seed}",
            f"--from {options.from_s:g} --seconds {options.seconds:g} --speed {options.speed:g}",
            *(f"--fault {fault.kind}@{fault.at_s:.6g}+{fault.seconds:.6g}" for fault in options.faults),
        ]
        given = {**options.settings, "worker": options.worker, "system": options.system, "workload": options.workload}
        parts += [f"--set {owner}.{name}={value}" for owner, values in given.items() for name, value in values.items()]
        return " ".join(parts)


class ChaosDirectory(ComparisonDirectory):
    """A comparison's directory whose cells are seeds; ``chaos.json`` has what was found of each."""

    @property
    def found_file(self) -> Path:
        """What was found, by seed."""
        return self.path / "chaos.json"

    def found(self) -> dict[int, ChaosRun]:
        """The seeds that are done."""
        try:
            runs = msgspec.json.decode(self.found_file.read_bytes(), type=list[ChaosRun])
        except FileNotFoundError:
            return {}
        except msgspec.DecodeError as error:
            raise PenstockError(f"{self.found_file}: cannot be read: {error}") from None
        return {run.seed: run for run in runs}

    def keep(self, run: ChaosRun) -> None:
        """Add a seed."""
        RunDirectory(self.path).write(self.found_file, list({**self.found(), run.seed: run}.values()))


def begin_chaos(request: ChaosRequest, runs: Path, *, resume: bool) -> ChaosDirectory:
    """The directory of a request: with ``resume`` the newest one of the same experiment, scaler and options, which may
    have had other seeds. PenstockError for a bad request before anything is written.
    """
    first = request.options_of(request.seeds[0])
    schedule_of(request.experiment, first, run_spec(request.experiment, request.scaler, first, run="checked-before"))
    asked: dict[str, Any] = {
        **request_of(request.experiment, [request.scaler], request.options, 1),
        "chaos_seconds": request.seconds,
    }
    name, directory = f"chaos-{request.experiment.name}", None
    for path in sorted(runs.glob(f"*-{slug(name)}-compare*"), reverse=True) if resume else ():
        earlier = ChaosDirectory(path)
        if earlier.file.is_file() and earlier.read().request == asked:
            directory = earlier
            break
    if directory is None:
        directory = cast(ChaosDirectory, ChaosDirectory.create(runs, name))
        directory.write(Comparison(experiment=request.experiment.name, request=asked, cells=[]))
    return directory


def carry_out_chaos(request: ChaosRequest, directory: ChaosDirectory, progress: RunProgress) -> Iterator[ChaosRun]:
    """Every seed, in order, as it is done; those that are done already at once. A run that ends with an error is a
    violation, and the next one gets a world of its own.
    """
    found = directory.found()
    with ExitStack() as stack:
        world: World | None = None
        for seed in request.seeds:
            if seed not in found:
                progress.begin(f"seed {seed}")
                world = world or stack.enter_context(make_world(request.options.world, progress.step))
                run = _carry_out(world, request, seed, directory, progress)
                if run.error:
                    stack.close()
                    world = None
                directory.keep(run)
                found[seed] = run
            yield found[seed]


def _carry_out(
    world: World, request: ChaosRequest, seed: int, directory: ChaosDirectory, progress: RunProgress
) -> ChaosRun:
    options = request.options_of(seed)
    run, spec = describe(request.experiment, request.scaler, options, directory.path.parent)
    comparison = directory.read()
    comparison.cells.append(Cell(scaler=spec.scaler.name, repetition=seed, seed=seed, directory=run.name))
    directory.write(comparison)
    faults = tuple(map(str, spec.faults))
    try:
        summary = carry_out(world, request.experiment, options, run, progress)
        left_behind = tuple(world.left_behind(run.name))
    except PenstockError as error:
        return ChaosRun(seed=seed, run=run.name, faults=faults, error=str(error).splitlines()[0])
    balance = summary.conservation
    return ChaosRun(
        seed=seed,
        run=run.name,
        faults=faults,
        verdict=summary.verdict,
        events=balance.scheduled,
        failed=balance.failed + balance.dead_lettered,
        lost=balance.lost,
        finished_twice=finished_twice(RunData(run)),
        in_flight=balance.in_flight,
        disagreements=balance.disagreements,
        left_behind=left_behind,
    )


def finished_twice(run: RunData) -> int:
    """Events that were finished for the first time by two workers or at two times. A result of a redelivered event that
    was known already has a higher attempt. A result whose acknowledgement is lost is published again, with the same
    worker and time: that is one finish, told twice.
    """
    done = run.outcomes("attempt", "worker")
    first = done.filter(pc.and_(pc.equal(done["attempt"], 1), pc.equal(done["outcome"], "completed")))
    finishes = first.select(["id", "worker", "finished_ns"]).group_by(["id", "worker", "finished_ns"]).aggregate([])
    return len(finishes) - len(pc.unique(finishes["id"]))
