"""A scaler to start from: keeps pace with the arrivals, works backlogs off, and lets go of replicas slowly."""

from dataclasses import dataclass
from math import ceil
from typing import ClassVar

import msgspec

from controller.scalers.parameters import require_positive, require_replicas, require_share
from controller.scalers.single_fleet import (
    FleetStates,
    PartDecision,
    SingleFleetScaler,
    Window,
    hold_part,
    resize_part,
    states_by_fleet,
    unknown_part,
)
from penstock.contracts import FleetObservation, Term


@dataclass(frozen=True)
class SteadyPaceParameters:
    """Replicas are to be busy for a share ``rho`` of the time; a backlog is to be gone after ``catch_up_s``.

    The fleet shrinks only to what was enough for all of the last ``patience_s``. ``service_rate_per_s`` is that of one
    replica; None: as measured.
    """

    service_rate_per_s: float | None = None
    rho: float = 0.8
    catch_up_s: float = 5.0
    patience_s: float = 20.0
    max_replicas: int | None = None
    decision_interval_s: float = 1.0

    def __post_init__(self) -> None:
        require_positive(
            catch_up_s=self.catch_up_s, patience_s=self.patience_s, decision_interval_s=self.decision_interval_s
        )
        require_share(rho=self.rho)
        require_replicas(self.max_replicas)
        if self.service_rate_per_s is not None:
            require_positive(service_rate_per_s=self.service_rate_per_s)


class SteadyPaceState(msgspec.Struct, frozen=True):
    """Readings of the arrivals, and the needs of the last ``patience_s`` as (time in s, replicas)."""

    arrivals: Window = Window()
    needs: tuple[tuple[float, int], ...] = ()


class SteadyPace(SingleFleetScaler[SteadyPaceParameters, SteadyPaceState]):
    """Grows at once, shrinks with patience."""

    name: ClassVar[str] = "steady-pace"
    paper: ClassVar[str] = "none: the example of docs/your-own-scaler.md"
    Parameters: ClassVar[type[SteadyPaceParameters]] = SteadyPaceParameters
    State: ClassVar[type[FleetStates[SteadyPaceState]]] = states_by_fleet(SteadyPaceState)

    def start_part(self) -> SteadyPaceState:
        """Nothing read yet."""
        return SteadyPaceState()

    def decide_part(
        self,
        part: FleetObservation,
        state: SteadyPaceState,
        observation: FleetObservation,  # noqa: ARG002 - the part is all that it looks at
    ) -> tuple[PartDecision, SteadyPaceState]:
        """⌈(λ + backlog / catch-up time) / (ρ·μ)⌉ replicas, or more if that was needed a moment ago."""
        p, now_s, current = self.parameters, part.time_s, part.replicas.current
        arrivals = state.arrivals.add(now_s, part.arrived, p.decision_interval_s)
        state = msgspec.structs.replace(state, arrivals=arrivals)
        unknown = unknown_part(part, "arrived", "backlog")
        if unknown is not None:
            return unknown, state
        rate, mu = arrivals.rate_per_s(p.decision_interval_s), p.service_rate_per_s or part.service_rate_per_s
        if rate is None or mu is None:
            return hold_part("no arrival rate yet" if rate is None else "service rate is unknown: set one"), state
        load = rate + (part.backlog or 0) / p.catch_up_s
        needed = max(1, ceil(load / (p.rho * mu)))
        recent = (each for each in state.needs if now_s - each[0] < p.patience_s)
        needs = (*recent, (now_s, needed))
        lately = max(replicas for _, replicas in needs)
        wanted = max(needed, min(current, lately))
        wanted = min(wanted, p.max_replicas or wanted)
        why: dict[str, Term] = {
            "arrival_rate_per_s": rate,
            "backlog": part.backlog,
            "load_per_s": load,
            "service_rate_per_s": mu,
            "rho": p.rho,
            "replicas": current,
            "needed": needed,
            "needed_lately": lately,
            "wanted": wanted,
        }
        return resize_part(part, wanted, why), msgspec.structs.replace(state, needs=needs)
