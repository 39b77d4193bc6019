"""RabbitMQ in the local world: up with its secrets, data that outlives a stop, and nothing left when it goes."""

import hashlib
import os
import re
import signal
import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec
import psutil
import pytest

from infra.local import rabbitmq
from infra.local.orphans import marked, names
from infra.local.rabbitmq import START, RabbitMq
from infra.local.services import LocalServices
from infra.local.state import StateFolder
from penstock.adapters.amqp import Link, PublishOutcome, main_queue
from penstock.errors import PenstockError
from penstock.settings import Endpoints, Folders
from tests.support.broker_view import BrokerView
from tests.support.eventually import eventually
from tests.support.services import on_free_ports

PATIENCE_S = 120.0


def rabbit(folder: Path) -> RabbitMq:
    state = StateFolder(folder)
    state.create()
    return RabbitMq(state, port=1, management_port=2, metrics_port=3, node_port=4, epmd_port=5, password="s3cret")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has the server and its port mapper, as far as files go: nothing is started."""
    for name in ("rabbitmq-server", "epmd"):
        (tmp_path / name).touch(0o755)
    monkeypatch.setattr(rabbitmq, "SERVER", tmp_path / "rabbitmq-server")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)


def publish(endpoints: Endpoints, queue: str, messages: int) -> list[PublishOutcome]:
    link = Link(endpoints.require("rabbitmq"), "test:publisher")
    outcomes: list[PublishOutcome] = []
    try:
        link.open(PATIENCE_S)
        for number in range(messages):
            assert link.publish(queue, b"%d" % number, outcomes.append, published_ns=time.time_ns())
        deadline_s = time.monotonic() + PATIENCE_S
        while len(outcomes) < messages:
            assert time.monotonic() < deadline_s
            link.serve(0.1)
    finally:
        link.close()
    return outcomes


def test_its_password_is_known_to_the_server_as_a_salted_hash_only(state_folder: Path, installed: None) -> None:
    rabbit(state_folder).prepare()
    folder = state_folder / "rabbitmq"
    definitions = msgspec.json.decode((folder / "definitions.json").read_bytes())
    hashed = b64decode(definitions["users"][0]["password_hash"])
    assert hashed[4:] == hashlib.sha256(hashed[:4] + b"s3cret").digest()
    assert all("s3cret" not in file.read_text() for file in folder.iterdir())


def test_it_reads_nothing_of_the_machines_own_rabbitmq(state_folder: Path, installed: None) -> None:
    program = rabbit(state_folder).prepare()
    own = {name: value for name, value in program.env.items() if name.startswith("RABBITMQ_") and "/" in value}
    assert {"RABBITMQ_CONFIG_FILE", "RABBITMQ_CONF_ENV_FILE", "RABBITMQ_ENABLED_PLUGINS_FILE"} <= set(own)
    assert all(Path(value).is_relative_to(state_folder) for value in (*own.values(), program.env["HOME"]))


def test_a_machine_without_it_is_told_the_way_out(
    state_folder: Path, installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rabbitmq, "SERVER", Path("/nowhere/rabbitmq-server"))
    with pytest.raises(
        PenstockError, match=r"no /nowhere/rabbitmq-server: `penstock setup` .*apt-get install rabbitmq"
    ):
        rabbit(state_folder).prepare()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_port_mapper_ends_with_the_server_however_it_ends(tmp_path: Path, number: signal.Signals) -> None:
    server, mapper, mapped = tmp_path / "server", tmp_path / "mapper", tmp_path / "mapper.pid"
    server.write_text("#!/bin/sh\nexec sleep 600\n")
    mapper.write_text(f'#!/bin/sh\n[ "$1" = -names ] && exit 0\necho $$ >{mapped}\nexec sleep 600\n')
    for program in (server, mapper):
        program.chmod(0o755)
    with subprocess.Popen(["bash", "-c", START, str(server), str(mapper)]) as process:
        eventually(lambda: mapped.exists() and mapped.read_text().endswith("\n"), "the mapper did not start")
        eventually(lambda: psutil.Process(process.pid).name() == "sleep", "the server did not take the shell's place")
        pid = int(mapped.read_text())
        assert psutil.pid_exists(pid)
        os.kill(process.pid, number)
        process.wait(PATIENCE_S)
        eventually(lambda: not psutil.pid_exists(pid), "the mapper outlived the server")


@contextmanager
def managing(url: str) -> Iterator[BrokerView]:
    management = BrokerView(url, timeout_s=PATIENCE_S)
    yield management
    management.close()


@pytest.mark.live
def test_up_answers_restarts_with_its_messages_and_goes_without_a_trace(
    state_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    settings = on_free_ports(ready_timeout_s=PATIENCE_S)
    services = LocalServices(Folders(state=state_folder), settings)
    endpoints = services.up(["rabbitmq"])
    queue = main_queue("run")
    with managing(endpoints.require("rabbitmq_management")) as management:
        management.declare_queue(queue)
        management.bound_queue(queue, 5)
    assert publish(endpoints, queue, 5) == ["confirmed"] * 5
    with managing(re.sub("//.*@", "//guest:guest@", endpoints.require("rabbitmq_management"))) as stranger:
        assert not stranger.answers()

    assert {process.name() for process in marked(state_folder)} >= {"beam.smp", "epmd"}
    listening = {
        connection.laddr.ip
        for process in marked(state_folder)
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening <= {"127.0.0.1", "::1"}
    target = msgspec.json.decode((state_folder / "targets" / "rabbitmq.json").read_bytes())[0]["targets"][0]
    assert "rabbitmq_identity_info" in httpx.get(f"http://{target}/metrics", trust_env=False, timeout=PATIENCE_S).text

    assert services.down() == ["rabbitmq"]
    assert marked(state_folder) == []

    again = services.up(["rabbitmq"])  # another password, other ports, the same data
    assert again.rabbitmq != endpoints.rabbitmq
    with managing(again.require("rabbitmq_management")) as management:
        assert (management.bounds("run"), set(management.queues("run"))) == ({queue: 5}, {queue})
    assert publish(again, queue, 1) == ["full"]
    os.kill(next(program.pid or 0 for _, program in services.status()), signal.SIGKILL)
    eventually(lambda: names(marked(state_folder)).count("epmd") == 0, "epmd stayed")
    services.down()
    assert marked(state_folder) == []
    assert list(tmp_path.iterdir()) == []
