"""How a live run on each kind of fleet is composed: of processes on this machine, or with replicas as pods."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from infra.runs.context import RunContext
from infra.runs.cuts import AROUND_KAFKA, AROUND_RABBITMQ, Cut, Detours, cuts_of
from infra.runs.faults import Faults, Injected, fill_disk, kill_part, kill_service, stop_service
from infra.runs.function_replicas import FunctionReplicas, start_pipeline_manager
from infra.runs.programs import ControllerProgram, ProgramReplicas, SenderProgram
from infra.runs.run import DRAIN_STALL_S, Broker, Channels, CommittedOffsets, CountedOutcomes, DrainRule, Run
from penstock.errors import PenstockError
from penstock.fleet_kinds import kind_of
from penstock.rundir import RunDirectory
from penstock.runspec import Fault, FaultKind, RunSpec, WorldName, part_hit
from penstock.systems import FunctionSystem, NetworkSystem, System

if TYPE_CHECKING:
    from infra.kubernetes.services import ClusterServices
    from infra.local.services import LocalServices
    from infra.runs.pods import ControllerPod, FunctionPods, PodReplicas

COMMON: Final = ("kafka", "redis", "prometheus")
"""Services that every run needs."""
STALL_SERVICES: Final = 5
"""A drain waits for progress this many times as long as an event of the slowest kind takes."""
PodParts: TypeAlias = "tuple[ControllerPod | ControllerProgram, PodReplicas | FunctionPods]"


class Parts(NamedTuple):
    """What a fault of a run can hit. ``replicas`` are of the class that the kind composes a run with."""

    context: RunContext
    events: Broker
    controller: "ControllerProgram | ControllerPod"
    replicas: Any
    cuts: Mapping[FaultKind, Cut] = {}


LiveFaults: TypeAlias = Mapping[FaultKind, Callable[[Parts], Injected]]

COMMON_FAULTS: Final[LiveFaults] = {
    "kill-worker": lambda run: run.replicas.kill(),
    "kill-controller": lambda run: run.controller.kill(),
    "blind-monitor": lambda run: run.controller.blind(),
}
"""Of every live run."""
LOCAL_FAULTS: Final[LiveFaults] = {
    **COMMON_FAULTS,
    "freeze-workers": lambda run: run.replicas.freeze(),
    "stop-broker": lambda run: stop_service(run.context, run.events),
    "restart-redis": lambda run: stop_service(run.context, "redis"),
    "fill-disk": lambda run: fill_disk(run.context, "controller"),
}
"""Of every run on processes of this machine."""
CUT_WORKERS: Final[LiveFaults] = {"cut-workers": lambda run: run.cuts["cut-workers"].begin()}
CUT_CONTROLLER: Final[LiveFaults] = {"cut-controller": lambda run: run.cuts["cut-controller"].begin()}
KILL_FORWARDER: Final[LiveFaults] = {"kill-forwarder": lambda run: kill_part(run.context, "forwarder")}
KILL_DATAFLOW: Final[LiveFaults] = {"kill-dataflow": lambda run: kill_part(run.context, "dataflow")}


@dataclass(frozen=True, kw_only=True)
class LiveKind:
    """How a run on one kind of fleet is composed."""

    events: Broker = "kafka"
    """Broker of the events."""
    drain_rule: DrainRule = CountedOutcomes
    """When all events have their outcome."""
    slowest_s: Callable[[System], float] = lambda _: 0.0
    """Mean seconds of service of an event of the slowest kind, where it may be seconds."""
    processes: Callable[[RunContext, "LocalServices"], ProgramReplicas | FunctionReplicas] = lambda context, _: (
        ProgramReplicas(context)
    )
    """Replicas as processes of this machine."""
    pods: Callable[[RunContext, "ClusterServices"], PodParts]
    """Controller and replicas where replicas are pods."""
    controller_options: tuple[str, ...] = ()
    """Options of the controller's program."""
    pod_faults: LiveFaults = field(default_factory=dict)
    """Faults besides ``COMMON_FAULTS`` where replicas are pods."""
    local_faults: LiveFaults = field(default_factory=dict)
    """Faults besides ``LOCAL_FAULTS`` where replicas are processes."""
    detours: Detours = field(default_factory=dict)
    """Ways through a proxy, by the fault that cuts them, where the run is local."""
    needs: tuple[str, ...] = ()
    """Services needed besides ``COMMON``."""

    def context(
        self, services: "LocalServices | ClusterServices", spec: RunSpec, directory: RunDirectory
    ) -> RunContext:
        """Of one run: it ends when a service that it needs has died."""
        return RunContext(services, spec, directory, (*COMMON, *self.needs))


def live_kind(system: System) -> LiveKind:
    """The compositions of a system's kind. PenstockError for a kind that runs in the sim world only."""
    kind: LiveKind = kind_of(system).load("live")
    return kind


def local_run(services: "LocalServices", spec: RunSpec, directory: RunDirectory) -> Run:
    """A run on processes of this machine."""
    kind = live_kind(spec.system)
    context = kind.context(services, spec, directory)
    replicas = kind.processes(context, services)
    cuts = cuts_of(context, services, kind.detours)
    return _compose(kind, context, ControllerProgram(context, *kind.controller_options), replicas, cuts)


def pod_run(services: "ClusterServices", spec: RunSpec, directory: RunDirectory) -> Run:
    """A run whose replicas are pods; sender and Spark are programs of the local supervisor."""
    kind = live_kind(spec.system)
    context = kind.context(services, spec, directory)
    return _compose(kind, context, *kind.pods(context, services))


def _compose(
    kind: LiveKind,
    context: RunContext,
    controller: "ControllerProgram | ControllerPod",
    replicas: "ProgramReplicas | FunctionReplicas | PodReplicas | FunctionPods",
    cuts: Mapping[FaultKind, Cut] = {},
) -> Run:
    spec, parts = context.spec, Parts(context, kind.events, controller, replicas, cuts)
    actions = {name: partial(action, parts) for name, action in known_faults(spec.system, spec.world).items()}
    return Run(
        context=context,
        channels=Channels(context, kind.events),
        controller=controller,
        replicas=replicas,
        sender=SenderProgram(context),
        drain_rule=kind.drain_rule,
        faults=Faults(context, actions),
        stall_s=max(DRAIN_STALL_S, spec.slo_s, STALL_SERVICES * kind.slowest_s(spec.system)),
        cuts=tuple(cuts.values()),
        start_helper=start_pipeline_manager if isinstance(spec.system, FunctionSystem) else None,
    )


def known_faults(system: System, world: WorldName) -> LiveFaults:
    """The faults of a live world for a system. PenstockError for a kind that runs in the sim world only."""
    kind = live_kind(system)
    known = {**COMMON_FAULTS, **kind.pod_faults} if world == "kubernetes" else {**LOCAL_FAULTS, **kind.local_faults}
    return {name: action for name, action in known.items() if part_hit(name) not in system.lacks}


def check_live_faults(system: System, world: WorldName, faults: tuple[Fault, ...]) -> None:
    """Raise PenstockError for a fault that a live world does not have for this system."""
    for fault in faults:
        if fault.kind not in (known := known_faults(system, world)):
            raise PenstockError(f"--fault {fault}: --world {world} has {', '.join(known)}")


# --- pods, imported on demand ----------------------------------------------------------------------------------------


def _consumer_pods(context: RunContext, services: "ClusterServices") -> PodParts:
    """Controller and consumers of a group as pods."""
    from infra.runs.pods import ControllerPod, PodReplicas

    fleet = context.spec.fleet
    replicas = PodReplicas(context, services.kubectl, fleet, lambda pod: pod.life is not None and not pod.ending)
    return ControllerPod(services, context), replicas


def _app_pods(context: RunContext, services: "ClusterServices") -> PodParts:
    """Function apps as pods; the controller is a program."""
    from controller.fleets.apps.fleet import APPS
    from infra.runs.pods import PodReplicas

    replicas = PodReplicas(context, services.kubectl, APPS, lambda pod: pod.ready and pod.alive and bool(pod.replica))
    return ControllerProgram(context), replicas


def _function_pods(context: RunContext, services: "ClusterServices") -> PodParts:
    """The gateway's replicas as pods; the controller is a program."""
    from infra.runs.pods import FunctionPods

    assert isinstance(context.spec.system, FunctionSystem)
    names = [function.name for function in context.spec.system.functions]
    return ControllerProgram(context, *FUNCTION.controller_options), FunctionPods(services.kubectl, names)


def _longest_job_s(system: System) -> float:
    assert isinstance(system, NetworkSystem)
    return system.longest_job_s


STREAM: Final = LiveKind(
    drain_rule=CommittedOffsets,
    pods=_consumer_pods,
    local_faults={"kill-all-workers": lambda run: run.replicas.kill_all(), **CUT_WORKERS, **CUT_CONTROLLER},
    detours=AROUND_KAFKA,
)
QUEUE: Final = LiveKind(
    events="rabbitmq",
    pods=_app_pods,
    pod_faults=KILL_FORWARDER,
    local_faults={**KILL_FORWARDER, **CUT_WORKERS},
    detours=AROUND_RABBITMQ,
    needs=("rabbitmq",),
)
FUNCTION: Final = LiveKind(
    processes=lambda context, services: FunctionReplicas(context, services),
    pods=_function_pods,
    controller_options=("--stop-replicas",),
    pod_faults=KILL_DATAFLOW,
    local_faults={
        **KILL_DATAFLOW,
        "kill-gateway": lambda run: kill_service(run.context, "gateway"),
        "stop-gateway": lambda run: stop_service(run.context, "gateway"),
    },
    needs=("gateway",),
)
NETWORK: Final = replace(QUEUE, slowest_s=_longest_job_s, pod_faults={}, local_faults=CUT_WORKERS)
