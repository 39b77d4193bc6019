"""Elastic-FaaS: every vector, both variants of its algorithm, plain functions, and the provider's ramp of Table 1."""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.queueing.ramp import ramp
from controller.scalers.elastic_faas import ElasticFaas, monitor
from controller.scalers.elastic_faas_published import (
    ElasticFaasPublished,
    ElasticFaasPublishedParameters,
    monitor_as_printed,
)
from controller.scalers.faas import Faas
from controller.scalers.provider_ramp import ProviderRamp, ProviderRampParameters
from controller.scalers.shared.elastic_faas_formulas import (
    ElasticFaasParameters,
    FunctionScaler,
    iterations,
    iterations_as_printed,
    nsp_after,
    scaling_action,
)
from controller.scalers.shared.parameters import Parameters
from penstock.contracts import (
    Decision,
    FleetObservation,
    FunctionObservation,
    FunctionStatus,
    QueueObservation,
    QueueStatus,
    ReplicaCounts,
)
from penstock.parameters import make_parameters
from report.explain import explain

Given = dict[str, Any]

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "faas.json").read_text())
VECTORS = GOLDEN["derived"]
FLEET = "functions"


# --- vectors ---------------------------------------------------------------------------------------------------------


def monitored(given: Given) -> Any:
    run = monitor if given["variant"] == "intent" else monitor_as_printed
    found = run(
        given["Q"],
        given["NP"],
        spc=given["SPc"],
        c=given["c"],
        mnsp=given["MNSP"],
        latency=given["L"],
        provision=given["PPT"],
        t_iter=given["t_iter"],
    )
    return {
        "NSPe": found.nsp_expected,
        "n": found.iterations,
        "triggered": found.triggered,
        "NPe": found.np_expected,
        "action": scaling_action(given["NP"], found.np_expected),
    }


def expected(q: float, present: int, capacity: float) -> float:
    """Eqs (1) and (5) as Monitor has them: the present number cancels (F1)."""
    return monitor(q, present, spc=capacity, c=1, mnsp=1, latency=1, provision=1, t_iter=1).nsp_expected


FUNCTIONS: dict[str, Callable[[Given], Any]] = {
    "faas.np_expected": lambda g: expected(float(g["Q"]), g["NP"], float(g["Pc"])),
    "faas.tnsp_expected": lambda g: expected(float(g["Q"]), g["TNSP"], float(g["SPc"])),
    "faas.nsp_after": lambda g: nsp_after(float(g["c"]), float(g["n"])),
    "faas.iterations": lambda g: {
        "published": iterations_as_printed(g["NSPe"], float(g["c"])),
        "exact": iterations(g["NSPe"], float(g["c"])),
    },
    "faas.monitor": monitored,
    "faas.ramp": lambda g: ramp(g["starts"], g["t"], g["per"], g["limit"]),
}


def agree(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            agree(found[name], expected[name])
    elif isinstance(found, float):
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    else:
        assert found == expected


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_vector(vector: dict[str, Any]) -> None:
    agree(FUNCTIONS[vector["fn"]](vector["in"]), vector["out"])


def test_the_vectors_are_all_there() -> None:
    assert len(VECTORS) == 110
    assert {vector["fn"] for vector in VECTORS} == set(FUNCTIONS)


# --- formulas --------------------------------------------------------------------------------------------------------

fractions = st.fractions(min_value=Fraction(1, 100), max_value=1000, max_denominator=100)


@given(st.floats(0, 500), st.floats(0.1, 20))
def test_the_exact_iterations_invert_equation_2(n: float, c: float) -> None:
    assert iterations(nsp_after(c, n), c) == pytest.approx(n, abs=1e-9)


@given(st.floats(1, 1000), st.floats(0.1, 20))
def test_the_printed_iterations_are_too_many(factor: float, c: float) -> None:
    nsp = factor * c
    assert iterations_as_printed(nsp, c) >= iterations(nsp, c) - 1e-12
    assert iterations_as_printed(c, c) == iterations(c, c) == 1
    assert iterations_as_printed(0.49 * c, c) == 0  # the root of a negative number


def test_equation_2_describes_one_more_function_every_ten_units() -> None:
    for row in GOLDEN["given"]["eq2_check"]:
        assert nsp_after(float(row["c"]), float(row["n"])) == row["nsp"]
        assert sum(ramp([0, 10, 20], row["t"], 2)) == row["nsp"]


# --- monitor ---------------------------------------------------------------------------------------------------------

DEMO = {"spc": 10.0, "c": 1.0, "mnsp": 10, "latency": 5.0, "provision": 3.0, "t_iter": 1.0}
settings_of_monitor = st.fixed_dictionaries(
    {
        "spc": st.floats(0.1, 50),
        "c": st.floats(0.1, 10),
        "mnsp": st.integers(1, 200),
        "latency": st.floats(0, 20),
        "provision": st.floats(0, 20),
        "t_iter": st.floats(0.1, 5),
    }
)


@pytest.mark.parametrize(
    ("q", "np", "changed", "intent", "printed"),
    [
        (300, 1, {}, 3, 3),
        (300, 3, {}, 3, 1),  # F6
        (300, 1, {"latency": 100.0}, 1, 1),
        (300, 3, {"latency": 100.0}, 3, 3),
        (50, 3, {}, 1, 3),  # F9
        (0, 3, {}, 1, 3),
    ],
)
def test_the_worked_points(q: int, np: int, changed: dict[str, float], intent: int, printed: int) -> None:
    given: Any = {**DEMO, **changed}
    assert monitor(q, np, **given).np_expected == intent
    assert monitor_as_printed(q, np, **given).np_expected == printed


@given(st.integers(0, 5000), st.integers(0, 500), st.integers(0, 30), settings_of_monitor)
def test_the_intent_is_monotone_idempotent_and_enough(q: int, more: int, np: int, given: Any) -> None:
    found = monitor(q, np, **given)
    assert found.np_expected >= 1
    assert monitor(q + more, np, **given).np_expected >= found.np_expected
    assert monitor(q, found.np_expected, **given).np_expected == found.np_expected
    if found.triggered:
        assert found.np_expected * given["mnsp"] >= found.nsp_expected * (1 - 1e-9)
    else:
        assert found.np_expected <= max(1, np)


@given(st.integers(0, 5000), st.integers(0, 30), settings_of_monitor)
def test_as_printed_there_is_always_one_function_and_nothing_without_a_trigger(q: int, np: int, given: Any) -> None:
    found = monitor_as_printed(q, np, **given)
    assert found.np_expected >= 1
    assert found.triggered or found.np_expected == max(1, np)


@pytest.mark.parametrize("at", [5.0, 3.0])
def test_exactly_at_a_limit_nothing_is_triggered(at: float) -> None:
    given: Any = {**DEMO, "latency": at, "provision": at}
    q = 10 * nsp_after(1.0, at)
    assert not monitor(q, 1, **given).triggered
    assert monitor(q + 1, 1, **given).triggered


# --- the scalers -----------------------------------------------------------------------------------------------------


def observe(backlog: int | None, functions: int, rate: float | None = 1.0, time_s: float = 0.0) -> FleetObservation:
    unknown = {"backlog": "broker away"} if backlog is None else {}
    counts = ReplicaCounts(requested=1, joined=functions - 1) if functions > 1 else ReplicaCounts(joined=functions)
    return FleetObservation(
        time_s=time_s, fleet=FLEET, replicas=counts, backlog=backlog, service_rate_per_s=rate, unknown=unknown
    )


def decide(scaler: Any, observation: FleetObservation) -> Decision:
    decision, state = scaler.decide(observation, scaler.start(1))
    assert msgspec.json.decode(msgspec.json.encode(state), type=scaler.State) == state
    assert isinstance(decision, Decision)
    return decision


def intent(**parameters: Any) -> FunctionScaler:
    return ElasticFaas(make_parameters("elastic-faas", ElasticFaasParameters, parameters))


def published(**parameters: Any) -> FunctionScaler:
    return ElasticFaasPublished(make_parameters("elastic-faas-published", ElasticFaasPublishedParameters, parameters))


@pytest.mark.parametrize("make", [intent, published])
def test_a_backlog_that_containers_would_take_too_long_for_brings_functions(
    make: Callable[..., FunctionScaler],
) -> None:
    decision = decide(make(latency_s=5, provision_s=3, horizon_s=10), observe(300, 1))
    assert (decision.action, decision.targets) == ("up", {FLEET: 3})
    why = decision.why[FLEET]
    assert (why["SPc"], why["NSP'"], why["triggered"], why["NP'"]) == (10, 30, True, 3)


def test_under_a_steady_backlog_the_intent_rests_and_the_printed_algorithm_swings() -> None:
    seen = {}
    for make in (intent, published):
        scaler, functions, path = make(latency_s=5, provision_s=3, horizon_s=10), 1, []
        for _ in range(6):
            functions = decide(scaler, observe(300, functions)).targets.get(FLEET, functions)
            path.append(functions)
        seen[make.__name__] = path
    assert seen == {"intent": [3, 3, 3, 3, 3, 3], "published": [3, 1, 3, 1, 3, 1]}  # F6


def test_a_small_backlog_scales_the_intent_in_but_not_the_printed_algorithm() -> None:
    assert decide(intent(), observe(20, 3)).targets == {FLEET: 1}
    decision = decide(published(), observe(20, 3))
    assert (decision.action, decision.targets) == ("none", {})  # F9


def test_iterations_are_compared_as_times() -> None:
    # n = 7.26: 14.5 s at two seconds an iteration, which is above L = 10 s; as a number it is below 10
    assert decide(intent(iteration_s=2), observe(300, 1)).targets == {FLEET: 3}
    assert decide(intent(iteration_s=1), observe(300, 1)).action == "none"
    assert decide(published(), observe(300, 1)).action == "none"


def test_a_long_provisioning_time_postpones_help() -> None:
    assert decide(intent(provision_s=100), observe(300, 1)).action == "none"


def test_the_target_is_the_backlog_whatever_the_arrival_rate() -> None:
    assert decide(intent(), observe(0, 3)).targets == {FLEET: 1}


@pytest.mark.parametrize("make", [intent, published])
def test_what_is_unknown_makes_it_hold(make: Callable[..., FunctionScaler]) -> None:
    decision = decide(make(), observe(None, 1))
    assert (decision.action, decision.why[FLEET]["reason"]) == ("hold", "backlog is unknown (broker away)")
    assert "SPc" in str(decide(make(), observe(10, 1, rate=None)).why[FLEET]["reason"])
    assert decide(make(service_rate_per_s=1.0), observe(10, 1, rate=None)).action == "none"


@pytest.mark.parametrize("make", [intent, published])
def test_the_first_function_is_always_there_and_the_last_is_a_parameter(make: Callable[..., FunctionScaler]) -> None:
    assert decide(make(), observe(0, 0)).targets == {FLEET: 1}
    decision = decide(make(latency_s=5, provision_s=3, horizon_s=10, max_functions=2), observe(300, 1))
    assert decision.targets == {FLEET: 2}
    assert decision.why[FLEET]["most"] == 2


def test_every_function_of_a_pipeline_is_decided_about() -> None:
    parts = tuple(
        FunctionStatus(time_s=1, fleet=name, replicas=ReplicaCounts(joined=1), backlog=q, service_rate_per_s=1)
        for name, q in (("a", 300), ("b", 0))
    )
    pipeline = FunctionObservation(time_s=1, fleet="p", replicas=ReplicaCounts(joined=2), functions=parts)
    assert decide(intent(), pipeline).targets == {"a": 3}


def test_the_containers_of_a_bank_of_queues_are_what_counts() -> None:
    queues = (QueueStatus(queue="a", service_rate_per_s=2.0), QueueStatus(queue="b", service_rate_per_s=4.0))
    bank = QueueObservation(
        time_s=1,
        fleet=FLEET,
        replicas=ReplicaCounts(joined=2),
        backlog=300,
        queues=queues,
        service_rate_per_s=60.0,  # of a queue with all its containers
    )
    assert decide(intent(horizon_s=10), bank).why[FLEET]["SPc"] == 30


def test_the_arithmetic_is_explained() -> None:
    text = explain("elastic-faas", decide(intent(), observe(300, 1)))
    assert "elastic-faas on functions: scale up to 3 replicas" in text
    assert "NSP' = Q / SPc = 30" in text
    assert "n = 7.262 iterations" in text


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"containers_per_iteration": 0}, "containers_per_iteration=0"),
        ({"max_containers": 0}, "max_containers=0"),
        ({"iteration_s": 0}, "iteration_s=0"),
        ({"latency_s": -1}, "latency_s=-1"),
        ({"latency_s": 0}, "horizon_s=0"),
        ({"provision_s": -1}, "provision_s=-1"),
        ({"service_rate_per_s": 0}, "service_rate_per_s=0"),
        ({"max_functions": 0}, "max_functions=0"),
        ({"decision_interval_s": 0}, "decision_interval_s=0"),
    ],
)
def test_impossible_parameters_are_told(parameters: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        ElasticFaasPublishedParameters(**parameters)


@pytest.mark.parametrize(("functions", "action"), [(0, "up"), (1, "none"), (4, "down")])
def test_plain_faas_keeps_one_function(functions: int, action: str) -> None:
    decision = decide(Faas(Parameters()), observe(10_000, functions))
    assert decision.action == action
    assert decision.targets == ({} if action == "none" else {FLEET: 1})


def test_a_function_that_serves_much_and_keeps_nothing_waiting_is_not_idle() -> None:
    scaler = ElasticFaas(ElasticFaasParameters(service_rate_per_s=1.0, horizon_s=1.0, max_containers=1))
    busy = FunctionStatus(
        time_s=0.0, fleet=FLEET, replicas=ReplicaCounts(joined=300), backlog=0, in_flight=300, service_rate_per_s=1.0
    )
    decision, _ = scaler.decide(busy, scaler.start(1))
    assert (decision.action, decision.why[FLEET]["Q"]) == ("none", 300)


# --- the provider ----------------------------------------------------------------------------------------------------


class Function:
    """Containers of one function, which are there as soon as they are asked for."""

    def __init__(self, **parameters: Any) -> None:
        self.scaler = ProviderRamp(make_parameters("provider-ramp", ProviderRampParameters, parameters))
        self.state = self.scaler.start(1)
        self.containers = 0

    def tick(self, time_s: float, backlog: int | None = 1) -> int:
        counts = ReplicaCounts(joined=self.containers)
        seen = FleetObservation(time_s=time_s, fleet="inner", replicas=counts, backlog=backlog)
        decision, self.state = self.scaler.decide(seen, self.state)
        self.state = msgspec.json.decode(msgspec.json.encode(self.state), type=self.scaler.State)
        self.containers = decision.targets.get("inner", self.containers)
        return self.containers


def test_the_ramp_plays_table_1_row_by_row() -> None:
    functions, starts = [Function() for _ in range(3)], (0, 10, 20)
    rows = []
    for t in range(29):
        counts = [f.tick(t) if t >= start else 0 for f, start in zip(functions, starts, strict=True)]
        assert counts == ramp(starts, t, 2)
        if t % 2 == 0:
            rows.append([t, *counts, sum(counts)])
    assert rows == GOLDEN["given"]["table1"]["rows"]


@pytest.mark.parametrize(("starts", "ready"), [([0], 58), ([0, 10, 20], 28), ([0, 0, 0], 18)])
def test_how_long_thirty_containers_take(starts: list[float], ready: int) -> None:
    assert sum(ramp(starts, ready, 2)) == 30
    assert sum(ramp(starts, ready - 0.01, 2)) < 30


@given(st.integers(1, 5), st.integers(1, 20), st.integers(1, 5), st.integers(0, 60))
def test_functions_started_one_after_the_other(k: int, apart: int, per: int, time: int) -> None:
    starts = [i * apart for i in range(k)]
    expected = sum(1 + (time - start) // per for start in starts if time >= start)
    assert sum(ramp(starts, time, per)) == expected


def test_a_ramp_rests_without_backlog_and_ends_at_its_maximum() -> None:
    function = Function(max_containers=3)
    assert [function.tick(t, backlog) for t, backlog in enumerate([1, 1, 0, 0, 0, 1, 1, 1, 1, 1])] == [
        *(1, 1, 1, 1, 1, 1),
        *(2, 2, 3, 3),
    ]
    assert function.tick(30) == 3


def test_a_larger_step_and_a_grid_that_does_not_fit() -> None:
    function = Function(step=2, ramp_s=2.5)
    assert [function.tick(t) for t in range(11)] == [1, 1, 1, 3, 3, 5, 5, 5, 7, 7, 9]


def test_containers_go_only_after_the_idle_time() -> None:
    function = Function(idle_s=4)
    for t in range(7):
        function.tick(t)
    assert function.containers == 4
    assert [function.tick(t, 0) for t in range(7, 20)] == [4, 4, 4, 4, 4, 3, 3, 2, 2, 1, 1, 1, 1]
    stays = Function()
    for t in range(7):
        stays.tick(t)
    assert stays.tick(1000, 0) == 4


def test_with_no_least_number_all_containers_go_and_the_next_event_brings_one_at_once() -> None:
    function = Function(idle_s=2, ramp_s=2.0, min_containers=0)
    assert [function.tick(t, backlog) for t, backlog in enumerate([0, 1, 1, 1, 1])] == [0, 1, 1, 2, 2]
    assert [function.tick(t, 0) for t in range(5, 12)] == [2, 2, 1, 1, 0, 0, 0]
    assert [function.tick(t) for t in range(12, 15)] == [1, 1, 2]


def test_an_unknown_backlog_adds_nothing() -> None:
    function = Function()
    assert [function.tick(t, None) for t in range(5)] == [1, 1, 1, 1, 1]


def test_containers_come_while_events_wait_and_stay_while_one_is_in_service() -> None:
    scaler = ProviderRamp(ProviderRampParameters(ramp_s=1.0, idle_s=1.0))
    state, containers, found = scaler.start(1), 4, []
    for time_s, (backlog, in_flight) in enumerate([(4, 4), (4, 4), (5, 4), (1, 1), (0, 0), (0, 0)]):
        counts = ReplicaCounts(joined=containers)
        bank = QueueObservation(
            time_s=float(time_s), fleet="inner", replicas=counts, backlog=backlog, in_flight=in_flight
        )
        decision, state = scaler.decide(bank, state)
        containers = decision.targets.get("inner", containers)
        found.append(containers)
    assert found == [4, 4, 5, 5, 5, 4]


@pytest.mark.parametrize("name", ["ramp_s", "step", "max_containers", "decision_interval_s"])
def test_impossible_ramps_are_told(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=0"):
        ProviderRampParameters(**{name: 0})
    with pytest.raises(ValueError, match="idle_s=-1"):
        ProviderRampParameters(idle_s=-1)
