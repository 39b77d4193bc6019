"""``penstock calibrate functions``: measured service times of a pipeline's functions on this machine."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.answers import print_json
from penstock.command import calibrate
from penstock.durations import duration_option
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from functions.calibration import PipelineCalibration
    from penstock.systems import FunctionSystem

PAYLOADS: Final = 20
"""Number of different requests, used in turn."""


def register_calibration() -> None:
    """Add the command."""
    calibrate.command("functions", epilog="Example: penstock calibrate functions amesos-document --seconds 5")(
        calibrate_functions
    )


def calibrate_functions(
    experiment: Annotated[str, typer.Argument(help="Experiment with the pipeline; see `penstock experiments`.")],
    seconds: Annotated[float, duration_option(help="Time for each function, and for the whole pipeline.")] = 5.0,
    seed: Annotated[int, typer.Option(help="Seed of the requests and of random service times.")] = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="system.setting=value, such as system.image and system.secrets; repeatable."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure real work, service time and μ of each function on one replica, and the pipeline's totalEstimate."""
    from rich.console import Console

    from experiments.catalogue import EXPERIMENTS, find_experiment
    from experiments.experiment import with_settings
    from functions.calibration import calibrate_pipeline
    from penstock.parameters import parse_settings
    from penstock.settings import Endpoints
    from penstock.systems import FunctionSystem

    if not 0 < seconds < 3600:
        raise PenstockError(f"--seconds {seconds:g}: expected more than 0 and less than 3600")
    found = find_experiment(experiment)
    system = found.system
    if not isinstance(system, FunctionSystem):
        fitting = ", ".join(each.name for each in EXPERIMENTS.values() if isinstance(each.system, FunctionSystem))
        raise PenstockError(f"{found.name} has no functions: choose one of {fitting}")
    given = parse_settings(settings or ())
    if others := [name for name in given if name != "system"]:
        raise PenstockError(f"--set {others[0]}.…: a calibration has settings of the system alone")
    system = with_settings("system", system, given.get("system", {}))
    gateway = Endpoints().require("gateway")
    with Console(stderr=True, highlight=False).status("connecting to the gateway") as status:
        measured = calibrate_pipeline(
            gateway, found.pipeline, system, _payloads(seed), seconds=seconds, seed=seed, tell=status.update
        )
    if json:
        print_json(measured)
    else:
        _print(measured, system)


def _payloads(seed: int) -> list[bytes]:
    """Payloads like those of a run's requests."""
    import numpy as np

    from penstock.records import encode
    from penstock.schedule import Schedule
    from producers.payments import payments

    schedule = Schedule(np.zeros(PAYLOADS, dtype=np.int64), np.zeros(PAYLOADS, dtype=np.int16), duration_s=1.0)
    return [encode(payment) for payment in payments(schedule, seed)]


def _print(measured: "PipelineCalibration", system: "FunctionSystem") -> None:
    from rich.console import Console
    from rich.table import Table

    from penstock.graph import Graph

    console = Console(highlight=False, soft_wrap=True)
    table = Table(
        "function", "floor", "work p50", "p99", "service p50", "p99", "μ, RPS' target",
        box=None, pad_edge=False,
    )  # fmt: skip
    for each in measured.functions:
        table.add_row(
            each.name, _ms(each.floor_s), _ms(each.work.p50_s), _ms(each.work.p99_s), _ms(each.service.p50_s),
            _ms(each.service.p99_s), f"{each.service_rate_per_s:.2f}/s",
        )  # fmt: skip
    console.print(table)
    assumed_s, whole = Graph(system.functions).total_s, measured.whole
    settings = (
        f"--set rps.target_by_fleet_per_s.{each.name}={each.service_rate_per_s:.4g}" for each in measured.functions
    )
    console.print(
        f"\ntotalEstimate of {measured.pipeline}: {_ms(measured.total_estimate_s)} along the longest path; scalers and "
        f"pipeline manager assume {_ms(assumed_s)}\n"
        f"a request without queueing: mean {_ms(whole.mean_s)}, p50 {_ms(whole.p50_s)}, p99 {_ms(whole.p99_s)} of "
        f"{whole.count}, deadline {_ms(measured.deadline_s)}\n\n"
        f"For scalers: {' '.join(settings)}\n"
        f"For the sim world, time that a call adds to the service time: --set system.call_s={measured.call_s:.2g}"
    )


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f} ms"
