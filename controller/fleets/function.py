"""A pipeline of functions behind an OpenFaaS gateway, with the pipeline manager in front of it."""

from collections.abc import Callable

import msgspec

from controller.actuators.function_roster import FunctionRoster
from controller.actuators.openfaas import OpenFaasActuator
from controller.actuators.provider_api import ProviderApi
from controller.monitors.functions import FunctionMonitor, SnapshotReader
from penstock.clock import Clock
from penstock.contracts import FunctionObservation, ReplicaCounts
from penstock.errors import PenstockError
from penstock.graph import topological
from penstock.openfaas import deployment
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.settings import Endpoints
from penstock.systems import FunctionSystem


class FunctionFleetState(msgspec.Struct, frozen=True, kw_only=True):
    """Replicas, and the functions that were deployed for this run."""

    roster: FunctionRoster
    own: tuple[str, ...]


class FunctionFleet:
    """Fleet port on a gateway."""

    offers = FunctionObservation

    def __init__(
        self, directory: RunDirectory, spec: RunSpec, endpoints: Endpoints, clock: Clock, state: msgspec.Raw | None
    ) -> None:
        del directory  # the gateway keeps the functions' logs
        if not isinstance(spec.system, FunctionSystem):
            raise PenstockError(f"{spec.run}: its fleet is {type(spec.system).__name__}, a pipeline was expected")
        self._spec, self._system, self._endpoints, self._clock = spec, spec.system, endpoints, clock
        self._state = msgspec.json.decode(state, type=FunctionFleetState) if state is not None else None
        self._functions = topological(self._system.functions)
        self._reader: SnapshotReader | None = None
        self.actuator = OpenFaasActuator(
            functions=[function.name for function in self._functions],
            api=ProviderApi(endpoints.require("gateway")),
            max_replicas=spec.max_replicas,
            max_replicas_total=self._system.max_replicas_total,
            roster=self._state.roster if self._state is not None else None,
        )

    def start(self, after_step: Callable[[], None]) -> None:
        """Look at what the gateway has, reconcile from then on."""
        self.actuator.start(after_step)

    def bring_up(self) -> None:
        """Deploy the functions with the initial replicas. Those that a predecessor has deployed stay as they are."""
        deployments = [
            deployment(
                function,
                self._system,
                replicas=self._spec.initial_replicas,
                max_replicas=self._spec.max_replicas,
                seed=self._spec.seed,
                environment={},
            )
            for function in self._functions
        ]
        self.actuator.deploy(deployments, self._spec.initial_replicas)

    def ready(self) -> bool:
        """Every function is there, and all replicas that were asked for take requests."""
        counts = [self.actuator.counts(function.name) for function in self._functions]
        least = min(1, self._spec.initial_replicas)
        return self.actuator.deployed and all(each.joined == each.current >= least for each in counts)

    def monitor(self, origin_s: float, blind: Callable[[], bool]) -> FunctionMonitor:
        """The first reading makes the connection, and is thrown away."""
        self._reader = reader = SnapshotReader(self._endpoints.require("redis"), self._spec.run, self._clock)
        reader.read()
        return FunctionMonitor(
            fleet=self._spec.fleet,
            pipeline=self._spec.pipeline,
            deadline_s=self._system.deadline_s,
            functions=self.actuator.functions,
            reader=reader,
            replicas=self.actuator,
            clock=self._clock,
            origin_s=origin_s,
            blind=blind,
        )

    def counts(self) -> ReplicaCounts:
        """Replicas of all functions by phase."""
        counts = [self.actuator.counts(function.name) for function in self._functions]
        return ReplicaCounts(
            **{phase: sum(getattr(each, phase) for each in counts) for phase in ReplicaCounts.__struct_fields__}
        )

    def snapshot(self) -> msgspec.Raw:
        """JSON of ``FunctionFleetState``."""
        state = FunctionFleetState(roster=self.actuator.snapshot(), own=tuple(sorted(self._own())))
        return msgspec.Raw(msgspec.json.encode(state))

    def stop(self) -> None:
        """Replicas stay as they are."""
        self.actuator.stop()
        if self._reader is not None:
            self._reader.close()

    def stop_replicas(self) -> None:
        """Raises PenstockError if some stay."""
        self.actuator.stop_replicas(self._own())

    def _own(self) -> frozenset[str]:
        return self.actuator.own.union(self._state.own if self._state is not None else ())
