"""The actuator of functions on gateways that behave as OpenFaaS' and as Penstock's do."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from controller.fleets.function.actuator import REST_NS, OpenFaasActuator
from controller.fleets.function.fleet import FunctionFleet
from controller.fleets.function.provider_api import ProviderApi
from controller.fleets.function.replica_set import LOST_NS, FunctionReplicas, FunctionReplicaSet
from penstock.clock import WallClock
from penstock.contracts import Actuator, Decision, Phase, ReplicaCounts, ReplicaEvent, hold
from penstock.errors import PenstockError
from penstock.openfaas import RUN, FunctionDeployment
from penstock.rundir import RunDirectory
from penstock.runspec import RunSpec, ScalerSpec
from penstock.settings import Endpoints
from penstock.systems import FunctionSpec, FunctionSystem, NetworkSystem
from tests.conformance.ports import ActuatorConformance
from tests.controller.fleets.function.openfaas_stub import StubGateway, stub_gateway
from tests.support.eventually import eventually


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OpenFaasActuator, "STEP_S", 0.05)


# --- conformance -----------------------------------------------------------------------------------------------------


class TestOpenFaasActuator(ActuatorConformance):
    """On a gateway that gives counts only."""

    tells_events = False

    def make_actuator(self) -> AbstractContextManager[Actuator]:
        @contextmanager
        def making() -> Iterator[Actuator]:
            with stub_gateway(tells_events=self.tells_events) as gateway:
                gateway.put(self.fleet)
                actuator = actuator_on(gateway, [self.fleet], max_replicas=3)
                actuator.start()
                yield actuator
                actuator.stop()
                actuator.stop_replicas()

        return making()


class TestOpenFaasActuatorThatIsToldOfEvents(TestOpenFaasActuator):
    """On a gateway that tells every step."""

    tells_events = True


# --- what a gateway grants -------------------------------------------------------------------------------------------


def actuator_on(
    gateway: StubGateway,
    functions: list[str],
    *,
    max_replicas: int | None = 100,
    max_replicas_total: int | None = None,
    replicas: FunctionReplicaSet | None = None,
) -> OpenFaasActuator:
    actuator = OpenFaasActuator(
        functions=functions,
        api=ProviderApi(gateway.url),
        run="run-1",
        max_replicas=max_replicas,
        max_replicas_total=max_replicas_total,
        replicas=replicas,
    )
    gateway.clients.append(actuator.stop)
    return actuator


class Playing:
    """An actuator whose steps the test takes itself, with all that has happened."""

    def __init__(self, actuator: OpenFaasActuator) -> None:
        self.actuator, self.happened = actuator, list[ReplicaEvent]()
        actuator.step()

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            self.actuator.step()
            self.happened += self.actuator.events()
            assert time.monotonic() < deadline, f"{self.actuator.replicas()} {self.happened} {self.actuator.trouble}"
            time.sleep(0.02)
        self.happened += self.actuator.events()

    def joined(self, function: str) -> int:
        return self.actuator.counts(function).joined


def up(**targets: int) -> Decision:
    return Decision(action="up", targets=targets)


@pytest.fixture(params=[False, True], ids=["counts", "events"])
def tells_events(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_a_gateway_that_grants_five_of_eight_is_reported_and_believed(tells_events: bool) -> None:
    with stub_gateway(least=1, most=5, tells_events=tells_events) as gateway:
        gateway.put("f", 1)
        playing = Playing(actuator_on(gateway, ["f"]))
        accepted = playing.actuator.apply(up(f=8))
        assert accepted.targets == {"f": 5}
        assert accepted.clamped == {"f": "8 → 5: the gateway grants no more"}
        playing.until(lambda: playing.joined("f") == 5)
        assert playing.actuator.counts("f").current == 5
        # Known by now: it is not asked again, and the answer is the same.
        asked = len(gateway.asked)
        assert playing.actuator.apply(up(f=7)).clamped == {"f": "7 → 5: the gateway grants no more"}
        assert not any(path.startswith("/system/scale") for _, path in gateway.asked[asked:])
        assert playing.actuator.apply(Decision(action="down", targets={"f": 2})).clamped == {}
        playing.until(lambda: playing.joined("f") == 2)


def test_a_cut_that_shows_only_later_is_believed_then(tells_events: bool) -> None:
    with stub_gateway(most=5, tells_events=tells_events) as gateway:
        gateway.put("f", 5)
        playing = Playing(actuator_on(gateway, ["f"]))
        playing.until(lambda: playing.joined("f") == 5)
        accepted = playing.actuator.apply(up(f=8))  # five before, five now: it may still be at it
        assert accepted.targets == {"f": 8} and not accepted.clamped
        playing.until(lambda: playing.actuator.counts("f").current == 5)
        assert playing.actuator.apply(up(f=8)).clamped == {"f": "8 → 5: the gateway grants no more"}


def test_a_gateway_that_keeps_one_replica_is_reported_and_believed(tells_events: bool) -> None:
    with stub_gateway(least=1, tells_events=tells_events) as gateway:
        gateway.put("f", 2)
        playing = Playing(actuator_on(gateway, ["f"]))
        playing.until(lambda: playing.joined("f") == 2)
        playing.actuator.apply(Decision(action="down", targets={"f": 0}))
        playing.until(lambda: playing.actuator.counts("f").current == playing.joined("f") == 1)


@pytest.mark.parametrize("theirs", [0, 4])
def test_what_another_client_has_changed_is_requested_again(tells_events: bool, theirs: int) -> None:
    with stub_gateway(tells_events=tells_events) as gateway:
        gateway.put("f", 1)
        playing = Playing(actuator_on(gateway, ["f"]))
        playing.actuator.apply(up(f=2))
        playing.until(lambda: playing.joined("f") == 2)
        gateway.scale("f", theirs)
        playing.until(lambda: gateway.functions["f"].replicas == 2 and playing.joined("f") == 2)


def test_a_successor_that_scales_before_it_has_seen_the_gateway_waits_for_no_replica_too_many() -> None:
    with stub_gateway() as gateway:
        gateway.put("f", 2)
        before = FunctionReplicaSet.of(["f"])
        before.functions["f"].resize(3, 1)
        gateway.away = True
        playing = Playing(actuator_on(gateway, ["f"], replicas=before))
        playing.actuator.apply(up(f=2))
        gateway.away = False
        playing.until(lambda: playing.joined("f") == 2)
        assert playing.actuator.counts("f").current == 2


def test_a_function_that_was_removed_meanwhile_is_asked_for_its_target_again(tells_events: bool) -> None:
    with stub_gateway(tells_events=tells_events) as gateway:
        gateway.put("f", 1)
        playing = Playing(actuator_on(gateway, ["f"]))
        playing.actuator.apply(up(f=4))
        with gateway.lock:  # before it is seen with four
            gateway.scale("f", 0, forced=True)
            del gateway.functions["f"]
        playing.until(lambda: not playing.actuator.replicas())
        gateway.put("f", 1)
        playing.until(lambda: playing.joined("f") == 4)


def test_a_gateway_without_events_is_asked_once_a_second_when_all_replicas_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("controller.fleets.function.actuator.SETTLE_NS", 100_000_000)
    monkeypatch.setattr("controller.fleets.function.replica_set.LOST_NS", 100_000_000)
    with stub_gateway() as gateway:
        gateway.put("f", 1)
        playing = Playing(actuator_on(gateway, ["f"]))
        playing.actuator.apply(up(f=3))
        since = time.monotonic()
        playing.until(lambda: playing.joined("f") == 3 and time.monotonic() - since > 0.3)
        asked, since = len(gateway.asked), time.monotonic()
        for _ in range(100):
            playing.actuator.step()
        assert len(gateway.asked) - asked <= 1 + (time.monotonic() - since) / (REST_NS / 1e9)
        gateway.lose("f")
        playing.until(lambda: any(each.phase == "gone" for each in playing.happened))
        gateway.away = True
        playing.until(lambda: bool(playing.actuator.trouble))
        playing.actuator.step()
        assert playing.actuator.trouble  # until there is an answer
        gateway.away = False
        playing.until(lambda: not playing.actuator.trouble)


def test_nobody_grants_nothing() -> None:
    with stub_gateway(least=0) as gateway:
        gateway.put("f", 1)
        playing = Playing(actuator_on(gateway, ["f"]))
        gateway.most = 0
        playing.actuator.apply(up(f=2))
        gateway.most = 5
        playing.until(lambda: playing.joined("f") == 2)


def test_caps_are_of_each_function_and_of_all_together() -> None:
    with stub_gateway() as gateway:
        for name in ("a", "b", "c"):
            gateway.put(name, 1)
        playing = Playing(actuator_on(gateway, ["a", "b", "c"], max_replicas=4, max_replicas_total=8))
        accepted = playing.actuator.apply(up(a=9, b=4))
        assert accepted.targets == {"a": 4, "b": 3}
        assert accepted.clamped == {"a": "9 → 4: cap 4", "b": "4 → 3: cap 8 for all together"}
        playing.until(lambda: [playing.joined(name) for name in "abc"] == [4, 3, 1])
        with pytest.raises(PenstockError, match="target for 'z': the fleets here are a, b, c"):
            playing.actuator.apply(up(z=1))


def test_replicas_that_are_there_already_are_adopted(tells_events: bool) -> None:
    with stub_gateway(tells_events=tells_events) as gateway:
        gateway.put("f", 2)
        playing = Playing(actuator_on(gateway, ["f"]))
        playing.until(lambda: playing.joined("f") == 2)
        assert [e.reason for e in playing.happened if e.phase == "requested"] == ["adopted", "adopted"]
        assert playing.actuator.apply(hold("f", "why not")).targets == {"f": 2}


def test_a_successor_goes_on_with_the_replicas_under_their_names(tells_events: bool) -> None:
    with stub_gateway(tells_events=tells_events) as gateway:
        gateway.put("f")
        first = Playing(actuator_on(gateway, ["f"]))
        first.actuator.apply(up(f=3))
        first.until(lambda: first.joined("f") == 3)
        names = set(first.actuator.replicas())
        second = Playing(actuator_on(gateway, ["f"], replicas=first.actuator.snapshot()))
        second.until(lambda: second.joined("f") == 3)
        assert set(second.actuator.replicas()) == names and not second.happened
        second.actuator.apply(Decision(action="down", targets={"f": 1}))
        second.until(lambda: len(second.actuator.replicas()) == 1)
        assert len([e for e in second.happened if e.phase == "gone"]) == 2


def test_a_gateway_that_is_away_is_asked_again_and_the_target_is_not_forgotten(tells_events: bool) -> None:
    with stub_gateway(tells_events=tells_events) as gateway:
        gateway.put("f", 1)
        playing = Playing(actuator_on(gateway, ["f"]))
        playing.until(lambda: playing.joined("f") == 1)
        gateway.away = True
        assert playing.actuator.apply(up(f=3)).targets == {"f": 3}
        assert "status 502" in playing.actuator.trouble
        assert playing.actuator.counts("f") == ReplicaCounts(requested=2, joined=1)
        gateway.away = False
        playing.until(lambda: playing.joined("f") == 3)
        assert playing.actuator.trouble == ""


def test_what_a_slow_gateway_did_after_all_is_known_to_be_ours_and_is_taken_away(tells_events: bool) -> None:
    with stub_gateway(tells_events=tells_events) as gateway:
        api = ProviderApi(gateway.url, timeout_s=0.5)
        actuator = OpenFaasActuator(functions=["f"], api=api, run="run-1", max_replicas=3)
        gateway.clients.append(actuator.stop)
        playing = Playing(actuator)
        actuator.deploy([FunctionDeployment(service="f", image="image", annotations={RUN: "run-1"})], 1)
        gateway.late["POST"] = 1.5
        actuator.step()
        assert "Timeout" in actuator.trouble and gateway.functions.keys() == {"f"}
        playing.until(lambda: actuator.deployed and playing.joined("f") == 1)
        actuator.stop()
        gateway.late["DELETE"] = 1.5
        actuator.stop_replicas()
        assert gateway.functions == {} and ("DELETE", "/system/functions") in gateway.asked


def test_a_gateway_that_was_started_anew_is_looked_at_from_the_beginning() -> None:
    with stub_gateway(tells_events=True) as gateway:
        gateway.put("f", 2)
        playing = Playing(actuator_on(gateway, ["f"]))
        playing.until(lambda: playing.joined("f") == 2)
        before = set(playing.actuator.replicas())
        gateway.happened.clear()
        gateway.functions["f"].live.clear()
        gateway.scale("f", 1)
        playing.until(lambda: playing.joined("f") == 1 and len(playing.actuator.replicas()) == 1)
        gone = {e.replica: e.reason for e in playing.happened if e.phase == "gone"}
        assert set(gone) == before and set(gone.values()) == {"gone while not observed"}


def test_a_wrong_password_and_a_wrong_address_are_said_in_one_line() -> None:
    with stub_gateway() as gateway:
        url = gateway.url.replace("a-secret", "wrong")
        actuator = OpenFaasActuator(functions=["f"], api=ProviderApi(url), run="run-1", max_replicas=3)
        actuator.step()
        actuator.stop()
        assert "user or password" in actuator.trouble and "wrong" not in actuator.trouble.replace("is wrong", "")
    actuator = OpenFaasActuator(functions=["f"], api=ProviderApi(url), run="run-1", max_replicas=3)
    actuator.step()
    actuator.stop()
    assert "ConnectError" in actuator.trouble and "a-secret" not in actuator.trouble
    with pytest.raises(PenstockError, match="PENSTOCK_GATEWAY is no URL"):
        ProviderApi("localhost:8080")


# --- steps made from counts ------------------------------------------------------------------------------------------


def life(replicas: FunctionReplicas, replica: str) -> list[str]:
    return [event.phase for event in replicas.events if event.replica == replica]


def test_those_that_have_not_joined_go_first_then_the_newest() -> None:
    replicas = FunctionReplicas(fleet="f")
    replicas.resize(3, 0)
    replicas.observe(2, 1)
    replicas.resize(1, 2)
    assert replicas.phases() == {"f-1": "joined", "f-2": "draining"}
    assert life(replicas, "f-3") == ["requested", "draining", "gone"]
    replicas.observe(2, 3)  # the gateway has not let go of it
    assert replicas.phases() == {"f-1": "joined", "f-2": "draining"}
    replicas.observe(1, 4)
    assert replicas.phases() == {"f-1": "joined"}


def test_a_replica_that_is_missing_for_a_while_is_lost_and_another_is_expected() -> None:
    replicas = FunctionReplicas(fleet="f")
    replicas.resize(2, 0)
    replicas.observe(2, 0)
    replicas.observe(1, 10)
    replicas.observe(2, 20)
    assert replicas.phases() == {"f-1": "joined", "f-2": "joined"}
    replicas.observe(1, 30)
    replicas.observe(1, 30 + LOST_NS)
    assert replicas.phases() == {"f-1": "joined", "f-3": "requested"}
    assert [e.reason for e in replicas.events if e.phase == "gone"] == ["no longer available"]


def test_the_steps_of_a_pod_go_on_record_and_are_no_phase() -> None:
    replicas = FunctionReplicas(fleet="f")
    steps: tuple[Phase, ...] = ("requested", "created", "scheduled")
    for at_ns, phase in enumerate(steps):
        replicas.follow(ReplicaEvent("f", "f-1", phase, at_ns))
    assert replicas.phases() == {"f-1": "requested"}
    assert life(replicas, "f-1") == ["requested", "created", "scheduled"]


def test_a_replica_set_survives_being_written_down() -> None:
    replicas = FunctionReplicaSet.of(["f", "g"])
    replicas.functions["g"].resize(2, 5)
    assert replicas.copy() == replicas


# --- the fleet -------------------------------------------------------------------------------------------------------

FUNCTIONS = (
    FunctionSpec(name="sha256", service_time_s=0.0125),
    FunctionSpec(name="pdf", service_time_s=0.02, after=("sha256",)),
)


def spec_of(**more: object) -> RunSpec:
    return RunSpec(
        run="run-1",
        experiment="e",
        world="local",
        scaler=ScalerSpec(name="rps"),
        duration_s=10,
        fleet="document",
        pipeline="document",
        initial_replicas=2,
        max_replicas=5,
        system=FunctionSystem(functions=FUNCTIONS, deadline_s=0.5, cold_start_s=0.25, **more),  # type: ignore[arg-type]
    )


def fleet_on(gateway: StubGateway, tmp_path: Path, state: msgspec.Raw | None = None, **system: object) -> FunctionFleet:
    endpoints = Endpoints(gateway=gateway.url, redis="redis://127.0.0.1:1/0")  # type: ignore[arg-type]
    return FunctionFleet(RunDirectory(tmp_path), spec_of(**system), endpoints, WallClock(), state)


def wait(condition: Callable[[], bool]) -> None:
    eventually(condition, within_s=60)


def test_a_fleet_deploys_its_functions_and_takes_them_away_again(tells_events: bool, tmp_path: Path) -> None:
    with stub_gateway(tells_events=tells_events) as gateway:
        fleet = fleet_on(gateway, tmp_path)
        steps: list[int] = []
        fleet.start(lambda: steps.append(1))
        assert not fleet.ready()
        fleet.bring_up()
        wait(lambda: fleet.ready() and bool(steps))
        assert fleet.counts() == ReplicaCounts(joined=4)
        deployed = gateway.functions["sha256"].body
        assert deployed["envVars"]["floor_s"] == "0.0125" and deployed["envVars"]["cold_start_s"] == "0.25"
        assert fleet.actuator.apply(up(sha256=9)).clamped == {"sha256": "9 → 5: cap 5"}
        fleet.stop()

        successor = fleet_on(gateway, tmp_path, fleet.snapshot())
        successor.start(lambda: None)
        successor.bring_up()
        wait(lambda: successor.ready() and successor.actuator.counts("sha256").joined == 5)
        successor.stop()
        successor.stop_replicas()
        assert gateway.functions == {} and successor.counts().current == 0


def test_a_gateway_that_has_forgotten_its_functions_gets_them_again(tells_events: bool, tmp_path: Path) -> None:
    with stub_gateway(tells_events=tells_events) as gateway:
        fleet = fleet_on(gateway, tmp_path)
        fleet.start(lambda: None)
        fleet.bring_up()
        wait(fleet.ready)
        fleet.actuator.apply(up(sha256=3))
        wait(lambda: fleet.actuator.counts("sha256").joined == 3)
        with gateway.lock:  # it is stopped, and started again
            names = set(gateway.functions)
            gateway.functions.clear()
            gateway.happened.clear()
        wait(lambda: set(gateway.functions) == names and len(gateway.functions["sha256"].live) == 3)
        wait(fleet.ready)
        fleet.stop()
        fleet.stop_replicas()
        assert gateway.functions == {}


def test_a_function_that_another_run_left_is_changed_and_one_of_this_run_is_left(tmp_path: Path) -> None:
    with stub_gateway() as gateway:
        gateway.put("pdf", 2, envVars={"floor_s": "9"}, annotations={RUN: "run-0"})
        fleet = fleet_on(gateway, tmp_path)
        fleet.start(lambda: None)
        fleet.bring_up()
        wait(fleet.ready)
        assert gateway.functions["pdf"].body["envVars"]["floor_s"] == "0.02"
        fleet.stop()
        changes = [each for each in gateway.asked if each[0] in ("POST", "PUT") and each[1] == "/system/functions"]
        assert sorted(changes) == [("POST", "/system/functions"), ("PUT", "/system/functions")]
        again = fleet_on(gateway, tmp_path)
        again.start(lambda: None)
        again.bring_up()
        wait(again.ready)
        again.stop()
        assert sum(each[0] == "PUT" for each in gateway.asked) == 1


def test_an_update_that_the_gateway_took_and_did_not_carry_out_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.fleets.function.actuator.UPDATE_NS", 200_000_000)
    with stub_gateway() as gateway:
        gateway.put("pdf", 2, annotations={RUN: "run-0"})
        gateway.loses_updates = True
        fleet = fleet_on(gateway, tmp_path, image="me/{function}:1")
        fleet.start(lambda: None)
        fleet.bring_up()
        with pytest.raises(PenstockError, match="pdf: an update to image me/pdf:1 was taken and not carried out"):
            wait(fleet.ready)
        fleet.stop()
        assert sum(method == "PUT" for method, _ in gateway.asked) == 1
        assert gateway.functions.keys() == {"pdf"} and gateway.functions["pdf"].replicas == 2  # the other run's


def test_secrets_and_images_of_the_user_are_deployed_and_a_missing_secret_ends_the_run(tmp_path: Path) -> None:
    with stub_gateway() as gateway:
        gateway.secrets.add("mine")
        fleet = fleet_on(gateway, tmp_path, image="me/{function}:1", secrets="redis-url,mine", memory_limit="1Gi")
        fleet.start(lambda: None)
        fleet.bring_up()
        wait(fleet.ready)
        fleet.stop()
        bodies = [gateway.functions[name].body for name in ("sha256", "pdf")]
        assert [each["image"] for each in bodies] == ["me/sha256:1", "me/pdf:1"]
        assert all(each["secrets"] == ["redis-url", "mine"] for each in bodies)
        assert all(each["limits"] == {"memory": "1Gi"} for each in bodies)
        fleet.stop_replicas()
        refused = fleet_on(gateway, tmp_path, secrets="redis-url,theirs")
        refused.start(lambda: None)
        refused.bring_up()
        with pytest.raises(PenstockError, match=r'unable to fetch secrets: secrets .*"theirs.*" not found'):
            wait(refused.ready)
        assert gateway.asked.count(("POST", "/system/functions")) == 3 and gateway.functions == {}
        refused.stop()


@pytest.mark.parametrize("max_replicas", [5, 6])
def test_a_limit_above_ces_ends_the_run_with_its_line(tmp_path: Path, max_replicas: int) -> None:
    with stub_gateway() as gateway:
        fleet = fleet_on(gateway, tmp_path)
        fleet._spec = msgspec.structs.replace(spec_of(), max_replicas=max_replicas)
        fleet.start(lambda: None)
        fleet.bring_up()
        if max_replicas == 5:
            wait(fleet.ready)
        else:
            with pytest.raises(PenstockError, match=r"com\.openfaas\.scale\.max is set too high for Community Edition"):
                wait(fleet.ready)
        fleet.stop()
        assert ("PUT", "/system/functions") not in gateway.asked


def test_functions_of_a_user_refuse_the_run_and_survive_it_untouched(tells_events: bool, tmp_path: Path) -> None:
    with stub_gateway(tells_events=tells_events, least=1) as gateway:
        gateway.put("pdf", 2, envVars={"mine": "1"}, annotations={"prometheus.io.scrape": "false"})
        body = dict(gateway.functions["pdf"].body)
        fleet = fleet_on(gateway, tmp_path)
        fleet.start(lambda: None)
        fleet.bring_up()
        with pytest.raises(PenstockError, match="pdf: a function of that name, not deployed by Penstock, is there"):
            wait(fleet.ready)
        fleet.stop()
        fleet.stop_replicas()
        assert {method for method, _ in gateway.asked} == {"GET"}
        assert gateway.functions.keys() == {"pdf"} and gateway.functions["pdf"].body == body
        assert gateway.functions["pdf"].replicas == 2


@pytest.mark.parametrize("theirs", [{}, {"annotations": {RUN: "run-2"}}], ids=["a user", "another run"])
def test_a_function_that_was_replaced_during_the_run_is_left_alone(
    tells_events: bool, tmp_path: Path, theirs: dict[str, object]
) -> None:
    with stub_gateway(tells_events=tells_events) as gateway:
        fleet = fleet_on(gateway, tmp_path)
        fleet.start(lambda: None)
        fleet.bring_up()
        wait(fleet.ready)
        assert fleet.refusal == ""
        with gateway.lock:
            gateway.functions["pdf"].body = {"service": "pdf", "image": "mine", **theirs}
            asked = len(gateway.asked)
        with suppress(PenstockError):  # the next look finds it
            fleet.actuator.apply(up(pdf=4))
        wait(lambda: bool(fleet.refusal))
        assert "pdf: another client has deployed a function of that name during the run" in fleet.refusal
        with pytest.raises(PenstockError, match="pdf: another client"):
            fleet.actuator.apply(up(pdf=4))
        fleet.stop()
        assert {method for method, _ in gateway.asked[asked:]} == {"GET"}
        fleet.stop_replicas()
        assert gateway.functions.keys() == {"pdf"} and gateway.functions["pdf"].replicas == 2


def test_a_deployment_that_is_refused_is_tried_once_and_leaves_nothing_half_made(
    tells_events: bool, tmp_path: Path
) -> None:
    with stub_gateway(tells_events=tells_events) as gateway:
        gateway.refused = "pdf"
        fleet = fleet_on(gateway, tmp_path)
        fleet.start(lambda: None)
        fleet.bring_up()
        with pytest.raises(PenstockError, match=r"status 400 .*set too high for Community Edition"):
            wait(fleet.ready)
        for _ in range(3):
            fleet.actuator.step()
        assert gateway.asked.count(("POST", "/system/functions")) == 2 and gateway.functions == {}
        fleet.stop()


@pytest.mark.parametrize("there", [0, 1])
def test_a_target_that_is_refused_is_asked_for_once(tells_events: bool, there: int) -> None:
    with stub_gateway(tells_events=tells_events, least=0) as gateway:
        gateway.put("f", there)
        gateway.refused = "f"
        playing = Playing(actuator_on(gateway, ["f"]))
        playing.actuator.apply(up(f=3))
        playing.until(lambda: playing.actuator.counts("f") == ReplicaCounts(joined=there))
        assert gateway.asked.count(("POST", "/system/scale-function/f")) == 1


def test_a_run_of_another_kind_is_refused(tmp_path: Path) -> None:
    spec = msgspec.structs.replace(spec_of(), system=NetworkSystem(topics=(), jobs=()))
    with pytest.raises(PenstockError, match="a FunctionSystem was expected"):
        FunctionFleet(RunDirectory(tmp_path), spec, Endpoints(), WallClock(), None)
    with pytest.raises(PenstockError, match="PENSTOCK_GATEWAY"):
        FunctionFleet(RunDirectory(tmp_path), spec_of(), Endpoints(gateway=""), WallClock(), None)  # type: ignore[arg-type]
