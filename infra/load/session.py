"""One load session: ``python -m infra.load.session --workload … --scaler …``, a run that Locust's page starts.

Its directory is complete in the end, as that of any run: `experiments.load_report` judges it.

It reports progress on standard output (``producers.locust_messages``). SIGTERM ends the sending; events in flight are
still waited for. A second SIGTERM ends that wait, too. Needs running services (`penstock up`).

With ``--senders N``, N workers of Locust send, and their outcomes arrive on standard input.
"""

import argparse
import math
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from controller.journal import JournalTail
from infra.kubernetes.services import ClusterServices
from infra.local.services import LocalServices
from infra.runs.context import RunContext
from infra.runs.kinds import local_run, pod_run
from infra.runs.pods import CONTROLLER, require_idle
from infra.runs.programs import SenderProgram
from infra.runs.run import Run
from penstock.durations import duration_s
from penstock.errors import PenstockError
from penstock.parameters import parse_settings
from penstock.registry import parse_scaler
from penstock.rundir import LOAD_SESSION, RunDirectory
from penstock.runspec import RunSpec
from penstock.schedule import Schedule
from penstock.settings import Folders
from producers.delivery import DeliveryLog, SenderFigures, figures_of
from producers.load_options import OPTIONS, add_options
from producers.locust_messages import Ended, Fleet, Sent, Started, Trouble, write_message
from producers.schedule import make_schedule
from producers.shard import Shard
from producers.workloads import parse_workload
from producers.workloads.catalogue import AtRate

GRACE_S: Final = 60.0
FOLLOW_S: Final = 1.0


class StoppedError(Exception):
    """SIGTERM came before anything was sent, or a second time."""


class LocustSenders(SenderProgram):
    """Locust starts and stops its workers; each one's outcome arrives as a line (``Sent``) on standard input."""

    lead_s = 6.0
    """From the decision to start to offset 0: Locust gives its workers the schedule meanwhile."""

    def __init__(self, context: RunContext, schedule: Schedule, count: int) -> None:
        super().__init__(context)
        self._schedule = schedule
        self._count = count

    def start(self) -> None:
        """Nothing to do: Locust is notified of the start."""

    def stop(self) -> None:
        """Nothing to do: Locust stops its workers."""

    def check(self) -> None:
        """Nothing to do: Locust reports a lost worker."""

    def wait(self, timeout_s: float) -> None:
        """Wait until all workers have ended, and write their deliveries as the run's. ``timeout_s`` is not used: Locust
        reports every worker, also a lost one.
        """
        del timeout_s
        if self._context.directory.delivery_file.exists():
            return
        deliveries = [self._deliveries(sent) for sent in self._reports()]
        table = pa.concat_tables(deliveries).sort_by("id")
        pq.write_table(table, self._context.directory.delivery_file, compression="zstd")

    def _reports(self) -> list[Sent]:
        reports = [msgspec.json.decode(line, type=Sent) for line in islice(sys.stdin.buffer, self._count)]
        if len(reports) < self._count:
            raise PenstockError(f"Locust has ended: {len(reports)} of {self._count} senders had reported")
        return reports

    def _deliveries(self, sent: Sent) -> pa.Table:
        """A worker's deliveries; those of a worker without any say why."""
        if sent.deliveries:
            file = self._context.directory.path / sent.deliveries
            table = pq.read_table(file)
            file.unlink()
            return table
        if sent.trouble:
            write_message(Trouble(f"sender {sent.sender} of {self._count}: {sent.trouble}"))
        unsent = DeliveryLog(self._context.spec, self._schedule, Shard(sent.sender, self._count))
        return unsent.table(unsent=sent.trouble or "not sent: the sender was stopped before its time")


class Session:
    """A run whose sending can be stopped. ``senders``: workers of Locust; 0: one local sender."""

    def __init__(self, run: Run, schedule: Schedule, senders: int = 0) -> None:
        self._run = run
        self._schedule = schedule
        if senders:
            run.sender = LocustSenders(run.context, schedule, senders)
        self._sending = self._stopped = self._ending = False
        self._collected = False
        self.left = 0

    def stop(self, *_: object) -> None:
        """Send nothing more; when called again, do not wait for events in flight either. A signal handler; without
        effect while the session cleans up.
        """
        if self._ending:
            return
        again, self._stopped = self._stopped, True
        if again or not self._sending:
            raise StoppedError
        self._run.sender.stop()

    def run(self) -> SenderFigures:
        """Start the fleet, send, wait for the last result; stop and clean up whatever happens."""
        with ExitStack() as ending:
            ending.callback(self._run.close)
            try:
                self._run.prepare()
                ending.callback(self._stop_run)
                ending.enter_context(results_reader(self._run.context))
                with followed(self._run.context.directory):
                    self._send_and_drain()
                self._collected = True
                self._run.collect()
            finally:
                self._ending = True
        return figures_of(pq.read_table(self._run.context.directory.delivery_file))

    def _stop_run(self) -> None:
        """In order, unless the run was collected, which stops it: the controller's pod can be stopped once."""
        if not self._collected:
            self._run.stop()

    def _send_and_drain(self) -> None:
        spec = self._run.start()
        self._sending = True
        per_second = tuple(self._schedule.arrivals_per_second().tolist())
        write_message(Started(str(self._run.context.directory.path), spec.start_ns, per_second))
        try:
            self._run.sender.wait(math.inf)
        except PenstockError:
            if self._stopped:  # before the sender had read its schedule
                raise StoppedError from None
            raise
        self.left = self._run.drain()


@contextmanager
def followed(directory: RunDirectory) -> Iterator[None]:
    """Report the newest tick of the run's journal once a second."""
    over = threading.Event()
    journal = JournalTail(directory.decisions_file)

    def follow() -> None:
        told = -1
        while not over.wait(FOLLOW_S):
            journal.read()
            if journal.ticks and (newest := journal.ticks[-1]).tick != told:
                told, seen = newest.tick, newest.observation
                write_message(Fleet(newest.time_s, seen.replicas.current, seen.backlog))

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def results_reader(context: RunContext) -> Iterator[None]:
    """A process that reads the run's results and reports them on this process' standard output.

    It holds a pipe whose other end only this process has: however this process ends, the reader observes its end. If a
    signal ends the reader, which it cannot report itself, that is reported here.
    """
    with context.log("results").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "producers.locust_results", "--run", str(context.directory.path)],
            stdin=subprocess.PIPE,
            stdout=sys.stdout.fileno(),
            stderr=log,
            env=context.environment,
            start_new_session=True,
        )
    ending = threading.Event()

    def tell_of_its_end() -> None:
        if process.wait() <= 0 and not ending.is_set():  # with a code above 0, the reader has told its error
            write_message(Trouble("results are not read any longer: a signal has ended their reader"))

    waiting = threading.Thread(target=tell_of_its_end, daemon=True)
    waiting.start()
    try:
        yield
    finally:
        ending.set()
        process.terminate()
        waiting.join(GRACE_S)
        process.kill()
        waiting.join()
        process.stdin.close()  # type: ignore[union-attr]  # a pipe


def prepare(arguments: argparse.Namespace, alone: ExitStack) -> Session:
    """The requested session, with its schedule. No other run begins until ``alone`` is closed. Raise PenstockError in
    one line for what cannot be run, and while another run is active.
    """
    local = LocalServices.from_settings()
    services = ClusterServices(local) if arguments.world == "kubernetes" else local
    services.endpoints()  # raises where nothing is up
    scaler = parse_scaler(arguments.scaler, parse_settings(arguments.settings.split()))
    shape = parse_workload(arguments.workload)
    from_s, seconds, slo_s = (_duration_s(arguments, name) for name in ("from_s", "seconds", "slo"))
    schedule = make_schedule(
        AtRate(arguments.workload, arguments.rate) if arguments.rate else shape,
        arrivals=shape.arrivals,
        seed=arguments.seed,
        partitions=arguments.partitions,
        from_s=from_s,
        seconds=seconds or None,
    )
    if isinstance(services, ClusterServices):
        require_idle(services.kubectl, CONTROLLER)  # `penstock load` has the state folder for itself
    else:
        alone.enter_context(local.state.running())
    directory = RunDirectory.create(Folders().runs.absolute(), LOAD_SESSION, scaler.name)
    spec = RunSpec(
        run=directory.name,
        experiment=LOAD_SESSION,
        world=arguments.world,
        scaler=scaler,
        seed=arguments.seed,
        partitions=arguments.partitions,
        max_replicas=arguments.partitions,
        slo_s=slo_s,
        duration_s=schedule.duration_s,
        workload=schedule.description,
        analytics=False,
    )
    directory.write(directory.spec_file, spec)
    schedule.write(directory.schedule_file)
    run = (
        pod_run(services, spec, directory)
        if isinstance(services, ClusterServices)
        else local_run(services, spec, directory)
    )
    return Session(run, schedule, arguments.senders)


def _duration_s(arguments: argparse.Namespace, name: str) -> float:
    """The option in seconds; PenstockError that names its flag."""
    text = str(getattr(arguments, name))
    try:
        seconds = duration_s(text)
    except typer.BadParameter as error:
        raise PenstockError(f"{OPTIONS[name][0]} {error.message}") from None
    if name == "slo" and not seconds:
        raise PenstockError(f"--slo {text}: has to be more than 0")
    return seconds


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line: the fields of Locust's page, and who sends where."""
    parser = argparse.ArgumentParser(prog="python -m infra.load.session", description=__doc__)
    add_options(parser)
    parser.add_argument("--world", default="local", choices=("local", "kubernetes"), help="where the replicas run")
    parser.add_argument("--senders", type=int, default=0, help="workers of Locust that send; 0: one local sender")
    return parser.parse_args(arguments)


def main() -> None:
    """Entry point. An error is reported as ``Trouble``, with exit code 2."""
    arguments = parse()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller ends this process by SIGTERM
    try:
        with ExitStack() as alone:
            session = prepare(arguments, alone)
            signal.signal(signal.SIGTERM, session.stop)
            figures = session.run()
    except StoppedError:
        write_message(Ended(0.0, None))
    except (PenstockError, OSError) as error:
        write_message(Trouble(str(error)))
        sys.exit(2)
    else:
        write_message(Ended(figures.issued_share, figures.send_delay_p99_s, session.left))


if __name__ == "__main__":
    main()
