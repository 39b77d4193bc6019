"""RabbitMQ of the local world: Debian's rabbitmq-server as an ordinary process, with management API and metrics."""

import hashlib
import secrets
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from infra.local.service import find_executable, listens, service_folder, service_program
from infra.local.state import StateFolder, write_private
from penstock.amqp import Management
from penstock.errors import PenstockError
from penstock.supervision import Program, base_environment

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


class RabbitMq:
    """On loopback, with a user of its own, its data in the state folder. Five ports: clients, management API, metrics,
    other Erlang nodes (there are none, but it listens) and Erlang's port mapper.
    """

    name = "rabbitmq"

    def __init__(
        self,
        state: StateFolder,
        *,
        port: int,
        management_port: int,
        metrics_port: int,
        node_port: int,
        epmd_port: int,
        password: str,
    ) -> None:
        self._state = state
        self._port = port
        self._management_port = management_port
        self._metrics_port = metrics_port
        self._node_port = node_port
        self._epmd_port = epmd_port
        self._password = password

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports it listens on."""
        return {
            "PENSTOCK_RABBITMQ_PORT": self._port,
            "PENSTOCK_RABBITMQ_MANAGEMENT_PORT": self._management_port,
            "PENSTOCK_RABBITMQ_METRICS_PORT": self._metrics_port,
            "PENSTOCK_RABBITMQ_NODE_PORT": self._node_port,
            "PENSTOCK_RABBITMQ_EPMD_PORT": self._epmd_port,
        }

    @property
    def url(self) -> str:
        """For AMQP clients, with the password."""
        return f"amqp://{USER}:{self._password}@127.0.0.1:{self._port}/%2F"

    @property
    def management_url(self) -> str:
        """Base URL of the management API, with the password."""
        return f"http://{USER}:{self._password}@127.0.0.1:{self._management_port}"

    def prepare(self) -> Program:
        """Write its config and the definition of its user, and announce its metrics to Prometheus."""
        bash, epmd = find_executable("bash", "bash"), find_executable("epmd", "erlang-base")
        if not SERVER.is_file():
            raise PenstockError(f"there is no {SERVER}: `make setup` installs it, or `apt-get install rabbitmq-server`")
        folder = service_folder(self._state, self.name)
        definitions = folder / "definitions.json"
        write_private(definitions, _definitions(self._password))
        config = folder / "rabbitmq.conf"
        config.write_text(
            CONFIG.format(
                port=self._port,
                management_port=self._management_port,
                metrics_port=self._metrics_port,
                definitions=definitions,
            )
        )
        # Files of these names under /etc are the machine's, not ours: they are replaced by files without content.
        (folder / "advanced.config").write_text("[].\n")
        (folder / "rabbitmq-env.conf").write_text("")
        (folder / "enabled_plugins").write_text("[rabbitmq_management,rabbitmq_prometheus].\n")
        self._announce()
        environment = {
            **base_environment(),
            "HOME": str(folder),  # of the Erlang cookie
            "RABBITMQ_NODENAME": "penstock@localhost",
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG,
            "RABBITMQ_SCHEDULER_BIND_TYPE": "u",  # it does not have the cores for itself
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_CRASH_DUMP": str(folder / "erl_crash.dump"),
            # Or the script would stay as the server's parent, to translate signals that the server knows by itself.
            "detached": "yes",
        }
        command = (bash, "-c", START, str(SERVER), epmd)
        return service_program(self._state, self.name, command, environment, grace_s=20.0)

    def answers(self) -> bool:
        """Whether it takes connections and its management API knows our user."""
        if not listens(self._port):
            return False
        management = Management(self.management_url, timeout_s=1.5)
        try:
            return management.answers()
        finally:
            management.close()

    def _announce(self) -> None:
        target = [{"targets": [f"127.0.0.1:{self._metrics_port}"], "labels": {"process": self.name}}]
        write_private(self._state.scrape_targets / f"{self.name}.json", msgspec.json.encode(target))


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
