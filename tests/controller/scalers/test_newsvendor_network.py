"""newsvendor for pub/sub networks: who waits and for how long, the trade, and what holds for every input."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scalers import newsvendor_network
from controller.scalers.newsvendor_network import (
    NewsvendorNetwork,
    NewsvendorNetworkParameters,
    NewsvendorNetworkState,
    ages_s,
    grouped,
    mean_between,
    readings_of,
)
from penstock.contracts import Decision, JobStatus, NetworkObservation, ReplicaCounts, TopicStatus
from report.explain import explain

SERVICE_S = 10.0
TOPICS = ("A", "D")
ROUTES = (("1", ("A", "D", "D")), ("2", ("D",)))


def scaler(**parameters: Any) -> NewsvendorNetwork:
    return NewsvendorNetwork(NewsvendorNetworkParameters(**parameters))


def topic(time_s: float, name: str, done: int, busy: int, waiting: int, counts: ReplicaCounts) -> TopicStatus:
    return TopicStatus(
        time_s=time_s,
        fleet=name,
        replicas=counts,
        arrived=done + busy + waiting,
        completed=done,
        backlog=waiting,
        in_flight=busy,
        service_rate_per_s=1 / SERVICE_S,
        service_scv=0.5,
    )


def observed(
    second: int, every_s: int, busy: int = 1, waiting: int = 0, counts: ReplicaCounts | None = None, **changes: Any
) -> NetworkObservation:
    """A job of each type every so many seconds; both topics in the same state."""
    jobs = second // every_s
    counts = counts or ReplicaCounts(joined=3)
    whole = NetworkObservation(
        time_s=float(second),
        fleet="network",
        replicas=counts,
        arrived=2 * jobs,
        completed=jobs,
        late=jobs // 20,
        topics=tuple(topic(float(second), name, 4 * jobs, busy, waiting, counts) for name in TOPICS),
        jobs=tuple(JobStatus(job=name, route=route, arrived=jobs, arrival_scv=1.0) for name, route in ROUTES),
    )
    return msgspec.structs.replace(whole, **changes)


def after_steady_load(
    busy: int = 1, waiting: int = 0, every_s: int = 20, counts: ReplicaCounts | None = None, **parameters: Any
) -> Decision:
    """The decision after five minutes of a steady load, at the end with so many tasks in service and waiting."""
    own, state = scaler(**parameters), NewsvendorNetworkState()
    for second in range(0, 300, 5):
        _, state = own.decide(observed(second, every_s), state)
    decision, _ = own.decide(observed(300, every_s, busy, waiting, counts), state)
    return decision


def sizes(decision: Decision, current: int = 3) -> list[int]:
    return [decision.targets.get(name, current) for name in TOPICS]


def test_idle_consumers_leave_and_those_that_serve_stay() -> None:
    assert sizes(after_steady_load(busy=1)) == [1, 1]
    assert sizes(after_steady_load(busy=3)) == [3, 3]


def test_where_no_consumer_has_to_be_there_none_stays_idle_and_tasks_wait_until_a_job_is_in_danger() -> None:
    one, none = ReplicaCounts(joined=1), ReplicaCounts()
    assert sizes(after_steady_load(busy=0, counts=one, min_replicas=0), 1) == [0, 0]
    assert sizes(after_steady_load(busy=1, counts=one, min_replicas=0), 1) == [1, 1]
    assert sizes(after_steady_load(0, 3, counts=none, min_replicas=0, slo_s=600.0, price_s=60.0), 0) == [0, 0]
    assert min(sizes(after_steady_load(0, 3, counts=none, min_replicas=0, slo_s=60.0, price_s=60.0), 0)) > 0
    assert sizes(after_steady_load(0, 3, counts=none, min_replicas=0, slo_s=60.0, price_s=1000.0), 0) == [3, 3]


def test_a_start_up_makes_idle_consumers_worth_keeping() -> None:
    calm = sizes(after_steady_load(busy=1, every_s=10, price_s=200.0))
    slow = sizes(after_steady_load(busy=1, every_s=10, price_s=200.0, start_up_s=30.0))
    assert all(kept > free for kept, free in zip(slow, calm, strict=True))


def test_a_start_up_is_paid_now_or_later_so_that_a_long_queue_gets_consumers() -> None:
    decision = after_steady_load(2, 12, counts=ReplicaCounts(joined=2), price_s=500.0, start_up_s=20.0)
    assert all(size > 4 for size in sizes(decision, 2))


def test_measured_start_ups_replace_the_configured_one() -> None:
    own, state = scaler(start_up_s=0.5), NewsvendorNetworkState()
    for second in range(0, 100, 5):
        seen = observed(second, 10)
        if 50 <= second < 90:  # then none is known any more
            topics = tuple(msgspec.structs.replace(each, start_ups_s=(4.0, 4.0)) for each in seen.topics)
            seen = msgspec.structs.replace(seen, topics=topics)
        decision, state = own.decide(seen, state)
        if second:
            assert decision.why["network"]["start_up_s"] == (0.5 if second < 50 else 4.0)


def test_tasks_that_wait_get_consumers_if_the_price_is_high() -> None:
    assert sizes(after_steady_load(busy=3, waiting=4, price_s=1000.0)) == [7, 7]
    assert sizes(after_steady_load(busy=3, waiting=4, every_s=60, price_s=0.001)) == [1, 1], "one can serve them all"


def test_to_wait_is_better_while_arrivals_do_not_tell_whether_the_least_number_can_do_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Topic D gets 1.1 times what one consumer can do, which may be by chance, or twice as much."""

    def trade(every_s: int) -> tuple[Any, Any]:
        alone = ReplicaCounts(joined=1)
        why = after_steady_load(1, 12, every_s, alone, price_s=158.0, slo_s=600.0).why["D"]
        costs: Any = why["cost"]
        return why["keeps_up"], (costs[1] - costs[0]) / SERVICE_S

    (surely, _), (perhaps, gain), (never, none) = map(trade, (60, 27, 15))
    assert (surely, perhaps, never) == (
        pytest.approx(1.0, abs=0.1), pytest.approx(0.3, abs=0.2), pytest.approx(0.0, abs=0.01)
    )  # fmt: skip
    assert gain > 0.02 > abs(none)
    monkeypatch.setattr(newsvendor_network, "normal_below", lambda limit, mean, _: float(mean < limit))
    assert abs(trade(27)[1]) < 0.02


def test_a_queue_of_jobs_that_are_late_does_not_wait_for_consumers_that_perhaps_cannot_do_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wanted() -> int:
        return sizes(after_steady_load(1, 12, 27, ReplicaCounts(joined=1), price_s=10.0, slo_s=5.0), 1)[1]

    assert wanted() > 1
    monkeypatch.setattr(newsvendor_network, "MOST_LATE", 2.0)
    assert wanted() == 1


def test_a_task_waits_until_its_job_is_in_danger() -> None:
    """Type 2 needs 10 s of 60 and waits in the only topic that it visits."""
    own = scaler(price_s=60.0, slo_s=60.0)
    state, alone = NewsvendorNetworkState(), ROUTES[1:]
    chosen = []
    for second in range(400):
        counts = ReplicaCounts(joined=1)
        waiting = int(second >= 300)
        done = max(0, second // 40 - waiting)
        seen = NetworkObservation(
            time_s=float(second),
            fleet="network",
            replicas=counts,
            completed=done,
            late=0,
            topics=(topic(float(second), "D", done, 1, waiting, counts),),
            jobs=tuple(JobStatus(job=name, route=route, arrived=second // 40) for name, route in alone),
        )
        decision, state = own.decide(seen, state)
        chosen.append(decision.targets.get("D", 1))
    assert set(chosen[300:310]) == {1}, "there is time"
    first = chosen.index(2)
    assert 310 < first < 350


def test_a_consumer_on_its_way_is_not_asked_for_again() -> None:
    asked = sizes(after_steady_load(busy=3, waiting=2, price_s=1000.0, start_up_s=5.0))
    coming = ReplicaCounts(joined=3, requested=asked[0] - 3)
    again = after_steady_load(busy=3, waiting=2, counts=coming, price_s=1000.0, start_up_s=5.0)
    assert sizes(again, asked[0]) == asked


def test_the_trade_is_shown_for_one_fewer_and_one_more() -> None:
    why = after_steady_load(busy=3, waiting=4, price_s=1000.0).why["D"]
    assert why["candidates"] == [6, 7, 8]
    late, cost = why["late"], why["cost"]
    assert isinstance(late, list) and isinstance(cost, list)
    assert late[0] > late[1] >= late[2]
    assert min(cost) == cost[1]
    assert "7 consumers: J = " in explain("newsvendor-network", after_steady_load(busy=3, waiting=4, price_s=1000.0))


def test_a_limit_that_services_alone_exceed_is_called_infeasible() -> None:
    why = after_steady_load(slo_s=30.0).why["network"]
    assert "none waits" in str(why["infeasible"])
    least = why["late_without_waits"]
    assert isinstance(least, float) and 0.2 < least < 0.3, "half of the jobs need 30 s on average"
    assert "infeasible" not in after_steady_load(slo_s=300.0).why["network"]


def test_the_contract_makes_the_price() -> None:
    """One job in twenty is late: too many for 99 %, few enough for 80 %."""
    strict, lax = (after_steady_load(slo_share=share).why["network"]["price_s"] for share in (0.99, 0.8))
    assert isinstance(strict, float) and isinstance(lax, float)
    assert strict > 10 * lax


def test_ages_of_waiting_tasks_follow_from_the_arrivals() -> None:
    readings: Sequence[tuple[float, int]] = ()
    for time_s, arrived, waiting in ((0.0, 5, 0), (1.0, 6, 1), (2.0, 6, 1), (3.0, 9, 4), (4.0, 9, 3)):
        readings = readings_of(readings, time_s, arrived, waiting)
    assert readings == ((3.0, 9),)
    assert ages_s(readings, 5.0, 3) == [2.0, 2.0, 2.0]
    assert ages_s(readings_of(((1.0, 6),), 3.0, 9, 4), 3.0, 4) == [2.0, 0.0, 0.0, 0.0]
    assert readings_of(readings, 5.0, 2, 1) == ((5.0, 2),)  # started anew


@pytest.mark.parametrize(("spare", "beyond", "mean"), [(-1, 3, 0.0), (0, 3, 0.0), (2, 3, 2.0), (5, 3, 3.0)])
def test_idle_consumers_are_counted_without_chance(spare: int, beyond: int, mean: float) -> None:
    assert mean_between(spare, 0.0, 0.0, beyond) == mean


def test_idle_consumers_come_of_services_that_end_and_go_with_arrivals() -> None:
    assert mean_between(0, 0.5, 0.0, 100) == pytest.approx(0.5, abs=1e-4)
    assert mean_between(100, 0.5, 2.0, 1000) == pytest.approx(98.5, abs=1e-4)
    assert mean_between(0, 0.5, 2.0, 100) < 0.11


@pytest.mark.parametrize("field", ["backlog", "in_flight", "arrived", "service_rate_per_s"])
def test_unknown_readings_of_a_topic_hold(field: str) -> None:
    seen = observed(0, 10)
    blind = msgspec.structs.replace(seen.topics[0], **{field: None})
    decision, _ = scaler().decide(
        msgspec.structs.replace(seen, topics=(blind, seen.topics[1])), NewsvendorNetworkState()
    )
    assert decision.action == "hold"


def test_unknown_arrivals_of_a_job_hold_and_unknown_late_jobs_keep_the_price() -> None:
    own, state = scaler(), NewsvendorNetworkState()
    for second in range(0, 100, 5):
        _, state = own.decide(observed(second, 10), state)
    seen = observed(100, 10)
    unknown = tuple(msgspec.structs.replace(job, arrived=None) for job in seen.jobs)
    decision, _ = own.decide(msgspec.structs.replace(seen, jobs=unknown), state)
    assert (decision.action, decision.targets) == ("hold", {})
    _, following = own.decide(observed(100, 10, late=None), state)
    assert following.price.value == state.price.value


def test_before_the_first_job_the_least_consumers_need_no_service_rate() -> None:
    own, state = scaler(), NewsvendorNetworkState()
    for second in (0, 2):
        seen = observed(second, 10, busy=0)
        topics = tuple(msgspec.structs.replace(each, service_rate_per_s=None) for each in seen.topics)
        decision, state = own.decide(msgspec.structs.replace(seen, topics=topics), state)
        assert sizes(decision) == ([1, 1] if second else [3, 3])


def test_a_topic_to_which_no_job_leads_yet_does_not_hold_up_the_others() -> None:
    own, state = scaler(), NewsvendorNetworkState()
    for second in range(0, 100, 5):
        seen = observed(second, 20, busy=0)
        never = topic(float(second), "Z", 0, 0, 0, ReplicaCounts(joined=3))
        never = msgspec.structs.replace(never, service_rate_per_s=None)
        jobs = (*seen.jobs, JobStatus(job="3", route=("D", "Z"), arrived=0))
        decision, state = own.decide(msgspec.structs.replace(seen, topics=(*seen.topics, never), jobs=jobs), state)
    assert (*sizes(decision), decision.targets["Z"]) == (1, 1, 1)


def test_a_long_queue_is_evaluated_in_groups_and_a_short_one_task_by_task() -> None:
    assert grouped(600, 100) == [(k, 1) for k in range(600)]
    groups = grouped(10_000, 100)
    assert len(groups) <= 600 + 100
    assert sum(number for _, number in groups) == 10_000


def test_a_long_queue_gets_the_consumers_that_it_gets_task_by_task(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    near = newsvendor_network.LateProbability.near

    def counted(self: newsvendor_network.LateProbability, wait_s: float) -> float:
        asked.append(wait_s)
        return near(self, wait_s)

    monkeypatch.setattr(newsvendor_network.LateProbability, "near", counted)
    found = []
    for alone in (newsvendor_network.MOST_ONE_BY_ONE, 5000):
        monkeypatch.setattr(newsvendor_network, "MOST_ONE_BY_ONE", alone)
        asked.clear()
        found.append((sizes(after_steady_load(3, 2000, price_s=500.0, start_up_s=20.0)), len(asked)))
    assert found[0][0] == found[1][0]
    assert found[0][1] < found[1][1] / 2


LOADS = st.tuples(st.integers(5, 60), st.integers(0, 8), st.integers(0, 12))


@settings(max_examples=8, deadline=None)
@given(load=LOADS, price_s=st.floats(0.1, 500), start_up_s=st.sampled_from([0.0, 0.5, 20.0]))
def test_doubling_the_price_never_lowers_n(load: tuple[int, int, int], price_s: float, start_up_s: float) -> None:
    every_s, busy, waiting = load
    counts = ReplicaCounts(joined=max(1, busy))
    once, twice = (
        sizes(after_steady_load(busy, waiting, every_s, counts, price_s=each, start_up_s=start_up_s), counts.joined)
        for each in (price_s, 2 * price_s)
    )
    assert all(more >= fewer for more, fewer in zip(twice, once, strict=True))


@settings(max_examples=15, deadline=None)
@given(load=LOADS, draining=st.integers(0, 3))
def test_the_same_input_has_the_same_answer_within_the_bounds_also_from_a_stored_state(
    load: tuple[int, int, int], draining: int
) -> None:
    every_s, busy, waiting = load
    own, state = scaler(min_replicas=2, max_replicas=5), NewsvendorNetworkState()
    for second in range(4):
        stored = msgspec.json.decode(msgspec.json.encode(state), type=NewsvendorNetworkState)
        now = observed(second, every_s, busy + draining, waiting, ReplicaCounts(joined=max(1, busy), draining=draining))
        decision, following = own.decide(now, state)
        assert own.decide(now, stored) == (decision, following)
        assert all(2 <= target <= 5 for target in decision.targets.values())
        state = following
