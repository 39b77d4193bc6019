"""Every derived vector of the queueing formulas and of Holt's smoothing, the printed tables, the simulated points."""

import json
import re
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest

from controller.queueing import erlang, gim, holt
from controller.queueing.mmsk import mmsk
from controller.queueing.network import Job, Network, NetworkTopic, decompose, measure

GOLDEN = Path(__file__).parents[1] / "golden"
Given = dict[str, Any]


def golden(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return read


SCALER = {"mmsk.scaler", "mmsk.forward", "mmsk.lambda_ratio", "mmsk.pool_monitor", "mmsk.min_servers"}
"""Vectors of mmsk.json that are not about the formula: of the scaler, and of its inverse, which nothing needs."""

VECTORS = [
    vector for name in ("mmsk", "gim", "holt") for vector in golden(name)["derived"] if vector["fn"] not in SCALER
]


def steady_state(given: Given) -> Any:
    q = mmsk(float(given["lam"]), float(given["mu"]), given["s"], given["K"])
    return {
        "P0": q.p_empty,
        "PK": q.p_full,
        "lam_e": q.entered_rate,
        "lam_lost": q.lost_rate,
        "Lq": q.waiting,
        "L": q.in_system,
        "Wq": q.waiting_time,
        "W": q.response_time,
        "rho_offered": q.offered_load,
        "utilization": q.utilisation,
    }


def gigm(given: Given) -> Any:
    q = gim.gim(*_gim(given))
    return {"rho": q.utilisation, "L": q.in_system, "Lq": q.waiting, "W": q.response_time, "Wq": q.waiting_time}


def _gim(given: Given) -> tuple[float, float, float, float, int]:
    return float(given["lam"]), float(given["ca2"]), float(given["mu"]), float(given["cs2"]), given["m"]


def network(jobs: list[str], lam: list[float], ca2: list[float], mu: list[float], cs2: list[float]) -> Network:
    return Network(
        topics=tuple(
            NetworkTopic(name=name, service_rate=rate, service_scv=scv)
            for name, rate, scv in zip("ABCD", mu, cs2, strict=True)
        ),
        jobs=tuple(
            Job(name=str(i), route=tuple(route), arrival_rate=rate, arrival_scv=scv)
            for i, (route, rate, scv) in enumerate(zip(jobs, lam, ca2, strict=True))
        ),
    )


def published(lam: list[float]) -> Network:
    """The paper's network, rates per minute."""
    return network(["ABD", "ADD", "CD"], lam, [0.33, 0.5, 0.25], [4.2, 3.7, 6.7, 5.1], [0.33, 0.5, 0.4, 0.5])


def decomposed(given: Given) -> Any:
    parts = decompose(network(given["jobs"], given["lam"], given["ca2"], given["mu"], given["cs2"]), given["m"])
    return {
        "rate": list(parts.arrival_rate),
        "scv": list(parts.arrival_scv),
        "rho": list(parts.utilisation),
        "step_scv": [list(steps) for steps in parts.step_scv],
    }


def forecast(given: Given) -> Any:
    smoothed = holt.smooth(given["series"], float(given["alpha"]), float(given["gamma"]), given["init"])
    return {
        "S": smoothed.level,
        "trend": smoothed.trend,
        "next": smoothed.rate_ahead(),
        "next_unclamped": smoothed.ahead(),
        "h3": smoothed.rate_ahead(3),
    }


def grid_search(given: Given) -> Any:
    best = holt.grid_search(
        given["series"], [float(alpha) for alpha in given["alphas"]], [float(gamma) for gamma in given["gammas"]]
    )
    return {"mse": best.mean_squared_error, "alpha": best.alpha, "gamma": best.gamma}


FUNCTIONS: dict[str, Callable[[Given], Any]] = {
    "mmsk.steady_state": steady_state,
    "gim.erlang_c": lambda g: erlang.erlang_c(float(g["a"]), g["m"]),
    "gim.L_mmm": lambda g: erlang.mmc(float(g["lam"]), float(g["mu"]), g["m"]).in_system,
    "gim.gigm": gigm,
    "gim.L_gigm_printed": lambda g: gim.l_gim_as_printed(*_gim(g)),
    "gim.merge_scv": lambda g: gim.merge_scv([gim.Stream(*stream) for stream in g["streams"]])._asdict(),
    "gim.departure_scv": lambda g: gim.departure_scv(g["ca2"], g["cs2"], g["rho"], g["m"]),
    "gim.split_scv": lambda g: gim.split_scv(g["p"], g["cd2"], g["ca2_i"]),
    "gim.decompose": decomposed,
    "holt.forecast": forecast,
    "holt.grid_search": grid_search,
}


def agree(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            agree(found[name], expected[name])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            agree(one, other)
    elif expected is None or isinstance(expected, str):
        assert found == {None: None, "inf": inf}[expected]
    else:
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_vector(vector: dict[str, Any]) -> None:
    agree(FUNCTIONS[vector["fn"]](vector["in"]), vector["out"])


def test_tiny_probabilities_keep_their_digits() -> None:
    for vector in VECTORS:
        if vector["fn"] == "mmsk.steady_state":
            assert steady_state(vector["in"])["P0"] == pytest.approx(vector["out"]["P0"], rel=1e-9, abs=0)


def test_the_vectors_are_all_there() -> None:
    assert len(VECTORS) == 31 + 149 + 93
    assert {vector["fn"] for vector in VECTORS} == set(FUNCTIONS)


@pytest.mark.parametrize(
    "vector", [v for v in golden("pubsub")["derived"] if v["fn"] == "pubsub.wip"], ids=lambda vector: vector["id"]
)
def test_work_in_progress_and_response_times_of_the_published_network(vector: dict[str, Any]) -> None:
    found = measure(published(vector["in"]["lam"]), vector["in"]["m"])
    out = vector["out"]
    agree([topic.in_system for topic in found.topics], out["L"])
    agree(found.work_in_progress, out["wip"])
    agree(found.response_time * 60, out["R_seconds"])
    agree([minutes * 60 for minutes in found.job_response_time], out["R_job_seconds"])


# --- the printed tables of the multi-queue paper ---------------------------------------------------------------------

COLUMNS = ("P0", "PK", "lam_e", "lam_lost", "Lq", "L", "Wq", "W", "rho_offered")
MMSK = golden("mmsk")["given"]


def printed_cells(table: str) -> list[tuple[int, str, float, float]]:
    """(time, column, printed, ours) of every cell."""
    given = MMSK[table]
    return [
        (time, column, printed, steady_state({**given, "s": servers})[column])
        for time, servers, *printed_row in given["rows"]
        for column, printed in zip(COLUMNS, printed_row, strict=False)
    ]


def test_table_1_to_its_printed_digits() -> None:
    cells = printed_cells("table1")
    assert len(cells) == 12 * 9
    for time, column, printed, ours in cells:
        # Within half a unit of the last printed digit.
        assert ours == pytest.approx(printed, abs=0.005 + 1e-9), (time, column)


def test_table_2_but_for_its_row_of_ten_servers() -> None:
    wrong = {(time, column) for time, column, printed, ours in printed_cells("table2") if abs(ours - printed) > 0.005}
    assert wrong == {(time, column) for time in (10, 11, 12) for column in ("lam_e", "lam_lost", "Lq", "L")}
    assert wrong == {(each["time"], each["column"]) for each in MMSK["not_reproduced"]}


def test_the_row_of_ten_servers_in_table_2_is_an_erratum() -> None:
    right = mmsk(100, 10, 10, 50)
    agree(
        [right.p_full, right.entered_rate, right.lost_rate, right.waiting, right.in_system],
        [0.022391293565736763, 97.76087064342633, 2.239129356573676, 18.360860723904143, 28.136947788246776],
    )
    printed = dict(zip(COLUMNS, MMSK["table2"]["rows"][9][2:], strict=False))
    # Little's law for the servers: L - L_q = λ_e/μ. As printed it would need that nothing is lost; but P_K = .02.
    assert (printed["L"] - printed["Lq"]) * 10 == pytest.approx(100)
    assert 100 * (1 - printed["PK"]) == pytest.approx(98)
    assert (right.in_system - right.waiting) * 10 == pytest.approx(right.entered_rate)


def test_the_last_column_of_the_tables_is_the_utilisation() -> None:
    for table in ("table1", "table2"):
        for _, servers, *row in MMSK[table]["rows"]:
            offered = MMSK[table]["lam"] / (servers * MMSK[table]["mu"])
            assert row[-1] == min(1.0, round(offered, 2))


# --- the formulas at the points that were simulated ------------------------------------------------------------------

SIMULATED = golden("sim_check")["rows"]
NETWORK_POINT = re.compile(r"network ABD/ADD/CD lam=\[(.*)\] m=\[(.*)\]")


def formula_at(point: str, measure_name: str) -> float:
    if match := NETWORK_POINT.match(point):
        lam, m = ([float(x) for x in group.split(",")] for group in match.groups())
        found = measure(published(lam), [int(x) for x in m])
        times = [found.response_time, *found.job_response_time]
        return 60 * times[int(measure_name[1:] or 0)]
    values = {name: float(value) for name, value in re.findall(r"(\w+)=([\d.]+)", point)}
    if point.startswith("GI/G/"):
        given = {**values, "m": int(point.split()[0].removeprefix("GI/G/"))}
        return float(gigm(given)[measure_name])
    servers, capacity = point.split()[0].removeprefix("M/M/").split("/")
    return float(steady_state({**values, "s": int(servers), "K": int(capacity)})[measure_name])


@pytest.mark.parametrize("row", SIMULATED, ids=lambda row: f"{row['point']} {row['measure']}")
def test_formula_at_a_simulated_point(row: dict[str, Any]) -> None:
    ours = formula_at(row["point"], row["measure"])
    agree(ours, row["formula"])
    if row["exact_formula"]:
        assert abs(ours - row["sim"]) <= row["half95"]
