"""The container ramp of a function provider: it adds containers to each function at its own slow pace.

Kathirvel and Parasuraman, Elastic-FaaS (IJITEE 8(10), 2019, Table 1) and Elastic Multi-M/M/s/K (2019, Figure 2a): one
container at first, then some more at equal intervals. Nothing else is known of a provider's rule, so the ramp depends
on time only, not on load; containers go when their function is no longer in service.
"""

from collections.abc import Sequence

from controller.queueing.ramp import ramp
from penstock.errors import PenstockError
from penstock.systems import QueueSystem


def check_system(system: QueueSystem) -> None:
    """Raise PenstockError for a bank of queues that cannot be: its fields name themselves."""
    above_0 = ("service_rate_per_s", "ramp_s", "forward_interval_s")
    least = {"first_container_s": 0, "provision_s": 0, "service_scv": 0, "pool_initial": 0, "main_capacity": 0}
    least |= {"max_containers": 1, "ramp_step": 1, "capacity": 1}
    for name in (*above_0, *least):
        value = getattr(system, name)
        if value is not None and not (value > 0 if name in above_0 else value >= least[name]):
            expected = "a number above 0" if name in above_0 else f"at least {least[name]}"
            raise PenstockError(f"{name}={value:g}: expected {expected}")


def containers_after(system: QueueSystem, in_service_s: float) -> int:
    """Containers of a function that has been in service for so long, the steps of that very instant included."""
    return timeline(system, (0.0,), in_service_s)[0]


def next_step_s(system: QueueSystem, in_service_s: float) -> float | None:
    """Time of the next step of a function that has been in service for so long; None if it has all its containers."""
    containers = containers_after(system, in_service_s)
    if containers >= system.max_containers:
        return None
    steps = 0 if containers == 0 else 1 + (containers - 1) // system.ramp_step  # the first brings one
    return system.first_container_s + steps * system.ramp_s


def timeline(system: QueueSystem, starts_s: Sequence[float], time_s: float) -> tuple[int, ...]:
    """Containers of functions that were taken into service at ``starts_s``, at ``time_s``: a row of Table 1."""
    first_s = [start_s + system.first_container_s for start_s in starts_s]
    return tuple(ramp(first_s, time_s, system.ramp_s, system.max_containers, system.ramp_step))
