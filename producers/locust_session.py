"""One load session: ``python -m producers.locust_session --workload … --scaler …`` plays a workload against a fleet.

It makes a run directory with its schedule and topics, has a controller bring up a fleet under the chosen scaler, plays
the schedule open loop (``producers.send``, a process of its own) and has the results read. What happens is told on
standard output (``producers.locust_messages``). SIGTERM ends the sending; what was sent is still waited for. Needs the
local services (`penstock up`) and their addresses in the environment (`eval "$(penstock env)"`).

With ``--senders N`` it does not send itself: Locust has N workers do that, and hands over, a line each on standard
input, what they say at their end.
"""

import argparse
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import IO, ClassVar, Final

import msgspec
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import redis
from confluent_kafka import Consumer, KafkaException, TopicPartition

from penstock.clock import NANOS_PER_SECOND
from penstock.errors import PenstockError
from penstock.registry import parse_scaler, parse_settings
from penstock.rundir import RunDirectory
from penstock.runspec import Arrivals, RunSpec, WorldName
from penstock.schedule import Schedule
from penstock.settings import Endpoints, Folders
from penstock.supervision import Supervisor
from penstock.topics import admin_client, create_topics, delete_topics
from producers.delivery import DeliveryLog, SenderFigures, together
from producers.locust_messages import Ended, Sent, Started, Trouble, tell
from producers.schedule import make_schedule
from producers.share import Share
from producers.workloads.catalogue import parse_workload
from producers.workloads.contract import Floats, Workload, positive, rates_per_s

EXPERIMENT: Final = "load"
LEAD_S: Final = 3.0
"""From the decision to start to offset 0: the sender loads its schedule meanwhile."""
LEAD_TO_SENDERS_S: Final = 6.0
"""The same where senders are elsewhere, which are given the schedule first."""
READY_S: Final = 120.0
DRAIN_STALL_S: Final = 20.0
GRACE_S: Final = 60.0
KAFKA_S: Final = 10.0


class StoppedError(Exception):
    """SIGTERM came before anything was sent."""


@dataclass(frozen=True)
class AtRate:
    """Another workload's shape, scaled to a mean of ``mean_per_s`` events per second."""

    of: str
    mean_per_s: float

    name: ClassVar[str] = "at-rate"
    summary: ClassVar[str] = "another workload's shape at a mean rate of one's own"
    arrivals: ClassVar[Arrivals] = "uniform"
    arrivals_fixed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        positive(mean_per_s=self.mean_per_s)

    @cached_property
    def shape(self) -> Workload:
        """The other workload."""
        return parse_workload(self.of)

    @property
    def duration_s(self) -> float:
        """As the other's."""
        return self.shape.duration_s

    @cached_property
    def factor(self) -> float:
        """What its rates are multiplied by."""
        return self.mean_per_s / float(rates_per_s(self.shape).mean())

    def rate_at(self, time_s: npt.ArrayLike) -> Floats:
        """Its rate, scaled."""
        return self.factor * self.shape.rate_at(time_s)


class Session:
    """From nothing to nothing: ``play`` leaves a run directory, and neither process nor topic. ``senders``: how many
    others send; with 0 it sends itself. Its replicas are processes of the local supervisor.
    """

    world: ClassVar[WorldName] = "local"
    needs: ClassVar[tuple[str, ...]] = ("supervisor",)
    """Of the endpoints, besides Kafka and Redis."""

    def __init__(
        self, spec: RunSpec, directory: RunDirectory, schedule: Schedule, endpoints: Endpoints, senders: int = 0
    ) -> None:
        self.spec, self.directory, self.schedule, self.endpoints = spec, directory, schedule, endpoints
        self._kafka = endpoints.require("kafka")
        self._admin = admin_client(self._kafka)
        self._senders = senders
        self._sender: subprocess.Popen[bytes] | None = None
        self._sending = self._stopped = self._ending = False

    def stop(self, *_: object) -> None:
        """Send nothing more; when told again, do not wait for what was sent either. Takes what a signal handler is
        given. While things are put away it has no effect.
        """
        if self._ending:
            return
        again, self._stopped = self._stopped, True
        if self._sender is not None and not again:
            self._sender.terminate()
        elif again or not self._sending:
            raise StoppedError

    def play(self) -> SenderFigures:
        """Bring the fleet up, send, wait for the last result; everything is ended again on the way out."""
        with ExitStack() as ending:
            try:
                return self._play(ending)
            finally:
                self._ending = True

    def _play(self, ending: ExitStack) -> SenderFigures:
        ending.callback(self.forget)
        create_topics(self._admin, {self.spec.events_topic: self.spec.partitions, self.spec.results_topic: 1})
        ending.callback(delete_topics, self._admin, [self.spec.events_topic, self.spec.results_topic])
        self.bring_up(ending)
        reader = self._start("results", "producers.locust_results", output=sys.stdout.fileno())
        ending.callback(end, reader)
        start_s = math.ceil(time.time() + (LEAD_TO_SENDERS_S if self._senders else LEAD_S))
        self.spec = msgspec.structs.replace(self.spec, start_ns=start_s * NANOS_PER_SECOND)
        self.directory.write(self.directory.spec_file, self.spec)
        self.tell_start()
        per_second = tuple(self.schedule.arrivals_per_second().tolist())
        self._sending = self._senders > 0
        tell(Started(str(self.directory.path), self.spec.start_ns, per_second))
        figures = self._sent_by_others() if self._senders else self._send(ending)
        self._drain()
        return figures

    # --- the fleet ---------------------------------------------------------------------------------------------------

    def bring_up(self, ending: ExitStack) -> None:
        """The controller, which brings up the fleet; returns when that serves. ``ending`` is to end it again."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            plans = f"http://127.0.0.1:{probe.getsockname()[1]}"
        controller = self._start(
            "controller", "controller.main", "--stop-replicas", environment={"PENSTOCK_CONTROLLER": plans}
        )
        ending.callback(end, controller)
        self._await_fleet(controller)

    def tell_start(self) -> None:
        """The run's directory says when it starts: so does it to a controller that looks there."""

    def forget(self) -> None:
        """The run's ledger, and the replicas that a controller left which was killed."""
        self.forget_ledger()
        supervisor = Supervisor(self.endpoints.require("supervisor"))
        for name in supervisor.programs(f"{self.spec.run}:"):
            supervisor.remove(name)

    def forget_ledger(self) -> None:
        """The bookings of this run."""
        redis.Redis.from_url(self.endpoints.require("redis")).delete(self.spec.ledger_key)

    # --- sending -----------------------------------------------------------------------------------------------------

    def _sent_by_others(self) -> SenderFigures:
        """What Locust's workers have sent, once all of them have said so; their deliveries become the run's."""
        figures, deliveries = [], []
        for line in islice(sys.stdin.buffer, self._senders):
            sent = msgspec.json.decode(line, type=Sent)
            if sent.deliveries:
                deliveries.append(pq.read_table(self.directory.path / sent.deliveries))
                (self.directory.path / sent.deliveries).unlink()
                figures.append(msgspec.json.decode(sent.figures, type=SenderFigures))
            else:
                share = Share(sent.sender, self._senders)
                nothing = DeliveryLog(self.spec, self.schedule, share)
                file = self.directory.path / f"delivery-{sent.sender}.parquet"
                nothing.write(file, unsent=sent.trouble or "not sent: the sender was stopped before its time")
                deliveries.append(pq.read_table(file))
                file.unlink()
                figures.append(nothing.figures())
                if sent.trouble:
                    tell(Trouble(f"sender {sent.sender} of {self._senders}: {sent.trouble}"))
        if len(deliveries) < self._senders:
            raise PenstockError(f"Locust has gone: {len(deliveries)} of {self._senders} senders had ended")
        pq.write_table(pa.concat_tables(deliveries).sort_by("id"), self.directory.delivery_file, compression="zstd")
        return together(figures)

    def _send(self, ending: ExitStack) -> SenderFigures:
        """The sender's figures are the last line that it writes."""
        self._sender = self._start("sender", "producers.send", output=subprocess.PIPE)
        ending.callback(end, self._sender)
        said, _ = self._sender.communicate()
        if self._sender.returncode == -signal.SIGTERM:  # stopped before it had read its schedule
            raise StoppedError
        if self._sender.returncode != 0:
            raise PenstockError(f"the sender ended with {self._sender.returncode}: {self._last_words('sender')}")
        return msgspec.json.decode(said.splitlines()[-1], type=SenderFigures)

    def _await_fleet(self, controller: subprocess.Popen[bytes]) -> None:
        until_s = time.monotonic() + READY_S
        while not self.directory.controller_ready_file.exists():
            if controller.poll() is not None:
                raise PenstockError(f"no fleet: {self._last_words('controller')}")
            if time.monotonic() > until_s:
                raise PenstockError(f"no replica has joined within {READY_S:g} s; see {self.directory.logs_folder}")
            time.sleep(0.05)

    def _drain(self) -> None:
        """Until everything that was sent is committed, or nothing has moved for a while."""
        consumer = Consumer({"bootstrap.servers": self._kafka, "group.id": self.spec.group, "log_level": 0})
        sources = [TopicPartition(self.spec.events_topic, number) for number in range(self.spec.partitions)]
        before, moved_s = -1, time.monotonic()
        try:
            while time.monotonic() - moved_s < DRAIN_STALL_S:
                ends = sum(consumer.get_watermark_offsets(source, timeout=KAFKA_S)[1] for source in sources)
                done = sum(max(0, each.offset) for each in consumer.committed(sources, timeout=KAFKA_S))
                if done >= ends:
                    return
                if done != before:
                    before, moved_s = done, time.monotonic()
                time.sleep(0.2)
        except KafkaException as error:
            raise PenstockError(f"Kafka does not answer ({error.args[0].str()})") from None
        finally:
            consumer.close()

    # --- parts -------------------------------------------------------------------------------------------------------

    def _start(
        self,
        name: str,
        module: str,
        *options: str,
        output: int | IO[bytes] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """A module of ours on this run; what it says goes into the run's logs. Signals to us are not for it."""
        with (self.directory.logs_folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module, "--run", str(self.directory.path), *options],
                stdin=subprocess.DEVNULL,
                stdout=log if output is None else output,
                stderr=log,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )

    def _last_words(self, name: str) -> str:
        log = self.directory.logs_folder / f"{name}.log"
        lines = log.read_text(errors="replace").split("\n")
        said = [line for line in lines if line.strip()]
        return f"{said[-1]} ({log})" if said else f"see {log}"


def end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, SIGKILL after a grace."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def prepare(
    arguments: argparse.Namespace, folders: Folders, endpoints: Endpoints, kind: type[Session] = Session
) -> Session:
    """The session that was asked for, with its schedule made. PenstockError in one line for what cannot be played."""
    for name in kind.needs:
        endpoints.require(name)
    scaler = parse_scaler(arguments.scaler, parse_settings(arguments.settings.split()))
    shape = parse_workload(arguments.workload)
    schedule = make_schedule(
        AtRate(arguments.workload, arguments.rate) if arguments.rate else shape,
        arrivals=shape.arrivals,
        seed=arguments.seed,
        partitions=arguments.partitions,
        from_s=arguments.from_s,
        seconds=arguments.seconds or None,
    )
    directory = RunDirectory.create(folders.runs.absolute(), EXPERIMENT, scaler.name)
    spec = RunSpec(
        run=directory.name,
        experiment=EXPERIMENT,
        world=kind.world,
        scaler=scaler,
        seed=arguments.seed,
        partitions=arguments.partitions,
        max_replicas=arguments.partitions,
        slo_s=arguments.slo,
        duration_s=schedule.duration_s,
        workload=schedule.description,
        analytics=False,
    )
    directory.write(directory.spec_file, spec)
    schedule.write(directory.schedule_file)
    return kind(spec, directory, schedule, endpoints, arguments.senders)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line; Locust's page has the same fields."""
    parser = argparse.ArgumentParser(prog="python -m producers.locust_session", description=__doc__)
    parser.add_argument("--workload", required=True, help="name[:parameter=value,…]; see `penstock workloads`")
    parser.add_argument("--rate", type=float, default=0.0, help="mean events per second; 0: the workload's own")
    parser.add_argument("--from", dest="from_s", type=float, default=0.0, help="first second of the workload to play")
    parser.add_argument("--seconds", type=float, default=0.0, help="seconds of it to play; 0: to its end")
    parser.add_argument("--slo", type=float, default=0.5, help="SLO in seconds")
    parser.add_argument("--scaler", default="binpack-tail", help="who scales the consumers")
    parser.add_argument("--set", dest="settings", default="", help="scaler.parameter=value, with blanks between them")
    parser.add_argument("--partitions", type=int, default=5, help="partitions of the topic, and the most replicas")
    parser.add_argument("--seed", type=int, default=1, help="seed of every draw")
    parser.add_argument("--senders", type=int, default=0, help="how many workers of Locust's send; 0: it sends itself")
    return parser.parse_args(arguments)


def main(kind: type[Session] = Session) -> None:
    """Entry point. What goes wrong is told as ``Trouble``; exit code 2."""
    arguments = parse()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us says when
    try:
        session = prepare(arguments, Folders(), Endpoints(), kind)
        signal.signal(signal.SIGTERM, session.stop)
        figures = session.play()
    except StoppedError:
        tell(Ended(0.0, None))
    except (PenstockError, OSError) as error:
        tell(Trouble(str(error)))
        sys.exit(2)
    else:
        tell(Ended(figures.issued_share, figures.send_delay_p99_s))


if __name__ == "__main__":
    main()
