"""Ports and secrets of the services, chosen when they come up and kept until they go down."""

import secrets
from collections.abc import Sequence
from typing import Final

import msgspec

from infra.local.ports import free_port
from infra.local.settings import ServiceSettings
from penstock.errors import PenstockError


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """Ports and secrets of all services; ports are chosen for all at once."""

    services: tuple[str, ...]
    """Services requested so far."""
    ports: dict[str, int]
    """By name of the setting, such as ``kafka_port``."""
    redis_password: str
    rabbitmq_password: str
    gateway_password: str
    signing_key: str


PORTS: Final = tuple(name for name in ServiceSettings.model_fields if name.endswith("_port"))


def choose(settings: ServiceSettings, services: Sequence[str]) -> Addresses:
    """New secrets, and the ports of the settings, or free ones. Raises PenstockError if two settings name one port."""
    taken: dict[int, str] = {}
    for name in PORTS:
        if port := getattr(settings, name):
            if port in taken:
                raise PenstockError(f"{_variable(name)}={port} is also {_variable(taken[port])}: choose another port")
            taken[port] = name
    chosen = {name: port for port, name in taken.items()}
    for name in PORTS:
        if name not in chosen:
            chosen[name] = free_port(besides=chosen.values())
    return Addresses(
        services=tuple(services),
        redis_password=secrets.token_urlsafe(24),
        rabbitmq_password=secrets.token_urlsafe(24),
        gateway_password=secrets.token_urlsafe(24),
        signing_key=secrets.token_hex(32),
        ports=chosen,
    )


def require_agreement(addresses: Addresses, settings: ServiceSettings) -> None:
    """Raise PenstockError if a port was asked for explicitly and the services already up have another."""
    for name in PORTS:
        asked, actual = getattr(settings, name), addresses.ports[name]
        if name in settings.model_fields_set and asked not in (0, actual):
            raise PenstockError(
                f"{_variable(name)}={asked}, but what is up uses {actual}: `penstock down` first, or unset the variable"
            )


def _variable(name: str) -> str:
    return f"PENSTOCK_{name.upper()}"
