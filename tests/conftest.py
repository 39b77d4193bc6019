"""Fixtures that every room may use. Services are real, on free ports, in a temporary state folder of their own."""

import asyncio
import atexit
import gc
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import _pytest.runner
import pytest
import typer.main
import typer.testing
from hypothesis import settings

from experiments.binpack.experiments import WORKLOAD_1
from experiments.experiment import Options
from experiments.run_result import simulate
from infra.local.orphans import stop_marked
from infra.local.services import LocalServices
from penstock.settings import Endpoints, Folders
from tests.support.changed import changed_lately, unchanged
from tests.support.secure_kafka import SecureKafka
from tests.support.secure_kafka import running as running_secure_kafka
from tests.support.services import on_free_ports

# A busy machine is no failure of the property. CI tries each property more often than a developer waits for.
settings.register_profile("penstock", deadline=None, max_examples=100 if "CI" in os.environ else 10)
settings.load_profile("penstock")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A suite that a shell runs in its background ignores Ctrl-C, and so would all that it starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
# A suite that is given up, by `timeout` or a CI's limit, stops its services as one that is interrupted does.
signal.signal(signal.SIGTERM, signal.default_int_handler)


# A thread of a module's service may read the environment just when pytest removes its variable at the end of a test.
_told_pytest = _pytest.runner._update_current_test_var
_pytest.runner._update_current_test_var = lambda item, when: _told_pytest(item, when or "teardown")


# Every call of a command would make the words of all commands again, a tenth of a second.
typer.main.get_command = typer.testing._get_command = cache(typer.main.get_command)  # type: ignore[attr-defined]

SYSTEM_FIXTURES = {"spark", "secure_kafka", "local_services", "services", "queue_services"}
"""Fixtures that start programs: Java, brokers."""

OTHER_PROGRAMS = ("system", "smoke", "live", "cluster")
"""Markers of the tests that may start programs besides those of Python packages."""
BASE_PROGRAMS = (
    "bash", "cat", "chmod", "cp", "date", "dirname", "env", "find", "flock", "git", "head", "kill", "ln", "ls", "mkdir",
    "mktemp", "mv", "readlink", "rm", "sed", "seq", "setsid", "sh", "sleep", "tail", "tar", "touch", "tr", "true",
)  # fmt: skip
"""What every machine has, and git, which the checkout came with."""
WHOLE_PATH = os.environ["PATH"]


@cache
def base_path() -> str:
    """A search path with the programs of Python packages and ``BASE_PROGRAMS`` alone."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-programs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name in BASE_PROGRAMS:
        if (found := shutil.which(name, path=WHOLE_PATH)) is not None:
            (folder / name).symlink_to(found)
    return f"{Path(sys.executable).parent}{os.pathsep}{folder}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A unit test finds no Java, broker, kubectl or the like, wherever it runs."""
    os.environ["PATH"] = WHOLE_PATH if any(map(item.get_closest_marker, OTHER_PROGRAMS)) else base_path()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Services of the session end with its last test, whichever that is."""
    os.environ["PATH"] = WHOLE_PATH


def pytest_collection() -> None:
    """No garbage collection while thousands of tests are collected: all that is made stays."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Later collections pass over what is there now, and are few: a simulation keeps most of what it makes."""
    if session.config.getoption("forks", 1) > 1:
        # Each process would load the compiled loops by itself, half a second.
        simulate(WORKLOAD_1, "binpack-tail", Options(world="sim", seconds=3))
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 50)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests whose fixtures need more than Python packages. In CI, leave out long tests of what has not changed."""
    changed = changed_lately() if "CI" in os.environ else None
    for item in items:
        if reason := unchanged(item, changed):
            item.add_marker(pytest.mark.skip(reason=reason))
        if SYSTEM_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.system)


@pytest.fixture
def servers_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers in this process look ten times as often whether they are to end: by default every 0.1 s."""
    import uvicorn.server

    async def sleep(delay_s: float) -> None:
        await asyncio.sleep(delay_s / 10)

    monkeypatch.setattr(uvicorn.server, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))


@pytest.fixture(scope="session")
def local_services() -> Iterator[LocalServices]:
    """Kafka and Redis, up for the whole session; with methods to stop and start them. Leave them up."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    services = LocalServices(Folders(state=folder), on_free_ports(ready_timeout_s=300))
    try:
        services.up(("kafka", "redis"))
        yield services
    finally:
        services.down()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def services(local_services: LocalServices) -> Endpoints:
    """Addresses of the session's Kafka, Redis and supervisor."""
    return local_services.endpoints()


@pytest.fixture(scope="session")
def queue_services(local_services: LocalServices) -> Endpoints:
    """Like ``services``, with RabbitMQ, which comes up for the first test that wants it."""
    return local_services.up(("rabbitmq",))


@pytest.fixture(scope="session")
def secure_kafka() -> Iterator[SecureKafka]:
    """A broker with listeners for TLS and SASL, up for the whole session."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    try:
        with running_secure_kafka(folder, Folders().jars) as broker:
            yield broker
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def topic(services: Endpoints) -> Iterator[Callable[[int], str]]:
    """``topic(partitions)`` makes an empty topic and returns its name; it is removed after the test."""
    from confluent_kafka.admin import NewTopic

    from penstock.adapters.topics import admin_client

    admin = admin_client(services.kafka)
    made: list[str] = []

    def make(partitions: int = 1) -> str:
        name = f"test-{secrets.token_hex(6)}"
        admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1)])[name].result(10)
        made.append(name)
        return name

    yield make
    for future in admin.delete_topics(made).values() if made else ():
        future.result(60)


@pytest.fixture
def state_folder() -> Iterator[Path]:
    """A new state folder with a path short enough for its sockets; what still runs in it is ended after the test."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-"))
    yield folder
    stop_marked(folder, grace_s=0)
    shutil.rmtree(folder, ignore_errors=True)
