"""The monitor of a pipeline: what the manager has written, and what is unknown without it."""

import secrets
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import msgspec
import pytest
import redis

from controller.fleets.function.monitor import FIELDS, FUNCTION_FIELDS, FunctionMonitor, SnapshotReader
from controller.scalers.amesos import Amesos
from infra.local.services import LocalServices
from penstock.clock import NANOS_PER_SECOND, WallClock
from penstock.contracts import BLINDED, FleetObservation, FunctionObservation, Monitor, ReplicaCounts
from penstock.function_messages import FunctionCounts, PipelineSnapshot, snapshot_key
from penstock.runspec import RunSpec, ScalerSpec
from penstock.settings import Endpoints
from penstock.systems import FunctionSystem
from tests.conformance.ports import MonitorConformance

FUNCTIONS = ("one", "two")
SPEC = RunSpec(
    run="r",
    experiment="test",
    world="local",
    scaler=ScalerSpec(name="none"),
    fleet="pipe",
    pipeline="document",
    duration_s=1,
    system=FunctionSystem(functions=(), deadline_s=0.5),
)


class Replicas:
    """What the actuator would tell."""

    functions = FUNCTIONS

    def __init__(self) -> None:
        self.trouble = ""

    def counts(self, function: str) -> ReplicaCounts:
        return ReplicaCounts(requested=1, joined=2) if function == "one" else ReplicaCounts(joined=3)


class Told:
    """A reader that has what the test gives it."""

    def __init__(self, *found: PipelineSnapshot | str) -> None:
        self.found = list(found)

    def read(self) -> PipelineSnapshot | str:
        return self.found.pop(0) if len(self.found) > 1 else self.found[0]


def snapshot(completed: int = 10, busy_s: float = 0.5, *, age_s: float = 0.0, finished: int = 4) -> PipelineSnapshot:
    return PipelineSnapshot(
        epoch=1,
        at_ns=time.time_ns() - round(age_s * NANOS_PER_SECOND),
        arrived=15,
        finished=finished,
        missed=1,
        functions=(
            FunctionCounts(
                name="one", arrived=15, completed=completed, waiting=3, in_flight=2, busy_s=busy_s, connections=2,
                laxity_s=(0.4, -0.1),
            ),
            FunctionCounts(name="two", arrived=10, waiting=1, in_flight=3, connections=3),
        ),
    )  # fmt: skip


def monitor_of(
    reader: Told | SnapshotReader, replicas: Replicas | None = None, *, blind: bool = False
) -> FunctionMonitor:
    return FunctionMonitor(
        SPEC,
        reader=reader,  # type: ignore[arg-type]
        replicas=replicas or Replicas(),  # type: ignore[arg-type]
        clock=WallClock(),
        origin_s=time.time() - 12,
        blind=lambda: blind,
    )


def test_an_observation_has_what_the_simulators_has() -> None:
    seen = monitor_of(Told(snapshot())).observe()
    assert seen.time_s == pytest.approx(12, abs=5)
    assert (seen.arrived, seen.completed, seen.backlog, seen.in_flight) == (15, 4, 11, 5)
    assert (seen.finished, seen.missed, seen.deadline_s, seen.pipeline) == (4, 1, 0.5, "document")
    assert seen.replicas == ReplicaCounts(requested=1, joined=5)
    one, two = seen.functions
    assert (one.fleet, one.arrived, one.completed, one.backlog, one.in_flight) == ("one", 15, 10, 3, 2)
    assert (one.busy_s, one.laxity_s, one.concurrency) == (0.5, (0.4, -0.1), 2)
    assert one.replicas == ReplicaCounts(requested=1, joined=2) and not one.unknown
    assert two.service_rate_per_s is None and set(two.unknown) == {"service_rate_per_s"}


def test_the_service_rate_is_of_what_finished_since_the_last_look_or_the_last_known() -> None:
    monitor = monitor_of(Told(snapshot(10, 0.5), snapshot(20, 0.75), snapshot(20, 0.75)))
    rates = [monitor.observe().functions[0].service_rate_per_s for _ in range(3)]
    assert rates == pytest.approx([20, 40, 40])


@pytest.mark.parametrize("reader", [Told("Redis is away: no answer"), Told(snapshot())], ids=["away", "blind"])
def test_what_is_not_known_is_none_with_its_reason_and_amesos_holds(reader: Told) -> None:
    monitor = monitor_of(reader, blind=isinstance(reader.found[0], PipelineSnapshot))
    seen = monitor.observe()
    reason = BLINDED if isinstance(reader.found[0], PipelineSnapshot) else "Redis is away: no answer"
    assert dict(seen.unknown) == dict.fromkeys(FIELDS, reason)
    assert all(getattr(seen, field) is None for field in FIELDS)
    for function in seen.functions:
        assert dict(function.unknown) == dict.fromkeys(FUNCTION_FIELDS, reason)
        assert function.backlog is None and function.laxity_s == () and function.replicas.joined > 0
    scaler = Amesos(Amesos.Parameters(threshold_s=0.2))
    decision, _ = scaler.decide(seen, scaler.start(1))
    assert decision.action == "hold" and reason in str(decision.why)


def test_a_gateway_that_is_away_is_said_beside_the_last_known_replicas() -> None:
    replicas = Replicas()
    replicas.trouble = "gateway 127.0.0.1:80: ConnectError"
    seen = monitor_of(Told(snapshot()), replicas).observe()
    assert seen.unknown["replicas"] == replicas.trouble and seen.functions[1].unknown["replicas"] == replicas.trouble
    assert seen.replicas.joined == 5 and seen.backlog == 11


def test_a_function_that_the_manager_does_not_have_is_unknown() -> None:
    one = msgspec.structs.replace(snapshot(), functions=snapshot().functions[:1])
    seen = monitor_of(Told(one)).observe().functions[1]
    assert seen.arrived is None and "no function 'two'" in seen.unknown["arrived"]


# --- on Redis --------------------------------------------------------------------------------------------------------


class Writer:
    """Stands in for the manager: writes a snapshot now."""

    def __init__(self, services: Endpoints) -> None:
        self.url, self.run = services.require("redis"), f"test-{secrets.token_hex(4)}"
        self.redis = redis.Redis.from_url(self.url)
        self.readers: list[SnapshotReader] = []

    def write(self, value: bytes) -> None:
        self.redis.set(snapshot_key(self.run), value)

    def monitor(self) -> FunctionMonitor:
        self.readers.append(SnapshotReader(self.url, self.run, WallClock()))
        return monitor_of(self.readers[-1])


@pytest.fixture
def writer(services: Endpoints, monkeypatch: pytest.MonkeyPatch) -> Iterator[Writer]:
    monkeypatch.setattr("controller.fleets.function.monitor.TIMEOUT_S", 30.0)  # Redis on a busy machine is not away
    made = Writer(services)
    yield made
    for reader in made.readers:
        reader.close()
    made.redis.delete(snapshot_key(made.run))
    made.redis.close()


@pytest.mark.live
def test_a_manager_that_is_silent_or_speaks_nonsense_is_said_to_be(writer: Writer) -> None:
    monitor = writer.monitor()
    assert monitor.observe().unknown["arrived"] == "the pipeline manager has written nothing yet"
    writer.write(b"{")
    assert "not a pipeline manager's snapshot" in monitor.observe().unknown["arrived"]
    writer.write(msgspec.json.encode(snapshot(age_s=5)))
    silent_for = monitor.observe().unknown["arrived"].partition("has been silent for ")[2]
    assert float(silent_for.removesuffix(" s")) >= 5
    writer.write(msgspec.json.encode(snapshot(age_s=-60)))  # not stale, however long looking takes
    assert monitor.observe().arrived == 15


@pytest.mark.live
class TestFunctionMonitor(MonitorConformance):
    timeout_s = 60.0

    @pytest.fixture(autouse=True)
    def scene(self, writer: Writer, local_services: LocalServices) -> None:
        self.writer, self.services = writer, local_services

    def make_monitor(self) -> Monitor[FleetObservation]:
        writer, monitor = self.writer, self.writer.monitor()

        class Written:
            """The manager writes a moment before every look."""

            def observe(self) -> FunctionObservation:
                with suppress(redis.RedisError):
                    writer.write(msgspec.json.encode(snapshot()))
                return monitor.observe()

        return Written()

    def outage(self) -> AbstractContextManager[None]:
        @contextmanager
        def away() -> Iterator[None]:
            self.services.stop_service("redis")
            try:
                yield
            finally:
                self.services.start_service("redis")

        return away()
