"""A pipeline of functions behind an OpenFaaS gateway, with the pipeline manager in front of it."""

from collections.abc import Callable

import msgspec

from controller.fleets.fleet import Fleet
from controller.fleets.function.actuator import OpenFaasActuator
from controller.fleets.function.monitor import FunctionMonitor, SnapshotReader
from controller.fleets.function.provider_api import ProviderApi
from controller.fleets.function.replica_set import FunctionReplicaSet
from penstock.clock import Clock
from penstock.graph import topological
from penstock.openfaas import deployment
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.settings import Endpoints
from penstock.systems import FunctionSystem


class FunctionFleet(Fleet[OpenFaasActuator]):
    """Fleet port on a gateway, which keeps the functions' logs."""

    System = FunctionSystem

    def __init__(
        self, directory: RunDirectory, spec: RunSpec, endpoints: Endpoints, clock: Clock, state: msgspec.Raw | None
    ) -> None:
        del directory
        super().__init__(spec, endpoints, clock)
        assert isinstance(spec.system, FunctionSystem)
        self._system = spec.system
        self._functions = topological(self._system.functions)
        self._reader: SnapshotReader | None = None
        self.actuator = OpenFaasActuator(
            functions=[function.name for function in self._functions],
            api=ProviderApi(endpoints.require("gateway")),
            run=spec.run,
            max_replicas=spec.max_replicas,
            max_replicas_total=self._system.max_replicas_total,
            replicas=msgspec.json.decode(state, type=FunctionReplicaSet) if state is not None else None,
        )

    def bring_up(self) -> None:
        """Deploy the functions with the initial replicas. Those that a predecessor deployed stay as they are."""
        deployments = [
            deployment(
                function,
                self._system,
                replicas=self._spec.initial_replicas,
                max_replicas=self._spec.max_replicas,
                seed=self._spec.seed,
                run=self._spec.run,
                environment={},
            )
            for function in self._functions
        ]
        self.actuator.deploy(deployments, self._spec.initial_replicas)

    def ready(self) -> bool:
        """All functions are deployed, and all requested replicas take requests. PenstockError if one is refused."""
        counts = [self.actuator.counts(function.name) for function in self._functions]
        least = min(1, self._spec.initial_replicas)
        return self.actuator.deployed and all(each.joined == each.current >= least for each in counts)

    @property
    def refusal(self) -> str:
        """See ``Fleet``: a function that is not this run's any more."""
        return self.actuator.refusal

    def monitor(self, origin_s: float, blind: Callable[[], bool]) -> FunctionMonitor:
        """The monitor; its first reading, which opens the connection, is discarded."""
        self._reader = reader = SnapshotReader(self._endpoints.require("redis"), self._spec.run, self._clock)
        reader.read()
        return FunctionMonitor(
            self._spec, clock=self._clock, origin_s=origin_s, reader=reader, replicas=self.actuator, blind=blind
        )

    def stop(self) -> None:
        """End actuator and monitor; replicas stay as they are."""
        super().stop()
        if self._reader is not None:
            self._reader.close()
