"""``penstock up``, ``down``, ``status`` and ``env``: the services of the local world, or of a cluster; and ``load``."""

import shlex
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from infra.kubernetes.services import ClusterServices
    from infra.local.services import LocalServices

WHERE = (
    "They live in the state folder (PENSTOCK_STATE, default .penstock) and listen on loopback only; "
    "ports are PENSTOCK_KAFKA_PORT (27192), PENSTOCK_KAFKA_CONTROLLER_PORT (27193), PENSTOCK_RABBITMQ_PORT (27172), "
    "PENSTOCK_RABBITMQ_MANAGEMENT_PORT (27173), _METRICS_PORT, _NODE_PORT and _EPMD_PORT (27174 to 27176), "
    "PENSTOCK_REDIS_PORT (27179), PENSTOCK_GATEWAY_PORT (27180), PENSTOCK_PROMETHEUS_PORT (27190) and "
    "PENSTOCK_GRAFANA_PORT (27191), where 0 means any free one."
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "up",
        help="Start Kafka, RabbitMQ, Redis, Prometheus, the functions' gateway, and Grafana where it is installed; "
        f"what runs already stays as it is. {WHERE}",
        epilog="Example: PENSTOCK_KAFKA_PORT=0 penstock up",
    )(up)
    app.command("down", epilog="Example: penstock down")(down)
    app.command("status", epilog="Example: penstock status")(status)
    app.command("env", epilog='Example: eval "$(penstock env)"')(env)
    app.command("load", epilog="Example: penstock load -- --headless --workload constant:rate_per_s=20,duration_s=60")(
        load
    )


Target = Annotated[
    str, typer.Option(help="local, or an overlay of infra/kubernetes: the cluster of the current kubeconfig.")
]


def up(target: Target = "local") -> None:
    """Start the services of the local world, or brokers and monitoring on a cluster."""
    if target != "local":
        console = Console(stderr=True, highlight=False)
        _cluster(target, console).up()
        console.print("up. To play on it: penstock run … --world kubernetes; to delete it: penstock down --target …")
        return
    from infra.local.grafana import NOT_INSTALLED, Grafana
    from infra.local.services import ALL_SERVICES

    console = Console(stderr=True, highlight=False)
    services = _services(console)
    wanted = (*ALL_SERVICES, Grafana.name) if Grafana.installed() else ALL_SERVICES
    try:
        services.up(wanted)
    except KeyboardInterrupt:
        console.print("interrupted: what this command had started is stopped again")
        raise
    if Grafana.name in wanted:
        console.print(f"grafana: {services.exports()['PENSTOCK_GRAFANA']}", markup=False)
    else:
        console.print(NOT_INSTALLED, markup=False)
    console.print('up. For a shell of your own: eval "$(penstock env)"; to stop: penstock down')


def down(target: Target = "local") -> None:
    """Stop everything of the state folder: services, replicas, runs. Data and logs stay. On a cluster, delete all."""
    console = Console(stderr=True, highlight=False)
    if target != "local":
        console.print("deleted" if _cluster(target, console).down() else "nothing was there")
        return
    try:
        stopped = _services(console).down()
    except KeyboardInterrupt:
        console.print("interrupted: run `penstock down` again to stop the rest")
        raise
    console.print(f"down: {', '.join(stopped)}" if stopped else "nothing was running")


def status() -> None:
    """What runs, where. The exit code is 1 if a service that was brought up does not run."""
    from rich.table import Table

    console = Console(highlight=False)
    services = _services(console)
    found = services.status()
    table = Table("service", "state", "pid", "ports", "log", box=None, pad_edge=False)
    for service in found:
        ports = ", ".join(map(str, service.ports.values()))
        table.add_row(service.name, service.state, str(service.pid or "-"), ports, str(service.log))
    console.print(table)
    services.check()
    if any(service.pid is None for service in found):
        raise typer.Exit(1)


def env() -> None:
    """Print the addresses and secrets of what is up, as export lines for a shell."""
    for name, value in _services(Console(stderr=True)).exports().items():
        typer.echo(f"export {name}={shlex.quote(value)}")


def load(
    locust: Annotated[list[str] | None, typer.Argument(help="Options of Locust's own, after `--`.")] = None,
    target: Target = "local",
    senders: Annotated[int, typer.Option(help="On a cluster: pods that send.", min=1)] = 2,
    port: Annotated[int, typer.Option(help="Of the page, on this machine's loopback.", min=1, max=65535)] = 8089,
) -> None:
    """Locust's page: choose workload, rate, SLO and scaler; start and stop the load. What is not up is brought up."""
    from infra.load import play_here, play_on_cluster

    console = Console(stderr=True, highlight=False)
    if target == "local":
        play_here(_services(console), port, locust or ())
        return

    def tell(line: str) -> None:
        console.print(line, markup=False)

    if code := play_on_cluster(_cluster(target, console), target, port, senders, locust or (), tell):
        raise typer.Exit(code)


def _cluster(target: str, console: Console) -> "ClusterServices":
    from infra.kubernetes.services import ClusterServices

    return ClusterServices(_services(console), lambda line: console.print(line, markup=False), target)


def _services(console: Console) -> "LocalServices":
    from infra.local.services import LocalServices

    return LocalServices.from_settings(tell=lambda line: console.print(line, markup=False))
