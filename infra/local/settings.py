"""Settings of the local world's services. Each can be set as ``PENSTOCK_<NAME>``; ports of 0 mean any free one."""

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from penstock.errors import PenstockError

Port = int


class ServiceSettings(BaseSettings):
    """Ports lie below Linux' ephemeral range (from 32768), so that no outgoing connection takes them meanwhile."""

    model_config = SettingsConfigDict(env_prefix="PENSTOCK_", frozen=True)

    kafka_port: Port = Field(default=27192, ge=0, le=65535, description="Kafka, for its clients")
    kafka_controller_port: Port = Field(default=27193, ge=0, le=65535, description="Kafka's KRaft controller")
    redis_port: Port = Field(default=27179, ge=0, le=65535, description="Redis")
    prometheus_port: Port = Field(default=27190, ge=0, le=65535, description="Prometheus")
    kafka_heap_mib: int = Field(default=512, ge=256, description="heap of Kafka's JVM in MiB")
    ready_timeout_s: float = Field(default=60.0, gt=0, description="how long a service may take to answer")

    @classmethod
    def load(cls) -> "ServiceSettings":
        """From the environment. Raises PenstockError that names the variable and its value."""
        try:
            return cls()
        except ValidationError as error:
            first = error.errors()[0]
            name = f"PENSTOCK_{str(first['loc'][0]).upper()}"
            raise PenstockError(f"{name}={first['input']}: {first['msg'].lower()}") from None
