"""``penstock control``: the controller on external consumers or functions."""

from functools import partial
from typing import Annotated

import typer

from penstock.completion import scalers as complete_scalers
from penstock.durations import duration_option
from penstock.errors import PenstockError

MOST_FUNCTIONS = 5
"""Replicas of a function unless told otherwise: OpenFaaS CE's limit."""
GROUP = "Consumer group"
FUNCTIONS = "Functions"


def control(
    scaler: Annotated[
        str,
        typer.Option(
            help="Acting scaler: a name of `penstock scalers`, or path.py:Class.", autocompletion=complete_scalers
        ),
    ],
    kafka: Annotated[str, typer.Option(help="Bootstrap servers, host:port[,host:port].", rich_help_panel=GROUP)] = "",
    topic: Annotated[str, typer.Option(help="Topic that the consumers read.", rich_help_panel=GROUP)] = "",
    group: Annotated[str, typer.Option(help="Their consumer group.", rich_help_panel=GROUP)] = "",
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND...", help="Command of one consumer, after two dashes.")
    ] = None,
    initial_replicas: Annotated[int, typer.Option(min=1, help="Replicas at the start.", rich_help_panel=GROUP)] = 1,
    grace: Annotated[
        float, duration_option(help="From SIGTERM to SIGKILL of a consumer that ends.", rich_help_panel=GROUP)
    ] = 10.0,
    functions: Annotated[
        str, typer.Option(help="Comma-separated names of functions on the gateway.", rich_help_panel=FUNCTIONS)
    ] = "",
    gateway: Annotated[
        str,
        typer.Option(
            help="URL of their OpenFaaS gateway. User and password: in the URL, or of `faas-cli login`.",
            show_default="PENSTOCK_GATEWAY",
            rich_help_panel=FUNCTIONS,
        ),
    ] = "",
    metrics: Annotated[
        str,
        typer.Option(help="URL of the gateway's metrics.", show_default="GATEWAY/metrics", rich_help_panel=FUNCTIONS),
    ] = "",
    prometheus: Annotated[
        str,
        typer.Option(help="URL of a Prometheus that has these metrics, instead.", rich_help_panel=FUNCTIONS),
    ] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="scaler.parameter=value; may be repeated.")
    ] = None,
    shadows: Annotated[str, typer.Option(help="Comma-separated shadow scalers.")] = "",
    max_replicas: Annotated[
        int | None,
        typer.Option(
            min=1, help="Maximum of replicas.", show_default=f"one per partition; {MOST_FUNCTIONS} a function"
        ),
    ] = None,
    slo: Annotated[float, duration_option(help="Latency SLO, for the scaler and `penstock watch`.")] = 0.5,
    tick_phase: Annotated[float, duration_option(help="Offset of the ticks from whole seconds.")] = 0.0,
) -> None:
    """Scale your own Kafka consumers or OpenFaaS functions.

    COMMAND is started once per replica; surplus replicas are ended by SIGTERM. Each has PENSTOCK_REPLICA (its name),
    PENSTOCK_KAFKA, PENSTOCK_TOPIC, PENSTOCK_GROUP and PENSTOCK_CONTROLLER in its environment. Consumers with Penstock's
    assignor follow the scaler's plans (docs/examples/own-consumers); of others only the number is scaled. Ctrl-C ends
    all of them in order.

    TLS and login of Kafka: PENSTOCK_KAFKA_… in the environment (docs/kafka-security.md), which each COMMAND has, too.

    With --functions, COMMAND is left out: their number of replicas is changed, and nothing else; none goes to zero, and
    Ctrl-C leaves them as they are (docs/openfaas.md).
    """
    import logging

    from controller.control.attachment import AttachedController, with_slo
    from penstock.parameters import parse_settings
    from penstock.process_main import configure_log, on_termination
    from penstock.registry import parse_scaler
    from penstock.settings import Endpoints

    names = [each.strip() for each in functions.split(",") if each.strip()]
    if names and (kafka or topic or group or command):
        raise PenstockError("--functions goes without --kafka, --topic, --group and a command")
    if not names and not (kafka and topic and group):
        raise PenstockError("name a consumer group (--kafka, --topic, --group) or functions (--functions, --gateway)")
    if not names and not command:
        raise PenstockError("which command runs one consumer? Name it last: penstock control … -- python consumer.py")
    # The monitors report what matters of Kafka; the gateway is asked each second.
    configure_log({"kafka": logging.CRITICAL, "httpx": logging.WARNING})
    by_scaler = parse_settings(settings or ())
    acting = parse_scaler(scaler, by_scaler)
    others = [parse_scaler(name.strip(), by_scaler) for name in shadows.split(",") if name.strip()]
    acting, *others = (with_slo(each, slo) for each in (acting, *others))
    controller: AttachedController
    if names:
        from controller.control.functions import FunctionsController
        from controller.control.gateway_login import with_login
        from controller.control.gateway_metrics import open_counters

        url = with_login(gateway or Endpoints().require("gateway"))
        controller = FunctionsController(
            gateway=url,
            counters=partial(open_counters, url, metrics=metrics, prometheus=prometheus),
            functions=names,
            scaler=acting,
            shadows=others,
            max_replicas=max_replicas or MOST_FUNCTIONS,
            slo_s=slo,
            tick_phase_s=tick_phase,
        )
    else:
        from controller.control.group import GroupController

        controller = GroupController(
            kafka=kafka,
            topic=topic,
            group=group,
            scaler=acting,
            shadows=others,
            command=command or (),
            initial_replicas=initial_replicas,
            max_replicas=max_replicas,
            slo_s=slo,
            tick_phase_s=tick_phase,
            grace_s=grace,
        )
    on_termination(controller.clock.stop)
    controller.run()
