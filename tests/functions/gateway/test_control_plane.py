"""Parts of gateway and replicas that need no process."""

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from functions.gateway.control_plane import ControlPlane
from functions.gateway.events import EventLog
from functions.gateway.meters import Meters
from functions.gateway.replica_set import FunctionRecord, ReplicaRecord, free_slot
from functions.replica import ReplicaSettings
from functions.shared_counters import SharedCounters
from penstock.contracts import Phase, ReplicaEvent
from penstock.errors import PenstockError
from penstock.openfaas import MAX_REPLICAS, FunctionDeployment, deployment
from penstock.systems import FunctionSpec, FunctionSystem


def names(replicas: list[ReplicaRecord]) -> list[str]:
    return [replica.name for replica in replicas]


def function(**phases: Phase) -> FunctionRecord:
    """A function with replicas ``f1``, ``f2``, … in these phases."""
    record = FunctionRecord(
        fleet="f", deployment=FunctionDeployment(service="f", image="penstock/f"), slot="slot-0", target=1, created_ns=0
    )
    for name, phase in phases.items():
        record.replicas[name] = ReplicaRecord(name=name, number=int(name[1:]), generation=1, phase=phase)
    return record


def test_those_that_do_not_serve_yet_go_first_and_then_the_newest() -> None:
    record = function(f1="first-event", f2="joined", f3="draining", f4="started", f5="joined", f6="requested")
    assert names(record.current()) == ["f1", "f2", "f4", "f5", "f6"]
    record.target = 2
    assert names(record.surplus(record.target)) == ["f6", "f4", "f5"]
    record.target = 7
    assert names(record.surplus(record.target)) == []


def test_names_of_replicas_are_never_used_twice() -> None:
    record = function()
    first = record.add(1)
    del record.replicas[first]
    assert (first, record.add(2)) == ("f-1", "f-2")


def test_replicas_of_an_earlier_generation_are_not_counted() -> None:
    record = function(f1="joined", f2="joined")
    record.generation = 2
    record.add(1)
    assert names(record.outdated()) == ["f1", "f2"]
    assert names(record.current()) == ["f-1"]


def test_labels_that_are_no_numbers_mean_the_default() -> None:
    record = function()
    record.deployment = FunctionDeployment(service="f", image="f", labels={MAX_REPLICAS: "lots"})
    assert (record.least, record.most, record.queue_limit) == (1, 200, 0)


def test_a_slot_is_had_by_one_function() -> None:
    assert free_slot(["slot-0", "slot-1"], [function()]) == "slot-1"
    assert free_slot(["slot-0"], [function()]) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1.5", 1.5), ("20s", 20), ("200ms", 0.2), ("1m", 60), ("", 60), ("1m30s", 90), ("1h", 3600), ("2m0s", 120),
        ("1.5h", 5400), ("0", None), ("0s", None),
    ],
)  # fmt: skip
def test_exec_timeout_is_read_as_openfaas_writes_it(text: str, seconds: float | None) -> None:
    assert ReplicaSettings({"exec_timeout": text}).exec_timeout_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("name", "text"), [("exec_timeout", "soon"), ("cold_start_s", "-1"), ("cold_start_s", "nan"), ("floor_s", "x")]
)
def test_a_wrong_environment_is_told_with_its_variable(name: str, text: str) -> None:
    with pytest.raises(PenstockError, match=f"{name}={text}: expected"):
        ReplicaSettings({name: text})


def test_what_a_replica_did_stays_counted_when_it_is_gone() -> None:
    tally = SharedCounters(2)
    first, second = tally.take(), tally.take()
    assert first is not None and second is not None and tally.take() is None
    first.invocations += 3
    second.invocations += 4
    tally.free(first)
    assert tally.totals()["invocations"] == 7
    successor = tally.take()
    assert successor is not None and successor.invocations == 0
    assert tally.totals()["invocations"] == 7


def test_events_go_on_where_they_stopped(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    events = EventLog(file, fresh=True)
    events.add(ReplicaEvent("f", "f-1", "requested", 1))
    events.add(ReplicaEvent("f", "f-1", "gone", 2, "killed by SIGKILL"))
    events.close()
    file.write_bytes(file.read_bytes() + b'{"fleet": "f", "rep')  # it was killed while it wrote
    again = EventLog(file, fresh=False)
    again.add(ReplicaEvent("f", "f-2", "requested", 3))
    found = again.since(1)
    assert [(event.replica, event.phase, event.reason) for event in found.events] == [
        ("f-1", "gone", "killed by SIGKILL"),
        ("f-2", "requested", ""),
    ]
    assert found.next == 3
    assert again.since(99).next == 3, "who knows more than there is begins anew"
    again.close()
    reread = EventLog(file, fresh=False)
    assert [event.replica for event in reread.since(0).events] == ["f-1", "f-1", "f-2"]
    reread.close()
    anew = EventLog(file, fresh=True)
    assert anew.since(0).events == ()
    anew.close()


def test_a_line_of_haproxy_becomes_metrics() -> None:
    registry = CollectorRegistry()
    in_progress = 1
    meters = Meters(registry, lambda: {"f": (2, in_progress)})
    meters.take("f 200 15 20 40 f-1")
    meters.take("f 429 -1 -1 0 <NOSRV>")
    assert (
        registry.get_sample_value(
            "gateway_function_invocation_total", {"function_name": "f.openfaas-fn", "code": "200"}
        )
        == 1
    )
    assert (
        registry.get_sample_value(
            "gateway_function_invocation_total", {"function_name": "f.openfaas-fn", "code": "429"}
        )
        == 1
    )
    seconds = {"function_name": "f.openfaas-fn", "code": "200"}
    assert registry.get_sample_value("gateway_functions_seconds_sum", seconds) == pytest.approx(0.04)
    assert registry.get_sample_value("gateway_queue_seconds_sum", {"function_name": "f.openfaas-fn"}) == pytest.approx(
        0.015
    )
    assert registry.get_sample_value("gateway_queue_seconds_count", {"function_name": "f.openfaas-fn"}) == 1
    assert registry.get_sample_value("gateway_function_invocation_started", {"function_name": "f.openfaas-fn"}) == 3
    in_progress = 0
    started = registry.get_sample_value("gateway_function_invocation_started", {"function_name": "f.openfaas-fn"})
    assert started == 3, "a counter does not fall"
    assert registry.get_sample_value("gateway_service_count", {"function_name": "f.openfaas-fn"}) == 2


def test_a_state_folder_too_deep_for_a_socket_is_told(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match=r"\d+ bytes too long for Unix sockets"):
        ControlPlane(tmp_path / ("deep" * 30), 20000, environment={})


def test_a_function_that_rejects_has_no_queue_at_the_gateway() -> None:
    spec = FunctionSpec(name="pdf", service_time_s=0.0125, service_law="gamma", service_scv=0.5)
    system = FunctionSystem(functions=(spec,), deadline_s=0.5, cold_start_s=1.0, when_busy="reject")
    made = deployment(
        spec, system, replicas=2, max_replicas=9, seed=3, run="run-1", environment={"redis_url": "redis://"}
    )
    assert made.annotations == {"com.penstock.queue-limit": "0", "penstock.run": "run-1"}
    assert made.labels == {"com.openfaas.scale.min": "2", "com.openfaas.scale.max": "9"}
    assert made.env_vars == {
        "floor_s": "0.0125",
        "service_law": "gamma",
        "service_scv": "0.5",
        "cold_start_s": "1.0",
        "seed": "3",
        "redis_url": "redis://",
    }
