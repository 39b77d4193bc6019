"""Calibration: μ and percentiles from results, and one clear line for whoever asks for what cannot be."""

import numpy as np
import pytest
from typer.testing import CliRunner

from consumers.calibration import WARM_UP_S, calibrate_worker, measure
from penstock.command import build
from penstock.errors import PenstockError
from penstock.runspec import WorkerSpec
from penstock.settings import Endpoints

MS = 1_000_000


def test_the_rate_is_that_of_the_seconds_after_warming_up() -> None:
    slow = np.arange(0, WARM_UP_S * 1e9, 50 * MS, dtype=np.int64)
    fast = slow[-1] + np.arange(5 * MS, 4_000 * MS, 5 * MS, dtype=np.int64)
    finished = np.concatenate([slow, fast])
    found = measure(finished - 5 * MS, finished)
    assert found.service_rate_per_s == pytest.approx(200, rel=0.01)
    assert set(found.rates_per_s) == {200.0}
    assert found.spread_per_s == (200.0, 200.0)
    assert found.service_s[0] == pytest.approx(0.005)


def test_results_may_come_in_any_order() -> None:
    finished = np.arange(0, 6_000 * MS, 5 * MS, dtype=np.int64)
    shuffled = np.random.default_rng(1).permutation(finished)
    assert measure(shuffled - MS, shuffled) == measure(finished - MS, finished)


def test_too_few_results_are_refused() -> None:
    finished = np.arange(0, 2_500 * MS, 5 * MS, dtype=np.int64)
    with pytest.raises(PenstockError, match="use more seconds"):
        measure(finished, finished)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["worker", "--seconds", "0.5"], "--seconds 0.5: expected 2 or more"),
        (["worker", "--service-time", "2h"], "--service-time 7200: expected 0 or more"),
        (["worker", "--commit-every", "0"], "--commit-every 0: expected 1 or more"),
    ],
)
def test_bad_input_is_one_line_that_names_it(arguments: list[str], message: str) -> None:
    answer = CliRunner().invoke(build(), ["calibrate", *arguments])
    assert isinstance(answer.exception, PenstockError)
    assert str(answer.exception).startswith(message)


@pytest.mark.live
def test_an_absent_ledger_is_one_line_that_names_it(services: Endpoints) -> None:
    without = Endpoints.model_validate({**services.model_dump(), "redis": "redis://127.0.0.1:1/0"})
    with pytest.raises(PenstockError, match=r"Redis does not answer .* `penstock up`"):
        calibrate_worker(without, WorkerSpec(), seconds=2)


@pytest.mark.live
def test_a_real_worker_is_measured_near_its_floor(services: Endpoints) -> None:
    found = calibrate_worker(services, WorkerSpec(service_time_s=0.02), seconds=2)
    assert found.events > 20
    assert found.service_rate_per_s <= 50.5
    assert found.service_s[0] >= 0.0199
