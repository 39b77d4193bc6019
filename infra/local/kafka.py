"""Kafka of the local world: one broker that is its own KRaft controller, from the jars of ``jars/kafka/pom.xml``."""

import os
import re
import secrets
import shutil
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from infra.local.service import Service, listens, service_folder
from infra.local.state import StateFolder
from penstock.adapters.process_manager import Program, base_environment
from penstock.errors import PenstockError
from penstock.settings import Folders

OLDEST_JAVA: Final = 17
INDEXES: Final = (".index", ".timeindex")
ALLOCATED_BYTES: Final = 262_144
"""Of each index before a run: enough for some 80 MiB of events a partition."""

SETTINGS: Final = Path(__file__).parents[1] / "kubernetes" / "base" / "config" / "server.properties"
"""Of one node, in both worlds; what differs here comes after it, and the last value of a key counts."""
CONFIG: Final = """
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port},\
WORKERS://127.0.0.1:{workers_port},MONITOR://127.0.0.1:{monitor_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},\
WORKERS://{behind}:{workers_port},MONITOR://{behind}:{monitor_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,WORKERS:PLAINTEXT,MONITOR:PLAINTEXT
log.dirs={data}
"""
BEHIND_PROXY: Final = "127.0.0.2"
"""Address of a proxy, which has the port of the service behind it. Kafka has a listener for each proxy that advertises
this address, so that clients keep to the proxy.
"""


@dataclass(frozen=True)
class Kafka(Service):
    """Plain text on loopback, its data in the state folder, formatted on first use."""

    name: ClassVar = "kafka"

    folders: Folders
    controller_port: int
    workers_port: int
    monitor_port: int
    heap_mib: int

    @property
    def url(self) -> str:
        """Bootstrap servers, host:port."""
        return f"127.0.0.1:{self.port}"

    def prepare(self) -> Program:
        """Write server.properties; format the data folder if it is new."""
        java = find_java()
        folder = self.folder
        data, temporary, config = folder / "data", folder / "tmp", folder / "server.properties"
        for made in (data, temporary):
            made.mkdir(exist_ok=True)
        own = CONFIG.format(
            port=self.port,
            controller_port=self.controller_port,
            workers_port=self.workers_port,
            monitor_port=self.monitor_port,
            behind=BEHIND_PROXY,
            data=data,
        )
        config.write_text(SETTINGS.read_text() + own)
        options = (
            f"-Xmx{self.heap_mib}m",
            "-XX:+UseZGC",  # the serial collector stopped every client for up to 270 ms at a time (decision 6)
            "-XX:ConcGCThreads=1",
            "-XX:TieredStopAtLevel=1",  # a run of minutes would pay for the second compiler, not gain from it
            "-XX:-UsePerfData",  # or else the JVM writes to /tmp
            f"-Djava.io.tmpdir={temporary}",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
            "-cp",
            str(self.folders.jars_of("kafka")[0].parent / "*"),
        )
        if not (data / "meta.properties").exists():
            self._format((java, *options), config)
        return self.program((java, *options, "kafka.Kafka", str(config)), grace_s=15.0)

    def answers(self) -> bool:
        """Whether the broker gives metadata and is itself in it, that is, has been let in by its controller."""
        if not listens(self.port):
            return False
        from penstock.adapters.kafka import BrokerAwayError, broker_errors
        from penstock.adapters.topics import admin_client

        try:
            with broker_errors():
                return bool(admin_client(self.url).list_topics(timeout=1.0).brokers)
        except BrokerAwayError:
            return False

    def _format(self, java: tuple[str, ...], config: Path) -> None:
        # A random UUID; Kafka's tool would take a leading dash for an option.
        cluster = urlsafe_b64encode(b"\0" + secrets.token_bytes(15)).decode().rstrip("=")
        command = (*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config))
        done = subprocess.run(
            command, cwd=config.parent, env=base_environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise PenstockError(
                f"kafka: {config.parent} could not be formatted: {lines[-1] if lines else done.returncode}"
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
            f"Kafka needs Java {OLDEST_JAVA} or newer and there is no java {where}: `penstock setup` installs it, "
            "or `apt-get install openjdk-17-jre-headless`"
        )
    output = subprocess.run(
        (java, "-XX:-UsePerfData", "-version"), capture_output=True, text=True, stdin=subprocess.DEVNULL
    ).stderr
    version = re.search(r'version "(\d+)', output)
    if version is None or int(version[1]) < OLDEST_JAVA:
        first = output.splitlines()[0] if output else "it does not start"
        raise PenstockError(
            f"Kafka needs Java {OLDEST_JAVA} or newer; {java} says: {first}. Set JAVA_HOME to a newer one"
        )
    return java
