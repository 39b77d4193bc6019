"""A bank of RabbitMQ queues: controller, forwarder and function apps on a simulated broker."""

import random
from collections.abc import Callable
from typing import Any, ClassVar

from consumers.app import App
from consumers.service_times import QueueServiceTimes
from controller.fleets.queue.forwarder import Forwarder
from penstock.adapters.amqp import main_queue, prefix
from penstock.adapters.process_manager import Program
from penstock.contracts import Action, Decision, FleetObservation, QueueObservation
from penstock.runspec import RunSpec, ScalerSpec
from penstock.systems import QueueSystem
from tests.faults.apps import AppWorld
from tests.faults.fault import APP_WEIGHTS, Menu
from tests.faults.kernel import EPOCH_NS, SECOND, Process
from tests.faults.world import ENDPOINTS, RUN, START_S, event

FLEET = "functions"
MOST = 4
FORWARDER = f"{RUN}:forwarder"


class QueueWorld(AppWorld):
    """Function apps ``functions-1``, …, each with its sub-queue, fed by the forwarder."""

    KIND = "queue"
    MENU: ClassVar[Menu] = Menu(
        parts=("controller", "app", "forwarder"),
        services=("kafka", "redis", "rabbitmq", "supervisor"),
        links=(
            ("controller", "rabbitmq"),
            ("controller", "redis"),
            ("controller", "supervisor"),
            ("forwarder", "rabbitmq"),
            ("forwarder", "redis"),
            ("app", "rabbitmq"),
            ("app", "redis"),
            ("app", "kafka"),
        ),
        foreign=("kill", "stop", "remove", "forget"),
        weights=APP_WEIGHTS,
    )

    def make_spec(self) -> RunSpec:
        """Bounded and unbounded queues, with a pool and without, that hold what finds no room or drop it."""
        rng = self.random
        pulls = rng.random() < 0.15
        system = QueueSystem(
            service_rate_per_s=rng.choice((10.0, 40.0)),
            scaled="containers" if rng.random() < 0.15 else "queues",
            forwarding="pull" if pulls else "push",
            capacity=rng.choice((3, 6, 20, None)),
            when_full=rng.choice(("hold", "hold", "drop")),
            max_containers=rng.choice((1, 3)),
            ramp_s=1.0,
            first_container_s=rng.choice((0.0, 0.3)),
            provision_s=rng.choice((0.0, 0.5)),
            pool_initial=rng.choice((0, 1)),
            when_removed=rng.choice(("pool", "destroy")),
        )
        self.outcomes = ("completed", "rejected") if system.when_full == "drop" else ("completed",)
        return RunSpec(
            run=RUN,
            experiment="faults",
            world="local",
            scaler=ScalerSpec(name="scripted"),
            seed=self.seed,
            fleet=FLEET,
            duration_s=60,
            start_ns=EPOCH_NS + START_S * SECOND,
            initial_replicas=rng.randint(1, 2),
            max_replicas=MOST,
            system=system,
        )

    @property
    def system(self) -> QueueSystem:
        assert isinstance(self.spec.system, QueueSystem)
        return self.spec.system

    def decide(self, observation: FleetObservation, rng: random.Random) -> Decision:
        """Size, sometimes the pool, sometimes shares of those that are there."""
        assert isinstance(observation, QueueObservation)
        target = rng.choice((1, 2, 3, 4, 6))
        pool = rng.choice((None, None, 0, 1, 2))
        routing = None
        if rng.random() < 0.4:
            routing = {queue.queue: rng.choice((0.0, 1.0, 2.0)) for queue in observation.queues if not queue.draining}
        if target == observation.replicas.current and pool is None and routing is None:
            return Decision(action="none")
        action: Action = "up" if target > observation.replicas.current else "down"
        if self.system.scaled == "containers":
            pool = routing = None
        return Decision(action=action, targets={FLEET: target}, pool=pool, routing=routing)

    def kind_of(self, program: str) -> str:
        return {f"{RUN}:controller": "controller", FORWARDER: "forwarder"}.get(program, "app")

    def launch_part(self, program: Program, process: Process) -> Callable[[], Any]:
        def forward() -> None:
            forwarder = Forwarder(self.spec, ENDPOINTS)
            process.on_term = forwarder.stop
            forwarder.run()

        def serve() -> None:
            arguments = program.command
            name, queue = arguments[arguments.index("--replica") + 1], arguments[arguments.index("--queue") + 1]
            app = App(self.spec, name, queue, ENDPOINTS, QueueServiceTimes(self.system, self.seed))
            process.on_term = app.stop
            app.run()

        return forward if program.name == FORWARDER else serve

    def send(self, number: int) -> bool:
        queue = main_queue(RUN)
        return queue in self.rabbit.queues and self.rabbit.publish(queue, event(number), {}) == "confirmed"

    # --- checks ------------------------------------------------------------------------------------------------------

    def unsettled(self) -> str:
        assert self.controller is not None
        actuator = self.controller.fleet.actuator
        counts = actuator.counts()
        if FLEET in self.targets and counts.current != self.targets[FLEET]:
            return f"{counts.current} replicas, {self.targets[FLEET]} were decided"
        if counts.draining:
            return f"{counts.draining} replicas are draining: {dict(actuator.replicas())}"
        if not actuator.ready():
            return f"it is not ready: {dict(actuator.replicas())}"
        replicas = actuator.snapshot()
        programs = {name.partition(":")[2] for name in self.manager.programs} - {"controller", "forwarder"}
        if programs != set(replicas.replicas):
            return f"programs {sorted(programs)}, functions {sorted(replicas.replicas)}"
        if self.system.scaled != "containers" and len(replicas.pool) < replicas.pool_wanted:
            return f"pool {replicas.pool}, {replicas.pool_wanted} are wanted"
        queues = {name.removeprefix(prefix(RUN)) for name in self.rabbit.queues} - {"main"}
        if queues != (set() if replicas.pulls else set(replicas.replicas)):
            return f"queues {sorted(queues)}, functions {sorted(replicas.replicas)}"
        if replicas.pulls != (FORWARDER not in self.manager.programs):
            return "the forwarder is missing or too many"
        return self.unsettled_queues()
