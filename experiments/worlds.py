"""Worlds by name."""

import sys
from collections.abc import Sequence
from pathlib import Path

from penstock.errors import PenstockError
from penstock.runspec import WorldName
from penstock.world import Progress, World

THERE: tuple[WorldName, ...] = ("sim", "local", "kubernetes")


def world_name(text: str) -> WorldName:
    """The world that is meant. PenstockError with those that there are."""
    for name in THERE:
        if text == name:
            return name
    raise PenstockError(f"--world {text}: choose {', '.join(THERE[:-1])} or {THERE[-1]}")


def make_world(name: WorldName, tell: Progress) -> World:
    """The world of that name; imported only when it is wanted. ``tell`` is given a line for what takes a while."""
    match world_name(name):
        case "local":
            from infra.local.world import LocalWorld

            return LocalWorld(tell)
        case "sim":
            from simulator.world import SimWorld

            return SimWorld(tell)
        case "kubernetes":
            from infra.kubernetes.world import KubernetesWorld

            return KubernetesWorld(tell)


def played_elsewhere(name: WorldName, arguments: Sequence[str], runs: Path, tell: Progress) -> int | None:
    """Hand ``penstock arguments…`` on to where that world is played, if that is not here: its exit code."""
    if name != "kubernetes":
        return None
    from infra.kubernetes.driver_pod import DriverPod

    driver = DriverPod(tell)
    return driver.play(arguments, runs, sys.stdout.buffer) if driver.there() else None
