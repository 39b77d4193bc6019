"""What chance decides in a bank of queues, drawn before the run from its seed: one number for each event.

An event takes as long to serve, and is routed by the same number, whatever a scaler does: two scalers on one schedule
differ by what they decide alone.
"""

from typing import NamedTuple

from penstock.laws import QUEUE_ROUTING, QUEUE_SERVICE, draw_s, stream
from penstock.systems import QueueSystem
from simulator.engine import Floats


class Draws(NamedTuple):
    """``service_s``: service times; ``pick``: uniform on [0, 1), where the routing sends it. Shape (events,) each."""

    service_s: Floats
    pick: Floats


def draw(system: QueueSystem, events: int, seed: int) -> Draws:
    """The draws of a run."""
    mean_s = 1 / system.service_rate_per_s
    return Draws(
        service_s=draw_s(system.service_law, mean_s, system.service_scv, events, stream(seed, QUEUE_SERVICE, 0)),
        pick=stream(seed, QUEUE_ROUTING, 0).random(events),
    )
