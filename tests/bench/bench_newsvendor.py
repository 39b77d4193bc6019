"""Time of one decision of newsvendor beside binpack-tail's, and of newsvendor-network beside min-time's.

Run as ``python tests/bench/bench_newsvendor.py``. Figures are CPU time: medians with the 5th and 95th percentile.
Claimed of newsvendor: ≤ 1 ms at 5 partitions, ≤ 50 ms at 1,000 partitions and 200 replicas.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from controller.scalers.binpack_tail import BinpackTail, BinpackTailParameters
from controller.scalers.min_time import MinTime, MinTimeParameters
from controller.scalers.newsvendor import Newsvendor, NewsvendorParameters
from controller.scalers.newsvendor_network import NewsvendorNetwork, NewsvendorNetworkParameters
from penstock.contracts import (
    ARRIVAL_SLOTS,
    FleetObservation,
    JobStatus,
    NetworkObservation,
    PartitionObservation,
    ReplicaCounts,
    StreamObservation,
    TopicStatus,
)
from penstock.plan import range_groups

Observe = Callable[[int, Sequence[int], int], FleetObservation]

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


def network(tick: int, arrivals: Sequence[int], consumers: int) -> NetworkObservation:
    """0 to 89 tasks at each topic, more than its consumers serve at once on average; a job visits two topics."""
    counts = ReplicaCounts(joined=consumers)
    topics = tuple(
        TopicStatus(
            time_s=float(tick),
            fleet=f"topic-{t}",
            replicas=counts,
            arrived=100 * tick + new,
            completed=100 * tick,
            backlog=max(0, new - consumers),
            in_flight=min(new, consumers),
            service_rate_per_s=1.0,
            service_scv=0.5,
        )
        for t, new in enumerate(arrivals)
    )
    routes = [(f"topic-{t}", f"topic-{(t + 1) % len(arrivals)}") for t in range(len(arrivals))]
    return NetworkObservation(
        time_s=float(tick),
        fleet="network",
        replicas=counts,
        arrived=50 * tick,
        completed=50 * tick,
        late=tick,
        topics=topics,
        jobs=tuple(
            JobStatus(job=f"job-{number}", route=route, arrived=50 * tick, arrival_scv=1.0)
            for number, route in enumerate(routes)
        ),
    )


def timed(scaler: Any, observe: Observe, size: int, replicas: int, draw: np.random.Generator) -> float:
    """CPU seconds of the last of several decisions."""
    state, took = scaler.start(1), 0.0
    for tick in range(1, TICKS + 1):
        observed = observe(tick, draw.integers(0, 90, size).tolist(), replicas)
        began = time.thread_time()
        _, state = scaler.decide(observed, state)
        took = time.thread_time() - began
    return took


def main() -> None:
    """Print all figures."""
    for partitions, replicas, most, times in ((5, 3, 5, 200), (100, 40, 50, 20), (1000, 150, 200, 10)):
        scene = f"{partitions} partitions, {most} replicas at most"
        for scaler in (
            Newsvendor(NewsvendorParameters(max_replicas=most)),
            BinpackTail(BinpackTailParameters(max_replicas=most)),
        ):
            tell(scaler, observation, partitions, replicas, times, scene)
        at_once = Newsvendor(NewsvendorParameters(max_replicas=most, start_up_s=0.0))
        tell(at_once, observation, partitions, replicas, times, f"{scene}, no start-up")
        long = Newsvendor(NewsvendorParameters(max_replicas=most, rebalance_time_s=0.5))
        tell(long, observation, partitions, replicas, times, f"{scene}, rebalance 0.5 s")
    for topics, consumers, times in ((5, 20, 5), (10, 20, 2)):
        for other in (NewsvendorNetwork(NewsvendorNetworkParameters()), MinTime(MinTimeParameters())):
            tell(other, network, topics, consumers, times, f"{topics} topics of {consumers} consumers")


def tell(scaler: Any, observe: Observe, size: int, replicas: int, times: int, scene: str) -> None:
    """Print one line."""
    draw = np.random.default_rng(1)
    took = [timed(scaler, observe, size, replicas, draw) for _ in range(times)]
    low, middle, high = np.percentile(took, [5, 50, 95]) * 1e3
    print(f"{f'{scaler.name}, {scene}':76s} {middle:9.3f} ms [{low:.3f} – {high:.3f}]")


if __name__ == "__main__":
    main()
