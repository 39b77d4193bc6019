"""Settings of the local world's services. Each can be set as ``PENSTOCK_<NAME>``; ports of 0 mean any free one."""

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from penstock.errors import PenstockError

Port = int
EXPECTED = {"int_parsing": "expected a whole number", "float_parsing": "expected a number"}
"""By pydantic's type of an error."""


class ServiceSettings(BaseSettings):
    """Ports lie below Linux' ephemeral range (from 32768), so that no outgoing connection takes them meanwhile."""

    model_config = SettingsConfigDict(env_prefix="PENSTOCK_", frozen=True)

    kafka_port: Port = Field(default=27192, ge=0, le=65535, description="Kafka, for its clients")
    kafka_controller_port: Port = Field(default=27193, ge=0, le=65535, description="Kafka's KRaft controller")
    kafka_workers_port: Port = Field(default=27194, ge=0, le=65535, description="Kafka, for workers behind a proxy")
    kafka_monitor_port: Port = Field(default=27195, ge=0, le=65535, description="Kafka, for a monitor behind a proxy")
    redis_port: Port = Field(default=27179, ge=0, le=65535, description="Redis")
    rabbitmq_port: Port = Field(default=27172, ge=0, le=65535, description="RabbitMQ, for its clients")
    rabbitmq_management_port: Port = Field(default=27173, ge=0, le=65535, description="RabbitMQ's management API")
    rabbitmq_metrics_port: Port = Field(default=27174, ge=0, le=65535, description="RabbitMQ's Prometheus metrics")
    rabbitmq_node_port: Port = Field(default=27175, ge=0, le=65535, description="RabbitMQ, for other Erlang nodes")
    rabbitmq_epmd_port: Port = Field(default=27176, ge=0, le=65535, description="RabbitMQ's Erlang port mapper")
    prometheus_port: Port = Field(default=27190, ge=0, le=65535, description="Prometheus")
    gateway_port: Port = Field(default=27180, ge=0, le=65535, description="gateway of the functions")
    grafana_port: Port = Field(default=27191, ge=0, le=65535, description="Grafana, where it is installed")
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
            said = EXPECTED.get(first["type"]) or first["msg"].lower().removeprefix("input ")
            raise PenstockError(f"{name}={first['input']}: {said}") from None
