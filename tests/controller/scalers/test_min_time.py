"""MinTime, MinCost and Random: the vectors of tests/golden/pubsub.json, the published allocations, and decisions."""

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, pairwise
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.queueing.network import Job, Network, NetworkTopic, measure
from controller.scalers.min_cost import MinCost, MinCostParameters
from controller.scalers.min_time import MinTime, MinTimeParameters
from controller.scalers.random_allocation import RandomAllocation, RandomParameters, lot
from controller.scalers.shared.allocation import (
    Consumers,
    min_cost,
    min_time,
    most_useful_topic,
    one_each,
    overloaded_topics,
    random_path,
)
from controller.scalers.shared.network_scaler import NetworkScaler
from penstock.contracts import Decision, JobStatus, NetworkObservation, ReplicaCounts, TopicStatus
from penstock.errors import PenstockError
from penstock.parameters import make_parameters

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "pubsub.json").read_text())
VECTORS = {
    fn: [vector for vector in GOLDEN["derived"] if vector["fn"] == fn]
    for fn in ("pubsub.wip", "pubsub.min_time", "pubsub.min_cost")
}

TASKS = {"A": (4.2, 0.33), "B": (3.7, 0.5), "C": (6.7, 0.4), "D": (5.1, 0.5)}
JOBS = {"1": ("ABD", 0.33), "2": ("ADD", 0.5), "3": ("CD", 0.25)}
BURST = (3.0, 3.5, 3.0)


def network(rates: Sequence[float]) -> Network:
    """The paper's four tasks and three job types, rates per minute."""
    return Network(
        topics=tuple(NetworkTopic(name=name, service_rate=mu, service_scv=scv) for name, (mu, scv) in TASKS.items()),
        jobs=tuple(
            Job(name=name, route=tuple(route), arrival_rate=rate, arrival_scv=scv)
            for (name, (route, scv)), rate in zip(JOBS.items(), rates, strict=True)
        ),
    )


def response_s(rates: Sequence[float], consumers: Sequence[int]) -> float:
    return measure(network(rates), consumers).response_time * 60


@pytest.mark.parametrize("vector", VECTORS["pubsub.wip"], ids=lambda vector: vector["id"])
def test_wip_vector(vector: dict[str, Any]) -> None:
    found, out = measure(network(vector["in"]["lam"]), vector["in"]["m"]), vector["out"]
    number = {"inf": inf}

    def expected(value: Any) -> Any:
        return pytest.approx(number.get(value, value), rel=1e-9, abs=1e-12)

    for topic, in_system in zip(found.topics, out["L"], strict=True):
        assert topic.in_system == expected(in_system)
    assert found.work_in_progress == expected(out["wip"])
    assert found.response_time * 60 == expected(out["R_seconds"])
    for minutes, seconds in zip(found.job_response_time, out["R_job_seconds"], strict=True):
        assert minutes * 60 == expected(seconds)


@pytest.mark.parametrize("vector", VECTORS["pubsub.min_time"], ids=lambda vector: vector["id"])
def test_min_time_vector(vector: dict[str, Any]) -> None:
    given = vector["in"]
    path = min_time(network(given["lam"]), given["extra"], given.get("start"))
    assert [list(m) for m in path] == vector["out"]["path"]


@pytest.mark.parametrize("vector", VECTORS["pubsub.min_cost"], ids=lambda vector: vector["id"])
def test_min_cost_vector(vector: dict[str, Any]) -> None:
    given = vector["in"]
    found = min_cost(network(given["lam"]), given["T_seconds"] / 60, given["start"], most_iterations=given["limit"])
    answer = {"iterations": len(found.path) - 1, "m": list(found.path[-1])}
    assert (answer if found.met else dict.fromkeys(answer)) == vector["out"]


def test_the_vectors_are_all_there() -> None:
    assert {fn: len(vectors) for fn, vectors in VECTORS.items()} == {
        "pubsub.wip": 22,
        "pubsub.min_time": 22,
        "pubsub.min_cost": 23,
    }
    assert len(GOLDEN["derived"]) == 67


# --- what the paper published, and what follows from it --------------------------------------------------------------


def test_section_f_min_time_gets_the_published_allocation() -> None:
    given = GOLDEN["given"]["section_VI_F"]
    path = min_time(network(given["lam"]), given["M"], given["start"])
    assert list(path[-1]) == given["published_m"]
    assert path[1:] == ((1, 1, 1, 2), (2, 1, 1, 2), (2, 1, 1, 3), (2, 1, 1, 4), (2, 2, 1, 4))
    assert response_s(given["low_rates"], given["start"]) == pytest.approx(50.32, abs=0.005)


def test_section_e_min_cost_needs_the_published_five_iterations() -> None:
    given = GOLDEN["given"]["section_VI_E"]
    found = min_cost(network(given["lam"]), given["T_seconds"] / 60)
    assert found.met
    assert len(found.path) - 1 == given["published_iterations"]
    assert [minutes * 60 for minutes in found.response_times] == pytest.approx(
        [float(seconds) for seconds in given["ours_R_after_each"]], rel=1e-9
    )


def test_sections_b_and_d() -> None:
    for section in ("section_VI_B", "section_VI_D"):
        given = GOLDEN["given"][section]
        assert list(min_time(network(given["lam"]), given["M"])[-1]) == given["ours"]
    ten = min_time(network(BURST), 10)[-1]
    assert measure(network(BURST), ten).work_in_progress == pytest.approx(5.4679, abs=5e-5)
    assert response_s((2, 2.5, 2), (2, 2, 1, 4)) == pytest.approx(36.47, abs=0.005)


@pytest.mark.parametrize(("rates", "extra"), [(BURST, 5), ((2.0, 2.5, 2.0), 5), (BURST, 10)])
def test_no_other_allocation_of_as_many_consumers_has_less_work_in_progress(
    rates: tuple[float, ...], extra: int
) -> None:
    this = network(rates)
    best = min(allocations(4, 4 + extra), key=lambda m: measure(this, m).work_in_progress)
    assert min_time(this, extra)[-1] == best


def allocations(topics: int, consumers: int) -> Iterator[Consumers]:
    """All ways to give each topic at least one of so many consumers."""
    for cuts in combinations(range(1, consumers), topics - 1):
        yield tuple(after - before for before, after in pairwise((0, *cuts, consumers)))


def test_random_is_no_match_for_min_cost() -> None:
    """Figure 7: with five more consumers MinCost keeps the limit; lots rarely do, and not always with ten."""
    kept = {5: 0, 10: 0}
    for seed in range(60):
        draws = iter(range(10))
        path = random_path(4, 10, lambda topics, s=seed, d=draws: lot(s, next(d), topics))  # type: ignore[misc]
        for extra in kept:
            kept[extra] += response_s(BURST, path[extra]) <= 50
    assert kept[5] <= 6
    assert kept[5] < kept[10] < 60


# --- properties ------------------------------------------------------------------------------------------------------

rates = st.tuples(*[st.integers(0, 80).map(lambda tenths: tenths / 10)] * 3)


@given(rates, st.integers(0, 8), st.integers(0, 4))
def test_min_time_spends_all_and_a_larger_budget_continues_the_path(
    lam: tuple[float, ...], budget: int, more: int
) -> None:
    path = min_time(network(lam), budget)
    assert [sum(m) for m in path] == list(range(4, 4 + budget + 1))
    for before, after in pairwise(path):
        assert all(a >= b for a, b in zip(after, before, strict=True))
    in_progress = [measure(network(lam), m).work_in_progress for m in path]
    assert all(after <= before + 1e-9 for before, after in pairwise(in_progress) if before < inf)
    assert min_time(network(lam), budget + more)[: budget + 1] == path


@given(rates, st.sampled_from([20.0, 40.0, 50.0, 80.0]))
def test_min_cost_stops_at_the_first_allocation_that_keeps_the_limit(lam: tuple[float, ...], limit_s: float) -> None:
    found = min_cost(network(lam), limit_s / 60, most_iterations=25)
    *before, last = found.response_times
    assert all(minutes > limit_s / 60 for minutes in before)
    assert found.met == (last <= limit_s / 60)
    assert found.met or len(found.path) == 26
    assert min_cost(network(lam), inf).path == ((1, 1, 1, 1),)


@given(st.integers(2, 5), st.integers(1, 12), st.floats(0.1, 3))
def test_equal_topics_take_turns_from_the_first_on(topics: int, extra: int, load: float) -> None:
    names = tuple(f"t{j}" for j in range(topics))
    equal = Network(
        topics=tuple(NetworkTopic(name=name, service_rate=1.0) for name in names),
        jobs=tuple(Job(name=name, route=(name,), arrival_rate=load) for name in names),
    )
    expected = [(j % topics) for j in range(extra)]
    path = min_time(equal, extra)
    found = [next(j for j in range(topics) if after[j] > before[j]) for before, after in pairwise(path)]
    assert found == expected


def test_the_most_overloaded_topic_comes_first() -> None:
    burst = network(BURST)
    assert overloaded_topics(burst, measure(burst, (1, 1, 1, 1))) == ["A", "D"]
    assert most_useful_topic(burst, (1, 1, 1, 1)) == 3
    assert most_useful_topic(burst, (1, 1, 1, 2)) == 0
    assert most_useful_topic(burst, (1, 1, 1, 9)) == 0


def test_a_topic_that_is_busy_all_of_the_time_is_overloaded_whatever_the_rounding() -> None:
    busy = network((5.0, 7.6, 0.0))  # A: 12.6 arrive, three consumers serve 12.6
    assert overloaded_topics(busy, measure(busy, (3, 5, 1, 9))) == ["A"]
    assert most_useful_topic(busy, (3, 5, 1, 9)) == 0


def test_costs_decide_what_fits_and_what_is_worth_it() -> None:
    this = network((2.0, 2.5, 2.0))

    def linear(topic: int, m: int) -> float:
        return (3.0 if topic == 3 else 1.0) * m

    assert min_time(this, 2, cost=linear) == ((1, 1, 1, 1),)  # D is needed first, and costs 3
    assert min_time(this, 4, cost=linear) == ((1, 1, 1, 1), (1, 1, 1, 2), (2, 1, 1, 2))
    low = network((0.5, 1.0, 0.5))
    assert most_useful_topic(low, (1, 1, 1, 1), one_each) == 3
    assert most_useful_topic(low, (1, 1, 1, 1), lambda topic, m: (30.0 if topic == 3 else 1.0) * m) == 0
    with pytest.raises(ValueError, match="consumer 2 of topic 3 costs 0"):
        min_time(this, 2, cost=lambda topic, m: 5.0)
    with pytest.raises(ValueError, match="budget=inf"):
        min_time(this, inf)


# --- the scalers -----------------------------------------------------------------------------------------------------


def min_time_scaler(**parameters: Any) -> MinTime:
    return MinTime(make_parameters("min-time", MinTimeParameters, parameters))


def min_cost_scaler(**parameters: Any) -> MinCost:
    return MinCost(make_parameters("min-cost", MinCostParameters, parameters))


def random_scaler(**parameters: Any) -> RandomAllocation:
    return RandomAllocation(make_parameters("random", RandomParameters, parameters))


MAKERS: list[Callable[..., Any]] = [min_time_scaler, min_cost_scaler, random_scaler]


class PubSub:
    """The paper's network as a monitor sees it; consumers follow the decisions at once."""

    def __init__(self, scaler: NetworkScaler[Any], consumers: Sequence[int] = (1, 1, 1, 1), seed: int = 1) -> None:
        self.scaler, self.state = scaler, scaler.start(seed)
        self.consumers = dict(zip(TASKS, consumers, strict=True))
        self.time_s = 0.0

    @property
    def m(self) -> Consumers:
        return tuple(self.consumers.values())

    def tick(
        self,
        lam: Sequence[float] = BURST,
        response_s: float | None = 20.0,
        *,
        every_s: float | None = None,
        without: Sequence[str] = (),
        change: dict[str, Any] | None = None,
    ) -> Decision:
        self.time_s += every_s or self.scaler.period_s
        seen = NetworkObservation(
            time_s=self.time_s,
            fleet="biology",
            replicas=ReplicaCounts(joined=sum(self.m)),
            response_time_s=response_s,
            topics=tuple(
                TopicStatus(
                    time_s=self.time_s,
                    fleet=name,
                    replicas=ReplicaCounts(requested=1, joined=self.consumers[name] - 1),
                    service_rate_per_s=None if "mu" in without else mu / 60,
                    service_scv=None if "cs2" in without else scv,
                )
                for name, (mu, scv) in TASKS.items()
            ),
            jobs=tuple(
                JobStatus(
                    job=name,
                    route=tuple(route),
                    arrival_rate_per_s=None if "lambda" in without else rate / 60,
                    arrival_scv=None if "ca2" in without else scv,
                )
                for (name, (route, scv)), rate in zip(JOBS.items(), lam, strict=True)
            ),
        )
        seen = msgspec.structs.replace(seen, **(change or {}))
        state = msgspec.json.decode(msgspec.json.encode(self.state), type=self.scaler.State)
        assert state == self.state
        decision, self.state = self.scaler.decide(seen, state)
        assert self.scaler.decide(seen, state) == (decision, self.state)
        assert msgspec.json.decode(msgspec.json.encode(decision), type=Decision).targets == decision.targets
        for topic, target in decision.targets.items():
            assert target != self.consumers[topic]
            self.consumers[topic] = target
        return decision


def test_a_burst_is_answered_with_the_published_allocation() -> None:
    pubsub = PubSub(min_time_scaler(timer_s=None))
    for _ in range(20):
        assert pubsub.tick((0.5, 1.0, 0.5), response_s=50.3).action == "none"
    assert pubsub.tick(BURST, response_s=59.9).action == "none"
    decision = pubsub.tick(BURST, response_s=75.0)
    assert decision.action == "up"
    assert decision.targets == {"A": 2, "B": 2, "D": 4}
    assert pubsub.m == (2, 2, 1, 4)
    assert pubsub.tick(BURST, response_s=75.0).action == "none"


def test_the_arithmetic_reads_like_the_paper() -> None:
    why = PubSub(min_time_scaler()).tick(BURST, response_s=99.0).why
    assert list(why["biology"]) == [
        "response_time_s",
        "response_limit_s",
        "trigger",
        "M",
        "path",
        "R_after_each_s",
        "compared",
        "candidates",
        "topics",
        "lambda_per_min",
        "ca2",
        "mu_per_min",
        "cs2",
        "lambda_j_per_min",
        "ca2_j",
        "rho_j",
        "L_j",
        "WIP",
        "R_s",
        "m",
        "action",
    ]
    assert why["biology"]["trigger"] == "response time above the limit"
    assert why["biology"]["lambda_j_per_min"] == pytest.approx([6.5, 3, 3, 13])
    assert why["biology"]["rho_j"] == pytest.approx([0.773810, 0.405405, 0.447761, 0.637255], abs=1e-6)
    assert why["biology"]["WIP"] == pytest.approx(6.737183, abs=1e-6)
    assert why["biology"]["R_s"] == pytest.approx(42.5506, abs=1e-4)
    assert why["D"] == {"consumers": 1, "m": 4, "action": "up"}
    assert why["C"] == {"consumers": 1, "m": 1, "action": "none"}


@pytest.mark.parametrize("make", [min_time_scaler, min_cost_scaler])
@pytest.mark.parametrize("stepwise", [False, True])
def test_what_a_step_compared_is_largest_for_the_topic_that_it_took(make: Any, stepwise: bool) -> None:
    pubsub, told = PubSub(make(stepwise=stepwise)), []
    for _ in range(5 if stepwise else 1):
        why = pubsub.tick(BURST, response_s=99.0).why["biology"]
        path: Any = why["path"]
        compared: Any = why["compared"]
        candidates: Any = why["candidates"]
        times: Any = why["R_after_each_s"]
        assert times[-1] == why["R_s"] and len(times) == len(path) == len(candidates) + 1
        for (before, after), values in zip(pairwise(path), candidates, strict=True):
            taken = next(j for j, (was, m) in enumerate(zip(before, after, strict=True)) if m > was)
            assert values[taken] == pytest.approx(max(values))
        told += compared
    assert told == ["rho"] * 3 + ["delta_L"] * 2


def test_min_cost_adds_as_many_as_published_and_fewer_when_the_load_is_gone() -> None:
    pubsub = PubSub(min_cost_scaler(timer_s=90))
    decision = pubsub.tick(BURST, response_s=51.0)
    assert pubsub.m == (2, 2, 1, 4)
    assert decision.why["biology"]["iterations"] == 5
    assert decision.why["biology"]["R_after_each_s"] == [
        "inf",
        "inf",
        "inf",
        pytest.approx(65.32, abs=0.005),
        pytest.approx(53.70, abs=0.005),
        pytest.approx(42.55, abs=0.005),
    ]
    quiet = [pubsub.tick((0.5, 1.0, 0.5), response_s=30.0) for _ in range(3)]
    assert [decision.action for decision in quiet] == ["none", "none", "down"]
    assert quiet[-1].why["biology"]["trigger"] == "timer"
    assert pubsub.m == (1, 1, 1, 2)


def test_without_a_timer_nothing_is_scaled_down() -> None:
    pubsub = PubSub(min_cost_scaler(timer_s=None))
    pubsub.tick(BURST, response_s=51.0)
    assert [pubsub.tick((0.1, 0.1, 0.1), response_s=30.0).action for _ in range(50)] == ["none"] * 50
    assert pubsub.m == (2, 2, 1, 4)


@pytest.mark.parametrize("make", MAKERS)
def test_a_response_that_is_still_of_the_old_allocation_triggers_nothing(make: Any) -> None:
    pubsub = PubSub(make(timer_s=None, stabilisation_s=90.0))
    assert pubsub.tick(response_s=99.0).action == "up"
    allocated, draws = pubsub.m, pubsub.state.draws
    decisions = [pubsub.tick(response_s=99.0) for _ in range(2)]
    assert [decision.action for decision in decisions] == ["hold", "hold"]
    assert decisions[0].why["biology"]["reason"] == "stabilisation interval"
    assert pubsub.tick(response_s=20.0).why["biology"]["trigger"] is None, "nothing to hold back"
    assert (pubsub.m, pubsub.state.draws) == (allocated, draws)
    assert pubsub.tick(response_s=99.0).why["biology"]["trigger"] == "response time above the limit"


def test_a_timer_goes_on_while_the_response_is_no_trigger() -> None:
    pubsub = PubSub(min_time_scaler(timer_s=60.0, stabilisation_s=600.0))
    triggers = [pubsub.tick(response_s=99.0).why["biology"].get("trigger", "hold") for _ in range(5)]
    assert triggers == ["response time above the limit", "hold", "timer", "hold", "timer"]


def test_topics_that_get_fewer_and_topics_that_get_more_change_together() -> None:
    pubsub = PubSub(min_time_scaler(), consumers=(1, 1, 6, 1))
    decision = pubsub.tick(BURST, response_s=99.0)
    assert decision.action == "up"
    assert decision.targets == {"A": 2, "B": 2, "C": 1, "D": 4}


def test_a_budget_that_is_too_small_is_told_and_spent_all_the_same() -> None:
    pubsub = PubSub(min_time_scaler(budget=2))
    decision = pubsub.tick(BURST, response_s=99.0)
    assert pubsub.m == (2, 1, 1, 2)
    assert decision.why["biology"]["infeasible"] == "2 more consumers leave D overloaded"
    assert decision.why["biology"]["WIP"] == "inf"


def test_a_limit_below_the_service_time_ends_at_the_most_iterations() -> None:
    pubsub = PubSub(min_cost_scaler(response_limit_s=20, most_iterations=6))
    decision = pubsub.tick(BURST, response_s=99.0)
    assert sum(pubsub.m) == 4 + 6
    assert decision.why["biology"]["infeasible"] == "the limit is not kept with 6 more consumers"
    pubsub = PubSub(min_cost_scaler(most_iterations=1))
    told = pubsub.tick(BURST, response_s=99.0).why["biology"]["infeasible"]
    assert told == "the limit is not kept with 1 more consumers, A, D still overloaded"


def test_stepwise_min_time_walks_the_path() -> None:
    pubsub = PubSub(min_time_scaler(stepwise=True))
    walked = [pubsub.m]
    for _ in range(7):
        pubsub.tick((2.0, 2.5, 2.0))
        walked.append(pubsub.m)
    path = min_time(network((2.0, 2.5, 2.0)), 5)
    assert walked == [*path, path[-1], path[-1]]


@pytest.mark.parametrize(
    ("measured_s", "iterations"),
    [((200, 150, 120, 65.3, 53.7, 42.6), 5), ((200, 150, 120, 59.2, 49.28, 40.7), 4)],
    ids=["as the model says", "as simulated"],
)
def test_stepwise_min_cost_stops_by_what_is_measured(measured_s: tuple[float, ...], iterations: int) -> None:
    pubsub = PubSub(min_cost_scaler(stepwise=True))
    for _ in range(10):
        pubsub.tick(BURST, response_s=measured_s[sum(pubsub.m) - 4])
    assert sum(pubsub.m) - 4 == iterations
    assert pubsub.m == min_time(network(BURST), iterations)[-1]


def test_stepwise_min_cost_has_an_end() -> None:
    pubsub = PubSub(min_cost_scaler(stepwise=True, most_iterations=3))
    decisions = [pubsub.tick(BURST, response_s=99.0) for _ in range(5)]
    assert [decision.action for decision in decisions] == ["up"] * 3 + ["none"] * 2
    assert decisions[-1].why["biology"]["infeasible"] == "3 more consumers do not keep the limit"
    blind = PubSub(min_cost_scaler(stepwise=True)).tick(response_s=None)
    assert blind.action == "hold"


def test_random_draws_anew_for_every_rescheduling_and_the_same_for_the_same_seed() -> None:
    first, again, other = (PubSub(random_scaler(budget=6), seed=seed) for seed in (1, 1, 2))
    drawn = []
    for _ in range(8):
        for pubsub in (first, again, other):
            pubsub.tick(response_s=99.0)
        assert first.m == again.m
        assert sum(first.m) == sum(other.m) == 10
        drawn.append((first.m, other.m))
    assert len({m for m, _ in drawn}) > 3
    assert any(one != two for one, two in drawn)
    assert first.state.draws == 48


def test_lots_are_uniform() -> None:
    drawn = [lot(7, draw, 4) for draw in range(2000)]
    assert all(440 < drawn.count(topic) < 560 for topic in range(4))


def test_stepwise_random_adds_one_at_a_time() -> None:
    pubsub = PubSub(random_scaler(stepwise=True, budget=3))
    totals = []
    for _ in range(5):
        pubsub.tick(response_s=20.0)
        totals.append(sum(pubsub.m))
    assert totals == [5, 6, 7, 7, 7]
    until = PubSub(random_scaler(stepwise=True, until_limit=True))
    assert [until.tick(response_s=seconds).action for seconds in (99.0, 61.0, 60.0)] == ["up", "up", "none"]


@pytest.mark.parametrize("make", [min_time_scaler, min_cost_scaler])
@pytest.mark.parametrize(
    ("without", "said"),
    [
        ("mu", "service rate of topic A is unknown"),
        ("cs2", "scv of the service time of topic A is unknown"),
        ("lambda", "arrival rate of job 1 is unknown"),
        ("ca2", "scv of the interarrival time of job 1 is unknown"),
    ],
)
def test_what_is_unknown_makes_it_hold(make: Any, without: str, said: str) -> None:
    pubsub = PubSub(make())
    decision = pubsub.tick(response_s=99.0, without=[without])
    assert (decision.action, decision.targets) == ("hold", {})
    assert decision.why["biology"]["reason"] == said
    assert pubsub.tick(response_s=99.0).action == "up"


@pytest.mark.parametrize("make", MAKERS)
def test_an_unknown_response_time_leaves_the_timer_only(make: Any) -> None:
    pubsub = PubSub(make())
    reason = {"unknown": {"response_time_s": "no job finished"}}
    decisions = [pubsub.tick(response_s=None, change=reason) for _ in range(11)]
    assert [decision.action for decision in decisions[:10]] == ["hold"] * 10
    assert decisions[0].why["biology"]["reason"] == "response time is unknown (no job finished)"
    assert decisions[10].why["biology"]["trigger"] == "timer"
    assert pubsub.tick(change={"topics": ()}).action == "hold"


def test_service_times_are_remembered_and_given_ones_go_first() -> None:
    pubsub = PubSub(min_time_scaler())
    pubsub.tick()
    assert pubsub.tick(response_s=99.0, without=["mu", "cs2"]).targets == {"A": 2, "B": 2, "D": 4}
    given_first = PubSub(
        min_time_scaler(
            service_rates_per_s={name: mu / 60 for name, (mu, _) in TASKS.items()},
            service_scvs={name: scv for name, (_, scv) in TASKS.items()},
        )
    )
    assert given_first.tick(response_s=99.0, without=["mu", "cs2"]).targets == {"A": 2, "B": 2, "D": 4}


def test_arrival_rates_come_from_the_counters_where_the_monitor_gives_none() -> None:
    pubsub = PubSub(min_cost_scaler(decision_interval_s=60))

    def counted(minutes: int) -> dict[str, Any]:
        return {
            "jobs": tuple(
                JobStatus(job=name, route=tuple(route), arrived=round(rate * minutes), arrival_scv=scv)
                for (name, (route, scv)), rate in zip(JOBS.items(), (4, 2, 2), strict=True)
            )
        }

    assert pubsub.tick(response_s=99.0, change=counted(0)).action == "hold"
    for minute in range(1, 30):
        decision = pubsub.tick(response_s=99.0, change=counted(minute))
    assert decision.why["biology"]["lambda_per_min"] == pytest.approx([4, 2, 2])
    assert len(pubsub.state.arrivals["1"].samples) == 11


def test_a_job_that_does_not_arrive_needs_no_scv() -> None:
    silent = {
        "jobs": (
            JobStatus(job="1", route=("A", "B"), arrival_rate_per_s=0.0),
            JobStatus(job="3", route=("C", "D"), arrival_rate_per_s=0.01, arrival_scv=0.25),
        )
    }
    decision = PubSub(min_cost_scaler()).tick(response_s=99.0, change=silent)
    assert decision.why["biology"]["ca2"] == [1.0, 0.25]


def test_a_route_to_nowhere_makes_it_hold() -> None:
    lost = {"jobs": (JobStatus(job="1", route=("A", "Z"), arrival_rate_per_s=0.1, arrival_scv=1.0),)}
    decision = PubSub(min_time_scaler()).tick(response_s=99.0, change=lost)
    assert decision.action == "hold"
    assert "route of job 1: ['Z']" in str(decision.why["biology"]["reason"])


def test_the_scalers_meet_the_contract() -> None:
    names = []
    for make in MAKERS:
        scaler = make()
        names.append(scaler.name)
        assert scaler.period_s == 30.0
        assert scaler.fleets is NetworkObservation
        assert isinstance(scaler.start(1), scaler.State)
    assert names == ["min-time", "min-cost", "random"]


@pytest.mark.parametrize(
    ("make", "parameters", "said"),
    [
        (min_time_scaler, {"budget": "-1"}, "budget=-1: expected at least 0"),
        (random_scaler, {"budget": "-1"}, "budget=-1: expected at least 0"),
        (min_cost_scaler, {"most_iterations": "-1"}, "most_iterations=-1: expected at least 0"),
        (min_cost_scaler, {"response_limit_s": "0"}, "response_limit_s=0: expected a number above 0"),
        (min_time_scaler, {"timer_s": "-5"}, "timer_s=-5: expected a number above 0"),
        (random_scaler, {"stabilisation_s": "-1"}, "stabilisation_s=-1: expected"),
        (min_time_scaler, {"service_rates_per_s": {"A": 0}}, "service_rates_per_s.A=0"),
        (min_time_scaler, {"service_scvs": {"A": -1}}, "service_scvs.A=-1"),
    ],
)
def test_an_impossible_parameter_is_told(make: Any, parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(PenstockError) as error:
        make(**parameters)
    assert said in str(error.value)
