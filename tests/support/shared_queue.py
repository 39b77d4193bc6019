"""A reference for queueing theory: one queue, several servers, first come first served."""

import numpy as np
from numba import njit

from penstock.distributions import Floats


@njit(cache=True)
def shared_queue(arrival_s: Floats, service_s: Floats, servers: int) -> tuple[Floats, Floats]:
    """(start, end) of each event where ``servers`` serve one queue, first come first served (Kiefer and Wolfowitz).

    Both arrays are in order of arrival.
    """
    events = len(arrival_s)
    start_s, end_s = np.empty(events), np.empty(events)
    free_s = np.zeros(servers)
    for event in range(events):
        server = 0
        for other in range(1, servers):
            if free_s[other] < free_s[server]:
                server = other
        start_s[event] = max(arrival_s[event], free_s[server])
        end_s[event] = free_s[server] = start_s[event] + service_s[event]
    return start_s, end_s
