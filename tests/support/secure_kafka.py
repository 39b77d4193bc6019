"""A real Kafka with one listener per security protocol, for clients that reach it by TLS and SASL."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from infra.local.kafka import Kafka
from infra.local.ports import free_port
from infra.local.state import StateFolder
from penstock.settings import Folders
from tests.support.certificates import Authority
from tests.support.eventually import PATIENCE_S, eventually

USER: Final = "shop"
PASSWORD: Final = 'correct horse; battery="staple" ü'
"""With characters that config formats treat specially."""
STRANGER: Final = "stranger"
"""A user with the same password and without rights on any topic."""
PREFIX: Final = "PENSTOCK_KAFKA_"

CONFIG: Final = """
listeners={listeners},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={listeners}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
ssl.keystore.type=PEM
ssl.keystore.location={folder}/keystore.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
listener.name.ssl.ssl.client.auth=required
listener.name.ssl.ssl.principal.mapping.rules=RULE:^CN=([a-z]+)$/$1/
"""
JAAS: Final = "listener.name.{listener}.{mechanism}.sasl.jaas.config={module} required {users};\n"
JAAS_ESCAPES: Final = {ord(each): f"\\{each}" for each in '"\\'}
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT")


@dataclass(frozen=True)
class SecureKafka:
    """A broker that runs. ``ports`` by protocol; in ``folder`` are ca.pem, client.pem, client.key and password."""

    folder: Path
    ports: Mapping[str, int]
    admin: AdminClient = field(repr=False)

    def address(self, protocol: str) -> str:
        """Bootstrap servers of a protocol's listener."""
        return f"127.0.0.1:{self.ports[protocol]}"

    def settings(self, protocol: str, mechanism: str = "SCRAM-SHA-512", /, **changes: str | None) -> dict[str, str]:
        """Variables of a client that is admitted there. ``changes`` by name without prefix; None leaves one out."""
        found: dict[str, str | None] = {"SECURITY_PROTOCOL": protocol}
        if "SSL" in protocol:
            found["TLS_CA"] = str(self.folder / "ca.pem")
        if protocol == "SSL":
            found |= {"TLS_CERTIFICATE": str(self.folder / "client.pem"), "TLS_KEY": str(self.folder / "client.key")}
        if "SASL" in protocol:
            found |= {"SASL_MECHANISM": mechanism, "SASL_USERNAME": USER, "SASL_PASSWORD": PASSWORD}
        return {PREFIX + name: value for name, value in (found | changes).items() if value is not None}

    def make_topic(self, name: str, partitions: int) -> None:
        """A topic."""
        self.admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1)])[name].result(30)

    def allow(self, kind: ResourceType, name: str, *operations: AclOperation, user: str = USER) -> None:
        """Give a user rights on one topic or group."""
        pattern = ResourcePatternType.LITERAL
        rules = [
            AclBinding(kind, name, pattern, f"User:{user}", "*", each, AclPermissionType.ALLOW) for each in operations
        ]
        for future in self.admin.create_acls(rules).values():
            future.result(30)


def _logins() -> str:
    """Users of PLAIN, and the login modules of SCRAM, for both listeners with SASL."""
    library = "org.apache.kafka.common.security"
    users = " ".join(f'user_{name}="{PASSWORD.translate(JAAS_ESCAPES)}"' for name in (USER, STRANGER))
    users = "".join(each if each.isascii() else f"\\u{ord(each):04x}" for each in users.replace("\\", "\\\\"))
    scram = f"{library}.scram.ScramLoginModule"
    modules = {
        "plain": (f"{library}.plain.PlainLoginModule", users),
        "scram-sha-256": (scram, ""),
        "scram-sha-512": (scram, ""),
    }
    return "".join(
        JAAS.format(listener=listener, mechanism=mechanism, module=module, users=users)
        for listener in ("sasl_ssl", "sasl_plaintext")
        for mechanism, (module, users) in modules.items()
    )


@contextmanager
def running(folder: Path, jars: Path) -> Iterator[SecureKafka]:
    """A broker of its own in ``folder``, ended afterwards. ``jars``: as in ``PENSTOCK_JARS``."""
    authority = Authority("the broker's CA")
    certificate, key = authority.issue("localhost")
    (folder / "keystore.pem").write_bytes(key + certificate)
    (folder / "ca.pem").write_bytes(authority.pem)
    certificate, key = authority.issue(USER)
    (folder / "client.pem").write_bytes(certificate)
    (folder / "client.key").write_bytes(key)
    (folder / "other-ca.pem").write_bytes(Authority("another CA").pem)
    (folder / "password").write_text(f"{PASSWORD}\n")
    ports = {protocol: free_port() for protocol in PROTOCOLS}
    controller, workers, monitor = (free_port() for _ in range(3))
    service = Kafka(StateFolder(folder), ports["PLAINTEXT"], Folders(jars=jars), controller, workers, monitor, 256)
    program = service.prepare()
    own = CONFIG.format(
        listeners=",".join(f"{protocol}://127.0.0.1:{port}" for protocol, port in ports.items()),
        controller=controller,
        folder=folder,
    )
    with (service.folder / "server.properties").open("a") as config:
        config.write(own + _logins())
    program.log.parent.mkdir(exist_ok=True)
    with program.log.open("ab") as log:
        process = subprocess.Popen(program.command, cwd=program.folder, env=program.env, stdout=log, stderr=log)
    try:
        eventually(service.answers, lambda: f"no broker\n{program.log.read_text()[-4000:]}", within_s=3 * PATIENCE_S)
        admin = AdminClient({"bootstrap.servers": service.url, "log_level": 0})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            for name in (USER, STRANGER):
                upsertion = UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
                admin.alter_user_scram_credentials([upsertion])[name].result(30)
        yield SecureKafka(folder, ports, admin)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
