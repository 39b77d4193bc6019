"""Worlds by name."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast, get_args

from penstock.errors import PenstockError
from penstock.runspec import WorldName
from penstock.world import Progress, World

WORLDS = get_args(WorldName)


def world_name(text: str) -> WorldName:
    """The world of that name. PenstockError with the valid names."""
    if text not in WORLDS:
        raise PenstockError(f"--world {text}: choose {', '.join(WORLDS[:-1])} or {WORLDS[-1]}")
    return cast(WorldName, text)


def make_world(name: WorldName, tell: Progress) -> World:
    """The world of that name, imported on demand. ``tell`` receives a line for each step that takes a while."""
    match world_name(name):
        case "local":
            from infra.runs.local_world import LocalWorld

            return LocalWorld(tell)
        case "sim":
            from simulator.world import SimWorld

            return SimWorld(tell)
        case "kubernetes":
            from infra.runs.kubernetes_world import KubernetesWorld

            return KubernetesWorld(tell)


def run_in_driver_pod(name: WorldName, arguments: Sequence[str], runs: Path, tell: Progress) -> int | None:
    """Run ``penstock arguments…`` in the driver's pod, if the world has one: its exit code; None otherwise."""
    if name != "kubernetes":
        return None
    from infra.kubernetes.driver_pod import DriverPod

    driver = DriverPod(tell)
    return driver.run(arguments, runs, sys.stdout.buffer) if driver.exists() else None
