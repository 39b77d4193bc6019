"""The local world's services, on Redis alone where any service will do; Kafka's own claims are at the end."""

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from infra.local import ports
from infra.local.orphans import marked
from infra.local.service import PREFIX
from infra.local.services import LocalServices
from infra.local.settings import ServiceSettings
from infra.local.state import StateFolder
from penstock.adapters.process_manager import DEFAULT_TIMEOUT_S, NoSupervisorError, ProgramStatus
from penstock.errors import PenstockError
from penstock.settings import Endpoints, Folders
from tests.infra.commanding import PENSTOCK, any_ports, command
from tests.support.eventually import eventually
from tests.support.services import on_free_ports

pytestmark = pytest.mark.system

Local = Callable[..., LocalServices]


@pytest.fixture
def local(state_folder: Path) -> Local:
    """``local(redis_port=…)``: services of the test's state folder, on free ports where no other is named."""

    def make(folder: Path = state_folder, **settings: int) -> LocalServices:
        return LocalServices(Folders(state=folder), on_free_ports(**settings))

    return make


def client(endpoints: Endpoints) -> "redis.Redis":
    return redis.Redis.from_url(endpoints.require("redis"), socket_timeout=5.0)


def pid_of(services: LocalServices, name: str) -> int:
    pid = next(program.pid for service, program in services.status() if service.name == name)
    assert pid is not None
    return pid


def kill(pid: int) -> None:
    """SIGKILL, and wait until the process is no more."""
    process = psutil.Process(pid)
    process.kill()
    process.wait(timeout=20)


def kill_daemon(folder: Path) -> None:
    kill(int(StateFolder(folder).supervisor_pid.read_text()))


def test_a_gateway_that_the_user_has_set_wins(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    services = local()
    services.up(["gateway"])
    monkeypatch.delenv("PENSTOCK_GATEWAY", raising=False)
    own = services.exports()["PENSTOCK_GATEWAY"]
    for chosen in ("http://admin:secret@openfaas.example:8080", "http://127.0.0.1:1"):
        monkeypatch.setenv("PENSTOCK_GATEWAY", chosen)
        assert services.exports()["PENSTOCK_GATEWAY"] == services.environment()["PENSTOCK_GATEWAY"] == chosen
        assert services.endpoints().require("gateway") == chosen
        assert services.has_users_gateway
    monkeypatch.setenv("PENSTOCK_GATEWAY", own.replace("admin:", "admin:an-earlier-password-"))
    assert services.exports()["PENSTOCK_GATEWAY"] == own
    assert not services.has_users_gateway


# --- up and down -----------------------------------------------------------------------------------------------------


def test_up_twice_is_up_once(local: Local) -> None:
    first = local().up(["redis"])
    pid = pid_of(local(), "redis")
    assert local().up(["redis"]) == first
    assert pid_of(local(), "redis") == pid
    with client(first) as connection:
        assert connection.ping()


def test_up_starts_again_only_what_has_died(local: Local) -> None:
    local().up(["redis", "prometheus"])
    killed, kept = pid_of(local(), "redis"), pid_of(local(), "prometheus")
    kill(killed)
    assert not local().is_up()
    local().up(["redis", "prometheus"])
    assert pid_of(local(), "redis") != killed
    assert pid_of(local(), "prometheus") == kept


def test_down_twice_is_down_once(local: Local, state_folder: Path) -> None:
    local().up(["redis"])
    assert local().down() == ["redis"]
    assert marked(state_folder) == []
    assert local().down() == []


def test_down_where_nothing_ever_was_leaves_nothing_behind(local: Local, tmp_path: Path) -> None:
    assert local(tmp_path / "none").down() == []
    assert not (tmp_path / "none").exists()


def test_data_outlives_down(local: Local) -> None:
    with client(local().up(["redis"])) as connection:
        connection.set("booked", 7)
    local().down()
    with client(local().up(["redis"])) as connection:
        assert connection.get("booked") == b"7"


def test_no_process_outlives_down_though_the_supervisor_was_killed(local: Local, state_folder: Path) -> None:
    local().up(["redis", "prometheus"])
    kill_daemon(state_folder)
    assert {process.name() for process in marked(state_folder)} >= {"redis-server", "prometheus"}
    assert sorted(local().down()) == ["prometheus", "redis-server"]
    assert marked(state_folder) == []


def test_down_finds_the_processes_of_a_deleted_state_folder(local: Local, state_folder: Path) -> None:
    local().up(["redis"])
    shutil.rmtree(state_folder)
    local().down()
    assert marked(state_folder) == []


def test_up_clears_away_what_a_killed_supervisor_left(local: Local, state_folder: Path) -> None:
    local().up(["redis"])
    orphan = pid_of(local(), "redis")
    kill_daemon(state_folder)
    assert not local().is_up()
    local().up(["redis"])
    assert pid_of(local(), "redis") != orphan
    assert [process.pid for process in marked(state_folder) if process.name() == "redis-server"] != [orphan]


def test_whoever_has_the_exported_settings_survives_down(local: Local) -> None:
    services = local()
    services.up(["redis"])
    with subprocess.Popen(["sleep", "600"], env={**os.environ, **services.exports()}) as bystander:
        services.down()
        assert bystander.poll() is None
        bystander.kill()


def test_two_state_folders_are_up_side_by_side(local: Local, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = local(tmp_path_factory.mktemp("o"))
    try:
        assert local().up(["redis"]).redis != other.up(["redis"]).redis
    finally:
        other.down()
    assert local().is_up()


def test_nothing_outside_the_state_folder_is_touched(
    local: Local, state_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    local(Path(state_folder)).up(["redis", "prometheus"])
    open_files = [Path(file.path) for process in marked(state_folder) for file in process.open_files()]
    assert open_files
    assert {file for file in open_files if not file.is_relative_to(state_folder)} == set()
    local().down()
    assert list(tmp_path.iterdir()) == []


def test_everything_listens_on_loopback_only(local: Local, state_folder: Path) -> None:
    local().up(["redis", "prometheus"])
    listening = {
        connection.laddr.ip
        for process in marked(state_folder)
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


def test_secrets_are_for_the_owner_only(local: Local, state_folder: Path) -> None:
    endpoints = local().up(["redis"])
    password = re.search(r":([^:@]+)@", endpoints.require("redis"))
    assert password is not None
    assert state_folder.stat().st_mode & 0o777 == 0o700
    for file in ("endpoints.json", "redis/redis.conf"):
        assert password[1] in (state_folder / file).read_text()
        assert (state_folder / file).stat().st_mode & 0o777 == 0o600
    assert all(password[1] not in " ".join(process.cmdline()) for process in marked(state_folder))
    with (
        redis.Redis.from_url(re.sub(r":[^:@]+@", "", endpoints.require("redis"))) as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()


# --- errors ----------------------------------------------------------------------------------------------------------


def test_a_taken_port_is_told_with_its_setting_and_its_holder(local: Local, state_folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(PenstockError, match=rf"port {port} for redis .*pid {os.getpid()}.*PENSTOCK_REDIS_PORT"):
            local(redis_port=port).up(["redis"])
    assert marked(state_folder) == []


def test_one_port_for_two_services_is_told(local: Local) -> None:
    port = ports.free_port()
    with pytest.raises(PenstockError, match=r"PENSTOCK_PROMETHEUS_PORT=\d+ is also PENSTOCK_REDIS_PORT"):
        local(redis_port=port, prometheus_port=port).up(["redis"])


def test_another_port_than_what_is_up_has_is_told(local: Local) -> None:
    local().up(["redis"])
    with pytest.raises(PenstockError, match=r"PENSTOCK_REDIS_PORT=\d+, but what is up uses \d+: `penstock down` first"):
        local(redis_port=ports.free_port()).up(["redis"])


def test_a_service_that_dies_at_its_start_is_named_with_the_tail_of_its_log(local: Local, state_folder: Path) -> None:
    broken = state_folder / "redis" / "data" / "appendonlydir" / "appendonly.aof.manifest"
    broken.parent.mkdir(parents=True)
    broken.write_text("no manifest\n")
    with pytest.raises(PenstockError, match=r"redis has died; the end of .*redis\.log:\n(.*\n)*.*Invalid AOF manifest"):
        local().up(["redis"])
    assert marked(state_folder) == []


def test_a_service_that_dies_later_is_named_with_the_tail_of_its_log(local: Local) -> None:
    services = local()
    services.up(["redis"])
    services.check()
    os.kill(pid_of(services, "redis"), signal.SIGKILL)
    deadline = time.monotonic() + 20
    while services.status()[0][1].state == "active" and time.monotonic() < deadline:
        time.sleep(0.05)
    tail = r"redis has died; the end of .*redis\.log:\n(.*\n)*.*Ready to accept connections"
    with pytest.raises(PenstockError, match=tail):
        services.check()
    with pytest.raises(PenstockError, match=tail):
        services.check(("kafka", "redis"))
    services.check(("kafka",))  # a run that does not need Redis continues


def test_a_daemon_that_is_held_up_for_a_while_is_no_service_that_died(local: Local, state_folder: Path) -> None:
    services = local()
    services.up(["redis"])
    daemon = psutil.Process(int(StateFolder(state_folder).supervisor_pid.read_text()))
    with ThreadPoolExecutor() as thread:
        daemon.suspend()
        try:
            checked = thread.submit(services.check)
            assert wait([checked], timeout=DEFAULT_TIMEOUT_S + 1).not_done
        finally:
            daemon.resume()
        checked.result()


def test_a_service_that_dies_while_another_one_starts_is_named(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    services = local()
    services.up(["redis"])

    def never(_: object) -> bool:
        """Prometheus does not answer, and Redis dies."""
        if services.status()[0][1].pid is not None:
            kill(pid_of(services, "redis"))
        return False

    monkeypatch.setattr("infra.local.prometheus.Prometheus.answers", never)
    with pytest.raises(PenstockError, match="redis has died"):
        services.up(["prometheus", "redis"])
    assert not services.answers("redis")


def test_a_stop_that_is_not_waited_for_ends_later(local: Local) -> None:
    services = local()
    services.up(["redis"])
    assert services.answers("redis") and services.has_program("redis")
    services.stop_service("redis", wait=False)
    eventually(lambda: not services.has_program("redis"), "redis still has a program")
    assert not services.answers("redis")
    services.down()
    assert not services.answers("redis"), "nothing is up"


def test_a_service_stopped_on_purpose_has_not_died(local: Local) -> None:
    services = local()
    services.up(["redis"])
    services.stop_service("redis")
    assert [program.state for _, program in services.status()] == ["down"]
    services.check()


def test_a_service_that_is_being_stopped_or_started_has_not_died(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program is without a process in between: for seconds, if the machine is busy."""
    services = local()
    services.up(["redis"])
    supervisor, seen = services._supervisor, []
    remove, add = supervisor.remove, supervisor.add

    def slowly(change: Callable[..., None]) -> Callable[..., None]:
        def changed(*given: Any, **more: Any) -> None:
            stopped = ProgramStatus("service:redis", None, "stopped")
            with monkeypatch.context() as during:
                during.setattr(supervisor, "programs", lambda *_: {PREFIX + "redis": stopped})
                services.check()
            seen.append(change.__name__)
            change(*given, **more)

        return changed

    monkeypatch.setattr(supervisor, "remove", slowly(remove))
    monkeypatch.setattr(supervisor, "add", slowly(add))
    services.stop_service("redis")
    services.start_service("redis")
    assert seen == ["remove", "remove", "add"]
    kill(pid_of(services, "redis"))
    eventually(lambda: services.status()[0][1].pid is None, "redis still has a process")
    with pytest.raises(PenstockError, match="redis has died"):
        services.check()


def test_a_failed_up_leaves_running_what_ran_before(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    local().up(["redis"])
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(PenstockError, match=r"there is no prometheus on PATH"):
        local().up(["redis", "prometheus"])
    assert local().is_up()


def test_no_java_is_told_with_the_way_out(local: Local, state_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(PenstockError, match=r"Kafka needs Java 17 .* no java on PATH: `penstock setup`"):
        local().up(["kafka"])
    assert marked(state_folder) == []


def test_a_java_that_is_too_old_is_told(local: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PenstockError, match=r"Java 17 or newer; .*bin/java says: openjdk version \"11"):
        local().up(["kafka"])


def test_a_state_folder_too_deep_for_a_socket_is_told(local: Local, tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match=r"\d+ bytes too long for a Unix socket; set PENSTOCK_STATE"):
        local(tmp_path / ("deep" * 30)).up(["redis"])


def test_a_setting_that_is_no_port_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_KAFKA_PORT", "many")
    with pytest.raises(PenstockError, match=r"^PENSTOCK_KAFKA_PORT=many: expected a whole number$"):
        ServiceSettings.load()


def test_nothing_up_is_told(local: Local) -> None:
    with pytest.raises(NoSupervisorError, match=r"nothing is up in .*: `penstock up`"):
        local().status()
    assert not local().is_up()


# --- the session's services ------------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_kafka_and_redis_answer_on_the_addresses_they_are_announced_with(services: Endpoints) -> None:
    metadata = AdminClient({"bootstrap.servers": services.require("kafka")}).list_topics(timeout=10)
    assert list(metadata.brokers) == [1]
    with client(services) as connection:
        assert connection.ping()


@pytest.mark.live
@pytest.mark.parametrize("graceful", [True, False], ids=["stopped", "killed"])
def test_kafka_comes_back_on_its_port_with_its_events(
    local_services: LocalServices, services: Endpoints, topic: Callable[[int], str], graceful: bool
) -> None:
    name = topic(1)
    producer = Producer({"bootstrap.servers": services.kafka, "acks": "all"})
    producer.produce(name, b"kept")
    assert producer.flush(10) == 0
    if graceful:
        local_services.stop_service("kafka")
    else:
        kill(pid_of(local_services, "kafka"))
    local_services.start_service("kafka")
    consumer = Consumer({"bootstrap.servers": services.kafka, "group.id": secrets.token_hex(6)})
    try:
        consumer.assign([TopicPartition(name, 0, 0)])
        message = consumer.poll(30)
        assert message is not None
        assert message.value() == b"kept"
    finally:
        consumer.close()


@pytest.mark.live
def test_redis_loses_no_acknowledged_write_to_a_kill(local_services: LocalServices, services: Endpoints) -> None:
    key = secrets.token_hex(6)
    with client(services) as connection:
        for _ in range(1000):
            connection.incr(key)
    kill(pid_of(local_services, "redis"))
    local_services.start_service("redis")
    with client(services) as connection:
        assert connection.get(key) == b"1000"
        connection.delete(key)


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.live
def test_the_commands_bring_everything_up_and_down(state_folder: Path) -> None:
    up = command(state_folder, "up", **any_ports())
    assert up.returncode == 0, up.stderr
    status = command(state_folder, "status")
    assert status.returncode == 0
    assert status.stdout.count("active") == 5
    shell = subprocess.run(
        ["/bin/sh", "-c", f'eval "$({PENSTOCK} env)"; echo $PENSTOCK_KAFKA'],
        env={**os.environ, "PENSTOCK_STATE": str(state_folder)},
        capture_output=True,
        text=True,
    )
    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", shell.stdout)
    down = command(state_folder, "down")
    assert "down: gateway, kafka, prometheus, rabbitmq, redis" in down.stderr
    assert marked(state_folder) == []
    nothing = command(state_folder, "status")
    assert nothing.returncode != 0
    assert nothing.stderr.startswith("error: nothing is up")


@pytest.mark.live
def test_an_interrupted_up_leaves_nothing_half_running(state_folder: Path) -> None:
    environment = {**os.environ, "PENSTOCK_STATE": str(state_folder), **any_ports()}
    with subprocess.Popen([PENSTOCK, "up"], env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("kafka: starting"):
                break
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode != 0
    assert "interrupted" in said
    assert marked(state_folder) == []


def test_an_error_of_the_command_is_one_line(state_folder: Path) -> None:
    failed = command(state_folder, "up", **{**any_ports(), "PENSTOCK_REDIS_PORT": "65536"})
    assert failed.returncode == 2
    assert failed.stderr.startswith("error: PENSTOCK_REDIS_PORT=65536")
    assert failed.stderr.count("\n") == 1
