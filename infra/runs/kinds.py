"""How a live run on each kind of fleet is composed: of processes on this machine, or with replicas as pods."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from infra.runs.context import RunContext
from infra.runs.faults import Action, Faults, kill_part, kill_service, stop_service
from infra.runs.function_replicas import FunctionReplicas, start_pipeline_manager
from infra.runs.programs import ControllerProgram, ProgramReplicas, SenderProgram
from infra.runs.run import Broker, Channels, CommittedOffsets, CountedOutcomes, DrainRule, Run
from penstock.errors import PenstockError
from penstock.fleet_kinds import kind_of
from penstock.rundir import RunDirectory
from penstock.runspec import Fault, FaultKind, RunSpec, WorldName
from penstock.systems import FunctionSystem, QueueSystem, System

if TYPE_CHECKING:
    from infra.kubernetes.services import ClusterServices
    from infra.local.services import LocalServices
    from infra.runs.pods import ControllerPod, FunctionPods, PodReplicas

COMMON: Final = ("kafka", "redis", "prometheus")
"""Services that every run needs."""
LOCAL_FAULTS: Final[tuple[FaultKind, ...]] = (
    "kill-worker",
    "freeze-workers",
    "stop-broker",
    "restart-redis",
    "kill-controller",
    "blind-monitor",
)
"""Faults of every run on processes of this machine."""

PodParts: TypeAlias = "tuple[ControllerPod | ControllerProgram, PodReplicas | FunctionPods]"


@dataclass(frozen=True, kw_only=True)
class LiveKind:
    """How a run on one kind of fleet is composed."""

    events: Broker = "kafka"
    """Broker of the events."""
    drain_rule: DrainRule = CountedOutcomes
    """When all events have their outcome."""
    processes: Callable[[RunContext, "LocalServices"], ProgramReplicas | FunctionReplicas] = lambda context, _: (
        ProgramReplicas(context)
    )
    """Replicas as processes of this machine."""
    pods: Callable[[RunContext, "ClusterServices"], PodParts]
    """Controller and replicas where replicas are pods."""
    controller_options: tuple[str, ...] = ()
    """Options of the controller's program."""
    pod_faults: tuple[FaultKind, ...]
    """Faults that can be injected where replicas are pods."""
    local_faults: tuple[FaultKind, ...] = ()
    """Faults besides ``LOCAL_FAULTS`` where replicas are processes."""
    needs: tuple[str, ...] = ()
    """Services needed besides ``COMMON``."""


def live_kind(system: System) -> LiveKind:
    """The compositions of a system's kind. PenstockError for a kind that runs in the sim world only."""
    kind: LiveKind = kind_of(system).load("live")
    return kind


def local_run(services: "LocalServices", spec: RunSpec, directory: RunDirectory) -> Run:
    """A run on processes of this machine."""
    kind, context = live_kind(spec.system), RunContext(services, spec, directory)
    replicas = kind.processes(context, services)
    faults: dict[FaultKind, Action] = {
        "freeze-workers": replicas.freeze,
        "stop-broker": stop_service(context, kind.events),
        "restart-redis": stop_service(context, "redis"),
        "kill-gateway": kill_service(context, "gateway"),
        "stop-gateway": stop_service(context, "gateway"),
    }
    return _compose(kind, context, ControllerProgram(context, *kind.controller_options), replicas, faults)


def pod_run(services: "ClusterServices", spec: RunSpec, directory: RunDirectory) -> Run:
    """A run whose replicas are pods; sender and Spark are programs of the local supervisor."""
    kind, context = live_kind(spec.system), RunContext(services, spec, directory)
    return _compose(kind, context, *kind.pods(context, services), {})


def _compose(
    kind: LiveKind,
    context: RunContext,
    controller: "ControllerProgram | ControllerPod",
    replicas: "ProgramReplicas | FunctionReplicas | PodReplicas | FunctionPods",
    faults: Mapping[FaultKind, Action],
) -> Run:
    actions: dict[FaultKind, Action] = {
        "kill-worker": replicas.kill,
        "kill-controller": controller.kill,
        "blind-monitor": controller.blind,
        "kill-dataflow": kill_part(context, "dataflow"),
        "kill-forwarder": kill_part(context, "forwarder"),
        **faults,
    }
    spec = context.spec
    known = known_faults(spec.system, spec.world)
    return Run(
        context=context,
        channels=Channels(context, kind.events),
        controller=controller,
        replicas=replicas,
        sender=SenderProgram(context),
        drain_rule=kind.drain_rule,
        faults=Faults(context, {name: actions[name] for name in known}),
        start_helper=start_pipeline_manager if isinstance(spec.system, FunctionSystem) else None,
    )


def known_faults(system: System, world: WorldName) -> tuple[FaultKind, ...]:
    """The faults of a live world for a system. PenstockError for a kind that runs in the sim world only."""
    kind = live_kind(system)
    known = kind.pod_faults if world == "kubernetes" else LOCAL_FAULTS + kind.local_faults
    pushed = isinstance(system, QueueSystem) and system.forwarding == "push"  # the controller starts the forwarder
    return tuple(name for name in known if name != "kill-forwarder" or pushed)


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


STREAM: Final = LiveKind(
    drain_rule=CommittedOffsets,
    pods=_consumer_pods,
    pod_faults=("kill-worker", "kill-controller", "blind-monitor"),
)
QUEUE: Final = LiveKind(
    events="rabbitmq",
    pods=_app_pods,
    pod_faults=("kill-worker", "kill-controller", "kill-forwarder", "blind-monitor"),
    local_faults=("kill-forwarder",),
    needs=("rabbitmq",),
)
FUNCTION: Final = LiveKind(
    processes=lambda _, services: FunctionReplicas(services.state),
    pods=_function_pods,
    controller_options=("--stop-replicas",),
    pod_faults=("kill-worker", "kill-controller", "kill-dataflow", "blind-monitor"),
    local_faults=("kill-dataflow", "kill-gateway", "stop-gateway"),
    needs=("gateway",),
)
NETWORK: Final = replace(QUEUE, pod_faults=("kill-worker", "kill-controller", "blind-monitor"), local_faults=())
