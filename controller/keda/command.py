"""``penstock keda``: the external scaler for KEDA."""

from typing import Annotated

import typer


def keda(
    kafka: Annotated[str, typer.Option(help="Bootstrap servers, host:port[,host:port].")],
    topic: Annotated[str, typer.Option(help="For ScaledObjects that name none.")] = "",
    group: Annotated[str, typer.Option(help="For ScaledObjects that name none.")] = "",
    scaler: Annotated[str, typer.Option(help="For those that name none; a name, or path.py:Class.")] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="scaler.parameter=value of --scaler; may be repeated.")
    ] = None,
    listen: Annotated[str, typer.Option(help="Address of the gRPC service; 0.0.0.0:6000 in a pod.")] = "127.0.0.1:6000",
) -> None:
    """Serve any Penstock scaler of a stream to KEDA: a ScaledObject with a trigger of type external or external-push.

    A trigger's metadata may name topic, group, scaler, set and more (docs/examples/keda); what it leaves out is taken
    from here. Ends with Ctrl-C.
    """
    import asyncio
    import logging
    import signal

    from controller.keda.metadata import read_trigger
    from controller.keda.service import Fleets, Service
    from controller.monitors.group import count_partitions

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # what matters of it is told by the monitors
    given = {"topic": topic, "group": group, "scaler": scaler, "set": " ".join(settings or ())}
    defaults = {key: value for key, value in given.items() if value}
    if topic and group and scaler:  # wrong ones are told now, not when KEDA asks
        read_trigger({}, defaults)
    if topic:
        count_partitions(kafka, topic)

    async def serve() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await Service(Fleets(kafka, defaults), listen).run(stop)

    asyncio.run(serve())
