"""The pipeline manager's process: ``python -m functions.dataflow --run DIR``, with the endpoints in the environment.

The pipeline is that of the run's system or of a JSON file (``--pipeline``); requests come from the run's events topic
or another ``--connector``. When ready it writes ``dataflow-ready`` into the run directory (``{"ready": true,
"pipeline": …, "url": …}``). At SIGTERM it finishes the calls in progress and leaves other requests to a successor.
"""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from functions.dataflow.connectors.connector import Connector
from functions.dataflow.flow import Patience
from functions.dataflow.graph import Pipeline
from functions.dataflow.manager import PipelineManager
from penstock.errors import PenstockError
from penstock.function_messages import RETRY_S
from penstock.process_main import configure_log, process_parser, run_main, take_precedence
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.settings import Endpoints
from penstock.systems import FunctionSystem

log = logging.getLogger("dataflow")

CONNECTORS: Final = ("kafka", "rabbitmq", "http")
READY_FILE: Final = "dataflow-ready"


def pipeline_of(spec: RunSpec, file: Path | None) -> Pipeline:
    """The pipeline of a run, from ``file`` if given. PenstockError if its functions are not those of the run."""
    if not isinstance(spec.system, FunctionSystem):
        raise PenstockError(f"{spec.run}: its fleet is {type(spec.system).__name__}, a pipeline was expected")
    if file is None:
        return Pipeline.of_system(spec.pipeline, spec.system)
    pipeline = Pipeline.read(file)
    ours, theirs = {function.name for function in spec.system.functions}, set(pipeline.names)
    if ours != theirs:
        raise PenstockError(
            f"{file}: functions {', '.join(sorted(theirs))}, but run {spec.run} scales {', '.join(sorted(ours))}"
        )
    return pipeline


def make_connector(kind: str, spec: RunSpec, endpoints: Endpoints, listen: str, seen: Mapping[str, int]) -> Connector:
    """The connector of that kind; only its own client library is imported."""
    if kind == "kafka":
        from functions.dataflow.connectors.kafka import KafkaConnector

        return KafkaConnector(
            bootstrap=endpoints.require("kafka"),
            topic=spec.events_topic,
            group=spec.group,
            partitions=spec.partitions,
            client_id=f"{spec.run}-dataflow",
            seen=seen,
        )
    if kind == "rabbitmq":
        from functions.dataflow.connectors.rabbitmq import RabbitConnector
        from penstock.adapters.amqp import main_queue

        return RabbitConnector(
            url=endpoints.require("rabbitmq"), queue=main_queue(spec.run), name=f"{spec.run}:dataflow"
        )
    from functions.dataflow.connectors.http import HttpConnector

    host, _, port = listen.rpartition(":")
    return HttpConnector(host or "127.0.0.1", int(port))


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = process_parser("functions.dataflow", "The pipeline manager of a run.")
    parser.add_argument("--pipeline", type=Path, help="JSON file of the pipeline; default: the run's functions")
    parser.add_argument("--connector", choices=CONNECTORS, default="kafka", help="where requests come from")
    parser.add_argument("--listen", default="127.0.0.1:0", help="host:port of the connector http; port 0: any free one")
    parser.add_argument("--attempts", type=int, default=Patience.attempts, help="calls before a request is given up")
    parser.add_argument("--timeout-s", type=float, default=Patience.timeout_s, help="seconds that a call may take")
    options = parser.parse_args(arguments)
    if options.attempts < 1 or not options.timeout_s > 0:
        raise PenstockError(
            f"--attempts {options.attempts}, --timeout-s {options.timeout_s:g}: expected at least 1 and above 0"
        )
    if not options.listen.rpartition(":")[2].isdecimal():
        raise PenstockError(f"--listen {options.listen}: expected host:port")
    return options


async def _serve(directory: RunDirectory, spec: RunSpec, endpoints: Endpoints, options: argparse.Namespace) -> None:
    def ready() -> None:
        said = {"ready": True, "pipeline": manager.pipeline.name, "url": manager.connector.url}
        directory.write(directory.path / READY_FILE, said)
        log.info("ready: %s, requests from %s", ", ".join(manager.pipeline.names), options.connector)

    connector = partial(make_connector, options.connector, spec, endpoints, options.listen)
    patience = Patience(attempts=options.attempts, timeout_s=options.timeout_s, rest_s=RETRY_S / spec.speed)
    manager = PipelineManager(spec, pipeline_of(spec, options.pipeline), endpoints, connector, patience)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, manager.stop)
    await manager.run(ready)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 after SIGTERM, 2 with one line for an error that the user can correct."""
    take_precedence()
    configure_log()

    def work() -> None:
        options = _arguments(arguments)
        directory = RunDirectory.open(options.run.absolute())
        asyncio.run(_serve(directory, directory.spec(), Endpoints(), options))

    return run_main(work)


if __name__ == "__main__":
    sys.exit(main())
