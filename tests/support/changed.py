"""Long tests of one part that CI plays when that part has changed: marker ``when_changed``."""

import subprocess
from collections.abc import Collection
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WINDOW_S = 9 * 3600
"""CI does not know the commit that it played last: what changed within so long before the newest commit counts. A
change that CI refused is in it again when its correction comes.
"""
LIVE_RUN = (
    "consumers", "controller/assembly.py", "controller/fleets", "controller/loop.py", "controller/main.py",
    "experiments/driver.py", "experiments/worlds.py", "functions", "infra/local", "penstock", "pipelines", "producers",
    "tests/conftest.py", "tests/experiments/conftest.py", "tests/experiments/steady.py", "tests/support", "uv.lock",
)  # fmt: skip
"""A live run on this machine: its parts, without scalers, which decide and do nothing else. Of tests that play many
runs, one of each kind of fleet is always played in CI, and the others when one of these has changed.
"""
CLUSTER_RUN = (*LIVE_RUN, "infra/images", "infra/kubernetes", "tests/cluster")
"""A run on pods."""


def changed_lately(root: Path = ROOT) -> frozenset[str] | None:
    """Files of the commits of the last ``WINDOW_S`` before the newest one; None where the history is not known."""
    try:
        if _git(root, "rev-parse", "--is-shallow-repository").strip() != "false":
            return None
        newest_s = int(_git(root, "log", "-1", "--format=%ct"))
        listed = _git(root, "log", f"--since={newest_s - WINDOW_S}", "--name-only", "--format=")
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None
    return frozenset(listed.split("\n")) - {""}


def unchanged(item: pytest.Item, changed: Collection[str] | None) -> str:
    """Why a test is left out; empty: it is played. Its own file always belongs to its part."""
    marker = item.get_closest_marker("when_changed")
    if marker is None or changed is None:
        return ""
    part = (*marker.args, item.nodeid.partition("::")[0])
    if any(name == each or name.startswith(f"{each}/") for name in changed for each in part):
        return ""
    return f"CI plays it when one of these has changed: {', '.join(marker.args)}"


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout
