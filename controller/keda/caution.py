"""Caution after a start, or after a gap in the readings: nothing is scaled in on the first that is seen.

A restarted scaler has no memory. A broker that was away reports low rates and, until its consumers have joined again,
few members: the first decisions are too low, and an HPA without a scale-down window carries them out at once.
"""

from typing import Final

GAP_S: Final = 5.0
"""Readings further apart than this have a gap between them."""
STEADY_S: Final = 45.0
"""A number of members that stays so long is the fleet's. Consumers whose broker was away join again one by one:
librdkafka waits up to 15 s (`reconnect.backoff.max.ms` and half of it) for each of its two connections, and the members
that are there join the new generation with their next heartbeat, after up to 3 s.
"""


class Caution:
    """Limits the decisions that KEDA gets. For ``hold_s`` after a start or a gap the number of replicas never falls.
    After a start there is no answer until the replicas are known and have stayed the same for ``STEADY_S``. Times in s,
    of any clock.
    """

    def __init__(self, hold_s: float) -> None:
        self._hold_s = hold_s
        self._seen_s: float | None = None
        """Last reading."""
        self._since_s = 0.0
        """First reading after the start or the last gap."""
        self._present: int | None = None
        self._present_since_s = 0.0
        self._highest = 0
        self.told: int | None = None
        """Replicas; None as long as too little is known."""

    def take(self, time_s: float, wanted: int | None, present: int | None) -> None:
        """Take in a reading: replicas decided on and replicas that exist, None where that is not known."""
        if self._seen_s is None or time_s - self._seen_s > GAP_S:
            self._since_s, self._highest = time_s, self.told or 0
            self._present = None
        self._seen_s = time_s
        if present != self._present:
            self._present, self._present_since_s = present, time_s
        if wanted is None:
            return
        self._highest = max(self._highest, wanted)
        if time_s - self._since_s >= self._hold_s:
            self.told = wanted
        elif self.told is not None:  # members that have joined again are counted twice for a while
            self.told = self._highest
        elif present is not None and time_s - self._present_since_s >= STEADY_S:
            self.told = self._highest = max(self._highest, present)
