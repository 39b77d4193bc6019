"""Redis of the local world: the ledger of payments."""

from dataclasses import dataclass
from typing import ClassVar

from infra.local.service import Service, find_executable
from infra.local.state import write_private
from penstock.adapters.process_manager import Program

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


@dataclass(frozen=True, repr=False)  # its password is not for logs
class Redis(Service):
    """Append-only, on loopback, with a password, its data in the state folder."""

    name: ClassVar = "redis"

    password: str

    @property
    def url(self) -> str:
        """With the password."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def prepare(self) -> Program:
        """Write redis.conf and the data folder."""
        executable = find_executable("redis-server", "redis-server")
        folder = self.folder
        data = folder / "data"
        data.mkdir(exist_ok=True)
        config = folder / "redis.conf"
        write_private(config, CONFIG.format(port=self.port, password=self.password, data=f'"{data}"').encode())
        return self.program((executable, str(config)), grace_s=10.0)

    def answers(self) -> bool:
        """Whether it answers a PING; it does not while it still reads its data."""
        from penstock.adapters.redis import RedisError, redis_client

        try:
            with redis_client(self.url, timeout_s=2.0) as client:
                return bool(client.ping())
        except RedisError:
            return False
