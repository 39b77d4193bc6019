"""Locust as a page for load sessions: ``locust -f producers/locustfile.py``, or without a page, with ``--headless``.

Locust sends nothing. Its Start begins a load session (``producers.locust_session``, a process of its own): a schedule
made beforehand, an open-loop sender, a fleet under the chosen scaler. Its Stop ends the sending. The figures on the
page are those of the events, from their intended times, in Penstock's log buckets; an event that misses the SLO is a
failure. A "user" stands for a number of events per second that the schedule has at that moment, so that the page's
curve of users is the load that was asked for.
"""

import logging
import subprocess
import sys
import threading
import time
from typing import Any, Final

from locust import LoadTestShape, User, events, task  # first: it makes the standard library gevent's

from penstock.clock import NANOS_PER_SECOND
from penstock.registry import scaler_names
from producers.locust_bridge import Bridge, use_log_buckets
from producers.locust_messages import Batch, Ended, Started, Trouble, understand

log = logging.getLogger("penstock")

MOST_USERS: Final = 100
"""At the peak; Locust warns of more a second."""
END_S: Final = 180.0
"""How long a Stop waits for what was sent."""
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
    """The session that is being played, if any."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.started: Started | None = None
        self.over = False
        self._listener: threading.Thread | None = None

    def start(self, environment: Any) -> None:
        """Begin a session with what the page says."""
        options = environment.parsed_options
        arguments = [text for name, (flag, _, _) in OPTIONS.items() for text in (flag, str(getattr(options, name)))]
        self.started, self.over = None, False
        self.process = subprocess.Popen(
            [sys.executable, "-m", "producers.locust_session", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._listener = threading.Thread(target=self._listen, args=(environment, self.process), daemon=True)
        self._listener.start()

    def stop(self) -> None:
        """Send nothing more, wait for what was sent."""
        process, self.process = self.process, None
        if process is None or self._listener is None:
            return
        if process.poll() is None:
            log.info("stopping: what was sent is waited for")
            process.terminate()
        self._listener.join(timeout=END_S)
        if process.poll() is None:
            process.kill()
        process.wait()
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


load = Load()


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
        return max(1, round(load.rate_now() / load.events_a_user())), float(MOST_USERS)


def add_options(parser: Any) -> None:
    """What the page asks for."""
    for name, (flag, default, text) in OPTIONS.items():
        choices = scaler_names() if name == "scaler" else None
        parser.add_argument(flag, dest=name, type=type(default), default=default, help=text, choices=choices)


def begin(environment: Any, **_: Any) -> None:
    """Start on the page, or at once without one."""
    load.start(environment)


def finish(environment: Any, **_: Any) -> None:
    """Stop on the page, the end of the session, or Ctrl-C."""
    del environment
    load.stop()


hooks: Any = events  # Locust's hooks have no types
hooks.init_command_line_parser.add_listener(add_options)
hooks.test_start.add_listener(begin)
hooks.test_stop.add_listener(finish)
hooks.quitting.add_listener(finish)
