"""AMESoS: the vectors of tests/golden/amesos.json, the worked points of the paper's arithmetic, and epochs in a row."""

import json
from collections.abc import Callable
from fractions import Fraction
from math import ceil, inf
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.queueing.holt import smooth
from controller.scalers.amesos import (
    THRESHOLDS_S,
    Amesos,
    AmesosParameters,
    Direction,
    Method,
    laxity_90,
    scale_decision,
)
from controller.scalers.shared.amesos_epoch import EpochParameters, EpochState, FunctionMemory, replicas_needed
from penstock.contracts import FunctionObservation
from penstock.errors import PenstockError
from penstock.parameters import make_parameters
from report.explain import explain
from tests.controller.scalers.pipeline_of_functions import Pipeline

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "amesos.json").read_text())
Given = dict[str, Any]

DOCUMENT = dict.fromkeys(("qr", "pdf", "hash", "store"), 0.0125)


def amesos(**parameters: Any) -> Amesos:
    return Amesos(make_parameters("amesos", AmesosParameters, parameters))


def all_of(samples: list[float]) -> dict[str, list[float]]:
    """The same laxities at every function of the document pipeline."""
    return dict.fromkeys(DOCUMENT, samples)


def pipeline_epoch(given: Given) -> list[tuple[str, int]]:
    """The whole scaler on one epoch: α = 1 and γ = 0 make the rate of the epoch its forecast."""
    names = [f"f{i}" for i in range(len(given["nodes"]))]
    nodes = dict(zip(names, given["nodes"], strict=True))
    pipeline = Pipeline(
        amesos(threshold_s=given["threshold"], rho=given["rho"], alpha=1, gamma=0, decision_interval_s=10),
        {name: node["avgProcessTime"] for name, node in nodes.items()},
        epoch_s=10,
        replicas={name: node["c"] for name, node in nodes.items()},
    )
    pipeline.epoch(0)
    arrivals = round(given["lam_pred"] * 10)
    decision = pipeline.epoch(arrivals, {name: node["laxities"] for name, node in nodes.items()})
    assert next(iter(decision.why.values()))["lambda_pred_per_s"] == given["lam_pred"]
    return [(str(decision.why[name]["action"]), pipeline.replicas[name]) for name in names]


FUNCTIONS: dict[str, Callable[[Given], Any]] = {
    "amesos.laxity_90": lambda given: laxity_90(given["values"], given["direction"], given["method"]),
    "amesos.pipeline_epoch": pipeline_epoch,
    "amesos.replicas_needed": lambda given: replicas_needed(
        float(given["lam_pred"]), float(given["avg_process_time"]), float(given["rho"])
    ),
    "amesos.scale_decision": lambda given: scale_decision(
        given["c"], given["c_new"], float(given["lax90"]), float(given["threshold"])
    ),
}
VECTORS = [vector for vector in GOLDEN["derived"] if vector["fn"] in FUNCTIONS]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_vector(vector: dict[str, Any]) -> None:
    answer, expected = FUNCTIONS[vector["fn"]](vector["in"]), vector["out"]
    if vector["fn"] in ("amesos.scale_decision", "amesos.replicas_needed", "amesos.pipeline_epoch"):
        assert json.loads(json.dumps(answer)) == expected
    else:
        assert answer == pytest.approx(inf if expected == "inf" else expected, rel=1e-9, abs=1e-12)


def test_the_vectors_are_all_there() -> None:
    assert len(VECTORS) == 120
    baselines = {"amesos.rps", "amesos.dwp", "amesos.lass", "amesos.lass_rate"}
    of_monitors = {"amesos.estimate_after"}
    assert {vector["fn"] for vector in GOLDEN["derived"]} == set(FUNCTIONS) | baselines | of_monitors


@pytest.mark.parametrize(
    ("rate", "time_s", "needed"),
    [(14, 0.05, 1), (21, 0.1, 3), (100, 0.05, 8), (150, 0.0125, 3), (30, 0.2333333, 10), (0, 0.05, 1)],
)
def test_worked_points_of_c_new(rate: float, time_s: float, needed: int) -> None:
    assert replicas_needed(rate, time_s, 0.7) == needed


def test_the_thresholds_are_about_half_of_the_largest_laxity_unless_as_printed() -> None:
    table = dict(zip(("document", "synthetic", "matrix"), GOLDEN["given"]["table1"], strict=True))
    largest = {name: (row["deadline_ms"] - row["exec_ms"]) / 1000 for name, row in table.items()}
    assert [round(value * 1000) for value in largest.values()] == GOLDEN["given"]["largest_unqueued_laxity_ms"]
    for name, most in largest.items():
        assert 0.4 < THRESHOLDS_S["coherent"][name] / most < 0.65
        assert AmesosParameters().threshold_for(name) == THRESHOLDS_S["coherent"][name]
        printed = float(table[name]["threshold"].split("ms")[0].split("s")[0]) / 1000  # "1300s" is in ms, too (A9)
        assert THRESHOLDS_S["printed"][name] == printed
    assert AmesosParameters(thresholds="printed").threshold_for("synthetic") == 1.3 > largest["synthetic"]
    assert AmesosParameters(threshold_s=0.3).threshold_for("document") == 0.3
    assert AmesosParameters().threshold_for("invoices") is None


rates = st.integers(0, 20000).map(lambda hundredths: hundredths / 100)
times = st.integers(1, 2000).map(lambda milliseconds: milliseconds / 1000)
rhos = st.sampled_from([0.5, 0.7, 0.8, 1.0])
laxities = st.lists(st.integers(-3000, 3000).map(lambda milliseconds: milliseconds / 1000), max_size=40)


@given(rates, times, rhos)
def test_c_new_is_the_exact_ceiling(rate: float, time_s: float, rho: float) -> None:
    exact = Fraction(str(rate)) * Fraction(str(time_s)) / Fraction(str(rho))
    assert replicas_needed(rate, time_s, rho) == max(1, ceil(exact))


@given(rates, rates, times, times, rhos, rhos)
def test_c_new_grows_with_rate_and_time_and_falls_with_rho(
    rate: float, more: float, time_s: float, longer_s: float, rho: float, other: float
) -> None:
    base = replicas_needed(rate, time_s, rho)
    assert replicas_needed(rate + more, time_s, rho) >= base
    assert replicas_needed(rate, time_s + longer_s, rho) >= base
    assert replicas_needed(rate, time_s, max(rho, other)) <= replicas_needed(rate, time_s, min(rho, other))


@given(st.integers(1, 60), st.integers(1, 60), st.sampled_from([-5.0, 0.1, 0.2, 0.3, inf]), st.floats(-1, 1))
def test_a_decision_goes_the_way_that_c_new_points(c: int, needed: int, lowest_s: float, threshold_s: float) -> None:
    action, target = scale_decision(c, needed, lowest_s, threshold_s)
    assert (action, target) in [("up", needed), ("down", needed), ("none", c)]
    if action == "up":
        assert needed > c and lowest_s < threshold_s
    if action == "down":
        assert needed < c and lowest_s > threshold_s
    assert scale_decision(c, needed, threshold_s, threshold_s) == ("none", c)


@given(laxities, st.sampled_from(["nearest", "linear"]), st.randoms())
def test_the_guarantee_is_the_lower_reading_of_the_percentile(values: list[float], method: Method, random: Any) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)
    guarantee, literal = (laxity_90(values, direction, method) for direction in ("guarantee", "literal"))
    assert guarantee <= literal
    assert (laxity_90(shuffled, "guarantee", method), laxity_90(shuffled, "literal", method)) == (guarantee, literal)
    if len(set(values)) == 1:
        assert guarantee == literal == values[0]
    if values and method == "nearest":
        assert sum(value >= guarantee for value in values) >= 0.9 * len(values)
        assert sum(value <= literal for value in values) >= 0.9 * len(values)


@pytest.mark.parametrize(
    ("direction", "method", "expected"),
    [
        ("guarantee", "nearest", 0.1),
        ("literal", "nearest", 0.9),
        ("guarantee", "linear", 0.19),
        ("literal", "linear", 0.91),
    ],
)
def test_four_readings_of_ten_laxities(direction: Direction, method: Method, expected: float) -> None:
    assert laxity_90([n / 10 for n in range(1, 11)], direction, method) == pytest.approx(expected)


# --- epochs in a row -------------------------------------------------------------------------------------------------


def test_all_functions_of_a_pipeline_scale_in_the_same_epoch() -> None:
    pipeline = Pipeline(amesos(), DOCUMENT)
    assert pipeline.epoch(0).action == "hold"
    late = all_of([0.05, 0.1])
    decision = pipeline.epoch(375, late)  # 150/s against 0.0125 s: c' = 3
    assert decision.action == "up"
    assert decision.targets == dict.fromkeys(DOCUMENT, 3)
    assert pipeline.epoch(375, late).action == "none"


def test_the_arithmetic_is_told_in_the_order_of_the_algorithm() -> None:
    pipeline = Pipeline(amesos(alpha=0.5, gamma=0.4, decision_interval_s=1), {"sign": 0.1}, epoch_s=1)
    pipeline.epoch(0)
    for arrivals in (10, 12):
        pipeline.epoch(arrivals, {"sign": [0.3]})
    decision = pipeline.epoch(15, {"sign": [0.1, 0.3]})
    why = decision.why["sign"]
    assert list(why) == [
        "lambda_per_s",
        "S_per_s",
        "tr_per_s",
        "S_plus_tr_per_s",
        "lambda_pred_per_s",
        "threshold_s",
        "mu_per_s",
        "avgProcessTime_s",
        "c",
        "c_new",
        "messages",
        "laxity_90_s",
        "action",
    ]
    assert [why[term] for term in list(why)[:5]] == pytest.approx([15, 13.2, 1.12, 14.32, 14.32])
    assert [why["mu_per_s"], why["avgProcessTime_s"]] == pytest.approx([14.32 / 0.7, 0.1])
    assert (why["c"], why["c_new"], why["laxity_90_s"], why["action"]) == (1, 3, 0.1, "up")
    assert decision.targets == {"sign": 3}


@pytest.mark.parametrize(("lowest_s", "expected"), [(0.1, "none"), (0.2, "none"), (0.3, "down"), (None, "down")])
def test_too_many_replicas_are_kept_until_the_laxity_allows_fewer(lowest_s: float | None, expected: str) -> None:
    pipeline = Pipeline(amesos(), {"qr": 0.05}, replicas={"qr": 4})
    pipeline.epoch(0)
    decision = pipeline.epoch(50, {"qr": [] if lowest_s is None else [lowest_s] * 5})
    assert decision.why["qr"]["c_new"] == 2
    assert decision.action == expected


def test_a_pipeline_that_falls_silent_goes_down_to_one_replica_each() -> None:
    pipeline = Pipeline(amesos(alpha=0.9, gamma=0.5, epochs=5), DOCUMENT)
    pipeline.epoch(0)
    pipeline.epoch(1000, all_of([-1.0]))
    assert pipeline.replicas["qr"] > 5
    forecasts = [float(str(pipeline.epoch(0).why["qr"]["lambda_pred_per_s"])) for _ in range(6)]
    assert pipeline.replicas == dict.fromkeys(DOCUMENT, 1)
    assert min(forecasts) == 0 == forecasts[-1]


def test_a_pipeline_without_requests_so_far_goes_down_to_one_replica_each() -> None:
    pipeline = Pipeline(amesos(), DOCUMENT, replicas=dict.fromkeys(DOCUMENT, 10))
    pipeline.epoch(0)
    decision = pipeline.epoch(0)
    assert decision.targets == dict.fromkeys(DOCUMENT, 1)  # c'(0) = 1 for any processing time
    assert "μ = λ_pred / ρ = 0/s; no request has finished yet" in explain("amesos", decision)


def test_the_forecast_sees_the_last_epochs_only() -> None:
    scaler, arrivals = amesos(epochs=3, threshold_s=0), [90, 10, 20, 30, 45]
    pipeline = Pipeline(scaler, {"qr": 0.01}, epoch_s=2.5)
    pipeline.epoch(0)
    for count in arrivals:
        decision = pipeline.epoch(count)
    expected = smooth([count / 2.5 for count in arrivals[-3:]], 0.5, 0.3)
    assert (decision.why["qr"]["S_per_s"], decision.why["qr"]["tr_per_s"]) == (expected.level, expected.trend)
    assert len(pipeline.state.rates_per_s) == 3


def test_the_last_processing_time_is_kept_while_nothing_finishes() -> None:
    pipeline = Pipeline(amesos(), {"qr": 0.2})
    pipeline.epoch(0)
    pipeline.epoch(50, {"qr": [0.3]})
    pipeline.process_time_s["qr"] = 0.4
    stuck = pipeline.epoch(50, {"qr": [-0.5]}, completed=0)
    assert stuck.why["qr"]["avgProcessTime_s"] == pytest.approx(0.2)
    assert stuck.action == "up"
    assert pipeline.epoch(50, {"qr": [0.3]}).why["qr"]["avgProcessTime_s"] == pytest.approx(0.4)


def test_before_the_first_request_finishes_only_the_monitors_service_rate_can_help() -> None:
    pipeline = Pipeline(amesos(), {"qr": 0.2})
    pipeline.epoch(0)
    decision = pipeline.epoch(50, {"qr": [0.0]}, completed=0)
    assert decision.action == "hold"
    assert decision.why["qr"]["reason"] == "avgProcessTime is unknown: no request has finished yet"
    qr = pipeline.observation({"qr": [0.0]}).functions[0]
    known = msgspec.structs.replace(qr, service_rate_per_s=5.0, busy_s=None)
    decision = pipeline.epoch(50, completed=0, change={"functions": (known,)})
    assert decision.why["qr"]["avgProcessTime_s"] == pytest.approx(0.2)
    assert decision.action == "up"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"arrived": None, "unknown": {"arrived": "broker away"}}, "arrived is unknown (broker away)"),
        ({"arrived": 3}, "was the pipeline started anew?"),
        ({"pipeline": "invoices"}, "no threshold for pipeline 'invoices': set amesos.threshold_s"),
        ({"functions": ()}, "no function is known"),
    ],
)
def test_what_is_unknown_makes_it_hold(change: dict[str, Any], reason: str) -> None:
    pipeline = Pipeline(amesos(), DOCUMENT)
    for _ in range(3):
        pipeline.epoch(20, all_of([0.3]))
    decision = pipeline.epoch(20, all_of([-1.0]), change=change)
    assert decision.action == "hold"
    assert decision.targets == {}
    assert reason in str(decision.why["document-pipeline"]["reason"])


def test_an_epoch_without_a_reading_is_made_up_for_by_the_next() -> None:
    pipeline = Pipeline(amesos(), DOCUMENT)
    pipeline.epoch(20)
    pipeline.epoch(20)
    assert pipeline.epoch(30, change={"arrived": None}).action == "hold"
    assert pipeline.epoch(50).why["qr"]["lambda_per_s"] == pytest.approx(80 / 5)


def test_a_pipeline_started_anew_forgets_its_rates() -> None:
    pipeline = Pipeline(amesos(), DOCUMENT)
    for _ in range(4):
        pipeline.epoch(100)
    pipeline.arrived = 0
    assert pipeline.epoch(10).action == "hold"
    assert pipeline.state.rates_per_s == ()
    assert pipeline.epoch(10).why["qr"]["S_per_s"] == pytest.approx(4)


def test_one_function_without_laxity_holds_and_the_others_scale() -> None:
    pipeline = Pipeline(amesos(), {"qr": 0.05, "pdf": 0.05})
    pipeline.epoch(0)
    qr, pdf = pipeline.observation({"qr": [0.0], "pdf": [0.0]}).functions
    qr = msgspec.structs.replace(qr, completed=100, busy_s=5.0)
    pdf = msgspec.structs.replace(pdf, completed=100, busy_s=5.0, unknown={"laxity_s": "manager away"})
    decision = pipeline.epoch(100, change={"functions": (qr, pdf)})
    assert decision.targets == {"qr": 3}
    assert decision.why["pdf"]["reason"] == "laxity is unknown (manager away)"


epochs = st.lists(
    st.tuples(st.integers(0, 400), st.integers(-500, 500), st.booleans(), st.booleans()), min_size=1, max_size=15
)


@given(epochs)
def test_every_decision_is_within_bounds_repeatable_and_survives_a_restart(
    timeline: list[tuple[int, int, bool, bool]],
) -> None:
    pipeline = Pipeline(amesos(), DOCUMENT)
    for arrivals, milliseconds, restart, blind in timeline:
        before = dict(pipeline.replicas)
        decision = pipeline.epoch(
            arrivals,
            {"qr": [milliseconds / 1000] * 3},
            change={"arrived": None, "finished": None, "missed": None} if blind else None,
            restart=restart,
        )
        if blind:
            assert decision.action == "hold"
        for function, target in decision.targets.items():
            assert target >= 1
            assert target != before[function]
            assert (target > before[function]) == (decision.why[function]["action"] == "up")


def test_the_scaler_meets_the_contract() -> None:
    scaler = amesos()
    assert scaler.period_s == 2.5
    assert isinstance(scaler.start(1), scaler.State)
    assert scaler.fleets is FunctionObservation
    assert EpochState().functions.get("qr", FunctionMemory()) == FunctionMemory()


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"rho": "0"}, "rho=0: expected a number above 0 and up to 1"),
        ({"rho": "1.1"}, "rho=1.1"),
        ({"alpha": "2"}, "alpha=2: expected a number from 0 to 1"),
        ({"gamma": "-0.1"}, "gamma=-0.1: expected a number from 0 to 1"),
        ({"epochs": "0"}, "epochs=0: expected at least 1"),
        ({"threshold_s": "nan"}, "threshold_s=nan"),
        ({"decision_interval_s": "0"}, "decision_interval_s=0"),
        ({"direction": "lowest"}, "direction"),
    ],
)
def test_an_impossible_parameter_is_told(parameters: dict[str, str], said: str) -> None:
    with pytest.raises(PenstockError) as error:
        amesos(**parameters)
    assert said in str(error.value)
    assert EpochParameters().epochs == 20
