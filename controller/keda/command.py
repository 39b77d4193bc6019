"""``penstock keda``: an external scaler for KEDA."""

import os
import re
from pathlib import Path
from typing import Annotated, Final

import typer

from penstock.errors import PenstockError

SERVER: Final = re.compile(r"([^\s:/\[\]]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}")
"""host:port, or [IPv6 address]:port."""


def keda(
    kafka: Annotated[str, typer.Option(help="Bootstrap servers, host:port[,host:port].")],
    topic: Annotated[str, typer.Option(help="Default of ScaledObjects.")] = "",
    group: Annotated[str, typer.Option(help="Default of ScaledObjects.")] = "",
    scaler: Annotated[str, typer.Option(help="Their default scaler: a name, or path.py:Class.")] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="scaler.parameter=value of --scaler; may be repeated.")
    ] = None,
    listen: Annotated[str, typer.Option(help="Address of the gRPC service; 0.0.0.0:6000 in a pod.")] = "127.0.0.1:6000",
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate of the service, PEM; with --tls-key.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key, PEM.")] = None,
    tls_client_ca: Annotated[
        Path | None, typer.Option(help="CA of the clients, PEM: only those with a certificate of it are admitted.")
    ] = None,
) -> None:
    """Serve scalers of Kafka consumer groups to KEDA.

    For ScaledObjects with a trigger external or external-push. A trigger's metadata has topic, group, scaler, set and
    more (docs/examples/keda); the options here are their defaults. TLS and login of Kafka: PENSTOCK_KAFKA_… in the
    environment (docs/kafka-security.md). Ends with Ctrl-C.
    """
    import asyncio
    import logging
    import signal

    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the error below names a taken port
    from controller.keda.metadata import read_scaler
    from controller.keda.service import Fleets, serve
    from controller.keda.tls import TlsFiles
    from penstock.adapters.kafka_security import ClientSecurity
    from penstock.process_main import configure_log

    configure_log({"kafka": logging.CRITICAL})  # the monitors report what matters of it
    if (tls_cert is None) != (tls_key is None) or (tls_client_ca is not None and tls_cert is None):
        raise PenstockError("TLS takes --tls-cert and --tls-key; --tls-client-ca is optional")
    tls = TlsFiles(tls_cert, tls_key, tls_client_ca) if tls_cert is not None and tls_key is not None else None
    if not (security := ClientSecurity()).plain:
        logging.getLogger("keda").info("Kafka at %s by %s", kafka, security)
    given = {"topic": topic, "group": group, "scaler": scaler, "set": " ".join(settings or ())}
    defaults = {key: value for key, value in given.items() if value}
    # Wrong ones are reported now, not when KEDA asks; Kafka itself may be away.
    if wrong := [each for each in kafka.split(",") if not SERVER.fullmatch(each.strip())]:
        raise PenstockError(f"--kafka {kafka}: {wrong[0]!r} is not host:port, such as kafka:9092")
    if scaler:
        read_scaler(defaults)
    elif settings:  # a trigger that names a scaler does not take them
        raise PenstockError(f"--set {settings[0]}: it is of --scaler, which is not given")

    async def until_stopped() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await serve(Fleets(kafka, defaults, tls=tls is not None), listen, stop, tls)

    asyncio.run(until_stopped())
