"""What every kind of fleet has in common: machine, services, controller, sender, faults, and the common checks."""

import gc
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import msgspec
from pydantic import SecretStr

from controller.assembly import RunController
from controller.journal import TickRecord
from controller.main import make_controller
from penstock.adapters.process_manager import Program
from penstock.contracts import Decision, FleetObservation, hold
from penstock.records import Event, Result, encode, result_decoder
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec
from penstock.settings import Endpoints
from penstock.signing import Signer
from tests.faults import kernel as kernels
from tests.faults.fault import UNREST_S, Fault, Menu, draw
from tests.faults.install import PRESENT
from tests.faults.kafka_broker import Broker, Consumer, GroupClient, Producer, Record
from tests.faults.kernel import EPOCH_NS, SECOND, Kernel, Process, Violation
from tests.faults.machine import Disk, ManagerClient, ProcessManager, SimPath
from tests.faults.network import HttpConnection, LinkFault, Network
from tests.faults.redis_server import RedisClient, RedisServer

RUN = "20240101T000000Z-faults-scripted"
KEY = b"\x2a" * 32
START_S = 2
"""Start of the run, seconds after the machine's."""
SIGNER = Signer(KEY, RUN)
ENDPOINTS = Endpoints(
    kafka="simulated:9092",
    redis=SecretStr("redis://simulated:6379/0"),
    rabbitmq=SecretStr("amqp://user:secret@simulated:5672/%2F"),
    rabbitmq_management=SecretStr("http://user:secret@simulated:15672"),
    controller="http://127.0.0.1:8700",
    gateway=SecretStr("http://admin:a-secret@127.0.0.1:8080"),
    supervisor="ipc://simulated",
    signing_key=SecretStr(KEY.hex()),
)
_EVENTS: dict[tuple[int, str], bytes] = {}


def event(number: int, job: str = "", pipeline: str = "payments") -> bytes:
    """The record of an event: made once, for its signature takes time."""
    if (number, job) not in _EVENTS:
        payload = b'{"account":"a%d","merchant":"m","amount_cents":%d,"currency":"EUR","country":"DE"}' % (
            number % 7,
            100 + number,
        )
        intended_ns = EPOCH_NS + START_S * SECOND + number * SECOND // 20
        _EVENTS[number, job] = encode(
            Event(
                id=number,
                run=RUN,
                pipeline=pipeline,
                key=f"a{number % 7}",
                intended_ns=intended_ns,
                sent_ns=intended_ns,
                payload=msgspec.Raw(payload),
                mac=SIGNER.sign(number, payload),
                job=job,
            )
        )
    return _EVENTS[number, job]


class ScriptedState(msgspec.Struct):
    """How often it decided."""

    decisions: int = 0


class Scripted:
    """A scaler whose target is drawn anew every few seconds until ``calm_s``, then stays. It holds on unknown input."""

    name = "scripted"
    fleets = FleetObservation
    paper = ""
    State = ScriptedState
    period_s = 1.0

    def __init__(self, seed: int, calm_s: float, decide: Callable[[FleetObservation, random.Random], Decision]) -> None:
        self._seed, self._calm_s, self._decide = seed, calm_s, decide

    def start(self, seed: int) -> ScriptedState:
        return ScriptedState()

    def decide(self, observation: FleetObservation, state: ScriptedState) -> tuple[Decision, ScriptedState]:
        state = ScriptedState(state.decisions + 1)
        if observation.backlog is None:
            return hold(observation.fleet, "unknown backlog"), state
        turn = int(min(observation.time_s, self._calm_s) // 2)
        return self._decide(observation, random.Random(f"target {self._seed} {turn}")), state


class World:
    """One seed of one kind of fleet. ``play`` raises Violation."""

    KIND: ClassVar[str]
    MENU: ClassVar[Menu]
    RECOVER_S: ClassVar[float] = 30.0
    """After the last fault the fleet equals the decision, and all events are finished, within this time."""
    LEAVE_S: ClassVar[float] = 25.0
    """After the end of the run everything is gone within this time."""
    EVENTS: ClassVar[int] = 80

    def __init__(self, seed: int, faults: Sequence[Fault] | None = None, *, traced: bool = False) -> None:
        self.seed = seed
        self.random = random.Random(f"world {seed}")
        self.faults = draw(seed, self.MENU) if faults is None else list(faults)
        self.kernel = Kernel(seed, traced=traced)
        self.network = Network(self.kernel)
        self.redis = RedisServer()
        self.broker = Broker(self.kernel, self.network)
        self.disk = Disk()
        self.manager = ProcessManager(self.kernel, self.network, self.launch)
        self.manager.kind_of = self.kind_of
        self.manager.essential = {f"{RUN}:controller", f"{RUN}:dataflow"}
        self.calm_s = max([UNREST_S, *(fault.at_s + fault.seconds for fault in self.faults)])
        self.controller: RunController | None = None
        self.ending = False
        self.sent = 0
        self.failing_starts: list[str] = []
        self.results: dict[int, list[Result]] = {}
        self.path = SimPath(f"/runs/{RUN}")
        self.spec = self.make_spec()
        self.last_tick: TickRecord | None = None
        self.ticked_ns = 0
        """When it was journaled."""
        self.sent_before = deque([0], maxlen=12)
        """Events sent, each step; the first is a little older than the oldest reading."""
        self.targets: dict[str, int] = {}
        self.ticks: list[int] = []
        self.controllers = 0

    # --- what a kind defines -----------------------------------------------------------------------------------------

    def make_spec(self) -> RunSpec:
        raise NotImplementedError

    def decide(self, observation: FleetObservation, rng: random.Random) -> Decision:
        raise NotImplementedError

    def kind_of(self, program: str) -> str:
        """The kind of a program's process, by its name."""
        raise NotImplementedError

    def launch(self, program: Program, process: Process) -> Callable[[], Any] | None:
        """The main function of a program's process; None for one that does nothing."""
        if program.name == f"{RUN}:controller":
            return lambda: self.control(process)
        if self.failing_starts:
            if self.failing_starts.pop(0) == "dies":
                return lambda: self.kernel.sleep(0.05)
            return self._late(self.launch_part(program, process))
        return self.launch_part(program, process)

    def _late(self, main: Callable[[], Any]) -> Callable[[], Any]:
        """It hangs until the faults are over."""

        def wait() -> None:
            while self.kernel.seconds < self.calm_s:
                self.kernel.sleep(0.5)
            main()

        return wait

    def launch_part(self, program: Program, process: Process) -> Callable[[], Any]:
        raise NotImplementedError

    def send(self, number: int) -> bool:
        """Hand one event to the broker; whether it took it."""
        raise NotImplementedError

    def unsettled(self) -> str:
        """What the fleet still lacks to equal the decision, empty for nothing."""
        raise NotImplementedError

    def left_behind(self) -> str:
        """What is left after the end, empty for nothing."""
        raise NotImplementedError

    def foreign(self, what: str) -> None:
        """Somebody else's edit."""
        raise NotImplementedError

    def check(self) -> None:
        """Invariants of the kind, a few times a second."""

    # --- the run -----------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """Run the seed to its end."""
        kernels.KERNEL.append(self.kernel)
        PRESENT.append(self)
        gc.disable()
        try:
            self._place()
            self._begin()
            self._run(self.calm_s - self.kernel.seconds)
            self._heal()
            if not self._run(self.RECOVER_S, lambda: self.unfinished() == ""):
                raise Violation(f"{self.RECOVER_S:g} s after the last fault: {self.unfinished()}")
            self.check_conservation()
            self.ending = True
            self._leave()
            if (process := self.manager.process_of(f"{RUN}:controller")) is not None:
                self.manager.remove(f"{RUN}:controller")
                assert process is not None
            if not self._run(self.LEAVE_S, lambda: self.all_left_behind() == ""):
                raise Violation(f"{self.LEAVE_S:g} s after the end: {self.all_left_behind()}")
            self.check_journal()
        finally:
            self.kernel.close()
            kernels.KERNEL.pop()
            PRESENT.pop()

    def _leave(self) -> None:
        """The parts that the controller does not end."""

    def _run(self, seconds: float, done: Callable[[], bool] = lambda: False) -> bool:
        def step() -> bool:
            self.broker.remember()
            self.sent_before.append(self.sent)
            self.check()
            return done()

        return self.kernel.run(seconds, step)

    def _place(self) -> None:
        """The class attributes by which simulated clients find their services."""
        HttpConnection.network = self.network
        SimPath.disk = self.disk
        ManagerClient.manager = self.manager
        RedisClient.server, RedisClient.network = self.redis, self.network
        GroupClient.broker = Producer.broker = Consumer.broker = self.broker

    def _begin(self) -> None:
        self.broker.stored = self._stored
        self.disk.files[f"{self.path}/run.json"] = msgspec.json.encode(self.spec)
        self.broker.create(self.spec.results_topic, 1)
        self.manager.add(
            Program(
                name=f"{RUN}:controller",
                command=("controller",),
                folder=self.path,  # type: ignore[arg-type]
                log=self.path,  # type: ignore[arg-type]
                respawn=True,
                grace_s=30,
            )
        )
        for fault in self.faults:
            self.kernel.soon(lambda fault=fault: self.inject(fault), round(fault.at_s * SECOND))  # type: ignore[misc]
        self.kernel.soon(self._send_next, round(START_S * SECOND / 2))

    def control(self, process: Process) -> None:
        """``controller.main`` with ``--stop-replicas`` at the end of the run."""
        directory = RunDirectory(self.path)  # type: ignore[arg-type]
        controller = make_controller(directory, ENDPOINTS)
        self.controller = controller
        self.controllers += 1
        process.on_term = controller.clock.stop
        controller.run()
        if self.ending:
            controller.stop_replicas()
        controller.close()

    def scaler(self, *_: Any) -> Scripted:
        """In place of ``make_live_scaler``."""
        return Scripted(self.seed, self.calm_s - START_S - 1, self.decide)

    def _send_next(self) -> None:
        if self.sent >= self.EVENTS and self.kernel.seconds > self.calm_s:
            return
        if not self.network.is_away(self.sends_to) and self.send(self.sent):
            self.sent += 1
        gap_s = max(0.01, (self.calm_s + 1) / self.EVENTS * (0.5 + self.kernel.random.random()))
        self.kernel.soon(self._send_next, round(gap_s * SECOND))

    sends_to: ClassVar[str] = "kafka"

    # --- faults ------------------------------------------------------------------------------------------------------

    def inject(self, fault: Fault) -> None:
        """A fault begins. One that meets nothing to fail is none."""
        k = self.kernel
        until_ns = k.now_ns + round(fault.seconds * SECOND)
        k.note(f"fault {fault}")
        match fault.kind:
            case "crash":
                if (process := self.victim(fault.target)) is not None:
                    process.crash_after = int(fault.amount)
            case "freeze":
                if (process := self.victim(fault.target)) is not None:
                    process.frozen_until = until_ns
            case "away":
                self.network.away[fault.target] = until_ns
            case "link":
                client, _, rest = fault.target.partition(">")
                service, _, mode = rest.partition(":")
                self.network.faults.append(LinkFault(client, service, mode, until_ns))
            case "clock":
                k.step_clock(fault.amount)
            case "no-start":
                self.failing_starts += [fault.target] * int(fault.amount)
            case "foreign":
                self.foreign(fault.target)
            case "stale":
                self.broker.stale_until = until_ns
            case "full":
                self.disk.full_until, self.disk.room = until_ns, self.random.randrange(4000)
            case "blind":
                self.disk.files[f"{self.path}/blind"] = b""
                k.soon(SimPath(f"{self.path}/blind").unlink, round(fault.seconds * SECOND))

    def victim(self, kind: str) -> Process | None:
        """A living process of a kind, the same for the same seed."""
        found = [
            managed.process
            for name, managed in sorted(self.manager.programs.items())
            if managed.process is not None and self.kind_of(name) == kind
        ]
        return found[self.random.randrange(len(found))] if found else None

    def _heal(self) -> None:
        """Faults that wait for something to happen are over."""
        self.failing_starts.clear()
        self.network.faults.clear()
        for managed in self.manager.programs.values():
            if managed.process is not None:
                managed.process.crash_after = None

    # --- checks ------------------------------------------------------------------------------------------------------

    def _stored(self, record: Record) -> None:
        """A result is in its topic."""
        if record.topic != self.spec.results_topic:
            return
        result = result_decoder.decode(record.value)
        if result.id is None or result.outcome not in self.outcomes:
            self.kernel.violate(f"result {result.outcome} of event {result.id}: {result.reason}")
            return
        if result.terminal:
            self.finished(result)

    outcomes: Sequence[str] = ("completed",)

    def finished(self, result: Result) -> None:
        """A terminal result: of the first attempt there is one at most, unless a message was sent again."""
        assert result.id is not None
        before = self.results.setdefault(result.id, [])
        if result.attempt == 1 and result.outcome == "completed":
            for other in (each for each in before if each.outcome == "completed"):
                if other.attempt == 1 and (other.worker, other.finished_ns) != (result.worker, result.finished_ns):
                    self.kernel.violate(
                        f"event {result.id} was finished twice: by {other.worker} and by {result.worker}"
                    )
        before.append(result)

    def observe_tick(self, record: TickRecord) -> None:
        """A tick is journaled."""
        self.check_tick(record)
        self.last_tick, self.ticked_ns = record, self.kernel.now_ns
        self.ticks.append(record.tick)

    def check_tick(self, record: TickRecord) -> None:
        """Bounds; nothing scales on unknown input; snapshots are written."""
        decision = record.decisions[record.acting]
        observation = record.observation
        if observation.backlog is None and decision.action not in ("hold", "none"):
            self.kernel.violate(f"tick {record.tick} decided {decision.action} on an unknown backlog")
        self.check_arrivals(observation)
        if record.accepted is not None:
            self.targets = dict(record.accepted.targets)
            for fleet, target in record.accepted.targets.items():
                if not 0 <= target <= self.spec.max_replicas:
                    self.kernel.violate(f"tick {record.tick} accepted {target} replicas of {fleet}")
        elif decision.action == "none":  # it wants the fleet as it is: as a decision left it whose process then crashed
            self.targets |= {each.fleet: each.replicas.current for each in observation.parts()}
        self.check_snapshot(record)

    def check_arrivals(self, observation: FleetObservation) -> None:
        """What is observed has happened."""
        if observation.arrived is not None and observation.arrived > self.sent:
            self.kernel.violate(f"{observation.arrived} arrivals were observed, {self.sent} events were sent")
        if observation.arrived is not None and observation.arrived < self.sent_before[0]:
            self.kernel.violate(f"{observation.arrived} arrivals were observed, {self.sent_before[0]} were long ago")

    def check_snapshot(self, record: TickRecord) -> None:
        """When a process journals a tick, its state of the tick before is on the disk."""
        controller = self.controller
        if self.last_tick is None or controller is None or self._last_controller is not controller:
            self._last_controller = controller
            return
        state = self.disk.files.get(f"{self.path}/controller-state.json")
        tick = msgspec.json.decode(state)["loop"]["tick"] if state is not None else None
        if self.disk.full_until > self.ticked_ns:  # the write after that tick may have found no room
            return
        if tick is None or tick < self.last_tick.tick:
            self.kernel.violate(f"tick {record.tick} while the snapshot is of tick {tick}")

    _last_controller: RunController | None = None

    def check_journal(self) -> None:
        """Every tick of a controller that never died is a line of its journal."""
        if self.controllers != 1:
            return
        lines = self.disk.files[f"{self.path}/decisions.jsonl"].splitlines()
        try:
            ticks = [msgspec.json.decode(line)["tick"] for line in lines]
        except msgspec.DecodeError as error:
            raise Violation(f"a line of the journal is torn: {error}") from None
        if ticks != self.ticks:
            raise Violation(f"the journal has ticks {ticks}, there were {self.ticks}")

    def unfinished(self) -> str:
        """What is not as it has to be when all is calm."""
        if self.sent < self.EVENTS:
            return f"{self.sent} of {self.EVENTS} events are sent"
        if self.manager.process_of(f"{RUN}:controller") is None or self.controller is None:
            return "there is no controller"
        if self.last_tick is None or self.last_tick.time_s < self.calm_s - START_S:
            return "no tick since the last fault"
        if len(self.results) < self.sent:
            missing = [number for number in range(self.sent) if number not in self.results]
            return f"{len(missing)} events have no result, first {missing[0]}"
        return self.unsettled()

    def check_conservation(self) -> None:
        """Ledger and balances are exact: every event once."""
        key = self.spec.ledger_key
        booked = self.redis.hashes.get(key, {})
        if sorted(map(int, booked)) != list(range(self.sent)):
            raise Violation(f"the ledger has {len(booked)} of {self.sent} events")
        balance: dict[str, int] = {}
        for number in range(self.sent):
            account = f"a{number % 7}"
            balance[account] = balance.get(account, 0) - (100 + number)
        found = {name: int(value) for name, value in self.redis.hashes.get(f"{key}:balances", {}).items()}
        if found != balance:
            raise Violation(f"balances {found} are not {balance}")

    def all_left_behind(self) -> str:
        """What of the run still exists after its end."""
        if self.manager.programs:
            return f"programs {', '.join(self.manager.programs)} are left"
        alive = [process.name for process in self.kernel.processes if not process.dead]
        if alive:
            return f"processes {', '.join(alive)} are left"
        if self.network.servers:
            return f"port {next(iter(self.network.servers))} is still served"
        return self.left_behind()
