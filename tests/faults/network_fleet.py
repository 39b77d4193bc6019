"""A pub/sub network: controller and an app per topic on a simulated broker."""

import random
from collections.abc import Callable
from typing import Any, ClassVar

from consumers.app import App
from penstock.adapters.amqp import topic_queue
from penstock.adapters.process_manager import Program
from penstock.contracts import Decision, FleetObservation, NetworkObservation
from penstock.runspec import RunSpec, ScalerSpec
from penstock.systems import JobSpec, NetworkSystem, TopicSpec
from tests.faults.apps import AppWorld
from tests.faults.fault import APP_WEIGHTS, Menu
from tests.faults.kernel import EPOCH_NS, SECOND, Process
from tests.faults.world import ENDPOINTS, RUN, START_S, event

TOPICS = ("A", "B", "C")
JOBS = {"direct": ("A", "B"), "winding": ("A", "C", "A", "B")}
MOST = 3


class Constant:
    """Service times of 20 ms."""

    def floor_ns(self, event_id: int | None, visit: int = 1) -> int:
        del event_id, visit
        return SECOND // 50


class NetworkWorld(AppWorld):
    """Apps of three topics; a job's route passes one of them twice."""

    KIND = "network"
    MENU: ClassVar[Menu] = Menu(
        parts=("controller", "app"),
        services=("kafka", "redis", "rabbitmq", "supervisor"),
        links=(
            ("controller", "rabbitmq"),
            ("controller", "redis"),
            ("controller", "supervisor"),
            ("app", "rabbitmq"),
            ("app", "redis"),
            ("app", "kafka"),
        ),
        foreign=("kill", "stop", "remove", "forget"),
        weights=APP_WEIGHTS,
    )
    EVENTS = 50

    def make_spec(self) -> RunSpec:
        """With time to start a consumer, and without."""
        rng = self.random
        system = NetworkSystem(
            topics=tuple(TopicSpec(topic=topic, service_rate_per_s=50.0) for topic in TOPICS),
            jobs=tuple(JobSpec(job=job, route=route, arrival_rate_per_s=2.5) for job, route in JOBS.items()),
            start_up_s=rng.choice((0.0, 0.5)),
            window_s=5.0,
        )
        return RunSpec(
            run=RUN,
            experiment="faults",
            world="local",
            scaler=ScalerSpec(name="scripted"),
            seed=self.seed,
            fleet="network",
            duration_s=60,
            start_ns=EPOCH_NS + START_S * SECOND,
            initial_replicas=rng.randint(1, 2),
            max_replicas=MOST,
            system=system,
        )

    def decide(self, observation: FleetObservation, rng: random.Random) -> Decision:
        """Now and then more than there may be."""
        assert isinstance(observation, NetworkObservation)
        targets = {topic.fleet: rng.choice((1, 2, 3, 5)) for topic in observation.topics}
        current = {topic.fleet: topic.replicas.current for topic in observation.topics}
        if targets == current:
            return Decision(action="none")
        return Decision(action="up" if sum(targets.values()) > sum(current.values()) else "down", targets=targets)

    def kind_of(self, program: str) -> str:
        return "controller" if program == f"{RUN}:controller" else "app"

    def launch_part(self, program: Program, process: Process) -> Callable[[], Any]:
        arguments = program.command

        def serve() -> None:
            name, queue = arguments[arguments.index("--replica") + 1], arguments[arguments.index("--queue") + 1]
            app = App(self.spec, name, queue, ENDPOINTS, Constant(), name)  # type: ignore[arg-type]
            process.on_term = app.stop
            app.run()

        return serve

    def send(self, number: int) -> bool:
        job = list(JOBS)[number % 2]
        queue = topic_queue(RUN, JOBS[job][0])
        return queue in self.rabbit.queues and self.rabbit.publish(queue, event(number, job), {}) == "confirmed"

    def unsettled(self) -> str:
        assert self.controller is not None
        actuator = self.controller.fleet.actuator
        if not actuator.ready():
            return f"it is not ready: {dict(actuator.replicas())}"
        sizes = actuator.snapshot().sizes()
        if wrong := [topic for topic, target in self.targets.items() if sizes[topic] != target]:
            return f"{wrong[0]} has {sizes[wrong[0]]} consumers, {self.targets[wrong[0]]} were decided"
        programs = {name.partition(":")[2] for name in self.manager.programs} - {"controller"}
        if programs != set(TOPICS):
            return f"programs {sorted(programs)}, topics {TOPICS}"
        return self.unsettled_queues()
