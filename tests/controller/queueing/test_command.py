"""``penstock formula``, as a user meets it."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from controller.command import register
from penstock.errors import PenstockError

app = typer.Typer()
register(app)


def said(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["formula", *arguments])
    if isinstance(result.exception, PenstockError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def answer(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said(*text.split()))
    return found


def test_m_m_s_k_under_the_papers_symbols() -> None:
    found = answer("mmsk --arrival-rate 200 --service-rate 10 --servers 20 --capacity 50")
    assert list(found) == ["P_0", "P_K", "lambda_e", "lambda_lost", "L_q", "L", "W_q", "W", "rho", "utilisation"]
    assert found["rho"] == 1
    assert found["L"] == pytest.approx(found["lambda_e"] * found["W"])


def test_all_probabilities_on_request() -> None:
    found = answer("mmsk --arrival-rate 20 --service-rate 10 --servers 2 --capacity 5 --probabilities")
    assert len(found["P_n"]) == 6
    assert sum(found["P_n"]) == pytest.approx(1)
    assert found["P_n"][5] == found["P_K"]


def test_infinity_is_a_text() -> None:
    found = answer("mmsk --arrival-rate 5 --service-rate 1 --servers 0 --capacity 7")
    assert (found["W"], found["rho"], found["L"]) == ("inf", "inf", 7)
    assert answer("gim --arrival-rate 5 --service-rate 1 --servers 4")["L"] == "inf"
    assert answer("network --consumers 1,1,1,1")["WIP"] == "inf"


def test_m_m_c_and_the_distribution_of_its_wait() -> None:
    found = answer("mmc --arrival-rate 5 --service-rate 10 --servers 1 --within 0.1 --percentile 0.9")
    assert (found["rho"], found["C"], found["L"]) == pytest.approx((0.5, 0.5, 1.0))
    assert found["P_within"] == pytest.approx(1 - 0.5 * 2.718281828459045 ** (-0.5))
    assert found["W_q_p90"] == pytest.approx(0.32188758)


def test_erlang() -> None:
    assert answer("erlang-b --offered-load 2 --servers 1") == {"B": pytest.approx(2 / 3)}
    assert answer("erlang-c --offered-load 2 --servers 1") == {"C": 1}


def test_gi_g_m_and_its_erratum() -> None:
    found = answer("gim --arrival-rate 2 --arrival-scv 0.5 --service-rate 3 --service-scv 0.5 --servers 1")
    assert found["L"] == pytest.approx(2 / 3 + 0.5 * 4 / 3)
    assert found["L_as_printed"] == pytest.approx(2 / 3 + 2 * 0.5 * 4 / 3)


def test_the_published_network_is_built_in() -> None:
    found = answer("network")
    assert found["WIP"] == pytest.approx(6.737183, abs=1e-6)
    assert found["response_time"] * 60 == pytest.approx(42.5506, abs=1e-4)
    assert [job["response_time"] * 60 for job in found["jobs"].values()] == pytest.approx(
        [53.416, 48.697, 24.515], abs=1e-3
    )
    assert found["topics"]["D"]["consumers"] == 4


def test_a_network_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "network.json"
    file.write_text(said("network", "--print-input"))
    assert answer(f"network {file}") == answer("network")
    assert answer(f"network {file} --consumers 3,3,2,5") == answer("network --consumers 3,3,2,5")


def test_holts_forecast() -> None:
    found = answer("holt 10 12 15 --alpha 0.5 --gamma 0.4")
    assert (found["S"], found["trend"], found["forecast"]) == pytest.approx((13.2, 1.12, 14.32))
    falling = answer("holt 100 0 --init diff")
    assert (falling["forecast"], falling["forecast_unclamped"]) == (0, -100)
    best = answer("holt 1 2 3 4 5 6 --grid 0.9,0.1,0.5")
    assert (best["alpha"], best["gamma"]) == (0.9, 0.9)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("mmsk --arrival-rate -1 --service-rate 1 --servers 1 --capacity 1", "arrival_rate=-1: expected"),
        ("mmsk --arrival-rate 1 --service-rate 1 --servers 1 --capacity 0", "capacity=0: expected"),
        ("mmc --arrival-rate 1 --service-rate 0 --servers 1", "service_rate=0: expected"),
        ("mmc --arrival-rate 1 --service-rate 2 --servers 1 --percentile 1", "probability=1: expected"),
        ("erlang-b --offered-load inf --servers 1", "offered_load=inf: expected"),
        ("erlang-c --offered-load 1 --servers 99999999", "--servers 99999999: expected at most"),
        ("gim --arrival-rate 1 --service-rate 2 --servers 1 --arrival-scv -1", "arrival_scv=-1: expected"),
        ("network --consumers 1,2", "consumers=.*: expected 4 numbers"),
        ("network --consumers 1,x", "--consumers 1,x: expected whole numbers"),
        ("network /nowhere.json", "/nowhere.json: No such file"),
        ("holt 1 2 --alpha 2", "alpha=2, gamma=0.3: expected"),
        ("holt 1 2 --grid a", "--grid a: expected numbers"),
    ],
)
def test_bad_input_is_one_clear_line(arguments: str, told: str) -> None:
    with pytest.raises(PenstockError, match=told) as error:
        said(*arguments.split())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"topics": []}', "missing required field `jobs`"),
        ('{"topics": [{"name": "A", "service_rate": 1, "colour": 2}], "jobs": []}', "unknown field `colour`"),
        ('{"topics": [{"name": "A", "service_rate": 0}], "jobs": [], "consumers": []}', "jobs \\[\\]: expected"),
        ("{", "truncated"),
    ],
)
def test_a_wrong_file_is_told(tmp_path: Path, content: str, told: str) -> None:
    file = tmp_path / "network.json"
    file.write_text(content)
    with pytest.raises(PenstockError, match=f"network.json: .*{told}"):
        said("network", str(file))


@pytest.mark.parametrize("command", ["mmsk", "mmc", "erlang-b", "erlang-c", "gim", "network", "holt"])
def test_help_has_an_example_that_works(command: str) -> None:
    text = " ".join(said(command, "--help").split())
    example = text.split("Example: penstock formula ")[1].split("╭")[0].strip()
    assert json.loads(said(*example.split()))
