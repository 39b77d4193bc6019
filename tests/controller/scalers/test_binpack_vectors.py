"""Every ``binpack`` vector of tests/golden: packings, violation test, both algorithms, and the policies beside them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controller.scalers.binpack import Scaling, scale_event_consumer, violating_consumers
from controller.scalers.binpack_tail import scale_event_consumer_2, total_lag
from controller.scalers.linear import LinearParameters, linear_step
from controller.scalers.optimal import optimal_replicas
from controller.scalers.shared.packing import Bin, Load, bin_size, least_loaded
from controller.scalers.shared.packing_fast import least_loaded_fast
from penstock.contracts import Groups
from producers.schedule import hot_weights
from tests.controller.scalers.exact_packing import fewest_bins, least_loaded_both

GOLDEN = Path(__file__).parents[2] / "golden" / "binpack.json"
VECTORS = json.loads(GOLDEN.read_text())["derived"]
Given = dict[str, Any]

ACTIONS = {"UP": "UP", "DOWN": "DOWN", "REASS": "REBALANCE", None: None}


def load(given: Given) -> Load:
    return Load([float(lag) for lag, _ in given["parts"]], [float(rate) for _, rate in given["parts"]])


def size(given: Given, fraction: str) -> Bin:
    return bin_size(float(given["mu"]), float(given["wsla"]), float(given[fraction]))


def sets(groups: Groups) -> list[set[int]]:
    return sorted((set(group) for group in groups), key=sorted)


def least_loaded_vector(given: Given) -> dict[str, Any]:
    packing = least_loaded(
        load(given),
        size(given, "f"),
        most=given.get("capped"),
        order=given["order"],
        rank=given["bins"],
        mode=given["mode"],
    )
    return {"count": packing.bins, "groups": packing.groups}


def algorithm1(given: Given) -> dict[str, Any]:
    current = tuple(tuple(group) for group in given["assignment"])
    scaling = scale_event_consumer(load(given), current, len(current), size(given, "f_up"), size(given, "f_down"))
    return {"action": scaling.flag, "replicas": scaling.replicas, "groups": scaling.groups}


def algorithm2(given: Given) -> dict[str, Any]:
    current = tuple(tuple(group) for group in given["assignment"])
    parts = load(given)
    scaling: Scaling = scale_event_consumer_2(
        parts,
        total_lag(parts, float(given["t_r"])),
        current,
        len(current),
        size(given, "f_up"),
        size(given, "f_down"),
    )
    return {
        "flag": scaling.why["flag"],
        "action": ACTIONS[scaling.flag],
        "replicas": scaling.replicas,
        "groups": scaling.groups,
    }


def violates(given: Given) -> bool:
    return bool(violating_consumers(load(given), given["assignment"], size(given, "f_up")))


def linear(given: Given) -> int:
    parameters = LinearParameters(
        service_rate_per_s=given["mu"],
        slo_s=float(given["wsla"]),
        lag_s=given["interval"],
        reading=given["reading"],
    )
    return parameters.needed(float(given["rate_total"]), float(given["f"]))


def step(given: Given) -> int:
    parameters = LinearParameters(service_rate_per_s=given["mu"], slo_s=float(given["wsla"]), lag_s=given["interval"])
    total = float(given["rate_total"])
    up, down = (parameters.needed(total, float(given[f])) for f in ("f_up", "f_down"))
    return linear_step(given["n"], up, down)


def skew(given: Given) -> list[float]:
    weights = hot_weights(given["partitions"], given["hot"], float(given["share"]))
    return [float(given["rate_total"]) * weight for weight in weights]


FUNCTIONS: dict[str, Callable[[Given], Any]] = {
    "binpack.least_loaded": least_loaded_vector,
    "binpack.least_loaded_both": lambda given: least_loaded_both(load(given), size(given, "f")),
    "binpack.algorithm1": algorithm1,
    "binpack.algorithm2": algorithm2,
    "binpack.violates": violates,
    "binpack.linear": linear,
    "binpack.linear_step": step,
    "binpack.equal_bins": lambda given: optimal_replicas(
        float(given["rate_total"]), given["partitions"], float(given["cap"])
    ),
    "binpack.optimal_bins": lambda given: fewest_bins(load(given), size(given, "f")),
    "binpack.rebalance_lag": lambda given: total_lag(load(given), float(given["t_r"])),
    "binpack.skew": skew,
}


def agree(vector: dict[str, Any], answer: Any) -> None:
    expected = vector["out"]
    if isinstance(expected, dict):
        groups = answer.pop("groups")
        expected = dict(expected)
        expected_groups = expected.pop("groups")
        assert answer == expected
        if "tie-sensitive groups" not in vector.get("tags", []):
            assert sets(groups) == sets(expected_groups)
    elif isinstance(expected, list):
        assert answer == pytest.approx(expected, rel=1e-9, abs=1e-12)
    else:
        assert answer == expected


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_vector(vector: dict[str, Any]) -> None:
    agree(vector, FUNCTIONS[vector["fn"]](vector["in"]))


@pytest.mark.parametrize(
    "vector",
    [
        vector
        for vector in VECTORS
        if vector["fn"] == "binpack.least_loaded"
        and (vector["in"]["order"], vector["in"]["bins"], vector["in"]["mode"]) == ("rate", "rate", "restart")
    ],
    ids=lambda vector: vector["id"],
)
def test_the_fast_packing_meets_the_same_vectors(vector: dict[str, Any]) -> None:
    given = vector["in"]
    packing = least_loaded_fast(load(given), size(given, "f"), most=given.get("capped"))
    assert packing is not None
    agree(vector, {"count": packing.bins, "groups": packing.groups})


def test_the_vectors_are_all_there() -> None:
    assert len(VECTORS) == 244
    assert {vector["fn"] for vector in VECTORS} == set(FUNCTIONS)
