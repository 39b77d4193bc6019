"""Settings from the environment, grouped by who needs them. Every name can be set as ``PENSTOCK_<NAME>``."""

from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from penstock.errors import PenstockError


class Settings(BaseSettings):
    """Base of all."""

    model_config = SettingsConfigDict(env_prefix="PENSTOCK_", frozen=True)


class Folders(Settings):
    """Where things are kept."""

    state: Path = Field(default=Path(".penstock"), description="services' configs, data and logs of the local world")
    runs: Path = Field(default=Path("runs"), description="one directory a run")
    jars: Path = Field(default=Path(".penstock/jars"), description="jars of Kafka and of Spark's Kafka connector")

    @cached_property
    def state_path(self) -> Path:
        """Absolute state folder."""
        return self.state.absolute()

    def jars_of(self, whose: Literal["kafka", "spark"]) -> tuple[Path, ...]:
        """Kafka's class path, or Spark's Kafka connector (``spark.jars``). PenstockError if it has not been fetched."""
        folder = self.jars.absolute() / whose
        jars = tuple(sorted(folder.glob("*.jar")))
        if not jars:
            raise PenstockError(
                f"no jars in {folder}: fetch them with `penstock setup`, or point PENSTOCK_JARS at them"
            )
        return jars


class Exposition(Settings):
    """Where a process serves its Prometheus metrics."""

    metrics: str = Field(
        default="127.0.0.1:0",
        description="host:port of a process' metrics, port 0: any free one; in a pod 0.0.0.0:9100",
    )


class Cluster(Settings):
    """Where a run lives in a Kubernetes cluster."""

    namespace: str = Field(default="penstock", description="namespace of brokers, controller and consumers")


class KafkaSecurity(BaseSettings):
    """TLS and SASL of a Kafka of the user's; ``penstock.adapters.kafka_security`` checks and applies them."""

    model_config = SettingsConfigDict(env_prefix="PENSTOCK_KAFKA_", frozen=True)

    security_protocol: str = Field(default="", description="PLAINTEXT (default), SSL, SASL_PLAINTEXT, SASL_SSL")
    sasl_mechanism: str = Field(default="", description="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512")
    sasl_username: str = Field(default="", description="user")
    sasl_password: SecretStr = Field(default=SecretStr(""), description="its password")
    sasl_password_file: str = Field(default="", description="file with the password, instead; a mounted Secret")
    tls_ca: str = Field(default="", description="PEM file of the brokers' CA; default: the system's CAs")
    tls_certificate: str = Field(default="", description="PEM file of the client's certificate chain")
    tls_key: str = Field(default="", description="PEM file of its key, without passphrase")


class Endpoints(Settings):
    """Addresses and secrets of a world's services, set by the world in the environment of its processes."""

    kafka: str = Field(default="", description="bootstrap servers, host:port[,host:port]")
    redis: SecretStr = Field(default=SecretStr(""), description="URL with credentials, redis://:secret@host:port/0")
    rabbitmq: SecretStr = Field(
        default=SecretStr(""), description="AMQP URL with credentials, amqp://user:secret@host:port/%2F"
    )
    rabbitmq_management: SecretStr = Field(
        default=SecretStr(""), description="base URL of RabbitMQ's management API with credentials"
    )
    prometheus: str = Field(default="", description="base URL")
    controller: str = Field(default="", description="base URL of the controller's plan service")
    gateway: SecretStr = Field(
        default=SecretStr(""),
        description="base URL of the functions' gateway with credentials, http://user:secret@host:port",
    )
    supervisor: str = Field(default="", description="endpoint of the process supervisor of the local world")
    scrape_targets: Path | None = Field(
        default=None, description="folder for Prometheus' file discovery; each process announces its metrics port there"
    )
    signing_key: SecretStr = Field(default=SecretStr(""), description="HMAC key of payments, hexadecimal")

    def require(self, name: str) -> str:
        """The value of a setting that has no default, or an error that says how to get one."""
        value = getattr(self, name)
        text = value.get_secret_value() if isinstance(value, SecretStr) else str(value or "")
        if not text:
            raise PenstockError(
                f"PENSTOCK_{name.upper()} is not set: start the local world with `penstock up` and "
                '`eval "$(penstock env)"`, or set it to your own'
            )
        return text

    def signing_key_bytes(self) -> bytes:
        """The HMAC key."""
        text = self.require("signing_key")
        try:
            return bytes.fromhex(text)
        except ValueError:
            remedy = "make one with `openssl rand -hex 32`"
            raise PenstockError(f"PENSTOCK_SIGNING_KEY is not hexadecimal: {remedy}") from None
