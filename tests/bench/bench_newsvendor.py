"""Time of one decision of newsvendor, beside binpack-tail's on the same loads.

Run as ``python tests/bench/bench_newsvendor.py``. Figures are CPU time: medians with the 5th and 95th percentile.
Claimed of newsvendor: ≤ 1 ms at 5 partitions, ≤ 50 ms at 1,000 partitions and 200 replicas.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from controller.scalers.binpack_tail import BinpackTail, BinpackTailParameters
from controller.scalers.newsvendor import Newsvendor, NewsvendorParameters
from penstock.contracts import ARRIVAL_SLOTS, PartitionObservation, ReplicaCounts, StreamObservation
from penstock.plan import range_groups

TICKS = 12
"""The first ones learn; the last one is timed."""


def observation(tick: int, arrivals: Sequence[int], replicas: int) -> StreamObservation:
    """Bursts, with a tenth of the events still waiting."""
    return StreamObservation(
        time_s=float(tick),
        fleet="payments",
        replicas=ReplicaCounts(joined=replicas),
        partitions=tuple(
            PartitionObservation(
                p, 1000 * tick + new, 1000 * tick + new - new // 10, None, (*(0,) * (ARRIVAL_SLOTS - 3), new, 0, 0)
            )
            for p, new in enumerate(arrivals)
        ),
        plan=range_groups(range(len(arrivals)), replicas),
        finished=1000 * tick,
        late=tick,
    )


def timed(scaler: Any, partitions: int, replicas: int, draw: np.random.Generator) -> float:
    """CPU seconds of the last of several decisions."""
    state, took = scaler.start(1), 0.0
    for tick in range(1, TICKS + 1):
        observed = observation(tick, draw.integers(0, 90, partitions).tolist(), replicas)
        began = time.thread_time()
        _, state = scaler.decide(observed, state)
        took = time.thread_time() - began
    return took


def main() -> None:
    """Print all figures."""
    for partitions, replicas, most, times in ((5, 3, 5, 200), (100, 40, 50, 20), (1000, 150, 200, 10)):
        for scaler in (
            Newsvendor(NewsvendorParameters(max_replicas=most)),
            BinpackTail(BinpackTailParameters(max_replicas=most)),
        ):
            draw = np.random.default_rng(1)
            took = [timed(scaler, partitions, replicas, draw) for _ in range(times)]
            low, middle, high = np.percentile(took, [5, 50, 95]) * 1e3
            name = f"{scaler.name}, {partitions} partitions, {most} replicas at most"
            print(f"{name:52s} {middle:9.3f} ms [{low:.3f} – {high:.3f}]")


if __name__ == "__main__":
    main()
