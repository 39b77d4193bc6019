"""Functions that a user has deployed on an OpenFaaS gateway, as a fleet: only their number of replicas is changed.

They are never deployed, changed or deleted, and none is scaled to zero. They belong to no pipeline: each is scaled by
its own calls, which the gateway's metrics tell (``gateway_metrics``).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from controller.assembly import StoppableClock, make_live_scaler
from controller.control.attachment import EXPERIMENT, AttachedController
from controller.control.gateway_metrics import NOT_NEWER, Calls, GatewayCounters, MetricsAwayError
from controller.fleets.fleet import Fleet
from controller.fleets.function.actuator import OpenFaasActuator
from controller.fleets.function.provider_api import GatewayError, ProviderApi
from controller.loop import AnyScaler
from penstock.clock import Clock
from penstock.contracts import (
    BLINDED,
    Accepted,
    Decision,
    FleetObservation,
    FunctionObservation,
    FunctionStatus,
    ReplicaCounts,
    ReplicaEvent,
)
from penstock.errors import PenstockError
from penstock.openfaas import function_of
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, ScalerSpec
from penstock.settings import Endpoints, Folders
from penstock.systems import FunctionSpec, FunctionSystem

log = logging.getLogger("control")

FLEET: Final = "functions"
LEAST: Final = 1
"""Replicas that a function keeps."""
NO_PIPELINE: Final = "the gateway knows no deadlines"
ABSENT: Final = "the function is not on the gateway"
COUNTED: Final = ("arrived", "completed", "backlog", "busy_s")
TRIAL_TICKS: Final = 200
TRIAL_RATE_PER_S: Final = 10


class AttachedFunctions(OpenFaasActuator):
    """Actuator port on functions of a user's."""

    STEP_S = 1.0  # OpenFaaS' gateway asks its Prometheus with each request

    def apply(self, decision: Decision) -> Accepted:
        """See ``OpenFaasActuator``; at least one replica each."""
        raised = {name: LEAST for name, target in decision.targets.items() if target < LEAST}
        accepted = super().apply(msgspec.structs.replace(decision, targets={**decision.targets, **raised}))
        notes = {name: f"{decision.targets[name]} → {LEAST}: never to zero" for name in raised}
        return Accepted(accepted.targets, {**accepted.clamped, **notes})

    def absent(self, function: str) -> bool:
        """Whether the gateway does not have the function now."""
        with self._lock:
            return not self._targets[function].there


class GatewayMonitor:
    """Monitor port on functions and the metrics of their gateway. ``backlog``: calls that have no answer yet, those
    being served included; the gateway does not tell them apart.
    """

    def __init__(
        self,
        counters: GatewayCounters,
        replicas: AttachedFunctions,
        *,
        clock: Clock,
        origin_s: float,
        blind: Callable[[], bool],
    ) -> None:
        self._counters, self._replicas = counters, replicas
        self._clock, self._origin_s, self._blind = clock, origin_s, blind
        self._before: dict[str, Calls] = {}
        self._rates: dict[str, float] = {}

    def observe(self) -> FunctionObservation:
        """The functions now. A function whose metrics are away, or no newer than before, is unknown."""
        time_s, trouble = self._clock.now() - self._origin_s, self._replicas.trouble
        calls: Mapping[str, Calls | str]
        try:
            calls = {} if self._blind() else self._counters.read()
            away = BLINDED
        except MetricsAwayError as error:
            calls, away = {}, str(error)
        found = {
            name: ABSENT if self._replicas.absent(name) else calls.get(name, away) for name in self._replicas.functions
        }
        unknown = {"replicas": trouble} if trouble else {}
        parts = tuple(
            self._status(
                FunctionStatus(time_s=time_s, fleet=name, replicas=self._replicas.counts(name), unknown=unknown), each
            )
            for name, each in found.items()
        )
        whole = FunctionObservation(
            time_s=time_s,
            fleet=FLEET,
            replicas=ReplicaCounts.total(each.replicas for each in parts),
            functions=parts,
            unknown=unknown,
        )
        # The whole is for the reader only; it keeps the last counts until Prometheus has newer ones.
        latest = [self._before.get(name, each) if each == NOT_NEWER else each for name, each in found.items()]
        if reasons := [each for each in latest if isinstance(each, str)]:
            return replace(whole, unknown={**unknown, **dict.fromkeys(COUNTED[:3], reasons[0])})
        known = [each for each in latest if isinstance(each, Calls)]
        return replace(
            whole,
            arrived=sum(each.arrived for each in known),
            completed=sum(each.completed for each in known),
            backlog=sum(each.unanswered for each in known),
        )

    def _status(self, status: FunctionStatus, found: Calls | str) -> FunctionStatus:
        """The status with what the gateway has counted."""
        unknown = {**status.unknown, "laxity_s": NO_PIPELINE}
        if isinstance(found, str):
            return replace(status, unknown={**unknown, **dict.fromkeys((*COUNTED, "service_rate_per_s"), found)})
        before = self._before.get(status.fleet, Calls(0, 0, 0.0, 0))
        if (done := found.completed - before.completed) > 0 and (busy_s := found.busy_s - before.busy_s) > 0:
            self._rates[status.fleet] = done / busy_s
        self._before[status.fleet] = found
        rate = self._rates.get(status.fleet)
        return replace(
            status,
            arrived=found.arrived,
            completed=found.completed,
            backlog=found.unanswered,
            busy_s=found.busy_s,
            service_rate_per_s=rate,
            unknown=unknown if rate is not None else {**unknown, "service_rate_per_s": "no call was completed yet"},
        )


class AttachedFunctionFleet(Fleet[AttachedFunctions]):
    """Fleet port on functions of a user's."""

    System = FunctionSystem

    def __init__(
        self, spec: RunSpec, endpoints: Endpoints, clock: Clock, api: ProviderApi, counters: GatewayCounters
    ) -> None:
        super().__init__(spec, endpoints, clock)
        assert isinstance(spec.system, FunctionSystem)
        self._counters = counters
        self.actuator = AttachedFunctions(
            functions=[each.name for each in spec.system.functions],
            api=api,
            run=spec.run,
            max_replicas=spec.max_replicas,
        )

    def bring_up(self) -> None:
        """Nothing: the replicas are there."""

    def ready(self) -> bool:
        """Whether the functions were seen. PenstockError once the gateway has refused for good."""
        return self.actuator.deployed

    def monitor(self, origin_s: float, blind: Callable[[], bool]) -> GatewayMonitor:
        """The monitor."""
        return GatewayMonitor(self._counters, self.actuator, clock=self._clock, origin_s=origin_s, blind=blind)

    def stop(self) -> None:
        """End actuator and monitor; the replicas stay."""
        super().stop()
        self._counters.close()


class FunctionsController(AttachedController):
    """Controls functions from ``run`` until ``clock.stop``, and leaves them as they are then. PenstockError in one line
    if gateway or metrics refuse or do not answer, a function is not there, or a scaler needs more than is read.
    """

    def __init__(
        self,
        *,
        gateway: str,
        counters: Callable[[Sequence[str]], GatewayCounters],
        functions: Sequence[str],
        scaler: ScalerSpec,
        shadows: Sequence[ScalerSpec],
        max_replicas: int,
        slo_s: float,
        tick_phase_s: float,
    ) -> None:
        names = [function_of(each) for each in functions]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise PenstockError(f"--functions: {', '.join(twice)} twice")
        scalers = [make_function_scaler(each, names) for each in (scaler, *shadows)]
        api, reading = ProviderApi(gateway, of="--gateway"), counters(names)
        try:
            there = api.functions()
            if missing := [name for name in names if name not in there]:
                raise PenstockError(f"gateway {api.where}: no function {', '.join(missing)}; it has {', '.join(there)}")
            reading.read()
        except (GatewayError, MetricsAwayError, PenstockError) as error:
            api.close()
            reading.close()
            raise PenstockError(str(error)) from None
        directory = RunDirectory.create(Folders().runs.absolute(), EXPERIMENT, scaler.name)
        spec = RunSpec(
            run=directory.name,
            experiment=EXPERIMENT,
            world="local",
            scaler=scaler,
            shadows=tuple(shadows),
            fleet=FLEET,
            pipeline="",
            slo_s=slo_s,
            duration_s=0.0,
            tick_phase_s=tick_phase_s,
            max_replicas=max_replicas,
            analytics=False,
            system=FunctionSystem(
                functions=tuple(FunctionSpec(name=name, service_time_s=0.0) for name in names), deadline_s=slo_s
            ),
        )
        self.of = f"functions {', '.join(names)} of gateway {api.where}"
        clock, endpoints = StoppableClock(), Endpoints()
        fleet = AttachedFunctionFleet(spec, endpoints, clock, api, reading)
        super().__init__(directory, spec, endpoints, fleet, scalers, clock)

    def run(self) -> None:
        """Tick until the clock is stopped. PenstockError if the gateway refuses for good."""
        super().run()
        self.fleet.ready()

    def report(self, events: Sequence[ReplicaEvent]) -> None:
        """Log replicas that ended by themselves; stop at a refusal."""
        for event in events:
            if event.phase == "gone" and event.reason:
                log.warning("%s: %s", event.replica, event.reason)
        try:
            self.fleet.ready()
        except PenstockError:
            self.clock.stop()

    def end(self) -> None:
        """Leave the functions as they are, and say how."""
        left = ", ".join(f"{name} {self.fleet.actuator.counts(name).current}" for name in self.fleet.actuator.functions)
        log.info("replicas stay as they are: %s", left)


def make_function_scaler(spec: ScalerSpec, functions: Sequence[str]) -> AnyScaler:
    """A scaler for functions without a pipeline. PenstockError if it holds on all that a gateway tells: it is tried on
    functions with a steady load whose every readable value is known.
    """
    scaler = make_live_scaler(spec, FleetObservation)
    state = scaler.start(1)
    for tick in range(TRIAL_TICKS):
        decision, state = scaler.decide(_steady(tick * scaler.period_s, functions), state)
        if decision.action != "hold":
            return scaler
    reason = next((str(terms["reason"]) for terms in decision.why.values() if "reason" in terms), "it holds")
    raise PenstockError(f"scaler {spec.name!r} cannot decide on what a gateway's metrics tell: {reason}")


def _steady(time_s: float, functions: Sequence[str]) -> FunctionObservation:
    """Functions with ``TRIAL_RATE_PER_S`` calls per second, of 0.1 s each."""
    calls, one = round(time_s * TRIAL_RATE_PER_S), ReplicaCounts(joined=1)
    part = FunctionStatus(
        time_s=time_s,
        fleet="",
        replicas=one,
        arrived=calls,
        completed=calls,
        backlog=1,
        busy_s=calls / TRIAL_RATE_PER_S,
        service_rate_per_s=float(TRIAL_RATE_PER_S),
        unknown={"laxity_s": NO_PIPELINE},
    )
    parts = tuple(replace(part, fleet=name) for name in functions)
    return FunctionObservation(time_s=time_s, fleet=FLEET, replicas=one, functions=parts)
