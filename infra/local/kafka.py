"""Kafka of the local world: one broker that is its own KRaft controller, from the jars of ``jars/kafka/pom.xml``."""

import os
import re
import secrets
import shutil
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from infra.local.service import listens, service_folder, service_program
from infra.local.state import StateFolder
from penstock.errors import PenstockError
from penstock.settings import Folders
from penstock.supervision import Program, base_environment

OLDEST_JAVA: Final = 17
INDEXES: Final = (".index", ".timeindex")
ALLOCATED_BYTES: Final = 262_144
"""Of each index before a run: enough for some 80 MiB of events a partition."""

# One node, so every replication factor is 1. Groups form without the usual wait for further members, since tests and
# replicas come one by one, and may use session time-outs down to half a second. The session between broker and
# controller is short because a killed broker is not let in again before the last one has ended.
CONFIG = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
log.dirs={data}
auto.create.topics.enable=false
delete.topic.enable=true
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
log.retention.hours=24
log.retention.bytes=2147483648
log.segment.bytes=268435456
log.cleaner.dedupe.buffer.size=8388608
num.network.threads=2
num.io.threads=4
num.recovery.threads.per.data.dir=2
"""


class Kafka:
    """Plain text on loopback, its data in the state folder, formatted on first use."""

    name = "kafka"

    def __init__(self, state: StateFolder, folders: Folders, port: int, controller_port: int, heap_mib: int) -> None:
        self._state = state
        self._folders = folders
        self._port = port
        self._controller_port = controller_port
        self._heap_mib = heap_mib

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports it listens on."""
        return {"PENSTOCK_KAFKA_PORT": self._port, "PENSTOCK_KAFKA_CONTROLLER_PORT": self._controller_port}

    @property
    def url(self) -> str:
        """Bootstrap servers, host:port."""
        return f"127.0.0.1:{self._port}"

    def prepare(self) -> Program:
        """Write server.properties; format the data folder if it is new."""
        java = find_java()
        folder = service_folder(self._state, self.name)
        data, temporary, config = folder / "data", folder / "tmp", folder / "server.properties"
        for made in (data, temporary):
            made.mkdir(exist_ok=True)
        config.write_text(CONFIG.format(port=self._port, controller_port=self._controller_port, data=data))
        options = (
            f"-Xmx{self._heap_mib}m",
            "-XX:+UseZGC",  # the serial collector stopped every client for up to 270 ms at a time (decision 6)
            "-XX:ConcGCThreads=1",
            "-XX:TieredStopAtLevel=1",  # a run of minutes would pay for the second compiler, not gain from it
            "-XX:-UsePerfData",  # or else the JVM writes to /tmp
            f"-Djava.io.tmpdir={temporary}",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
            "-cp",
            str(self._folders.kafka_jars[0].parent / "*"),
        )
        if not (data / "meta.properties").exists():
            self._format((java, *options), config)
        return service_program(
            self._state, self.name, (java, *options, "kafka.Kafka", str(config)), base_environment(), grace_s=15.0
        )

    def answers(self) -> bool:
        """Whether the broker gives metadata and is itself in it, that is, has been let in by its controller."""
        if not listens(self._port):
            return False
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.url, "log_level": 0})
        try:
            return bool(admin.list_topics(timeout=1.0).brokers)
        except KafkaException:
            return False

    def _format(self, java: tuple[str, ...], config: Path) -> None:
        command = (*java, "kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(config))
        done = subprocess.run(
            command, cwd=config.parent, env=base_environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise PenstockError(
                f"kafka: {config.parent} could not be formatted: {said[-1] if said else done.returncode}"
            )


def allocate_indexes(state: StateFolder, topics: Iterable[str]) -> int:
    """Write zeros where the indexes of these topics' empty partitions begin; how many indexes.

    The broker maps an index as a file that is one hole. With its first entry, after 4 KiB of events, the file system
    has to find a block while the producer waits: 3 ms for each index on a virtual disk at rest, 40 on a busy one. Then
    the second burst of a run arrives partition by partition, and a scaler sees a fifth of it (decision 11).
    """
    data = service_folder(state, Kafka.name) / "data"
    empty = [log for topic in topics for log in data.glob(f"{topic}-*/*.log") if log.stat().st_size == 0]
    allocated = 0
    for index in [log.with_suffix(suffix) for log in empty for suffix in INDEXES]:
        # The broker makes the log first and its indexes after it, and each of them empty at first.
        if index.exists() and (size := index.stat().st_size):
            with index.open("r+b") as file:
                file.write(bytes(min(size, ALLOCATED_BYTES)))
            allocated += 1
    return allocated


def find_java() -> str:
    """Full path of a Java that is new enough: ``$JAVA_HOME/bin/java``, or the first on PATH."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        where = f"in JAVA_HOME={home}" if home else "on PATH"
        raise PenstockError(
            f"Kafka needs Java {OLDEST_JAVA} or newer and there is no java {where}: `make setup` installs it, "
            "or `apt-get install openjdk-17-jre-headless`"
        )
    said = subprocess.run(
        (java, "-XX:-UsePerfData", "-version"), capture_output=True, text=True, stdin=subprocess.DEVNULL
    ).stderr
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < OLDEST_JAVA:
        first = said.splitlines()[0] if said else "it does not start"
        raise PenstockError(
            f"Kafka needs Java {OLDEST_JAVA} or newer; {java} says: {first}. Set JAVA_HOME to a newer one"
        )
    return java


def _cluster_id() -> str:
    """A random UUID as Kafka writes them, without a leading dash, which its tool would take for an option."""
    while True:
        text = urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text
