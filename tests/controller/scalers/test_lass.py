"""LaSS and LaSS as its authors coded it: their vectors, the choice of the rate, and decisions in a row."""

import json
from math import exp
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.queueing.erlang import erlang_c
from controller.scalers.lass import Lass, LassParameters, lass_rate
from controller.scalers.lass_as_coded import LassAsCoded, LassAsCodedParameters, p_waits_as_coded
from penstock.contracts import Decision, FleetObservation, ReplicaCounts
from penstock.errors import PenstockError
from penstock.parameters import make_parameters
from report.explain import explain

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "amesos.json").read_text())["derived"]
OF_LASS = [vector for vector in GOLDEN if vector["fn"] == "amesos.lass"]
OF_RATE = [vector for vector in GOLDEN if vector["fn"] == "amesos.lass_rate"]


def lass(**parameters: Any) -> Lass:
    return Lass(make_parameters("lass", LassParameters, parameters))


def coded(**parameters: Any) -> LassAsCoded:
    return LassAsCoded(make_parameters("lass-as-coded", LassAsCodedParameters, parameters))


@pytest.mark.parametrize("vector", OF_LASS, ids=lambda vector: vector["id"])
def test_lass_vector(vector: dict[str, Any]) -> None:
    given = vector["in"]
    scaler = lass(wait_s=given["t"], probability=given["p"], most=given["maximum"])
    c = scaler.fewest(given["lam"], given["mu"])
    assert c is not None
    assert c == vector["out"]["c"]
    assert scaler.probability(given["lam"], given["mu"], c) == pytest.approx(
        vector["out"]["cdf_at_c"], rel=1e-9, abs=1e-12
    )


@pytest.mark.parametrize("vector", OF_RATE, ids=lambda vector: vector["id"])
def test_rate_vector(vector: dict[str, Any]) -> None:
    assert lass_rate(vector["in"]["rate_120s"], vector["in"]["rate_10s"]) == vector["out"]


def test_the_vectors_are_all_there() -> None:
    assert (len(OF_LASS), len(OF_RATE)) == (18, 3)


loads = st.integers(1, 3000).map(lambda tenths: tenths / 10)
service_rates = st.sampled_from([2.0, 5.0, 20.0, 60.0])


@given(loads, service_rates)
def test_one_container_fewer_would_not_do(lam: float, mu: float) -> None:
    scaler = lass(most=1000)
    c = scaler.fewest(lam, mu)
    assert c is not None
    assert scaler.probability(lam, mu, c) >= 0.95
    assert c == 1 or scaler.probability(lam, mu, c - 1) < 0.95


@given(loads, loads, service_rates, st.sampled_from([lass, coded]))
def test_more_arrivals_never_need_fewer_containers(lam: float, more: float, mu: float, make: Any) -> None:
    scaler = make(most=4000)
    assert scaler.fewest(lam, mu) <= scaler.fewest(lam + more, mu)


@given(st.integers(1, 40), service_rates, st.floats(0, 1))
def test_nobody_waits_at_most_anything_in_overload(c: int, mu: float, beyond: float) -> None:
    assert lass().probability(c * mu + beyond, mu, c) == 0
    assert coded().probability(c * mu + beyond, mu, c) == 0


@given(loads, service_rates, st.integers(1, 60))
def test_as_coded_with_whole_numbers_nobody_may_wait_at_all(lam: float, mu: float, c: int) -> None:
    expected = 1 - erlang_c(lam / mu, c)
    assert coded().probability(lam, mu, c) == pytest.approx(expected, abs=1e-9)
    assert coded().probability(lam, mu, c) <= lass().probability(lam, mu, c) + 1e-9


@given(loads, service_rates)
def test_dividing_whole_numbers_never_saves_a_container(lam: float, mu: float) -> None:
    equal, different = coded(whole_numbers=False, most=4000), coded(most=4000)
    assert equal.fewest(lam, mu) <= different.fewest(lam, mu)  # type: ignore[operator]


def test_the_three_ways_to_compute_the_wait_differ() -> None:
    lam, mu, c = 50.0, 20.0, 4
    formula = 1 - erlang_c(2.5, 4) * exp(-(80 - 50) * 0.1)
    assert lass().probability(lam, mu, c) == pytest.approx(formula)
    # ⌊0.1 · 4 · 20 + 3⌋ = 11 requests; beyond c - 1 each further one is ρ = 0.625 times as likely.
    by_count = 1 - erlang_c(2.5, 4) * 0.625**8
    assert coded(whole_numbers=False).probability(lam, mu, c) == pytest.approx(by_count)
    assert p_waits_as_coded(lam, mu, c, 0.0) == pytest.approx(1 - erlang_c(2.5, 4))
    assert (lass().fewest(lam, mu), coded(whole_numbers=False).fewest(lam, mu), coded().fewest(lam, mu)) == (4, 4, 6)


# --- decisions in a row ----------------------------------------------------------------------------------------------


class Fleet:
    """A fleet that does at once what it is told, asked every five seconds."""

    def __init__(self, scaler: Lass, mu: float | None = 20.0) -> None:
        self.scaler, self.state = scaler, scaler.start(1)
        self.time_s, self.arrived, self.replicas, self.mu = 0.1, 0, 1, mu

    def tick(self, arrivals: int, known: bool = True) -> Decision:
        self.arrived += arrivals
        seen = FleetObservation(
            time_s=self.time_s,
            fleet="qr",
            replicas=ReplicaCounts(joined=self.replicas),
            arrived=self.arrived if known else None,
            service_rate_per_s=self.mu,
        )
        state = msgspec.json.decode(msgspec.json.encode(self.state), type=self.scaler.State)
        assert state == self.state
        decision, self.state = self.scaler.decide(seen, state)
        self.replicas = decision.targets.get("qr", self.replicas)
        self.time_s += 5
        return decision


def test_a_steady_rate_is_sized_once() -> None:
    fleet = Fleet(lass())
    assert fleet.tick(0).action == "hold"
    decision = fleet.tick(250)
    assert decision.targets == {"qr": 4}
    assert list(decision.why["qr"]) == [
        "long_window_s",
        "rate_long_per_s",
        "short_window_s",
        "rate_short_per_s",
        "burst_factor",
        "lambda_per_s",
        "mu_per_s",
        "utilisation",
        "C",
        "t_s",
        "c",
        "P_W_at_most_t",
        "wanted_probability",
        "one_less",
        "P_one_less",
        "current_replicas",
        "action",
    ]
    assert decision.why["qr"]["P_W_at_most_t"] == pytest.approx(0.9840752724002483)
    assert [fleet.tick(250).action for _ in range(30)] == ["none"] * 30


def test_a_burst_is_answered_by_the_short_window_and_kept_by_the_long_one() -> None:
    fleet = Fleet(lass())
    for _ in range(30):
        fleet.tick(50)
    quiet = fleet.replicas
    fleet.tick(500)
    decision = fleet.tick(500)
    assert decision.why["qr"]["lambda_per_s"] == decision.why["qr"]["rate_short_per_s"] == 100
    assert fleet.replicas == 7 > quiet
    after = [fleet.tick(0) for _ in range(26)]
    assert fleet.replicas == 1
    # The paper that compares itself with LaSS notes that it does not scale down for long: the burst stays in 120 s.
    assert [decision.why["qr"]["c"] for decision in after[1:23]] == [2] * 21 + [1]
    assert after[21].why["qr"]["lambda_per_s"] == after[21].why["qr"]["rate_long_per_s"] == pytest.approx(1000 / 120)


def test_where_nothing_is_enough_the_answer_is_the_most() -> None:
    fleet = Fleet(lass(most=5))
    fleet.tick(0)
    decision = fleet.tick(5000)
    assert decision.targets == {"qr": 5}
    assert decision.why["qr"]["P_W_at_most_t"] == 0
    assert "not even 5 containers" in str(decision.why["qr"]["capped"])


@pytest.mark.parametrize("scaler", [lass(), coded()])
def test_without_arrivals_no_service_rate_is_needed(scaler: Lass) -> None:
    fleet = Fleet(scaler, mu=None)
    fleet.replicas = 9
    fleet.tick(0)
    decision = fleet.tick(0)
    assert decision.targets == {"qr": 1}
    assert "c = 1: nothing comes, nothing waits" in explain(scaler.name, decision)
    assert fleet.tick(50).action == "hold"


def test_no_arrivals_need_one_container() -> None:
    for scaler in (lass(), coded()):
        fleet = Fleet(scaler)
        fleet.replicas = 9
        fleet.tick(0)
        assert fleet.tick(0).targets == {"qr": 1}


def test_what_is_unknown_makes_it_hold() -> None:
    fleet = Fleet(lass(), mu=None)
    fleet.tick(0)
    decision = fleet.tick(100)
    assert decision.action == "hold"
    assert "service rate is unknown" in str(decision.why["qr"]["reason"])
    assert decision.why["qr"]["lambda_per_s"] == 20
    fleet.mu = 20.0
    assert fleet.tick(100).action == "up"
    fleet.mu = None
    assert fleet.tick(100).action == "none"
    assert fleet.tick(100, known=False).why["qr"] == {"reason": "arrived is unknown"}
    assert fleet.tick(100).why["qr"]["rate_long_per_s"] == 20


def test_a_given_service_rate_goes_before_the_measured_one() -> None:
    fleet = Fleet(lass(service_rate_per_s=10), mu=1000.0)
    fleet.tick(0)
    assert fleet.tick(50).targets == {"qr": 3}


def test_as_coded_asks_for_more_containers_at_the_same_rate() -> None:
    fleets = {name: Fleet(scaler) for name, scaler in (("lass", lass()), ("lass-as-coded", coded()))}
    for fleet in fleets.values():
        fleet.tick(0)
        fleet.tick(250)
    assert {name: fleet.replicas for name, fleet in fleets.items()} == {"lass": 4, "lass-as-coded": 6}


def test_the_scalers_meet_the_contract() -> None:
    for scaler, name in ((lass(), "lass"), (coded(), "lass-as-coded")):
        assert (scaler.name, scaler.period_s, scaler.fleets) == (name, 5.0, FleetObservation)
        assert isinstance(scaler.start(1), scaler.State)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"wait_s": "0"}, "wait_s=0: expected a number above 0"),
        ({"probability": "1"}, "probability=1: expected a number between 0 and 1"),
        ({"short_window_s": "300"}, "short_window_s=300: expected at most long_window_s=120"),
        ({"most": "0"}, "most=0: expected at least 1"),
        ({"service_rate_per_s": "-1"}, "service_rate_per_s=-1"),
    ],
)
@pytest.mark.parametrize("make", [lass, coded])
def test_an_impossible_parameter_is_told(make: Any, parameters: dict[str, str], said: str) -> None:
    with pytest.raises(PenstockError) as error:
        make(**parameters)
    assert said in str(error.value)
