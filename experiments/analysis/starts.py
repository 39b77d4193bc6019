"""From a decision to the first event on a new replica, step by step."""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from controller.journal import TickRecord
from experiments.analysis.distribution import distribution
from experiments.analysis.summary import Distribution
from penstock.contracts import Phase, ReplicaEvent

STEPS: Final[tuple[Phase, ...]] = ("requested", "created", "scheduled", "started", "joined", "first-event")
"""A step takes from the one before it that is on record to itself; ``requested`` from when its tick was due. Only
replicas that are pods are created and scheduled.
"""
WHOLE: Final = "in all"


def start_steps(
    records: Sequence[TickRecord], events: Iterable[ReplicaEvent], start_ns: int
) -> dict[str, Distribution]:
    """How long each step took, over all replicas that a tick of the run asked for, and all together for those that had
    an event. Replicas that were respawned were asked for by nobody.
    """
    asked = [record for record in records if record.accepted is not None]
    asked_ns = [record.at_ns for record in asked]
    lives: dict[str, dict[Phase, int]] = {}
    for event in events:
        if event.phase == "requested" and event.at_ns >= start_ns and not event.reason:
            lives[event.replica] = {}
        if event.replica in lives and event.phase in STEPS:
            lives[event.replica].setdefault(event.phase, event.at_ns)
    took_s: dict[str, list[float]] = {}
    for life in lives.values():
        tick = int(np.searchsorted(asked_ns, life["requested"], side="right")) - 1
        if tick < 0:
            continue
        due_ns = start_ns + round(asked[tick].time_s * 1e9)
        before_ns = due_ns
        for step in STEPS:
            if step in life:
                took_s.setdefault(step, []).append((life[step] - before_ns) / 1e9)
                before_ns = life[step]
        if "first-event" in life:
            took_s.setdefault(WHOLE, []).append((life["first-event"] - due_ns) / 1e9)
    return {step: distribution(np.asarray(took_s[step])) for step in sorted(took_s)}  # as they are written down
