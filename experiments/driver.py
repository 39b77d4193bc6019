"""One run from its description to its directory: prepare, start, inject, wait, drain, collect, analyse."""

import shlex
import sys
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from experiments.experiment import Experiment, Options, run_spec
from experiments.progress import RunProgress
from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.rundir import Manifest, RunDirectory, git_revision, machine, versions
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from penstock.systems import NetworkSystem
from penstock.world import World
from producers.schedule import make_schedule
from producers.workloads import parse_workload
from report.analysis.measurement import analyse
from report.analysis.run_data import RunData
from report.analysis.summary import RunSummary

VERSIONED = ("penstock", "confluent-kafka", "kafka-python", "pyspark", "numpy", "numba", "pyarrow", "redis", "circus")
ROOT = Path(__file__).resolve().parent.parent


def schedule_of(experiment: Experiment, options: Options, spec: RunSpec) -> Schedule:
    """The run's schedule: depends on workload, slice, speed, arrivals, partitions and seed only, not on the scaler."""
    if isinstance(spec.system, NetworkSystem):
        from simulator.network import job_schedule

        from_s = options.from_s / options.speed
        return job_schedule(spec.system.jobs, duration_s=spec.duration_s, seed=options.seed, from_s=from_s)
    return make_schedule(
        parse_workload(spec.workload["workload"]),
        from_s=options.from_s,
        seconds=float(spec.workload["seconds"]),
        speed=options.speed,
        arrivals=experiment.arrivals,
        partitions=experiment.partitions,
        partition_weights=experiment.partition_weights,
        seed=options.seed,
    )


def describe(experiment: Experiment, scaler: str, options: Options, runs: Path) -> tuple[RunDirectory, RunSpec]:
    """A new run directory with its run.json."""
    checked = run_spec(experiment, scaler, options, run="checked-before-anything-is-made")
    directory = RunDirectory.create(runs, experiment.name, checked.scaler.name)
    spec = msgspec.structs.replace(checked, run=directory.name)
    directory.write(directory.spec_file, spec)
    return directory, spec


def carry_out(
    world: World, experiment: Experiment, options: Options, directory: RunDirectory, progress: RunProgress
) -> RunSummary:
    """Carry out one described run and analyse it. The manifest is written last: without it a run is unfinished.

    A schedule that is already in the directory is used.
    """
    spec, failed = directory.spec(), False
    if not directory.schedule_file.exists():
        schedule_of(experiment, options, spec).write(directory.schedule_file)
    simulated = spec.world == "sim"
    try:
        progress.phase("simulating" if simulated else "starting the run's processes")
        world.prepare(spec, directory)
        spec = world.run.start()
        if not simulated:
            progress.running(directory, spec)
        for fault in spec.faults:
            world.run.wait_until(fault.at_s)
            progress.note(f"fault: {fault}")
            world.run.inject(fault)
        world.run.wait_until(spec.duration_s)
        if not simulated:
            progress.phase("waiting for the last results")
        left = world.run.drain()
        if not simulated:
            progress.phase("collecting")
        world.run.collect()
        summary = analyse(RunData(directory), in_flight=left)
        world.judged(summary.verdict, summary.reasons)
    except PenstockError as error:
        failed = True
        progress.phase(f"ending the run: {str(error).splitlines()[0].partition(';')[0]}")
        raise
    finally:
        with suppress(PenstockError) if failed else nullcontext():  # the first error counts
            world.close()
    directory.write(directory.manifest_file, manifest_of(directory, spec, summary))
    return summary


def _command() -> str:
    """The ``penstock`` command of this process; empty in another program."""
    program = Path(sys.argv[0])
    ours = program.name == "penstock" or (program.parent.name == "penstock" and program.name == "__main__.py")
    return shlex.join(("penstock", *sys.argv[1:])) if ours else ""


def manifest_of(directory: RunDirectory, spec: RunSpec, summary: RunSummary) -> Manifest:
    """What a finished run ran on, its verdict, and the checksums of its files."""
    started_at = datetime.fromtimestamp(spec.start_ns / NANOS_PER_SECOND, UTC).isoformat(timespec="seconds")
    return Manifest(
        run=directory.name,
        command=_command(),
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        git_revision=git_revision(ROOT),
        versions=versions(VERSIONED),
        machine={**machine(), "world": spec.world, "started_at": started_at},
        verdict=summary.verdict,
        reasons=summary.reasons,
        cpu_saturation=summary.cpu_saturation,
        tick_phase_p50_s=summary.tick_phase_p50_s,
        tick_phase_p99_s=summary.tick_phase_p99_s,
        files=directory.file_sums(),
    )
