"""Algorithm 1 of Elastic Multi-M/M/s/K: whole queues with their functions are added and removed by their P_K.

Kathirvel and Parasuraman, "Elastic Multi-M/M/s/K", 2019, section IV; readings Q1 to Q18. With the printed ratios a new
queue gets all arrivals, since it has lost nothing yet, and the shares oscillate (Q12); those of ``multiqueue-damped``
settle.
"""

from typing import ClassVar

from controller.scalers.shared.queue_scaler import MultiqueueParameters, QueueScaler


class Multiqueue(QueueScaler[MultiqueueParameters]):
    """Algorithms 1 and 3; Algorithm 2 is in the shares of its routing."""

    name: ClassVar[str] = "multiqueue"
    paper: ClassVar[str] = "Kathirvel, Parasuraman, Elastic Multi-M/M/s/K 2019, Algorithms 1 to 3"
