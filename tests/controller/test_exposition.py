"""What the newest tick leaves in Prometheus, kind of fleet by kind, and that nothing of an older one stays."""

import math
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from controller import exposition
from controller.exposition import ControllerMetrics
from controller.journal import TickRecord
from penstock import metrics
from penstock.contracts import (
    Accepted,
    Decision,
    FleetObservation,
    FunctionObservation,
    FunctionStatus,
    JobStatus,
    NetworkObservation,
    Phase,
    QueueObservation,
    QueueStatus,
    ReplicaCounts,
    ReplicaEvent,
    StreamObservation,
    Term,
    TopicStatus,
    hold,
)
from penstock.runspec import RunSpec, ScalerSpec

THREE = ReplicaCounts(started=1, joined=2)


class Told:
    """What Prometheus would be told."""

    def __init__(self, spec: RunSpec | None = None) -> None:
        self.registry = CollectorRegistry()
        self.exposition = ControllerMetrics("r", "pay", self.registry, spec)

    def tick(self, observation: FleetObservation, decision: Decision | None = None, **fields: Any) -> None:
        """One in which ``zeta`` acts."""
        decisions = {"zeta": decision or Decision(action="none"), "alpha": Decision(action="none")}
        record = {"tick": 1, "time_s": 1.1, "at_ns": 5_500_000_000, "phase_s": 0.1, "decisions": decisions}
        self.exposition.tick(TickRecord(**{**record, "observation": observation, "acting": "zeta", **fields}))

    def value(self, name: str, fleet: str = "pay", **labels: str) -> float | None:
        return self.registry.get_sample_value(name, {"run": "r", "fleet": fleet, **labels})


def stream(**fields: Any) -> StreamObservation:
    return StreamObservation(**{"time_s": 1.1, "fleet": "pay", "replicas": THREE, **fields})


def spec_of(**fields: Any) -> RunSpec:
    given = {"run": "r", "experiment": "e", "world": "local", "scaler": ScalerSpec(name="zeta"), "duration_s": 90.0}
    return RunSpec(**{**given, "max_replicas": 5, "slo_s": 0.5, **fields})


def test_only_the_run_and_its_limits_are_told_before_the_first_tick() -> None:
    told = Told(spec_of())
    assert told.value(metrics.REPLICAS_MAX) == 5
    assert told.value(metrics.SLO) == 0.5
    assert told.value(metrics.RUN_INFO, experiment="e", scaler="zeta", world="local") == 1
    assert told.value(metrics.RUN_DURATION) == 90
    assert told.value(metrics.RUN_START) is None
    assert told.value(metrics.UNKNOWN_FIELDS) is None


def test_the_start_of_the_run_is_told_from_any_tick_however_late_it_was() -> None:
    told = Told(spec_of(tick_phase_s=0.1))
    for time_s, phase_s in ((0.1, 0.1), (7.1, 0.35)):
        at_ns = round((1_700_000_000 + time_s - 0.1 + phase_s) * 1e9)
        told.tick(stream(), time_s=time_s, phase_s=phase_s, at_ns=at_ns)
        assert told.value(metrics.RUN_START) == 1_700_000_000
        assert told.value(metrics.TICK_PHASE_ERROR) == pytest.approx(phase_s - 0.1)


def test_control_without_an_end_has_no_duration() -> None:
    assert Told(spec_of(duration_s=0.0)).value(metrics.RUN_DURATION) is None


def test_a_run_without_limits_tells_none() -> None:
    assert b"penstock_replicas_max{" not in generate_latest(Told().registry)


def test_counts_of_any_fleet_are_told_as_they_were_seen() -> None:
    told = Told()
    told.tick(stream(arrived=100, completed=93, backlog=7))
    assert told.value(metrics.FLEET_ARRIVED) == 100
    assert told.value(metrics.FLEET_COMPLETED) == 93
    assert told.value(metrics.FLEET_BACKLOG) == 7


def test_unknown_is_nan_and_what_a_fleet_never_has_is_not_told() -> None:
    told = Told()
    told.tick(stream(arrived=None, backlog=None, unknown={"arrived": "away", "backlog": "away"}))
    backlog = told.value(metrics.FLEET_BACKLOG)
    assert backlog is not None and math.isnan(backlog)
    assert told.value(metrics.FLEET_ARRIVED) is None, "a counter has no NaN: its rate would never recover"
    assert told.value(metrics.FLEET_IN_FLIGHT) is None
    assert told.value(metrics.UNKNOWN_FIELDS) == 2


def test_the_numbers_of_the_acting_scalers_arithmetic_are_told_and_no_words() -> None:
    told = Told()
    terms: dict[str, Term] = {
        "lambda_per_s": 212.5,
        "bins": 3,
        "flag": True,
        "groups": [[0], [1]],
        "from": "plan",
        "limit": math.inf,
    }
    told.tick(stream(), Decision(action="up", targets={"pay": 3}, why={"pay": terms}))
    told_terms = {
        sample.labels["term"]: sample.value
        for family in told.registry.collect()
        for sample in family.samples
        if sample.name == metrics.SCALER_TERM
    }
    assert told_terms == {"lambda_per_s": 212.5, "bins": 3.0}


def test_terms_of_a_tick_at_which_it_decided_are_gone_when_it_holds() -> None:
    told = Told()
    told.tick(stream(), Decision(action="none", why={"pay": {"bins": 3}}))
    assert told.value(metrics.SCALER_TERM, scaler="zeta", term="bins") == 3
    told.tick(stream(), hold("pay", "hold time"))
    assert told.value(metrics.SCALER_TERM, scaler="zeta", term="bins") is None


def test_the_newest_decision_is_told_with_its_reason() -> None:
    told = Told()
    told.tick(stream(), Decision(action="up", targets={"pay": 3}, why={"pay": {"bins": 3}}))
    assert told.value(metrics.SCALER_DECISION, scaler="zeta", decision="up") == 1
    told.tick(stream(), hold("pay", "hold time"))
    assert told.value(metrics.SCALER_DECISION, scaler="zeta", decision="hold: hold time") == 1
    assert told.value(metrics.SCALER_DECISION, scaler="zeta", decision="up") is None


def test_terms_stand_while_the_acting_scaler_is_not_due() -> None:
    told = Told()
    told.tick(stream(), Decision(action="none", why={"pay": {"bins": 3}}))
    told.tick(stream(), decisions={"alpha": Decision(action="none")})
    assert told.value(metrics.SCALER_TERM, scaler="zeta", term="bins") == 3


def test_a_scaler_with_endless_arithmetic_is_cut_short() -> None:
    told = Told()
    told.tick(stream(), Decision(action="none", why={"pay": {f"x{number}": number for number in range(1000)}}))
    assert generate_latest(told.registry).count(b"penstock_scaler_term{") == exposition.MAX_TERMS


def test_who_acts_and_when_it_last_did_is_told() -> None:
    told = Told()
    up = Decision(action="up", targets={"pay": 4})
    told.tick(stream(), up, accepted=Accepted({"pay": 4}))
    told.tick(stream(), up, at_ns=6_500_000_000)  # the actuator failed: nothing was done
    assert told.value(metrics.SCALER_ACTING, scaler="zeta") == 1
    assert told.value(metrics.SCALER_ACTING, scaler="alpha") == 0
    assert told.value(metrics.SCALER_LAST_ACTION, scaler="zeta", action="up", change="pay 3 → 4") == 5.5
    told.tick(stream(replicas=ReplicaCounts(joined=4)), up, accepted=Accepted({"pay": 5}))
    changes = [line for line in generate_latest(told.registry).decode().splitlines() if 'action="up"' in line]
    assert ["change" in line for line in changes if "last_action" in line] == [True], "the newest alone"


def test_how_long_the_newest_replica_of_a_fleet_took_to_start_is_told() -> None:
    told = Told()

    def happened(replica: str, phase: Phase, at_s: float) -> None:
        told.exposition.replicas([ReplicaEvent("pay", replica, phase, round(at_s * 1e9))])

    happened("a", "requested", 10.0)
    happened("b", "requested", 10.5)
    happened("a", "started", 10.9)
    happened("a", "joined", 12.5)
    happened("b", "gone", 13.0)  # it never joined
    told.tick(stream())
    assert told.value(metrics.REPLICA_START_UP) == 2.5
    happened("a", "joined", 20.0)  # again, after a rebalance
    happened("c", "joined", 21.0)  # requested by a controller before this one
    told.tick(stream())
    assert told.value(metrics.REPLICA_START_UP) == 2.5


@pytest.mark.parametrize(("clamped", "told_as"), [({}, 0), ({"pay": "9 → 5: cap 5"}, 1)])
def test_a_target_that_was_cut_is_told(clamped: dict[str, str], told_as: int) -> None:
    told = Told()
    told.tick(stream(), Decision(action="up", targets={"pay": 9}), accepted=Accepted({"pay": 5}, clamped))
    assert told.value(metrics.SCALER_CLAMPED) == told_as


# --- kinds of fleets -------------------------------------------------------------------------------------------------


def bank(*queues: QueueStatus, **routing: float) -> QueueObservation:
    return QueueObservation(time_s=1.1, fleet="pay", replicas=THREE, queues=queues, routing=routing)


def test_a_queue_that_is_gone_is_not_told_any_more() -> None:
    told = Told()
    first, second = (QueueStatus(queue=name, depth=4, servers=2, rejected=9) for name in ("q1", "q2"))
    told.tick(bank(first, second, q1=0.4, q2=0.6))
    assert told.value(metrics.QUEUE_DEPTH, queue="q2") == 4
    assert told.value(metrics.QUEUE_REJECTED, queue="q2") == 9
    assert told.value(metrics.QUEUE_ROUTING, queue="q2") == 0.6
    told.tick(bank(first, q1=1.0))
    assert told.value(metrics.QUEUE_SERVERS, queue="q1") == 2
    assert told.value(metrics.QUEUE_DEPTH, queue="q2") is None


def test_each_function_is_a_fleet_of_its_own() -> None:
    function = FunctionStatus(
        time_s=1.1,
        fleet="pdf",
        replicas=ReplicaCounts(joined=2),
        arrived=40,
        backlog=3,
        busy_s=12.5,
        laxity_s=tuple(float(value) for value in range(20, 0, -1)),
    )
    told = Told()
    told.tick(
        FunctionObservation(time_s=1.1, fleet="pay", replicas=THREE, functions=(function,), finished=30, missed=2),
        Decision(action="up", targets={"pdf": 5}),
    )
    assert told.value(metrics.REPLICAS, "pdf", phase="joined") == 2
    assert told.value(metrics.REPLICAS_DESIRED, "pdf", scaler="zeta") == 5
    assert told.value(metrics.FLEET_ARRIVED, "pdf") == 40
    assert told.value(metrics.FUNCTION_BUSY, "pdf") == 12.5
    laxities = [told.value(metrics.FUNCTION_LAXITY, "pdf", quantile=share) for share in ("0", "0.1", "0.5")]
    assert laxities == [1.0, 2.0, 10.0]
    assert told.value(metrics.PIPELINE_FINISHED) == 30
    assert told.value(metrics.PIPELINE_MISSED) == 2


def test_a_network_tells_of_topics_and_jobs() -> None:
    topic = TopicStatus(time_s=1.1, fleet="A", replicas=ReplicaCounts(joined=2), service_scv=0.25)
    job = JobStatus(job="1", route=("A",), arrival_rate_per_s=0.5, arrival_scv=None)
    told = Told()
    told.tick(
        NetworkObservation(time_s=1.1, fleet="pay", replicas=THREE, topics=(topic,), jobs=(job,), response_time_s=50.0)
    )
    assert told.value(metrics.TOPIC_SERVICE_SCV, "A") == 0.25
    assert told.value(metrics.JOB_ARRIVAL_RATE, job="1") == 0.5
    scv = told.value(metrics.JOB_ARRIVAL_SCV, job="1")
    assert scv is not None and math.isnan(scv)
    assert told.value(metrics.NETWORK_RESPONSE) == 50.0


def test_every_metric_has_a_name_of_the_kernel() -> None:
    assert {*exposition.OF_TICK} <= {value for name, value in vars(metrics).items() if name.isupper()}
