"""What apps and the controller tell each other."""

import secrets

import numpy as np
import pytest

from penstock.adapters.app_boards import AppBoard
from penstock.adapters.redis import REDIS_AWAY
from penstock.apps import EXCHANGE_S, SHORTEST_EXCHANGE_S, AppReport, JobFlow, exchange_s, ready_limit
from penstock.settings import Endpoints


def test_apps_report_as_often_as_a_faster_run_decides_within_limits() -> None:
    assert exchange_s(1) == exchange_s(0.2) == EXCHANGE_S
    assert exchange_s(2) == EXCHANGE_S / 2
    assert exchange_s(60) == SHORTEST_EXCHANGE_S


def test_rate_and_scv_of_a_report_are_those_of_its_services() -> None:
    service_s = np.random.default_rng(1).gamma(0.5, 0.2, 1000)
    report = AppReport("a", 1, 0, len(service_s), float(service_s.sum()), float((service_s**2).sum()), 0)
    assert report.service_rate_per_s == pytest.approx(1 / service_s.mean())
    assert report.service_scv == pytest.approx(service_s.var(ddof=1) / service_s.mean() ** 2)


def test_what_nobody_has_measured_is_none() -> None:
    fresh = AppReport("a", 1, 0, 0, 0.0, 0.0, 0)
    assert (fresh.service_rate_per_s, fresh.service_scv) == (None, None)
    assert AppReport("a", 1, 0, 1, 0.5, 0.25, 0).service_scv is None


def test_equal_services_have_no_scv_whatever_the_rounding() -> None:
    report = AppReport("a", 1, 0, 3, 3 * 0.1, 3 * 0.1 * 0.1, 0)
    assert report.service_scv == pytest.approx(0, abs=1e-12)


def test_an_absent_redis_is_an_error_of_its_own() -> None:
    with pytest.raises(REDIS_AWAY):
        AppBoard("redis://127.0.0.1:1/0", "r").wanted("a")


@pytest.mark.live
def test_the_board_of_a_run_keeps_what_was_said_last(services: Endpoints) -> None:
    run = f"test-{secrets.token_hex(4)}"
    board = AppBoard(services.require("redis"), run, timeout_s=60)
    try:
        assert board.wanted("a") is None
        board.want("a", 3)
        board.want("a", 4)
        board.want("b", 0)
        assert [board.wanted(replica) for replica in "ab"] == [4, 0]
        report = AppReport("a", 4, 1, 9, 1.5, 0.5, 7, jobs={"J": JobFlow(arrived=2, between_s=0.5)})
        board.report(report)
        assert board.reports() == {"a": report}
        board.forget("a")
        assert ([board.wanted(replica) for replica in "ab"], board.reports()) == ([None, 0], {})
    finally:
        board.erase()
        board.close()


@pytest.mark.parametrize(("capacity", "servers", "bound"), [(50, 0, 50), (50, 10, 40), (15, 10, 5), (10, 10, 1)])
def test_what_may_wait_is_the_capacity_less_what_is_in_service(capacity: int, servers: int, bound: int) -> None:
    assert ready_limit(capacity, servers) == bound
