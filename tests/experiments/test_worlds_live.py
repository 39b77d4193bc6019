"""Whole runs on the other kinds of fleet: banks of queues, pub/sub networks, pipelines of functions, with something
broken on purpose.

Each claims conservation: delivery reports, ledger and result ids name the same events, none is lost, and what was
rejected at a full queue is counted apart.
"""

import dataclasses
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import msgspec
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from controller.journal import read_replica_events, read_ticks
from experiments.amesos.experiments import EXPERIMENTS as AMESOS
from experiments.elastic_faas.experiments import EXPERIMENTS as ELASTIC_FAAS
from experiments.experiment import Experiment, Options, parse_faults
from experiments.multiqueue.experiments import EXPERIMENTS as MULTIQUEUE
from experiments.pubsub.experiments import EXPERIMENTS as PUBSUB
from infra.local.services import LocalServices
from penstock.errors import PenstockError
from penstock.rundir import RunDirectory, read_lines
from penstock.runspec import FaultRecord
from penstock.systems import FunctionSystem
from report.analysis.summary import RunSummary
from tests.experiments.ce_front import CeFront, ce_front
from tests.experiments.conftest import Play
from tests.experiments.leftovers import nothing_is_left
from tests.functions.gateway_process import PASSWORD, GatewayProcess
from tests.support.changed import LIVE_RUN
from tests.support.eventually import eventually

BY_NAME = {each.name: each for each in (*MULTIQUEUE, *ELASTIC_FAAS, *PUBSUB, *AMESOS)}


def slower(experiment: Experiment, rate_per_s: int) -> Experiment:
    """The bank of the paper at a rate that leaves a busy machine room."""
    return dataclasses.replace(experiment, workload=f"poisson:rate_per_s={rate_per_s},duration_s=120")


def documents(play: Play, *faults: str) -> tuple[RunDirectory, RunSummary]:
    """The document pipeline under AMESoS at eight requests a second, for 20 s."""
    experiment = dataclasses.replace(BY_NAME["amesos-document"], workload="poisson:rate_per_s=8,duration_s=480")
    return play(experiment, "amesos", Options(seconds=20, analytics=False, faults=parse_faults(faults)))


@pytest.mark.live
@pytest.mark.parametrize(
    "faults",
    [
        ("kill-worker@4", "kill-forwarder@8", "kill-controller@12"),
        pytest.param(("stop-broker@6+3",), marks=pytest.mark.when_changed(*LIVE_RUN)),
        pytest.param(("cut-workers@6+3",), marks=pytest.mark.when_changed(*LIVE_RUN)),
    ],
    ids=" ".join,
)
def test_a_bank_of_queues_loses_nothing(play: Play, local_services: LocalServices, faults: tuple[str, ...]) -> None:
    experiment = slower(BY_NAME["multiqueue"], 120)
    options = Options(seconds=18, analytics=False, faults=parse_faults(faults))
    directory, summary = play(experiment, "multiqueue-damped", options)
    assert summary.conservation.exact, summary.conservation
    assert summary.conservation.lost == 0
    assert summary.completed_events + summary.conservation.rejected == summary.acknowledged_events
    assert summary.completed_events > summary.acknowledged_events / 10
    nothing_is_left(local_services.endpoints(), directory.path.name)


@pytest.mark.live
def test_queues_that_were_added_are_drained_before_they_go(play: Play, local_services: LocalServices) -> None:
    """Functions that pull come and go, one of them is killed."""
    options = Options(from_s=10, seconds=20, speed=2, analytics=False, faults=parse_faults(["kill-worker@10"]))
    directory, summary = play(BY_NAME["elastic-faas"], "elastic-faas", options)
    assert summary.conservation.exact, summary.conservation
    assert summary.scale.replicas_added > 0
    nothing_is_left(local_services.endpoints(), directory.path.name)


@pytest.mark.live
@pytest.mark.parametrize(
    "fault", ["kill-worker@300", pytest.param("cut-workers@300+180", marks=pytest.mark.when_changed(*LIVE_RUN))]
)
def test_jobs_of_a_network_go_through_all_their_topics(play: Play, local_services: LocalServices, fault: str) -> None:
    options = Options(seconds=900, speed=60, analytics=False, faults=parse_faults([fault]))
    directory, summary = play(BY_NAME["pubsub-mintime"], "min-time", options)
    assert summary.conservation.exact, summary.conservation
    assert summary.completed_events == summary.scheduled_events
    nothing_is_left(local_services.endpoints(), directory.path.name)


@pytest.mark.live
def test_a_pipeline_of_functions_finishes_every_request_once(play: Play) -> None:
    directory, summary = documents(play, "kill-dataflow@3", "restart-redis@8+2", "stop-broker@14+3")
    assert summary.conservation.exact, summary.conservation
    assert summary.completed_events == summary.scheduled_events
    assert any(tick.observation.completed for tick in read_ticks(directory))


@pytest.mark.live
@pytest.mark.when_changed(*LIVE_RUN)
def test_requests_wait_while_functions_are_frozen_and_none_is_called_for_twice(play: Play) -> None:
    directory, summary = documents(play, "freeze-workers@6+2")
    (fault,) = read_lines(directory.faults_file, FaultRecord)
    assert len(fault.detail.split(", ")) >= 4, "a replica of each function"
    assert summary.conservation.exact, summary.conservation
    assert summary.completed_events == summary.scheduled_events
    assert summary.latency.max_s is not None and summary.latency.max_s > 1.0
    assert set(pq.read_table(directory.results_folder)["attempt"].to_pylist()) == {1}


@pytest.mark.live
@pytest.mark.when_changed(*LIVE_RUN)
def test_the_request_of_a_killed_function_is_called_for_again_once_and_both_are_on_record(play: Play) -> None:
    directory, summary = documents(play, "kill-worker@6")
    (fault,) = read_lines(directory.faults_file, FaultRecord)
    killed, _, how = fault.detail.partition(", ")
    assert how == "with a request in flight"
    gone = [event for event in read_replica_events(directory) if event.reason == "killed by SIGKILL"]
    assert [(event.replica, event.phase) for event in gone] == [(killed, "gone")]
    results = pq.read_table(directory.results_folder)
    again = results.filter(pc.greater(results["attempt"], 1)).to_pylist()
    assert [(row["stage"], row["attempt"], row["outcome"]) for row in again] == [(gone[0].fleet, 2, "completed")]
    assert again[0]["worker"] not in (killed, "")
    assert results.num_rows == 4 * summary.scheduled_events, "each function answered for each request, once"
    assert summary.conservation.exact, summary.conservation
    assert summary.completed_events == summary.scheduled_events
    assert summary.conservation.redelivered == 0


@pytest.fixture
def ce(
    local_services: LocalServices, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CeFront]:
    """A gateway of a user's, as strict as OpenFaaS CE. It has the secret redis-url."""
    redis = local_services.endpoints().require("redis")
    gateway = GatewayProcess(tmp_path_factory.mktemp("g"), {"redis_url": redis})
    gateway.start()
    try:
        with ce_front(gateway.url.replace("//", f"//admin:{quote(PASSWORD)}@")) as front:
            monkeypatch.setenv("PENSTOCK_GATEWAY", front.url)
            yield front
    finally:
        gateway.stop()
    assert gateway.left() == []


def deploy(front: CeFront, name: str) -> dict[str, object]:
    """A user's function; its status once it serves."""
    body = {"service": name, "image": "penstock/sha256:mine", "labels": {"com.openfaas.scale.min": "2"}}
    assert httpx.post(f"{front.url}/system/functions", json=body, trust_env=False).status_code == 202
    eventually(lambda: front.functions()[name]["availableReplicas"] == 2)
    return front.functions()[name]


def remove(front: CeFront, name: str) -> None:
    body = {"functionName": name}
    assert httpx.request("DELETE", f"{front.url}/system/functions", json=body, trust_env=False).status_code == 202
    eventually(lambda: name not in front.functions())


@pytest.mark.live
def test_on_a_gateway_as_strict_as_ce_every_request_is_completed_and_amesos_scales(play: Play, ce: CeFront) -> None:
    document = BY_NAME["amesos-document"]
    assert isinstance(document.system, FunctionSystem)
    # At ten requests a second a function of 0.1 s needs two replicas at AMESoS' utilisation of 0.7.
    slow = tuple(msgspec.structs.replace(each, service_time_s=0.1) for each in document.system.functions)
    system = msgspec.structs.replace(document.system, functions=slow, secrets="redis-url")
    experiment = dataclasses.replace(document, workload="poisson:rate_per_s=10,duration_s=480", system=system)
    mine = deploy(ce, "mine")
    _, summary = play(experiment, "amesos", Options(seconds=20, analytics=False, max_replicas=5))
    assert summary.conservation.exact, summary.conservation
    assert summary.completed_events == summary.scheduled_events > 100
    assert summary.conservation.dead_lettered == 0
    assert summary.scale.replicas_added > 0
    assert ce.functions() == {"mine": mine}, "it is as it was, and the run's own functions are gone"
    assert {method for method, name, _ in ce.changes[1:] if name == "mine"} == set()
    assert all(status < 300 for *_, status in ce.changes)
    remove(ce, "mine")


@pytest.mark.live
def test_a_users_function_with_one_of_our_names_refuses_the_run_and_survives_it(play: Play, ce: CeFront) -> None:
    before = deploy(ce, "sha256")
    experiment = dataclasses.replace(BY_NAME["amesos-document"], workload="poisson:rate_per_s=8,duration_s=480")
    with pytest.raises(PenstockError, match="sha256: a function of that name, not deployed by Penstock, is there"):
        play(experiment, "amesos", Options(seconds=5, analytics=False, max_replicas=5))
    assert ce.functions() == {"sha256": before}
    assert [name for _, name, _ in ce.changes] == ["sha256"], "its own deployment alone"
    remove(ce, "sha256")
