"""Locust's side of a load session: it starts the session, shows its results and fleet, and has its workers send."""

import contextlib
import logging
import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

import msgspec
from locust.exception import RPCError
from locust.runners import STATE_MISSING, MasterRunner

from penstock.clock import NANOS_PER_SECOND
from penstock.rundir import RunDirectory
from producers.load_options import command_line
from producers.locust_bridge import Bridge
from producers.locust_messages import Batch, Ended, Fleet, Sent, Started, Trouble, read_message
from producers.locust_worker import SEND, STOP

log = logging.getLogger("penstock")

MAX_USERS: Final = 100
"""Users at the peak; Locust warns about more a second."""
END_S: Final = 180.0
"""How long a Stop waits for events in flight."""
CLEAN_S: Final = 120.0
"""How long it then waits for the session to clean up."""
POLL_S: Final = 1.0
REPORT: Final = "experiments.load_report"
"""Module that judges a finished session and writes its report."""


class Load:
    """The current session, if any. Its command is in PENSTOCK_LOAD_SESSION. Workers, if there are any, send.
    ``report``: file or trouble of the last session's report.
    """

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.started: Started | None = None
        self.over = False
        self.senders: Senders | None = None
        self.fleet: Fleet | None = None
        self.report = ""
        self._bridge: Bridge | None = None
        self._listener: threading.Thread | None = None
        self._stopping = False

    def start(self, environment: Any) -> None:
        """Start a session with the page's options, once the previous one is over."""
        if self._listener is not None:
            self._listener.join()
        self.started, self.senders, self.over, self._stopping = None, None, False, False
        self.fleet, self.report, self._bridge = None, "", None
        command = shlex.split(os.environ.get("PENSTOCK_LOAD_SESSION", ""))
        if not command:
            self._fail(environment, 'PENSTOCK_LOAD_SESSION is not set: `penstock load`, or `eval "$(penstock env)"`')
            self.over = True
            return
        command += command_line(environment.parsed_options)
        if isinstance(environment.runner, MasterRunner):
            self.senders = Senders(environment.runner)
            command += ["--senders", str(len(self.senders))]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if self.senders is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, args=(environment, self.process), daemon=True)
        self._listener.start()

    def stop(self) -> None:
        """Stop sending and wait for events in flight. Concurrent callers wait as well."""
        process, listener = self.process, self._listener
        if process is None or listener is None:
            return
        if process.poll() is None and not self._stopping:
            self._stopping = True
            log.info("stopping: waiting for events in flight")
            if self.senders is not None:
                self.senders.stop()
            process.terminate()
        listener.join(timeout=END_S)
        if process.poll() is None:
            log.warning("events are still in flight after %g s: giving up", END_S)
            process.terminate()
            listener.join(timeout=CLEAN_S)
        if process.poll() is None:
            process.kill()
        process.wait()
        if self.process is process:
            self.process = None
            self.over = False  # the shape is asked before the next session starts

    def rows(self) -> list[dict[str, str]]:
        """The fleet's figures for the page, as text; unknown ones are dashes."""
        seen, bridge = self.fleet, self._bridge
        within = f"{100 * bridge.within / bridge.results:.2f} %" if bridge is not None and bridge.results else "–"
        figures = {
            "second of the schedule": "–" if seen is None else f"{seen.time_s:.0f}",
            "replicas": "–" if seen is None else str(seen.replicas),
            "lag (events)": "–" if seen is None or seen.lag is None else f"{seen.lag:,}",
            "results within the SLO": within,
            "report": self.report or "after the session",
        }
        return [{"figure": name, "value": value} for name, value in figures.items()]

    def rate_now(self) -> int:
        """Events that the schedule has in this second; 0 before the start."""
        if self.started is None:
            return 0
        second = (time.time_ns() - self.started.start_ns) // NANOS_PER_SECOND
        return self.started.per_second[second] if 0 <= second < len(self.started.per_second) else 0

    def events_per_user(self) -> int:
        """Events per second that one user stands for, so that there are ``MAX_USERS`` at the peak."""
        peak = max(self.started.per_second, default=1) if self.started is not None else 1
        return max(1, -(-peak // MAX_USERS))

    def _fail(self, environment: Any, message: str) -> None:
        log.error("%s", message)
        environment.stats.log_error("", "load session", message)
        environment.process_exit_code = 2

    def _listen(self, environment: Any, process: "subprocess.Popen[bytes]") -> None:
        bridge = self._bridge = Bridge(environment.stats)
        ended, left = False, 0
        for line in process.stdout or ():
            match read_message(line):
                case Batch() as batch:
                    bridge.add(batch)
                case Fleet() as fleet:
                    self.fleet = fleet
                case Started() as started:
                    self.started = started
                    log.info("%s: running; one user is %d events/s", started.directory, self.events_per_user())
                    if self.senders is not None:
                        self.senders.start(Path(started.directory), process)
                case Ended(issued_share, p99_s, in_flight):
                    delay = "" if p99_s is None else f", send delay p99 {1000 * p99_s:.3g} ms"
                    ended, left = p99_s is not None, in_flight
                    log.info("ended: %.2f %% of the schedule sent%s", 100 * issued_share, delay)
                case Trouble(message):
                    self._fail(environment, message)
        process.wait()
        if ended and self.started is not None:
            self._write_report(Path(self.started.directory), left)
        self.over = True

    def _write_report(self, directory: Path, left: int) -> None:
        """Judge the finished session as any run, and tell where its report is."""
        done = subprocess.run(
            [sys.executable, "-m", REPORT, str(directory), str(left)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        said = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
        self.report = said[-1] if said else f"exit code {done.returncode}"
        log.log(logging.INFO if done.returncode == 0 else logging.WARNING, "report: %s", self.report)


class Senders:
    """The workers connected when a session began. Each gets a shard of the schedule, the session their outcomes."""

    def __init__(self, runner: MasterRunner) -> None:
        self._runner = runner
        self._workers = dict(enumerate(ready_workers(runner)))
        self._pending = set(self._workers)
        self._stopping = False
        self._directory: Path | None = None
        self._session: subprocess.Popen[bytes] | None = None

    def __len__(self) -> int:
        return len(self._workers)

    def start(self, directory: Path, session: "subprocess.Popen[bytes]") -> None:
        """Have each worker send its shard of the run in ``directory``; report to ``session`` on its standard input."""
        self._directory, self._session = directory, session
        if self._stopping:
            for number in tuple(self._pending):
                self._report(Sent(number))
            return
        run = RunDirectory(directory)
        files = {file.name: file.read_bytes() for file in (run.spec_file, run.schedule_file)}
        for number in self._workers:
            shard = f"{number}/{len(self)}"
            self._message(number, SEND, {"run": directory.name, "number": number, "shard": shard, "files": files})
        threading.Thread(target=self._watch, daemon=True).start()

    def stop(self) -> None:
        """Have the workers send nothing more."""
        self._stopping = True
        if self._directory is not None:
            for number in tuple(self._pending):
                self._message(number, STOP, {"run": self._directory.name})

    def receive(self, msg: Any, **_: Any) -> None:
        """A worker's outcome. A worker that was given up, or one of another run, is ignored."""
        outcome, number = msg.data, msg.data["number"]
        if self._directory is None or outcome["run"] != self._directory.name or number not in self._pending:
            return
        if not outcome["deliveries"]:
            self._report(Sent(number, trouble=outcome["trouble"]))
            return
        file = self._directory / f"delivery-{number}.parquet"
        try:
            file.write_bytes(outcome["deliveries"])
        except OSError as error:
            self._report(Sent(number, trouble=f"its deliveries cannot be written: {error}"))
        else:
            self._report(Sent(number, file.name))

    def _watch(self) -> None:
        """Give up a worker that is missing twice in a row: one that was stopped is missing for a moment."""
        assert self._directory is not None
        before: set[int] = set()
        while self._pending:
            nodes = {number: self._runner.clients.get(self._workers[number]) for number in self._pending}
            missing = {number for number, node in nodes.items() if node is None or node.state == STATE_MISSING}
            for number in missing & before:
                self._message(number, STOP, {"run": self._directory.name})  # in case it comes back
                self._report(Sent(number, trouble="it was lost; only results show what it had sent"))
            before = missing
            time.sleep(POLL_S)

    def _message(self, number: int, message: str, data: dict[str, Any]) -> None:
        try:
            self._runner.send_message(message, data, self._workers[number])
        except RPCError as error:
            log.warning("sender %d: %s", number, error)

    def _report(self, sent: Sent) -> None:
        if sent.sender not in self._pending:
            return
        self._pending.remove(sent.sender)
        if self._session is not None and self._session.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._session.stdin.write(msgspec.json.encode(sent) + b"\n")
                self._session.stdin.flush()


def ready_workers(runner: MasterRunner) -> list[str]:
    """Ids of the connected workers."""
    clients = runner.clients
    return [node.id for nodes in (clients.ready, clients.spawning, clients.running) for node in nodes]
