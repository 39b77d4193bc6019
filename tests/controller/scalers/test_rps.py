"""The two scalers that AMESoS brings along to compare itself with: their vectors, and epochs in a row."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.scalers.amesos import Amesos, AmesosParameters
from controller.scalers.dwp import Dwp, DwpParameters, dwp_decision
from controller.scalers.rps import Rps, RpsParameters, replicas_for_load
from penstock.contracts import FleetObservation, FunctionObservation, ReplicaCounts
from penstock.errors import PenstockError
from penstock.parameters import make_parameters
from report.explain import explain
from tests.controller.scalers.pipeline_of_functions import Pipeline

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "amesos.json").read_text())["derived"]
OF_RPS = [vector for vector in GOLDEN if vector["fn"] == "amesos.rps"]
OF_DWP = [vector for vector in GOLDEN if vector["fn"] == "amesos.dwp"]

DOCUMENT = dict.fromkeys(("qr", "pdf", "hash", "store"), 0.0125)


def rps(**parameters: Any) -> Rps:
    return Rps(make_parameters("rps", RpsParameters, parameters))


def dwp(**parameters: Any) -> Dwp:
    return Dwp(make_parameters("dwp", DwpParameters, parameters))


@pytest.mark.parametrize("vector", OF_RPS, ids=lambda vector: vector["id"])
def test_rps_vector(vector: dict[str, Any]) -> None:
    load, target = (float(vector["in"][key]) for key in ("current_load", "target_per_replica"))
    assert replicas_for_load(load, target) == vector["out"]


@pytest.mark.parametrize("vector", OF_DWP, ids=lambda vector: vector["id"])
def test_dwp_vector(vector: dict[str, Any]) -> None:
    """The whole scaler on one epoch: α = 1, γ = 0, ρ = 1 and 10 s per request and epoch make c' the rate."""
    given = vector["in"]
    pipeline = Pipeline(
        dwp(alpha=1, gamma=0, rho=1, decision_interval_s=10),
        {"f": 10 * given["c_new"] / given["total"]},
        epoch_s=10,
        replicas={"f": given["c"]},
    )
    pipeline.epoch(0)
    decision = pipeline.epoch(given["total"], missed=given["missed"])
    assert decision.why["f"]["c_new"] == given["c_new"]
    assert [decision.why["f"]["action"], pipeline.replicas["f"]] == vector["out"]


def test_the_vectors_are_all_there() -> None:
    assert (len(OF_RPS), len(OF_DWP)) == (10, 12)


def test_a_load_just_above_a_multiple_of_the_target_needs_one_more() -> None:
    assert replicas_for_load(100, 10) == 10
    assert replicas_for_load(100.1, 10) == 11
    assert replicas_for_load(0, 10) == 1


def test_ten_percent_missed_is_not_more_than_ten_percent() -> None:
    assert dwp_decision(2, 4, 10 / 100, 0.1, 0.0) == ("none", 2)
    assert dwp_decision(2, 4, 11 / 100, 0.1, 0.0) == ("up", 4)


@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 300), st.integers(0, 300))
def test_dwp_never_goes_against_c_new(c: int, needed: int, missed: int, more: int) -> None:
    share = missed / (missed + more) if missed + more else 0.0
    action, target = dwp_decision(c, needed, share, 0.1, 0.0)
    assert (action, target) in [("up", needed), ("down", needed), ("none", c)]
    assert action != "up" or (needed > c and share > 0.1)
    assert action != "down" or (needed < c and missed == 0)


# --- rps -------------------------------------------------------------------------------------------------------------


def fleet(time_s: float, arrived: int | None, replicas: int = 1, **more: Any) -> FleetObservation:
    return FleetObservation(time_s=time_s, fleet="qr", replicas=ReplicaCounts(joined=replicas), arrived=arrived, **more)


def test_rps_follows_the_rate_of_the_last_interval() -> None:
    scaler = rps(target_per_replica_per_s=10)
    decision, state = scaler.decide(fleet(0.1, 0), scaler.start(1))
    assert decision.action == "hold"
    decision, state = scaler.decide(fleet(2.6, 250), state)
    assert (decision.action, decision.targets) == ("up", {"qr": 10})
    assert decision.why["qr"]["currentLoad_per_s"] == 100
    decision, state = scaler.decide(fleet(5.1, 253, 10), state)
    assert (decision.action, decision.targets) == ("down", {"qr": 1})
    decision, _ = scaler.decide(fleet(7.6, 253, 1), state)
    assert (decision.action, decision.targets) == ("none", {})


def test_rps_scales_each_function_by_its_own_rate() -> None:
    scaler = rps(target_per_replica_per_s=20, target_by_fleet_per_s={"pdf": 5})
    pipeline = Pipeline(scaler, DOCUMENT)
    pipeline.epoch(0)
    qr, pdf, digest, store = pipeline.observation({}).functions
    behind = (
        msgspec.structs.replace(qr, arrived=250),
        msgspec.structs.replace(pdf, arrived=100),
        digest,
        msgspec.structs.replace(store, arrived=None, unknown={"arrived": "gateway away"}),
    )
    decision = pipeline.epoch(250, change={"functions": behind})
    assert decision.targets == {"qr": 5, "pdf": 8}
    assert decision.why["hash"]["action"] == "none"
    assert decision.why["store"]["reason"] == "arrived is unknown (gateway away)"


def test_without_load_rps_keeps_one_replica_whatever_its_target() -> None:
    scaler = rps()
    _, state = scaler.decide(fleet(0.1, 0, 10), scaler.start(1))
    decision, _ = scaler.decide(fleet(2.6, 0, 10), state)
    assert decision.targets == {"qr": 1}


def test_without_a_target_rps_takes_the_measured_service_rate_and_keeps_it() -> None:
    scaler = rps()
    _, state = scaler.decide(fleet(0.1, 0, service_rate_per_s=80.0), scaler.start(1))
    decision, state = scaler.decide(fleet(2.6, 400), state)
    assert decision.targets == {"qr": 2}
    assert decision.why["qr"]["targetLoadPerReplica_per_s"] == 80  # a replica is saturated (A18)
    idler = rps(rho=0.7)
    decision, _ = idler.decide(fleet(2.6, 400), idler.decide(fleet(0.1, 0, service_rate_per_s=80.0), idler.start(1))[1])
    assert decision.targets == {"qr": 3}
    _, blank = scaler.decide(fleet(0.1, 0), scaler.start(1))
    decision, _ = scaler.decide(fleet(2.6, 400), blank)
    assert decision.action == "hold"
    assert "no target per replica" in str(decision.why["qr"]["reason"])


# --- dwp -------------------------------------------------------------------------------------------------------------


def test_dwp_scales_all_functions_once_deadlines_were_missed() -> None:
    pipeline = Pipeline(dwp(), DOCUMENT)
    pipeline.epoch(0)
    assert pipeline.epoch(375).action == "none"
    decision = pipeline.epoch(375, missed=38)
    assert decision.targets == dict.fromkeys(DOCUMENT, 3)  # 150/s, all of them 0.0125 s: 2.68
    assert decision.why["qr"]["missed_share"] == pytest.approx(38 / 375)


def test_dwp_counts_the_misses_of_the_epoch_only() -> None:
    pipeline = Pipeline(dwp(), {"qr": 0.05}, replicas={"qr": 9})
    pipeline.epoch(0)
    assert pipeline.epoch(100, missed=100).action == "none"
    assert pipeline.epoch(100, missed=1).action == "none"
    assert pipeline.epoch(100).action == "down"


def test_an_epoch_in_which_nothing_finished_missed_nothing() -> None:
    pipeline = Pipeline(dwp(), {"qr": 0.05}, replicas={"qr": 9})
    pipeline.epoch(0)
    pipeline.epoch(100, missed=100)
    decision = pipeline.epoch(100, completed=0)
    assert decision.why["qr"]["missed_share"] == 0
    assert decision.action == "down"


def test_dwp_and_amesos_have_the_same_forecast_and_c_new() -> None:
    first, second = Pipeline(dwp(), DOCUMENT), Pipeline(Amesos(AmesosParameters()), DOCUMENT)
    for arrivals in (0, 100, 250, 600, 100):
        one, other = first.epoch(arrivals), second.epoch(arrivals)
    for term in ("lambda_per_s", "S_per_s", "tr_per_s", "lambda_pred_per_s", "c_new"):
        assert one.why["qr"][term] == other.why["qr"][term]


@pytest.mark.parametrize("lost", ["finished", "missed"])
def test_an_unknown_number_of_misses_makes_dwp_hold(lost: str) -> None:
    pipeline = Pipeline(dwp(), {"qr": 0.05}, replicas={"qr": 9})
    pipeline.epoch(100)
    pipeline.epoch(100)
    decision = pipeline.epoch(100, change={lost: None, "unknown": {lost: "manager away"}})
    assert decision.action == "hold"
    assert decision.why["document-pipeline"]["reason"] == (
        f"the share of missed deadlines is unknown ({lost}: manager away)"
    )


@given(
    st.sampled_from(["rps", "dwp"]),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 50), st.booleans()), min_size=1, max_size=12),
)
def test_targets_are_at_least_one_and_a_restart_changes_nothing(
    name: str, timeline: list[tuple[int, int, bool]]
) -> None:
    scaler: Any = rps(target_per_replica_per_s=10) if name == "rps" else dwp()
    kept, restarted = Pipeline(scaler, DOCUMENT), Pipeline(scaler, DOCUMENT)
    for arrivals, missed, restart in timeline:
        decision = kept.epoch(arrivals, missed=min(missed, arrivals))
        assert restarted.epoch(arrivals, missed=min(missed, arrivals), restart=restart) == decision
        assert all(target >= 1 for target in decision.targets.values())


def test_without_requests_so_far_dwp_keeps_one_replica() -> None:
    pipeline = Pipeline(dwp(), {"qr": 0.2}, replicas={"qr": 6})
    pipeline.epoch(0)
    decision = pipeline.epoch(0)
    assert decision.targets == {"qr": 1}
    assert "no request has finished yet" in explain("dwp", decision)


def test_the_scalers_meet_the_contract() -> None:
    assert (rps().period_s, dwp().period_s) == (2.5, 2.5)
    assert (rps().fleets, dwp().fleets) == (FleetObservation, FunctionObservation)
    for scaler in (rps(), dwp()):
        assert isinstance(scaler.start(1), scaler.State)


@pytest.mark.parametrize(
    ("make", "parameters", "said"),
    [
        (rps, {"target_per_replica_per_s": "0"}, "target_per_replica_per_s=0: expected a number above 0"),
        (rps, {"target_by_fleet_per_s": {"qr": "-1"}}, "target_by_fleet_per_s.qr=-1"),
        (rps, {"rho": "1.5"}, "rho=1.5: expected a number above 0 and up to 1"),
        (rps, {"decision_interval_s": "inf"}, "decision_interval_s=inf"),
        (dwp, {"up_share": "1"}, "up_share=1"),
        (dwp, {"down_share": "0.2"}, "down_share=0.2: expected 0 <= down_share <= up_share < 1"),
        (dwp, {"rho": "-1"}, "rho=-1"),
    ],
)
def test_an_impossible_parameter_is_told(make: Any, parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(PenstockError) as error:
        make(**parameters)
    assert said in str(error.value)
