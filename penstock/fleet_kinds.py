"""Kinds of fleet: one ``FleetKind`` each, found by entry point (``penstock.fleets``).

A kind's parts are named as "module:attribute" and imported when they are used, so that the kernel imports no package.
CONTRIBUTING.md describes how to add a kind.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ForwardRef, Literal, TypeAlias, Union

import msgspec

from penstock.contracts import FleetObservation
from penstock.errors import PenstockError

Part = Literal["system", "observation", "fleet", "engine", "faults", "live", "explanations"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetKind:
    """One kind of fleet. An empty reference is a part that this kind does not have."""

    name: str
    """Tag of its system and of its observation in JSON, and name of its entry point."""
    title: str
    """In messages, in the plural: "Kafka consumer groups"."""
    system: str
    """``penstock.systems.System`` of its runs."""
    observation: str
    """``FleetObservation`` that its monitor returns."""
    fleet: str = ""
    """``controller.fleets.fleet.Fleet`` of a live run."""
    engine: str = ""
    """``make_engine(spec, schedule)`` of the sim world."""
    faults: str = ""
    """Names of the faults that its engine injects."""
    live: str = ""
    """``infra.runs.kinds.LiveKind`` of the local and the kubernetes world."""
    explanations: str = ""
    """``FAMILIES`` of its scalers, for ``penstock explain``."""

    def load(self, part: Part) -> Any:
        """The object that a part refers to. PenstockError if this kind has no such part."""
        reference: str = getattr(self, part)
        if not reference:
            raise PenstockError(f"fleet kind {self.name!r} has no {part}")
        module, _, attribute = reference.partition(":")
        return attrgetter(attribute)(import_module(module))


def fleet_kinds() -> Mapping[str, FleetKind]:
    """Every registered kind by its name, sorted. PenstockError if there is none."""
    points = registered("penstock.fleets")
    if not points:
        raise PenstockError("no kind of fleet is registered: install the package anew (`make setup`)")
    return {name: point.load() for name, point in points.items()}


def kind_of(system: msgspec.Struct) -> FleetKind:
    """The kind of fleet that a system describes. PenstockError if none is registered."""
    name = system.__struct_config__.tag
    kind = fleet_kinds().get(str(name))
    if kind is None:
        raise PenstockError(f"no kind of fleet {name!r}: registered are {', '.join(fleet_kinds())}")
    return kind


def registered(group: str) -> Mapping[str, EntryPoint]:
    """The installed entry points of a group by their names, sorted."""
    return _installed_on(tuple(sys.path), group)


@cache
def _installed_on(paths: tuple[str, ...], group: str) -> Mapping[str, EntryPoint]:
    """Reading the installed entry points takes tens of milliseconds: once per search path."""
    del paths  # importlib.metadata reads it from sys
    return {point.name: point for point in sorted(entry_points(group=group), key=lambda point: point.name)}


def _observations() -> Any:
    return Union[(FleetObservation, *(kind.load("observation") for kind in fleet_kinds().values()))]


def _systems() -> Any:
    return Union[tuple(kind.load("system") for kind in fleet_kinds().values())]  # noqa: UP007


if TYPE_CHECKING:
    from penstock.systems import System

    AnyObservation: TypeAlias = FleetObservation
    AnySystem: TypeAlias = System
else:
    # Types of struct fields; msgspec resolves them when it first decodes such a struct.
    AnyObservation = ForwardRef(f"{_observations.__name__}()", module=__name__)
    AnySystem = ForwardRef(f"{_systems.__name__}()", module=__name__)
