"""The provider of functions: it adds containers to each function by itself, slowly, and nobody outside can hurry it.

Kathirvel and Parasuraman, Elastic-FaaS (IJITEE 8(10), 2019, Table 1) and Elastic Multi-M/M/s/K (2019, Figure 2a): one
container at first, then some more at equal intervals. Nothing else is known of a provider's rule, so the ramp depends
on time only, not on load; containers go when their function is no longer in service.
"""

from collections.abc import Sequence

from controller.scalers.elastic_faas_formulas import ramp
from penstock.systems import QueueSystem


def check_system(system: QueueSystem) -> None:
    """Raise ValueError for a bank of queues that cannot be: its fields name themselves."""
    for name in ("service_rate_per_s", "ramp_s", "forward_interval_s"):
        if not getattr(system, name) > 0:
            raise ValueError(f"{name}={getattr(system, name):g}: expected a number above 0")
    for name in ("first_container_s", "provision_s", "service_scv", "pool_initial"):
        if not getattr(system, name) >= 0:
            raise ValueError(f"{name}={getattr(system, name):g}: expected at least 0")
    for name in ("max_containers", "ramp_step", "capacity"):
        if getattr(system, name) is not None and getattr(system, name) < 1:
            raise ValueError(f"{name}={getattr(system, name)}: expected at least 1")
    if system.main_capacity is not None and system.main_capacity < 0:
        raise ValueError(f"main_capacity={system.main_capacity}: expected at least 0")


def containers_after(system: QueueSystem, in_service_s: float) -> int:
    """Containers of a function that has been in service for so long, the steps of that very instant included."""
    return timeline(system, (0.0,), in_service_s)[0]


def step_time_s(system: QueueSystem, step: int) -> float:
    """When the containers of a step come, seconds after the function was taken into service; step 0 brings one."""
    return system.first_container_s + step * system.ramp_s


def containers_of_step(system: QueueSystem, step: int) -> int:
    """How many containers a step brings; 0 once the function has all that it may have."""
    if step == 0:
        return 1
    return max(0, min(system.ramp_step, system.max_containers - 1 - (step - 1) * system.ramp_step))


def timeline(system: QueueSystem, starts_s: Sequence[float], time_s: float) -> tuple[int, ...]:
    """Containers of functions that were taken into service at ``starts_s``, at ``time_s``: a row of Table 1."""
    first_s = [start_s + system.first_container_s for start_s in starts_s]
    return tuple(ramp(first_s, time_s, system.ramp_s, system.max_containers, system.ramp_step))
