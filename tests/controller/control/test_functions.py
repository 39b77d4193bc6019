"""``penstock control --functions`` on a gateway as strict as OpenFaaS CE, with functions that are a user's."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tests.controller.fleets.function.openfaas_stub as stub
from controller.control.functions import make_function_scaler
from controller.journal import TickRecord
from penstock.clock import NANOS_PER_SECOND
from penstock.command import build
from penstock.contracts import FunctionObservation
from penstock.errors import PenstockError
from penstock.runspec import ScalerSpec
from tests.controller.control.attached_functions import AttachedFunctions
from tests.controller.fleets.function.openfaas_stub import StubGateway, stub_gateway


@pytest.fixture
def gateway() -> Iterator[StubGateway]:
    with stub_gateway() as made:
        made.put("a", 2, envVars={"mine": "1"}, labels={"com.openfaas.scale.min": "2"})
        made.put("b", 3)
        made.put("other", 1)
        yield made


def test_only_the_number_of_replicas_changes_and_never_to_zero(
    gateway: StubGateway, attached: AttachedFunctions
) -> None:
    before = {name: dict(each.body) for name, each in gateway.functions.items()}
    gateway.count_calls("a", started=8, answered=7)
    attached.start("a,b.openfaas-fn", gateway.url, "--max-replicas", "9", "--shadows", "rps", "--tick-phase", "300ms")
    # Eight are asked for, five are granted; nobody calls b, whose last replica stays.
    attached.wait("five of a", lambda: gateway.functions["a"].replicas == 5)
    attached.wait("the cut", lambda: attached.said("a: the gateway grants 5 of 8 replicas"))
    attached.wait("one of b", lambda: gateway.functions["b"].replicas == 1)
    attached.wait("a tick with five", lambda: attached.newest(lambda tick: tick.observation.replicas.joined == 6))
    # Unknown is not zero: without metrics nothing changes.
    gateway.metrics_away = True
    attached.wait("a hold", lambda: attached.newest(lambda tick: tick.decisions["by-calls"].action == "hold"))
    held = attached.ticks()[-1]
    assert isinstance(held.observation, FunctionObservation)
    assert held.observation.arrived is None and "status 404" in held.observation.functions[0].unknown["arrived"]
    gateway.metrics_away = False
    gateway.count_calls("b", started=2, answered=2)
    attached.wait("two of b", lambda: gateway.functions["b"].replicas == 2)
    assert attached.interrupt() == 0
    assert attached.said("replicas stay as they are: a 5, b 2") and not attached.said("Traceback")

    assert {name: each.body for name, each in gateway.functions.items()} == before
    assert gateway.functions["other"].replicas == 1
    changes = {asked for asked in gateway.asked if asked[0] != "GET"}
    assert changes == {("POST", f"/system/scale-function/{name}") for name in "ab"}
    accepted = [tick.accepted for tick in attached.ticks() if tick.accepted is not None]
    assert {"0 → 1: never to zero"} <= {note for each in accepted for note in each.clamped.values()}
    known = next(tick.observation for tick in attached.ticks() if tick.observation.backlog is not None)
    assert (known.arrived, known.completed, known.backlog) == (8, 7, 1)

    spec, ticks = attached.directory.spec(), attached.ticks()
    assert spec.start_ns % NANOS_PER_SECOND == 0 and spec.tick_phase_s == 0.3
    assert {round((tick.time_s - 0.3) % 0.25, 6) % 0.25 for tick in ticks} == {0.0}, "four ticks a second"
    last_s = int(ticks[-1].time_s)
    explained = CliRunner().invoke(build(), ["explain", str(attached.directory.path), "--at", str(last_s)])
    assert explained.exit_code == 0 and "8 arrived" in explained.output
    watched = CliRunner().invoke(build(), ["watch", str(attached.directory.path), "--once"])
    assert watched.exit_code == 0 and "by-calls" in watched.output and "rps" in watched.output


def test_a_function_that_is_removed_and_deployed_again_is_held_and_then_scaled(
    gateway: StubGateway, attached: AttachedFunctions
) -> None:
    gateway.count_calls("a", started=4, answered=4)
    gateway.count_calls("b", started=2, answered=2)
    attached.start("a,b", gateway.url)
    attached.wait("four of a", lambda: gateway.functions["a"].replicas == 4)
    with gateway.lock:
        del gateway.functions["a"]

    def absent(tick: TickRecord) -> bool:
        assert isinstance(tick.observation, FunctionObservation)
        return tick.observation.functions[0].unknown.get("arrived") == "the function is not on the gateway"

    attached.wait("its absence", lambda: attached.newest(absent))
    asked = len(gateway.asked)
    gateway.count_calls("b", started=1, answered=1)
    attached.wait("three of b", lambda: gateway.functions["b"].replicas == 3)
    assert ("POST", "/system/scale-function/a") not in gateway.asked[asked:]
    gateway.put("a", 1)
    attached.wait("four of a again", lambda: gateway.functions["a"].replicas == 4)
    assert attached.interrupt() == 0


def test_a_password_that_is_changed_ends_it_with_one_line(
    gateway: StubGateway, attached: AttachedFunctions, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.count_calls("a", started=3, answered=3)
    attached.start("a", gateway.url)
    attached.wait("three of a", lambda: gateway.functions["a"].replicas == 3)
    assert attached.process is not None
    monkeypatch.setattr(stub, "SECRET", "another")
    assert attached.process.wait(timeout=60) == 2
    assert attached.said("error: gateway") and attached.said("user or password in --gateway is wrong (401)")
    assert attached.said("replicas stay as they are: a 3") and not attached.said("a-secret")


def test_what_is_wrong_is_told_before_anything_is_made(
    gateway: StubGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENFAAS_CONFIG", str(tmp_path))

    def told(*arguments: str, scaler: str = "rps") -> str:
        error = CliRunner().invoke(build(), ["control", "--scaler", scaler, *arguments]).exception
        assert isinstance(error, PenstockError), error
        return str(error)

    there = ("--gateway", gateway.url)
    assert "name a consumer group (--kafka, --topic, --group) or functions" in told("--kafka", "k:1")
    assert "--functions goes without --kafka" in told("--functions", "a", *there, "--kafka", "k:1")
    assert "--functions goes without" in told("--functions", "a", *there, "--", "true")
    assert "PENSTOCK_GATEWAY is not set" in told("--functions", "a")
    assert "run `faas-cli login --gateway http://g:1`" in told("--functions", "a", "--gateway", "http://g:1")
    assert "no function c; it has a, b, other" in told("--functions", "a,c", *there)
    assert "--functions: a twice" in told("--functions", "a,b,a.openfaas-fn", *there)
    assert "namespace must be: openfaas-fn" in told("--functions", "a.mine", *there)
    wrong = gateway.url.replace(stub.SECRET, "wrong")
    assert "user or password in --gateway is wrong (401)" in told("--functions", "a", "--gateway", wrong)
    assert "ConnectError" in told("--functions", "a", "--gateway", "http://u:p@127.0.0.1:1")
    assert "ConnectError" in told("--functions", "a", *there, "--prometheus", "http://127.0.0.1:1")
    gateway.metrics_away = True
    assert "OpenFaaS has them at port 8082: --metrics" in told("--functions", "a", *there)
    assert not list(tmp_path.iterdir())
    assert {method for method, _ in gateway.asked} == {"GET"}


@pytest.mark.parametrize("name", [
    "ds2", "flink", "hpa", "keda-rabbitmq", "kpa", "lass", "lass-as-coded", "openfaas-ce", "openfaas-pro",
    "provider-ramp", "rps",
])  # fmt: skip
def test_scalers_of_any_fleet_can_decide_on_what_a_gateway_tells(name: str) -> None:
    assert make_function_scaler(ScalerSpec(name=name), ["a", "b"]).name == name


@pytest.mark.parametrize(("name", "why"), [
    ("amesos", "reads FunctionObservation"),
    ("dwp", "reads FunctionObservation"),
    ("binpack", "reads StreamObservation"),
    ("multiqueue", "reads QueueObservation"),
    ("optimal", "needs the load in advance"),
])  # fmt: skip
def test_scalers_that_need_more_are_refused_by_name(name: str, why: str) -> None:
    with pytest.raises(PenstockError, match=f"scaler '{name}' {why}"):
        make_function_scaler(ScalerSpec(name=name), ["a"])


def test_a_scaler_of_a_users_that_needs_more_is_refused_with_the_value(tmp_path: Path) -> None:
    file = tmp_path / "greedy.py"
    file.write_text(
        "from dataclasses import dataclass\n"
        "from controller.scalers.shared.base import CannotDecide, NoState, resize\n"
        "from controller.scalers.shared.parameters import Parameters\n"
        "from controller.scalers.shared.single_fleet import SingleFleetScaler\n"
        "@dataclass(frozen=True)\n"
        "class P(Parameters):\n"
        "    decision_interval_s: float = 1.0\n"
        "class Greedy(SingleFleetScaler[P, NoState]):\n"
        "    name, paper = 'greedy', ''\n"
        "    def decide_part(self, part, state, _):\n"
        "        if not getattr(part, 'laxity_s', ()):\n"
        "            raise CannotDecide('laxity is unknown')\n"
        "        return resize(part, 1, {}), state\n"
    )
    why = "scaler 'greedy' cannot decide on what a gateway's metrics tell: laxity is unknown"
    with pytest.raises(PenstockError, match=why):
        make_function_scaler(ScalerSpec(name="greedy", file=f"{file}:Greedy"), ["a"])
