"""Locust as a page for load sessions: ``locust -f producers/locustfile.py``, or without a page, with ``--headless``.

Locust sends nothing. Its Start begins a load session (``producers.locust_session``, a process of its own): a schedule
made beforehand, an open-loop sender, a fleet under the chosen scaler. Its Stop ends the sending. The figures on the
page are those of the events, from their intended times, in Penstock's log buckets; an event that misses the SLO is a
failure. A "user" stands for a number of events per second that the schedule has at that moment, so that the page's
curve of users is the load that was asked for.

Distributed (``--master`` and several ``--worker``), each worker plays a share of the schedule with a sender of its own.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

import msgspec
from locust import LoadTestShape, User, events, task  # first: it makes the standard library gevent's
from locust.exception import RPCError
from locust.runners import STATE_MISSING, MasterRunner, WorkerRunner

from penstock.clock import NANOS_PER_SECOND
from penstock.registry import scaler_names
from penstock.rundir import RunDirectory
from producers.locust_bridge import Bridge, use_log_buckets
from producers.locust_messages import Batch, Ended, Sent, Started, Trouble, understand

log = logging.getLogger("penstock")

MOST_USERS: Final = 100
"""At the peak; Locust warns of more a second."""
END_S: Final = 180.0
"""How long a Stop waits for what was sent."""
CLEAN_S: Final = 120.0
"""How long it then waits for the session to put things away."""
LEAVE_S: Final = 10.0
"""How long a worker that ends waits for its sender; its pod is killed after 15 s."""
WATCH_S: Final = 1.0
WORDS: Final = 500
"""Of what a sender said last, characters."""
SESSION: Final = os.environ.get("PENSTOCK_LOAD_SESSION", "producers.locust_session")
"""The program of a load session; another one for a fleet of pods."""
PLAY, STOP, SENT = "penstock-play", "penstock-stop", "penstock-sent"
"""Messages between Locust's master and workers."""
OPTIONS: Final[dict[str, tuple[str, Any, str]]] = {
    "workload": ("--workload", "binpack-workload-1", "as `penstock workloads` has them; your own: trace:path=FILE.csv"),
    "rate": ("--rate", 0.0, "mean events per second; 0: the workload's own"),
    "from_s": ("--from", 0.0, "first second of the workload to play"),
    "seconds": ("--seconds", 0.0, "seconds of it to play; 0: to its end"),
    "slo": ("--slo", 0.5, "SLO in seconds, from the intended time"),
    "scaler": ("--scaler", "binpack-tail", "who scales the consumers"),
    "settings": ("--set", "", "scaler.parameter=value, with blanks between them"),
    "partitions": ("--partitions", 5, "partitions of the topic, and the most replicas"),
    "seed": ("--seed", 1, "seed of every draw"),
}
"""By name: flag, default, help; those of ``producers.locust_session``."""

use_log_buckets()


class Load:
    """The session that is being played, if any. Where Locust is distributed, its workers send: ``Senders``."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.started: Started | None = None
        self.over = False
        self.senders: Senders | None = None
        self._listener: threading.Thread | None = None
        self._stopping = False

    def start(self, environment: Any) -> None:
        """Begin a session with what the page says, once the one before is over."""
        if self._listener is not None:
            self._listener.join()
        options = environment.parsed_options
        arguments = [text for name, (flag, _, _) in OPTIONS.items() for text in (flag, str(getattr(options, name)))]
        self.started, self.senders, self.over, self._stopping = None, None, False, False
        if isinstance(environment.runner, MasterRunner):
            self.senders = Senders(environment.runner)
            arguments += ["--senders", str(len(self.senders))]
        self.process = subprocess.Popen(
            [sys.executable, "-m", SESSION, *arguments],
            stdin=subprocess.DEVNULL if self.senders is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, args=(environment, self.process), daemon=True)
        self._listener.start()

    def stop(self) -> None:
        """Send nothing more, wait for what was sent. Whoever calls this meanwhile waits as well."""
        process, listener = self.process, self._listener
        if process is None or listener is None:
            return
        if process.poll() is None and not self._stopping:
            self._stopping = True
            log.info("stopping: what was sent is waited for")
            if self.senders is not None:
                self.senders.stop()
            process.terminate()
        listener.join(timeout=END_S)
        if process.poll() is None:
            log.warning("what was sent is not done after %g s: it is given up", END_S)
            process.terminate()
            listener.join(timeout=CLEAN_S)
        if process.poll() is None:
            process.kill()
        process.wait()
        if self.process is process:
            self.process = None
            self.over = False  # the shape is asked before the next session has begun

    def rate_now(self) -> int:
        """Events that the schedule has in this second; 0 before the fleet stands."""
        if self.started is None:
            return 0
        second = (time.time_ns() - self.started.start_ns) // NANOS_PER_SECOND
        return self.started.per_second[second] if 0 <= second < len(self.started.per_second) else 0

    def events_a_user(self) -> int:
        """What one user stands for, so that there are ``MOST_USERS`` at the peak."""
        peak = max(self.started.per_second, default=1) if self.started is not None else 1
        return max(1, -(-peak // MOST_USERS))

    def _listen(self, environment: Any, process: "subprocess.Popen[bytes]") -> None:
        bridge = Bridge(environment.stats, environment.parsed_options.slo)
        for line in process.stdout or ():
            message = understand(line)
            if isinstance(message, Batch):
                bridge.take(message)
            elif isinstance(message, Started):
                self.started = message
                log.info("%s: playing; one user is %d events/s", message.directory, self.events_a_user())
                if self.senders is not None:
                    self.senders.play(Path(message.directory), process)
            elif isinstance(message, Ended):
                delay = (
                    ""
                    if message.send_delay_p99_s is None
                    else f", send delay p99 {1000 * message.send_delay_p99_s:.3g} ms"
                )
                log.info("ended: %.2f %% of the schedule sent%s", 100 * message.issued_share, delay)
            elif isinstance(message, Trouble):
                log.error("%s", message.message)
                bridge.trouble(message.message)
                environment.process_exit_code = 2
        process.wait()
        self.over = True


class Senders:
    """Locust's workers that were there when a session began: each is given a share of its schedule, and the session is
    told what became of it.
    """

    def __init__(self, runner: MasterRunner) -> None:
        self._runner = runner
        self._workers = dict(enumerate(ready_workers(runner)))
        self._waited_for = set(self._workers)
        self._stopping = False
        self._directory: Path | None = None
        self._session: subprocess.Popen[bytes] | None = None

    def __len__(self) -> int:
        return len(self._workers)

    def play(self, directory: Path, session: "subprocess.Popen[bytes]") -> None:
        """Have each play its share of the run in ``directory``; ``session`` is told on its standard input."""
        self._directory, self._session = directory, session
        if self._stopping:
            for number in tuple(self._waited_for):
                self._tell(Sent(number))
            return
        run = RunDirectory(directory)
        files = {file.name: file.read_bytes() for file in (run.spec_file, run.schedule_file)}
        for number in self._workers:
            share = f"{number}/{len(self)}"
            self._say(number, PLAY, {"run": directory.name, "number": number, "share": share, "files": files})
        threading.Thread(target=self._watch, daemon=True).start()

    def stop(self) -> None:
        """Have them send nothing more."""
        self._stopping = True
        if self._directory is not None:
            for number in tuple(self._waited_for):
                self._say(number, STOP, {"run": self._directory.name})

    def hear(self, said: dict[str, Any]) -> None:
        """One of them has ended; ``said`` as by ``Worker.play``. What one says that was given up does not count."""
        number = said["number"]
        if self._directory is None or said["run"] != self._directory.name or number not in self._waited_for:
            return
        if not said["deliveries"]:
            self._tell(Sent(number, trouble=said["trouble"]))
            return
        file = self._directory / f"delivery-{number}.parquet"
        try:
            file.write_bytes(said["deliveries"])
        except OSError as error:
            self._tell(Sent(number, trouble=f"its deliveries cannot be written: {error}"))
        else:
            self._tell(Sent(number, msgspec.Raw(said["figures"].encode()), file.name))

    def _watch(self) -> None:
        """A worker that has gone will not say anything. One that was told to stop is gone for a moment."""
        assert self._directory is not None
        before: set[int] = set()
        while self._waited_for:
            nodes = {number: self._runner.clients.get(self._workers[number]) for number in self._waited_for}
            gone = {number for number, node in nodes.items() if node is None or node.state == STATE_MISSING}
            for number in gone & before:
                self._say(number, STOP, {"run": self._directory.name})  # should it come back
                self._tell(Sent(number, trouble="it was lost: what it had sent, its results alone can say"))
            before = gone
            time.sleep(WATCH_S)

    def _say(self, number: int, message: str, data: dict[str, Any]) -> None:
        try:
            self._runner.send_message(message, data, self._workers[number])
        except RPCError as error:
            log.warning("sender %d: %s", number, error)

    def _tell(self, sent: Sent) -> None:
        if sent.sender not in self._waited_for:
            return
        self._waited_for.remove(sent.sender)
        if self._session is not None and self._session.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._session.stdin.write(msgspec.json.encode(sent) + b"\n")
                self._session.stdin.flush()


class Worker:
    """What a worker of Locust's does: it plays its share of a session's schedule."""

    def __init__(self) -> None:
        self._sender: subprocess.Popen[bytes] | None = None
        self._run = ""
        self._stopped: set[str] = set()
        self._idle = threading.Event()
        self._idle.set()

    def play(self, environment: Any, msg: Any, **_: Any) -> None:
        """Send, and tell the master what became of it."""
        said = {"run": msg.data["run"], "number": msg.data["number"], "figures": "", "deliveries": b"", "trouble": ""}
        log.info("sending share %s", msg.data["share"])
        self._idle.clear()
        try:
            said |= self._send(msg.data["run"], msg.data["share"], msg.data["files"])
        except (OSError, subprocess.SubprocessError, LookupError) as error:
            said["trouble"] = f"{type(error).__name__}: {error}"
        finally:
            self._sender = None
            environment.runner.send_message(SENT, said)
            self._idle.set()
        log.info("share %s: %s", msg.data["share"], said["trouble"] or "played")

    def _send(self, run: str, share: str, files: dict[str, bytes]) -> dict[str, Any]:
        self._run = run
        with tempfile.TemporaryDirectory(prefix="share-") as folder:
            directory = RunDirectory(Path(folder))
            for name, content in files.items():
                (directory.path / name).write_bytes(content)
            self._sender = sender = subprocess.Popen(
                [sys.executable, "-m", "producers.send", "--run", folder, "--share", share],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            if run in self._stopped:
                sender.terminate()
            out, err = sender.communicate()
            if sender.returncode == 0:
                figures = out.decode().splitlines()[-1]
                return {"figures": figures, "deliveries": directory.delivery_file.read_bytes()}
            if sender.returncode == -signal.SIGTERM:  # stopped before it had read its schedule
                return {}
            return {"trouble": f"ended with {sender.returncode}: {err.decode(errors='replace').strip()[-WORDS:]}"}

    def stop(self, run: str) -> None:
        """Send nothing more of that run; what was sent is waited for."""
        self._stopped.add(run)
        if self._sender is not None and run == self._run:
            self._sender.terminate()

    def hear_stop(self, msg: Any, **_: Any) -> None:
        """The master says so."""
        self.stop(msg.data["run"])

    def leave(self) -> None:
        """The worker ends: tell what was sent, as long as there is time for that."""
        self.stop(self._run)
        self._idle.wait(LEAVE_S)


def ready_workers(runner: MasterRunner) -> list[str]:
    """Those that are connected."""
    return [
        node.id for nodes in (runner.clients.ready, runner.clients.spawning, runner.clients.running) for node in nodes
    ]


load = Load()
worker = Worker()


class EventsPerSecond(User):
    """Does nothing: it is there to be counted."""

    @task
    def stand_for_events(self) -> None:
        """Sleep until the session ends."""
        time.sleep(3600)


class FollowSchedule(LoadTestShape):
    """As many users as the schedule has events per second (or per ``events_a_user``), until the session is over."""

    def tick(self) -> tuple[int, float] | None:
        """Users now, and how fast to come to them; None ends the test."""
        if load.over:
            return None
        self._await_workers()
        return max(1, round(load.rate_now() / load.events_a_user())), float(MOST_USERS)

    def _await_workers(self) -> None:
        """Before a session begins: the schedule is shared among those who are there by then."""
        told = False
        while load.process is None and isinstance(self.runner, MasterRunner):
            options: Any = self.runner.environment.parsed_options
            expected, there = options.expect_workers, len(ready_workers(self.runner))
            if there >= expected:
                return
            if not told:
                log.info("%d of %d workers are connected: the others are waited for", there, expected)
                told = True
            time.sleep(WATCH_S)


def add_options(parser: Any) -> None:
    """What the page asks for."""
    for name, (flag, default, text) in OPTIONS.items():
        choices = scaler_names() if name == "scaler" else None
        parser.add_argument(flag, dest=name, type=type(default), default=default, help=text, choices=choices)


def acquaint(runner: Any, **_: Any) -> None:
    """What master and workers say to each other about sending. Nothing where Locust is one process."""
    if isinstance(runner, MasterRunner):
        runner.register_message(SENT, hear)
    elif isinstance(runner, WorkerRunner):
        runner.register_message(PLAY, worker.play, concurrent=True)
        runner.register_message(STOP, worker.hear_stop)


def hear(msg: Any, **_: Any) -> None:
    """A worker has ended sending."""
    if load.senders is not None:
        load.senders.hear(msg.data)


def begin(environment: Any, **_: Any) -> None:
    """Start on the page, or at once without one."""
    if not isinstance(environment.runner, WorkerRunner):
        load.start(environment)


def finish(environment: Any, **_: Any) -> None:
    """Stop on the page, the end of the session, or Ctrl-C. A worker's master tells it itself when to stop."""
    if not isinstance(environment.runner, WorkerRunner):
        load.stop()


def leave(environment: Any, **_: Any) -> None:
    """Locust ends."""
    if isinstance(environment.runner, WorkerRunner):
        worker.leave()
    else:
        load.stop()


hooks: Any = events  # Locust's hooks have no types
hooks.init_command_line_parser.add_listener(add_options)
hooks.init.add_listener(acquaint)
hooks.test_start.add_listener(begin)
hooks.test_stop.add_listener(finish)
hooks.quitting.add_listener(leave)
