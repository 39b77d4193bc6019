"""``penstock control``: the controller on somebody's own consumers."""

from typing import Annotated

import typer

from penstock.errors import PenstockError


def control(
    kafka: Annotated[str, typer.Option(help="Bootstrap servers, host:port[,host:port].")],
    topic: Annotated[str, typer.Option(help="The topic that they consume.")],
    group: Annotated[str, typer.Option(help="Their consumer group.")],
    scaler: Annotated[str, typer.Option(help="The one that acts: a name of `penstock scalers`, or path.py:Class.")],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND...", help="What runs one consumer, after two dashes.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="scaler.parameter=value; may be repeated.")
    ] = None,
    shadows: Annotated[str, typer.Option(help="Scalers that only advise, separated by commas.")] = "",
    initial_replicas: Annotated[int, typer.Option(min=1, help="Replicas at the start.")] = 1,
    max_replicas: Annotated[
        int | None, typer.Option(min=1, help="Cap of the fleet.", show_default="one a partition")
    ] = None,
    slo: Annotated[float, typer.Option(help="Seconds; what `penstock watch` compares with.")] = 0.5,
    grace: Annotated[float, typer.Option(help="Seconds from SIGTERM to SIGKILL for a consumer that goes.")] = 10.0,
    deployment: Annotated[str, typer.Option(help="A Deployment instead of a command: not there yet.")] = "",
) -> None:
    """Scale your own Kafka consumers: COMMAND is started once a replica, and ended with SIGTERM when it is too many.

    Each has PENSTOCK_REPLICA (its name), PENSTOCK_KAFKA, PENSTOCK_TOPIC, PENSTOCK_GROUP and PENSTOCK_CONTROLLER in its
    environment. With our assignor they follow the scaler's plans (docs/examples/own-consumers); others are scaled by
    their number. Ctrl-C ends all of them in order.
    """
    if deployment:
        raise PenstockError(
            f"--deployment {deployment}: not there yet; put the scaler behind a ScaledObject with `penstock keda` "
            "(docs/examples/keda), or give a COMMAND"
        )
    if not command:
        raise PenstockError("which command runs one consumer? Name it last: penstock control … -- python consumer.py")
    import logging
    import signal

    from controller.attach import Attachment, Control
    from penstock.registry import parse_scaler, parse_settings
    from penstock.settings import Folders

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # what matters of it is told by the monitors
    by_scaler = parse_settings(settings or ())
    attachment = Attachment(
        kafka=kafka,
        topic=topic,
        group=group,
        scaler=parse_scaler(scaler, by_scaler),
        command=tuple(command),
        shadows=tuple(parse_scaler(name.strip(), by_scaler) for name in shadows.split(",") if name.strip()),
        initial_replicas=initial_replicas,
        max_replicas=max_replicas,
        slo_s=slo,
        drain_s=grace,
    )
    attached = Control(attachment, Folders())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, attached.clock.stop)
    attached.run()
