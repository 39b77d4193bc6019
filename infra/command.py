"""``penstock up``, ``down``, ``status``, ``env`` and ``load``: services of the local world or of a cluster."""

import shlex
import subprocess
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.answers import AsJson, print_json

if TYPE_CHECKING:
    from infra.kubernetes.services import ClusterServices
    from infra.local.services import LocalServices

WHERE = (
    "State folder: PENSTOCK_STATE (default .penstock). Ports on loopback (0: any free one): "
    "PENSTOCK_KAFKA_PORT (27192), PENSTOCK_KAFKA_CONTROLLER_PORT (27193), PENSTOCK_KAFKA_WORKERS_PORT and "
    "PENSTOCK_KAFKA_MONITOR_PORT (27194, 27195), PENSTOCK_RABBITMQ_PORT (27172), "
    "PENSTOCK_RABBITMQ_MANAGEMENT_PORT (27173), _METRICS_PORT, _NODE_PORT and _EPMD_PORT (27174 to 27176), "
    "PENSTOCK_REDIS_PORT (27179), PENSTOCK_GATEWAY_PORT (27180), PENSTOCK_PROMETHEUS_PORT (27190), "
    "PENSTOCK_GRAFANA_PORT (27191)."
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "up",
        help="Start the services of this machine, or of a cluster.\n\nKafka, RabbitMQ, Redis, Prometheus, "
        f"the gateway of the functions, and Grafana if it is installed. Running services are left as they are. {WHERE}",
        epilog="Example: PENSTOCK_KAFKA_PORT=0 penstock up",
    )(up)
    app.command("setup", epilog="Example: penstock setup")(setup)
    app.command("down", epilog="Example: penstock down")(down)
    app.command("status", epilog="Example: penstock status")(status)
    app.command("env", epilog='Example: eval "$(penstock env)"')(env)
    app.command("load", epilog="Example: penstock load -- --headless --workload constant:rate_per_s=20,duration_s=60")(
        load
    )


Target = Annotated[
    str, typer.Option(help="local, or an overlay of infra/kubernetes for the cluster of the current kubeconfig.")
]


def setup() -> None:
    """Install the programs that live runs need.

    Java, Maven, Redis, RabbitMQ, Prometheus, HAProxy and jars. Debian and Ubuntu, with root or sudo. Programs that are
    there are left alone; jars go to PENSTOCK_JARS.
    """
    from pathlib import Path

    from penstock.settings import Folders

    script = Path(__file__).parent / "local" / "setup.sh"
    for arguments in (("system",), ("jars", str(Folders().jars.absolute()))):
        done = subprocess.run(["bash", script, *arguments], check=False)
        if done.returncode:
            raise typer.Exit(done.returncode)


def up(target: Target = "local") -> None:
    """Start the services of the local world, or brokers and monitoring on a cluster."""
    if target != "local":
        _cluster(target).up()
        _tell(f"up. To run on it: penstock run … --world kubernetes; to delete it: penstock down --target {target}")
        return
    from infra.local.grafana import NOT_INSTALLED, Grafana
    from infra.local.services import ALL_SERVICES

    services = _services()
    wanted = (*ALL_SERVICES, Grafana.name) if Grafana.installed() else ALL_SERVICES
    try:
        services.up(wanted)
    except KeyboardInterrupt:
        _tell("interrupted: the services started by this command are stopped")
        raise
    _tell(f"grafana: {services.exports()['PENSTOCK_GRAFANA']}" if Grafana.name in wanted else NOT_INSTALLED)
    _tell('up. To set addresses in a shell: eval "$(penstock env)"; to stop: penstock down')


def down(target: Target = "local") -> None:
    """Stop all services, replicas and runs; data and logs stay. On a cluster, delete the namespace."""
    if target != "local":
        _tell("deleted" if _cluster(target).down() else "nothing to delete")
        return
    try:
        stopped = _services().down()
    except KeyboardInterrupt:
        _tell("interrupted: run `penstock down` again to stop the rest")
        raise
    _tell(f"down: {', '.join(stopped)}" if stopped else "nothing was running")


def status(as_json: AsJson = False) -> None:
    """Show running services and addresses. Exit code 2: a service has died; 1: one does not run yet."""
    from rich.console import Console
    from rich.table import Table

    services = _services()
    found = services.status()
    if as_json:
        print_json(
            [
                {
                    "service": service.name,
                    "state": program.state,
                    "pid": program.pid,
                    "ports": service.ports,
                    "log": str(service.log),
                }
                for service, program in found
            ]
        )
    table = Table("service", "state", "pid", "ports", "log", box=None, pad_edge=False)
    for service, program in found:
        ports = ", ".join(map(str, service.ports.values()))
        table.add_row(service.name, program.state, str(program.pid or "-"), ports, str(service.log))
    Console(highlight=False, quiet=as_json).print(table)
    services.check()
    if any(program.pid is None for _, program in found):
        raise typer.Exit(1)


def env() -> None:
    """Print addresses and secrets of the services for a shell. As export lines."""
    for name, value in _services().exports().items():
        typer.echo(f"export {name}={shlex.quote(value)}")


def load(
    locust: Annotated[list[str] | None, typer.Argument(help="Options for Locust, after `--`.")] = None,
    target: Target = "local",
    senders: Annotated[int, typer.Option(help="Sender pods, on a cluster.", min=1)] = 2,
    port: Annotated[int, typer.Option(help="Port of the Locust page (loopback only).", min=1, max=65535)] = 8089,
) -> None:
    """Open Locust's page to choose and start a load. Starts services if needed."""
    from infra.load.locust import run_here, run_on_cluster

    if target == "local":
        run_here(_services(), port, locust or ())
    elif code := run_on_cluster(_cluster(target), target, port, senders, locust or (), _tell):
        raise typer.Exit(code)


def _tell(line: str) -> None:
    typer.echo(line, err=True)


def _cluster(target: str) -> "ClusterServices":
    from infra.kubernetes.services import ClusterServices

    return ClusterServices(_services(), _tell, target)


def _services() -> "LocalServices":
    from infra.local.services import LocalServices

    return LocalServices.from_settings(_tell)
