"""``penstock control``: the controller on external consumers."""

from typing import Annotated

import typer

from penstock.completion import scalers as complete_scalers
from penstock.durations import duration_option
from penstock.errors import PenstockError


def control(
    kafka: Annotated[str, typer.Option(help="Bootstrap servers, host:port[,host:port].")],
    topic: Annotated[str, typer.Option(help="Topic that the consumers read.")],
    group: Annotated[str, typer.Option(help="Their consumer group.")],
    scaler: Annotated[
        str,
        typer.Option(
            help="Acting scaler: a name of `penstock scalers`, or path.py:Class.", autocompletion=complete_scalers
        ),
    ],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND...", help="Command of one consumer, after two dashes.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="scaler.parameter=value; may be repeated.")
    ] = None,
    shadows: Annotated[str, typer.Option(help="Comma-separated shadow scalers.")] = "",
    initial_replicas: Annotated[int, typer.Option(min=1, help="Replicas at the start.")] = 1,
    max_replicas: Annotated[
        int | None, typer.Option(min=1, help="Maximum of replicas.", show_default="one per partition")
    ] = None,
    slo: Annotated[float, duration_option(help="Latency SLO, for `penstock watch`.")] = 0.5,
    grace: Annotated[float, duration_option(help="From SIGTERM to SIGKILL of a consumer that ends.")] = 10.0,
) -> None:
    """Scale your own Kafka consumers with any scaler.

    COMMAND is started once per replica; surplus replicas are ended by SIGTERM. Each has PENSTOCK_REPLICA (its name),
    PENSTOCK_KAFKA, PENSTOCK_TOPIC, PENSTOCK_GROUP and PENSTOCK_CONTROLLER in its environment. Consumers with Penstock's
    assignor follow the scaler's plans (docs/examples/own-consumers); of others only the number is scaled. Ctrl-C ends
    all of them in order.
    """
    if not command:
        raise PenstockError("which command runs one consumer? Name it last: penstock control … -- python consumer.py")
    import logging

    from controller.control.attachment import AttachedController
    from penstock.parameters import parse_settings
    from penstock.process_main import configure_log, on_termination
    from penstock.registry import parse_scaler

    configure_log({"kafka": logging.CRITICAL})  # the monitors report what matters of it
    by_scaler = parse_settings(settings or ())
    controller = AttachedController(
        kafka=kafka,
        topic=topic,
        group=group,
        scaler=parse_scaler(scaler, by_scaler),
        command=command,
        shadows=[parse_scaler(name.strip(), by_scaler) for name in shadows.split(",") if name.strip()],
        initial_replicas=initial_replicas,
        max_replicas=max_replicas,
        slo_s=slo,
        grace_s=grace,
    )
    on_termination(controller.clock.stop)
    controller.run()
