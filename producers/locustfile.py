"""Locust as a page for load sessions: ``locust -f producers/locustfile.py``, or without a page, with ``--headless``.

Locust sends nothing itself. Its Start starts a load session, a process of its own (its command is in
PENSTOCK_LOAD_SESSION): a precomputed schedule, an open-loop sender, a fleet under the chosen scaler. Its Stop ends the
sending. The page shows the latencies of the events, from their intended times, in Penstock's log buckets; an event that
was not completed is a failure. Tab "Fleet" has replicas, lag, the share within the SLO and the report. A "user" stands
for a number of events per second of the schedule, so that the page's curve of users is the requested load.

Distributed (``--master`` and several ``--worker``), each worker sends a shard of the schedule.
"""

import logging
import time
from typing import Any

from locust import LoadTestShape, User, events, task  # first: it makes the standard library gevent's
from locust.runners import MasterRunner, WorkerRunner

from penstock.registry import scaler_names
from producers.load_options import add_options
from producers.locust_bridge import use_log_buckets
from producers.locust_load import MAX_USERS, POLL_S, Load, ready_workers
from producers.locust_page import add_fleet_tab
from producers.locust_worker import SEND, SENT, STOP, Worker

log = logging.getLogger("penstock")

OF_EACH_SECOND = (
    "Shape test updating",
    "Ramping to",
    "Sending spawn jobs",
    "All users spawned",
    "Spawning is complete",
)
"""Beginnings of Locust's lines about users: here some of them start or stop whenever the rate changes."""

use_log_buckets()
load = Load()
worker = Worker()


class EventsPerSecond(User):
    """Does nothing: it is there to be counted. Its host keeps the page from asking for one."""

    host = "Penstock"

    @task
    def stand_for_events(self) -> None:
        """Sleep until the session ends."""
        time.sleep(3600)


class FollowSchedule(LoadTestShape):
    """As many users as the schedule has events per second (or per ``events_per_user``), until the session is over."""

    def tick(self) -> tuple[int, float] | None:
        """Number of users now, and how many may start per second; None ends the test."""
        if load.over:
            return None
        self._await_workers()
        return max(1, round(load.rate_now() / load.events_per_user())), float(MAX_USERS)

    def _await_workers(self) -> None:
        """Before a session starts: the schedule is divided among the workers connected by then."""
        logged = False
        while load.process is None and isinstance(self.runner, MasterRunner):
            options: Any = self.runner.environment.parsed_options
            connected = len(ready_workers(self.runner))
            if connected >= options.expect_workers:
                return
            if not logged:
                log.info("waiting for workers: %d of %d are connected", connected, options.expect_workers)
                logged = True
            time.sleep(POLL_S)


def register_messages(runner: Any, **_: Any) -> None:
    """Register the messages between master and workers; none where Locust is one process."""
    if isinstance(runner, MasterRunner):
        runner.register_message(SENT, receive)
    elif isinstance(runner, WorkerRunner):
        runner.register_message(SEND, worker.send, concurrent=True)
        runner.register_message(STOP, worker.stop)


def receive(msg: Any, **_: Any) -> None:
    """A worker has ended sending."""
    if load.senders is not None:
        load.senders.receive(msg)


def start(environment: Any, **_: Any) -> None:
    """Start on the page, or at once without a page."""
    if not isinstance(environment.runner, WorkerRunner):
        load.start(environment)


def stop(environment: Any, **_: Any) -> None:
    """Stop on the page, the end of the session, or Ctrl-C. Workers are stopped by the master's message."""
    if not isinstance(environment.runner, WorkerRunner):
        load.stop()


def quit_locust(environment: Any, **_: Any) -> None:
    """The end of Locust."""
    if isinstance(environment.runner, WorkerRunner):
        worker.quit()
    else:
        load.stop()


def extend_page(environment: Any, **_: Any) -> None:
    """Quiet Locust's lines about users, and give the page its tab."""
    logging.getLogger("locust.runners").addFilter(lambda record: not record.getMessage().startswith(OF_EACH_SECOND))
    if environment.web_ui is not None:
        add_fleet_tab(environment.web_ui, load.rows)


hooks: Any = events  # Locust's hooks have no types
hooks.init_command_line_parser.add_listener(lambda parser: add_options(parser, scaler_names()))
hooks.init.add_listener(register_messages)
hooks.init.add_listener(extend_page)
hooks.test_start.add_listener(start)
hooks.test_stop.add_listener(stop)
hooks.quitting.add_listener(quit_locust)
