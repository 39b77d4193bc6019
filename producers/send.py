"""The sender's process: ``python -m producers.send --run DIR`` sends a run's schedule, or with ``--shard`` the part of
one of several senders, and writes its deliveries.

SIGTERM ends the sending; delivery reports of events in flight are still waited for. The last line on standard output
is ``SenderFigures`` as JSON.
"""

import sys
from functools import partial

from prometheus_client import REGISTRY

from penstock.adapters.exposition import expose
from penstock.adapters.kafka import Stall
from penstock.errors import PenstockError
from penstock.process_main import on_termination, process_parser, run_main, take_precedence
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
from producers.shard import WHOLE, Shard

BROKER_PATIENCE_S = 60.0
"""A broker that is away when the sender starts may be in a fault that ends."""


def send(directory: RunDirectory, endpoints: Endpoints, shard: Shard = WHOLE) -> SenderFigures:
    """Send the run in ``directory`` from its ``start_ns`` on, wait for all reports, write ``delivery.parquet``.

    Has to be called in the main thread. Raises PenstockError where the run, the endpoints or the topic are not there.
    """
    spec = directory.spec()
    if not spec.start_ns:
        raise PenstockError(f"{directory.spec_file}: start_ns is not set; the world sets it when it starts the run")
    schedule = Schedule.read(directory.schedule_file)
    signing_key = endpoints.signing_key_bytes()
    sender = make_sender(spec, schedule, signing_key, endpoints, shard)
    on_termination(sender.stop)
    sender.check_topic(BROKER_PATIENCE_S)
    REGISTRY.register(SenderMetrics(sender.log))
    name = f"{spec.run}-sender" + (f"-{shard.number}" if shard.of > 1 else "")
    expose(name, endpoints.scrape_targets, {"run": spec.run})
    sender.run()
    return sender.log.write(directory.delivery_file, unsent="not sent: the sender was stopped before its time")


def make_sender(
    spec: RunSpec, schedule: Schedule, signing_key: bytes, endpoints: Endpoints, shard: Shard = WHOLE
) -> Sender:
    """The sender to the broker on which the run's system lives."""
    if isinstance(spec.system, QueueSystem | NetworkSystem):
        return RabbitSender(spec, schedule, signing_key, endpoints, shard)
    bootstrap = endpoints.require("kafka")
    renew = partial(make_producer, bootstrap, schedule)
    return Sender(spec, schedule, signing_key, renew(), shard, renew=renew, stall=Stall(bootstrap))


def main() -> int:
    """Entry point: figures on standard output; the exit code."""
    parser = process_parser("producers.send", __doc__ or "")
    parser.add_argument("--shard", default=str(WHOLE), metavar="K/N", help="of N senders the one with number K, from 0")
    given = parser.parse_args()
    take_precedence()

    def work() -> None:
        figures = send(RunDirectory.open(given.run), Endpoints(), Shard.parse(given.shard))
        sys.stdout.write(encode(figures).decode() + "\n")

    return run_main(work)


if __name__ == "__main__":
    sys.exit(main())
