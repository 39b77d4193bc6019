"""The sender's process: ``python -m producers.send --run DIR`` plays a run's schedule, or with ``--share`` one of
several senders' part of it, and writes its deliveries.

SIGTERM ends sending; what was sent is still waited for and written. The last line on standard output is the sender's
figures (``SenderFigures``) as JSON.
"""

import argparse
import signal
import sys
from pathlib import Path

from prometheus_client import REGISTRY

from penstock.errors import PenstockError
from penstock.exposition import expose
from penstock.priority import take_precedence
from penstock.records import encode
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from penstock.settings import Endpoints
from penstock.systems import NetworkSystem, QueueSystem
from producers.delivery import SenderFigures
from producers.exposition import SenderMetrics
from producers.rabbit import RabbitSender
from producers.sender import Sender, make_producer
from producers.share import WHOLE, Share


def send(directory: RunDirectory, endpoints: Endpoints, share: Share = WHOLE) -> SenderFigures:
    """Send the run in ``directory`` from its ``start_ns`` on, wait for all reports, write ``delivery.parquet``.

    Has to be called in the main thread. Raises PenstockError where the run, the endpoints or the topic are not there.
    """
    spec = directory.spec()
    if not spec.start_ns:
        raise PenstockError(f"{directory.spec_file}: start_ns is not set; the world sets it when it starts the run")
    schedule = Schedule.read(directory.schedule_file)
    signing_key = endpoints.signing_key_bytes()
    sender = make_sender(spec, schedule, signing_key, endpoints, share)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sender.stop())
    sender.check_topic()
    REGISTRY.register(SenderMetrics(sender.log))
    name = f"{spec.run}-sender" + (f"-{share.number}" if share.of > 1 else "")
    expose(name, endpoints.scrape_targets, {"run": spec.run})
    sender.run()
    sender.log.write(directory.delivery_file, unsent="not sent: the sender was stopped before its time")
    return sender.log.figures()


def make_sender(
    spec: RunSpec, schedule: Schedule, signing_key: bytes, endpoints: Endpoints, share: Share = WHOLE
) -> Sender:
    """The sender to the broker on which the run's system lives."""
    if isinstance(spec.system, QueueSystem | NetworkSystem):
        return RabbitSender(spec, schedule, signing_key, endpoints, share)
    return Sender(spec, schedule, signing_key, make_producer(endpoints.require("kafka"), schedule), share)


def main() -> None:
    """Entry point: figures on standard output; an error in one line on standard error and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m producers.send", description=__doc__)
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="run directory with run.json, schedule")
    parser.add_argument("--share", default=str(WHOLE), metavar="K/N", help="of N senders the one with number K, from 0")
    arguments = parser.parse_args()
    take_precedence()
    try:
        figures = send(RunDirectory.open(arguments.run), Endpoints(), Share.parse(arguments.share))
    except PenstockError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
    sys.stdout.write(encode(figures).decode() + "\n")


if __name__ == "__main__":
    main()
