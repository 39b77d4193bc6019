"""Algorithm 1 of Elastic Multi-M/M/s/K: whole queues with their functions come and go by the blocking probability.

Kathirvel and Parasuraman, "Elastic Multi-M/M/s/K", 2019, section IV; readings Q1 to Q18. With the printed ratios a new
queue, which has lost nothing yet, gets everything, and the split goes on swinging (spec 1.12): ``multiqueue-damped``
does not do that.
"""

from typing import ClassVar

from controller.scalers.bank_scaler import BankScaler, MultiqueueParameters


class Multiqueue(BankScaler):
    """Algorithms 1 and 3; Algorithm 2 is in the shares of its routing."""

    name: ClassVar[str] = "multiqueue"
    paper: ClassVar[str] = "Kathirvel, Parasuraman, Elastic Multi-M/M/s/K 2019, Algorithms 1 to 3"
    Parameters: ClassVar[type[MultiqueueParameters]] = MultiqueueParameters

    def __init__(self, parameters: MultiqueueParameters) -> None:
        self.parameters = parameters
