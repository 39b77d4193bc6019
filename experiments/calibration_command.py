"""``penstock calibrate functions``: what the functions of an experiment's pipeline really take on this machine."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.command import calibrate
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from experiments.experiment import Experiment
    from functions.calibration import PipelineCalibration, Times
    from penstock.systems import FunctionSystem

PAYLOADS: Final = 20
"""Different requests, taken in turn."""


def register_calibration() -> None:
    """Add the command."""
    calibrate.command("functions", epilog="Example: penstock calibrate functions amesos-document --seconds 5")(
        calibrate_functions
    )


def calibrate_functions(
    experiment: Annotated[str, typer.Argument(help="Whose pipeline: a name of `penstock experiments`.")],
    seconds: Annotated[float, typer.Option(help="Seconds for each function, and for the whole pipeline.")] = 5.0,
    seed: Annotated[int, typer.Option(help="Seed of the requests and of random service times.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure real work, service time and μ of each function on one replica, and the pipeline's totalEstimate."""
    from rich.console import Console

    from experiments.catalogue import find_experiment
    from functions.calibration import calibrate_pipeline
    from penstock.settings import Endpoints

    if not 0 < seconds < 3600:
        raise PenstockError(f"--seconds {seconds:g}: expected more than 0 and less than 3600")
    found = find_experiment(experiment)
    system = _functions_of(found)
    gateway = Endpoints().require("gateway")
    with Console(stderr=True, highlight=False).status("looking for the gateway") as status:
        measured = calibrate_pipeline(
            gateway, found.pipeline, system, _payloads(seed), seconds=seconds, seed=seed, tell=status.update
        )
    if json:
        import msgspec

        typer.echo(msgspec.json.format(msgspec.json.encode(measured), indent=2).decode())
    else:
        _print(measured, system)


def _functions_of(experiment: "Experiment") -> "FunctionSystem":
    from experiments.catalogue import EXPERIMENTS
    from penstock.systems import FunctionSystem

    if isinstance(experiment.system, FunctionSystem):
        return experiment.system
    fitting = ", ".join(each.name for each in EXPERIMENTS.values() if isinstance(each.system, FunctionSystem))
    raise PenstockError(f"{experiment.name} has no functions: choose one of {fitting}")


def _payloads(seed: int) -> list[bytes]:
    """What a run's requests carry."""
    import numpy as np

    from penstock.records import encode
    from penstock.schedule import Schedule
    from producers.payments import payments

    schedule = Schedule(np.zeros(PAYLOADS, dtype=np.int64), np.zeros(PAYLOADS, dtype=np.int16), duration_s=1.0)
    return [encode(payment) for payment in payments(schedule, seed)]


def _print(measured: "PipelineCalibration", system: "FunctionSystem") -> None:
    from rich.console import Console
    from rich.table import Table

    from controller.scalers.rps import RpsParameters
    from penstock.graph import Graph

    rho = RpsParameters().rho
    console = Console(highlight=False, soft_wrap=True)
    table = Table(
        "function", "floor", "work p50", "p99", "service p50", "p99", "μ", f"RPS: {rho:g} μ",
        box=None, pad_edge=False,
    )  # fmt: skip
    for each in measured.functions:
        table.add_row(
            each.name, _ms(each.floor_s), _ms(each.work.p50_s), _ms(each.work.p99_s), _ms(each.service.p50_s),
            _ms(each.service.p99_s), f"{each.service_rate_per_s:.2f}/s", f"{rho * each.service_rate_per_s:.2f}/s",
        )  # fmt: skip
    console.print(table)
    reckoned_s, whole = Graph(system.functions).total_s, measured.whole
    console.print(
        f"\ntotalEstimate of {measured.pipeline}: {_ms(measured.total_estimate_s)} along the longest way; scalers and "
        f"pipeline manager reckon with {_ms(reckoned_s)}"
    )
    console.print(f"a request that waits nowhere: {_told(whole)}, deadline {_ms(measured.deadline_s)}")
    targets = {each.name: rho * each.service_rate_per_s for each in measured.functions}
    settings = (f"--set rps.target_by_fleet_per_s.{name}={target_per_s:.4g}" for name, target_per_s in targets.items())
    console.print(f"\nFor scalers: {' '.join(settings)}")
    console.print(
        f"For the sim world, what each call adds to the service time: --set system.call_s={measured.call_s:.2g}"
    )


def _told(times: "Times") -> str:
    return f"mean {_ms(times.mean_s)}, p50 {_ms(times.p50_s)}, p99 {_ms(times.p99_s)} of {times.count}"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f} ms"
