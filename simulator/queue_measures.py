"""What queueing theory speaks of, measured from the events of a run: losses, numbers in the system, times.

An event counts where it arrived; numbers in the system are averages over time. The run has to be over: events that
are not finished are in no table.
"""

from typing import NamedTuple

import numpy as np

from simulator.engine import COMPLETED, REJECTED, EventTable, Floats


class QueueMeasures(NamedTuple):
    """Of a window of time. Rates per second, times in seconds; NaN where nothing arrived or entered.

    ``p_full`` (P_K): share of arrivals that were lost. ``waiting`` (L_q) and ``in_system`` (L): events, averaged over
    time. ``waiting_time_s`` (W_q) and ``response_time_s`` (W): of those that entered.
    """

    arrived: int
    p_full: float
    entered_per_s: float
    lost_per_s: float
    waiting: float
    in_system: float
    waiting_time_s: float
    response_time_s: float


def measure(table: EventTable, from_s: float, until_s: float, queue: str | None = None) -> QueueMeasures:
    """Measures of the events of one queue (None: of all of them) in from_s ≤ time < until_s."""
    mine = np.ones(len(table), dtype=np.bool_) if queue is None else table.queue == table.queues.index(queue)
    entered = mine & (table.outcome == COMPLETED)
    in_window = (table.intended_s >= from_s) & (table.intended_s < until_s)
    arrived = int(np.count_nonzero(mine & in_window))
    lost = int(np.count_nonzero(mine & in_window & (table.outcome == REJECTED)))
    chosen = entered & in_window
    length_s = until_s - from_s

    def average(begin_s: Floats, end_s: Floats) -> float:
        """Events that are between their two times, averaged over the window."""
        overlap_s = np.minimum(end_s[entered], until_s) - np.maximum(begin_s[entered], from_s)
        return float(np.maximum(overlap_s, 0).sum()) / length_s

    def mean(durations_s: Floats) -> float:
        return float(durations_s[chosen].mean()) if chosen.any() else float("nan")

    return QueueMeasures(
        arrived=arrived,
        p_full=lost / arrived if arrived else float("nan"),
        entered_per_s=(arrived - lost) / length_s,
        lost_per_s=lost / length_s,
        waiting=average(table.intended_s, table.started_s),
        in_system=average(table.intended_s, table.finished_s),
        waiting_time_s=mean(table.started_s - table.intended_s),
        response_time_s=mean(table.finished_s - table.intended_s),
    )
