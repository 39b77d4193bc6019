"""``penstock keda``: an external scaler for KEDA."""

from typing import Annotated

import typer


def keda(
    kafka: Annotated[str, typer.Option(help="Bootstrap servers, host:port[,host:port].")],
    topic: Annotated[str, typer.Option(help="Default of ScaledObjects.")] = "",
    group: Annotated[str, typer.Option(help="Default of ScaledObjects.")] = "",
    scaler: Annotated[str, typer.Option(help="Their default scaler: a name, or path.py:Class.")] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="scaler.parameter=value of --scaler; may be repeated.")
    ] = None,
    listen: Annotated[str, typer.Option(help="Address of the gRPC service; 0.0.0.0:6000 in a pod.")] = "127.0.0.1:6000",
) -> None:
    """Serve scalers of Kafka consumer groups to KEDA.

    For ScaledObjects with a trigger external or external-push. A trigger's metadata has topic, group, scaler, set and
    more (docs/examples/keda); the options here are their defaults. Ends with Ctrl-C.
    """
    import asyncio
    import logging
    import signal

    from controller.keda.metadata import read_trigger
    from controller.keda.service import Fleets, serve
    from penstock.process_main import configure_log

    configure_log({"kafka": logging.CRITICAL})  # the monitors report what matters of it
    given = {"topic": topic, "group": group, "scaler": scaler, "set": " ".join(settings or ())}
    defaults = {key: value for key, value in given.items() if value}
    if topic and group and scaler:  # report wrong ones now, not when KEDA asks; Kafka itself may be away
        read_trigger({}, defaults)

    async def until_stopped() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await serve(Fleets(kafka, defaults), listen, stop)

    asyncio.run(until_stopped())
