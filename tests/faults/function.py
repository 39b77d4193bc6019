"""A pipeline of functions: controller, pipeline manager and a gateway of functions."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from functions.dataflow.connectors.kafka import KafkaConnector
from functions.dataflow.flow import Patience
from functions.dataflow.graph import Pipeline
from functions.dataflow.manager import PipelineManager
from penstock.adapters.process_manager import Program
from penstock.contracts import Decision, FleetObservation, FunctionObservation
from penstock.records import Result
from penstock.runspec import RunSpec, ScalerSpec
from penstock.systems import FunctionSpec, FunctionSystem
from tests.faults.fault import Fault, Menu
from tests.faults.gateway import Gateway, Httpx
from tests.faults.kernel import EPOCH_NS, SECOND, Process, Violation, run_loop
from tests.faults.world import ENDPOINTS, RUN, START_S, World, event

MOST = 3
PARTITIONS = 2
MANAGER = f"{RUN}:dataflow"
CHAIN = (FunctionSpec(name="one", service_time_s=0.025), FunctionSpec(name="two", service_time_s=0.025, after=("one",)))
DIAMOND = (
    FunctionSpec(name="split", service_time_s=0.025),
    FunctionSpec(name="left", service_time_s=0.025, after=("split",)),
    FunctionSpec(name="right", service_time_s=0.025, after=("split",)),
    FunctionSpec(name="merge", service_time_s=0.025, after=("left", "right")),
)


class FunctionWorld(World):
    """A chain or a diamond of functions; requests come from Kafka."""

    KIND = "function"
    MENU: ClassVar[Menu] = Menu(
        parts=("controller", "manager", "manager"),
        services=("kafka", "redis", "gateway"),
        links=(
            ("controller", "gateway"),
            ("controller", "redis"),
            ("manager", "gateway"),
            ("manager", "redis"),
            ("manager", "kafka"),
        ),
        foreign=("kill", "lose", "lose", "scale"),
        weights={"crash": 6, "freeze": 2, "away": 3, "link": 6, "clock": 1, "foreign": 3, "blind": 1, "full": 1},
    )
    EVENTS = 40
    outcomes = ("completed", "dead-lettered")

    def __init__(self, seed: int, faults: Sequence[Fault] | None = None, *, traced: bool = False) -> None:
        super().__init__(seed, faults, traced=traced)
        self.gateway = Gateway(
            self.kernel, tells_events=self.random.random() < 0.7, most=self.random.choice((100, 100, 2))
        )

    def _place(self) -> None:
        super()._place()
        Httpx.network, Httpx.gateway = self.network, self.gateway

    def make_spec(self) -> RunSpec:
        """A chain or a diamond, limited together or not."""
        rng = self.random
        functions = rng.choice((CHAIN, DIAMOND))
        system = FunctionSystem(
            functions=functions,
            deadline_s=3.0,
            cold_start_s=0.3,
            when_busy="reject",
            max_replicas_total=rng.choice((None, None, 2 * len(functions))),
        )
        return RunSpec(
            run=RUN,
            experiment="faults",
            world="local",
            scaler=ScalerSpec(name="scripted"),
            seed=self.seed,
            fleet="pipeline",
            pipeline="payments",
            partitions=PARTITIONS,
            duration_s=60,
            start_ns=EPOCH_NS + START_S * SECOND,
            initial_replicas=1,
            max_replicas=MOST,
            system=system,
        )

    @property
    def system(self) -> FunctionSystem:
        assert isinstance(self.spec.system, FunctionSystem)
        return self.spec.system

    def _begin(self) -> None:
        self.broker.create(self.spec.events_topic, PARTITIONS)
        self.broker.committed = self._committed
        super()._begin()
        self.manager.add(
            msgspec.structs.replace(
                self.manager.programs[f"{RUN}:controller"].program, name=MANAGER, command=("manager",), grace_s=20
            )
        )

    def kind_of(self, program: str) -> str:
        return {MANAGER: "manager"}.get(program, "controller")

    def launch_part(self, program: Program, process: Process) -> Callable[[], Any]:
        spec = self.spec

        def connector(seen: Mapping[str, int]) -> KafkaConnector:
            return KafkaConnector(
                bootstrap="simulated",
                topic=spec.events_topic,
                group=spec.group,
                partitions=spec.partitions,
                client_id="dataflow",
                seen=seen,
            )

        async def serve() -> None:
            manager = PipelineManager(
                spec, Pipeline.of_system(spec.pipeline, self.system), ENDPOINTS, connector, Patience(timeout_s=5.0)
            )
            loop = asyncio.get_running_loop()

            def stop() -> None:
                loop.call_soon_threadsafe(manager.stop)

            process.on_term = stop
            await manager.run()

        return lambda: run_loop(serve())

    def decide(self, observation: FleetObservation, rng: random.Random) -> Decision:
        """Now and then more than there may be."""
        assert isinstance(observation, FunctionObservation)
        targets = {each.fleet: rng.choice((1, 2, 3, 5)) for each in observation.functions}
        current = {each.fleet: each.replicas.current for each in observation.functions}
        if targets == current:
            return Decision(action="none")
        return Decision(action="up" if sum(targets.values()) > sum(current.values()) else "down", targets=targets)

    def send(self, number: int) -> bool:
        if len(self.gateway.functions) < len(self.system.functions):
            return False  # a run begins when it is ready
        self.broker.append(self.spec.events_topic, number % PARTITIONS, event(number))
        return True

    def foreign(self, what: str) -> None:
        names = sorted(self.gateway.functions)
        if what == "kill" and (process := self.victim("manager")) is not None:
            process.kill()
        elif names and what == "lose":
            self.gateway.lose(self.random.choice(names))
        elif names and what == "scale" and self.gateway.most >= 4 and self.system.max_replicas_total is None:
            # Otherwise it looks as if no more were granted, or the others have taken what all together may have.
            self.gateway.scale(self.random.choice(names), self.random.choice((0, 1, 4)))

    def _leave(self) -> None:
        self.manager.remove(MANAGER)

    # --- checks ------------------------------------------------------------------------------------------------------

    def _committed(self, group: str, partition: int, offset: int) -> None:
        """What is committed is finished."""
        before = self.broker.commits.get((group, self.spec.events_topic, partition), 0)
        for record in self.broker.logs[self.spec.events_topic][partition][before:offset]:
            number = record.offset * PARTITIONS + partition
            if number not in self.results:
                self.kernel.violate(f"request {number} is committed without a result")

    def check_arrivals(self, observation: FleetObservation) -> None:
        """Requests of a manager that was down arrive late; none arrives twice."""
        if observation.arrived is not None and observation.arrived > self.sent:
            self.kernel.violate(f"{observation.arrived} arrivals were observed, {self.sent} requests were sent")

    def finished(self, result: Result) -> None:
        """The first outcome of a request stays."""
        assert result.id is not None
        for other in self.results.get(result.id, ()):
            if other.outcome != result.outcome:
                self.kernel.violate(f"request {result.id} was {other.outcome} and {result.outcome}")
        self.results.setdefault(result.id, []).append(result)

    def check_conservation(self) -> None:
        """Each request has one outcome; ledger, dead letters and counts agree."""
        key, hashes = self.spec.ledger_key, self.redis.hashes
        outcomes = {int(number): outcome.decode() for number, outcome in hashes.get(f"{key}:outcomes", {}).items()}
        if sorted(outcomes) != list(range(self.sent)):
            raise Violation(f"{len(outcomes)} of {self.sent} requests have an outcome")
        booked = set(map(int, hashes.get(key, {})))
        if booked != {number for number, outcome in outcomes.items() if outcome == "completed"}:
            raise Violation("the ledger differs from the outcomes")
        counted = int(hashes.get(f"{key}:counts", {}).get("finished", b"0"))
        if counted != self.sent:
            raise Violation(f"{counted} requests are counted as finished, {self.sent} were sent")

    def unsettled(self) -> str:
        assert self.controller is not None
        actuator = self.controller.fleet.actuator
        if not self.controller.fleet.ready():
            return f"it is not ready: {dict(actuator.replicas())}"
        for name, target in self.targets.items():
            target = min(target, self.gateway.most)
            there = self.gateway.functions.get(name)
            if there is None or there.replicas != target or len(there.live) != target:
                return f"{name} has {None if there is None else there.replicas} replicas, {target} were decided"
            if actuator.counts(name).current != target:
                return f"{name}: {actuator.counts(name)}, {target} were decided"
        for partition, log in enumerate(self.broker.logs[self.spec.events_topic]):
            done = self.broker.commits.get((self.spec.group, self.spec.events_topic, partition), 0)
            if done < len(log):
                return f"partition {partition} is committed up to {done} of {len(log)}"
        return ""

    def left_behind(self) -> str:
        return f"functions {', '.join(self.gateway.functions)} are left" if self.gateway.functions else ""
