"""RabbitMQ of the local world: Debian's rabbitmq-server as an ordinary process, with management API and metrics."""

import hashlib
import secrets
from base64 import b64encode
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from infra.local.service import Service, find_executable, listens
from infra.local.state import write_private
from penstock.adapters.amqp import Management
from penstock.adapters.process_manager import Program
from penstock.errors import PenstockError

SERVER: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""The server itself: what Debian puts on PATH insists on root or the user rabbitmq."""
USER: Final = "penstock"

# Console logs go to the supervisor's log of the service. Figures of queues are a second old at most.
CONFIG: Final = """\
listeners.tcp.local = 127.0.0.1:{port}
management.tcp.ip = 127.0.0.1
management.tcp.port = {management_port}
prometheus.tcp.ip = 127.0.0.1
prometheus.tcp.port = {metrics_port}
collect_statistics_interval = 1000
load_definitions = {definitions}
log.file = false
log.console = true
log.console.level = warning
log.console.use_colors = off
"""

ERLANG: Final = "-kernel inet_dist_use_interface {127,0,0,1}"

# Erlang nodes find each other through epmd, which would be started as a daemon and outlive the server. This one reads
# from a pipe that the server, which takes this shell's place, holds open until it ends, however it ends.
START: Final = """\
exec 9> >("$1" & read -r _; kill $!)
for _ in {1..100}; do "$1" -names >/dev/null 2>&1 && break; sleep 0.05; done
exec "$0"
"""


@dataclass(frozen=True, repr=False)  # its password is not for logs
class RabbitMq(Service):
    """On loopback, with a user of its own, its data in the state folder. Five ports: clients, management API, metrics,
    other Erlang nodes (there are none, but it listens) and Erlang's port mapper.
    """

    name: ClassVar = "rabbitmq"

    management_port: int
    metrics_port: int
    node_port: int
    epmd_port: int
    password: str

    @property
    def url(self) -> str:
        """For AMQP clients, with the password."""
        return f"amqp://{USER}:{self.password}@127.0.0.1:{self.port}/%2F"

    @property
    def management_url(self) -> str:
        """Base URL of the management API, with the password."""
        return f"http://{USER}:{self.password}@127.0.0.1:{self.management_port}"

    @property
    def exports(self) -> dict[str, str]:
        """Its addresses by variable."""
        return {**super().exports, "PENSTOCK_RABBITMQ_MANAGEMENT": self.management_url}

    def prepare(self) -> Program:
        """Write its config and the definition of its user, and announce its metrics to Prometheus."""
        bash, epmd = find_executable("bash", "bash"), find_executable("epmd", "erlang-base")
        if not SERVER.is_file():
            raise PenstockError(
                f"there is no {SERVER}: `penstock setup` installs it, or `apt-get install rabbitmq-server`"
            )
        folder = self.folder
        definitions = folder / "definitions.json"
        write_private(definitions, _definitions(self.password))
        config = folder / "rabbitmq.conf"
        config.write_text(
            CONFIG.format(
                port=self.port,
                management_port=self.management_port,
                metrics_port=self.metrics_port,
                definitions=definitions,
            )
        )
        # Files of these names under /etc are the machine's, not ours: they are replaced by files without content.
        (folder / "advanced.config").write_text("[].\n")
        (folder / "rabbitmq-env.conf").write_text("")
        (folder / "enabled_plugins").write_text("[rabbitmq_management,rabbitmq_prometheus].\n")
        metrics = [{"targets": [f"127.0.0.1:{self.metrics_port}"], "labels": {"process": self.name}}]
        write_private(self.state.scrape_targets / f"{self.name}.json", msgspec.json.encode(metrics))
        environment = {
            "HOME": str(folder),  # of the Erlang cookie
            "RABBITMQ_NODENAME": "penstock@localhost",
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_DIST_PORT": str(self.node_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG,
            "RABBITMQ_SCHEDULER_BIND_TYPE": "u",  # it does not have the cores for itself
            "ERL_EPMD_PORT": str(self.epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_CRASH_DUMP": str(folder / "erl_crash.dump"),
            # Or the script would stay as the server's parent, to translate signals that the server knows by itself.
            "detached": "yes",
        }
        return self.program((bash, "-c", START, str(SERVER), epmd), 20.0, environment)

    def answers(self) -> bool:
        """Whether it takes connections and its management API knows our user."""
        if not listens(self.port):
            return False
        with closing(Management(self.management_url, timeout_s=1.5)) as management:
            return management.answers()


def _definitions(password: str) -> bytes:
    """The only user and what it may do, read at every start: the password is another one after each ``up``."""
    salt = secrets.token_bytes(4)
    digest = hashlib.sha256(salt + password.encode()).digest()
    user = {
        "name": USER,
        "password_hash": b64encode(salt + digest).decode(),
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": ["administrator"],
        "limits": {},
    }
    everything = {"user": USER, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
    return msgspec.json.encode({"users": [user], "vhosts": [{"name": "/"}], "permissions": [everything]})
