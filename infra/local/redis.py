"""Redis of the local world: the ledger of payments."""

from collections.abc import Mapping

from infra.local.service import find_executable, service_folder, service_program
from infra.local.state import StateFolder, write_private
from penstock.supervision import Program, base_environment

# Every acknowledged booking has been written to the file, if not to the disk: it survives a SIGKILL, not a power cut.
CONFIG = """\
bind 127.0.0.1
port {port}
requirepass {password}
dir {data}
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
daemonize no
# Redis writes its title over the environment, in which `penstock down` finds what belongs to the state folder.
set-proc-title no
"""


class Redis:
    """Append-only, on loopback, with a password, its data in the state folder."""

    name = "redis"

    def __init__(self, state: StateFolder, port: int, password: str) -> None:
        self._state = state
        self._port = port
        self._password = password

    @property
    def ports(self) -> Mapping[str, int]:
        """The ports it listens on."""
        return {"PENSTOCK_REDIS_PORT": self._port}

    @property
    def url(self) -> str:
        """With the password."""
        return f"redis://:{self._password}@127.0.0.1:{self._port}/0"

    def prepare(self) -> Program:
        """Write redis.conf and the data folder."""
        executable = find_executable("redis-server", "redis-server")
        folder = service_folder(self._state, self.name)
        data = folder / "data"
        data.mkdir(exist_ok=True)
        config = folder / "redis.conf"
        write_private(config, CONFIG.format(port=self._port, password=self._password, data=f'"{data}"').encode())
        return service_program(self._state, self.name, (executable, str(config)), base_environment(), grace_s=10.0)

    def answers(self) -> bool:
        """Whether it answers a PING; it does not while it still reads its data."""
        import redis

        try:
            with redis.Redis.from_url(self.url, socket_timeout=2.0, socket_connect_timeout=1.0) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False
