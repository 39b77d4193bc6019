"""``penstock replay TRACE.csv --slo 500ms --scaler NAME``: one run of one scaler on a user's trace."""

import inspect
from typing import TYPE_CHECKING, Any

import typer

from experiments.replay.request import ReplayRequest

if TYPE_CHECKING:
    from rich.console import Console

    from experiments.replay.plan import TracePlan
    from experiments.replay.request import TraceRequest

EPILOG = "Example: penstock replay load.csv --slo 500ms --scaler rps --set rps.target_per_replica_per_s=80"

TOLD_BYTES = 20_000_000
"""Reading a trace of this size takes some seconds."""


def register_replay(app: typer.Typer) -> None:
    """Add the command."""
    replay.__signature__ = inspect.signature(ReplayRequest)  # type: ignore[attr-defined]
    replay.__annotations__ = {}
    app.command("replay", epilog=EPILOG)(replay)


def replay(**given: Any) -> None:
    """Run one scaler on your own trace in virtual time.

    `penstock advise` tries all scalers with all settings. Exit code 98: the verdict is INVALID. The run's directory is
    made in the folder PENSTOCK_RUNS (default: runs).
    """
    import dataclasses
    import shutil

    import msgspec
    from rich.console import Console

    from experiments.driver import carry_out
    from experiments.experiment import run_spec, tuning_line
    from experiments.progress import RunProgress
    from experiments.replay.plan import make_plan, options_of, schedule_on
    from experiments.reporting import write_reports
    from penstock.errors import PenstockError
    from penstock.registry import parse_scaler
    from penstock.rundir import RunDirectory, check_runs_folder
    from penstock.settings import Folders
    from simulator.world import SimWorld

    request = ReplayRequest(**given)
    said = Console(stderr=request.json, highlight=False, soft_wrap=True)
    runs = Folders().runs.absolute()
    check_runs_folder(runs)
    tell_of_a_large_trace(request)
    name = parse_scaler(request.scaler).name
    directory = RunDirectory.create(runs, f"replay-{request.trace.stem}", name)
    try:
        plan = make_plan(request, directory.path)
        if plan.hopeless:
            raise PenstockError(plan.hopeless)
        experiment = dataclasses.replace(plan.experiment, tick_phase_s=request.tick_phase)
        plan = dataclasses.replace(plan, experiment=experiment)
        options = options_of(plan, [request.scaler])[request.scaler]
        spec = run_spec(experiment, request.scaler, options, run=directory.name)
        workload = {**spec.workload, "arrivals": plan.arrivals, "trace": str(plan.trace.path)}
        spec = msgspec.structs.replace(spec, workload=workload)
        directory.write(directory.spec_file, spec)
        schedule_on(plan, spec).write(directory.schedule_file)
        tell_conditions(plan, said)
        said.print(tuning_line(experiment, [parse_scaler(request.scaler)], options), markup=False)
        with RunProgress(said, runs=1) as progress:
            carry_out(SimWorld(progress.phase), experiment, options, directory, progress)
    except BaseException:
        shutil.rmtree(directory.path, ignore_errors=True)
        raise
    write_reports([directory], directory.report_file, request.fail_under, as_json=request.json)


def tell_of_a_large_trace(request: "TraceRequest") -> None:
    """Say that it is read: that takes a while."""
    if request.trace.is_file() and request.trace.stat().st_size > TOLD_BYTES:
        typer.echo(f"reading {request.trace}, {request.trace.stat().st_size / 1e6:.0f} MB", err=True)


def tell_conditions(plan: "TracePlan", said: "Console") -> None:
    """Trace and fleet in words, so that a wrong assumption is visible, and the warnings."""
    trace, experiment, facts = plan.trace, plan.experiment, plan.facts
    said.print(
        f"{trace.path}: {trace.form}: {trace.rate_per_s.sum():,.0f} events in {trace.seconds:,} s, "
        f"mean {trace.rate_per_s.mean():.1f}, peak {trace.rate_per_s.max():.0f} events/s, arrivals {plan.arrivals}",
        markup=False,
    )
    said.print(
        f"{experiment.partitions} partitions, {1000 * experiment.worker.service_time_s:g} ms an event "
        f"({facts['service_rate_per_s']:g} events/s a replica), {experiment.initial_replicas} to start with, "
        f"{experiment.max_replicas} at most, start-up {facts['start_up_s']:g} s, "
        f"rebalance {facts['rebalance_time_s']:g} s, {plan.request.price:g} a replica-hour",
        markup=False,
    )
    for warning in plan.warnings:
        said.print(f"warning: {warning}", style="yellow", markup=False)
