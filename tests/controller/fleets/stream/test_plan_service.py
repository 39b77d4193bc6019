"""The plan service over real HTTP on a free port."""

import socket
import threading
import time
from collections.abc import Iterator

import httpx
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumers.plan_client import PlanClient, PlanRefusedError
from controller.fleets.stream.assignment import AssignmentPlanner
from controller.fleets.stream.plan_service import LARGEST_REPORT_BYTES, PlanService
from penstock.errors import PenstockError
from penstock.plan import MemberPhase, MemberReport, PlanNotice
from tests.support.mutations import mutations

GROUPS = ((0, 1), (2,))
http = httpx.Client(trust_env=False)


@pytest.fixture(scope="module", autouse=True)
def connections() -> Iterator[None]:
    """Closed with the last test: a socket that is left open counts against whichever test runs then."""
    with http:
        yield


@pytest.fixture
def service(servers_end_soon: None) -> Iterator[PlanService]:
    running = PlanService(
        AssignmentPlanner(join_timeout_s=5), group="run.payments", fleet="payments", url="http://127.0.0.1:0"
    )
    running.start()
    yield running
    running.stop()


def get(service: PlanService, query: str = "", timeout: float = 5) -> PlanNotice:
    answer = http.get(f"{service.url}/groups/run.payments/plan{query}", timeout=timeout)
    assert answer.status_code == 200
    return msgspec.json.decode(answer.content, type=PlanNotice)


def post(service: PlanService, replica: str, phase: MemberPhase, at_ns: int, partitions: tuple[int, ...] = ()) -> int:
    report = MemberReport(phase=phase, at_ns=at_ns, partitions=partitions, generation=1)
    url = f"{service.url}/groups/run.payments/members/{replica}"
    return http.post(url, content=msgspec.json.encode(report)).status_code


def test_before_the_first_plan_there_is_a_serial_and_no_plan(service: PlanService) -> None:
    notice = get(service)
    assert (notice.serial, notice.plan) == (0, None)


def test_members_join_and_the_plan_is_told(service: PlanService) -> None:
    service.propose(GROUPS, ["p-0", "p-1"], now_s=0)
    assert get(service).plan is None
    for replica in ("p-0", "p-1"):
        assert post(service, replica, "joined", 5) == 204
    plan = get(service).plan
    assert plan is not None
    assert (plan.epoch, plan.groups, plan.members) == (1, GROUPS, ("p-0", "p-1"))


def test_a_long_poll_answers_when_the_serial_grows(service: PlanService) -> None:
    heard: list[PlanNotice] = []
    waiter = threading.Thread(target=lambda: heard.append(get(service, "?after=0&wait_s=20", timeout=30)))
    waiter.start()
    time.sleep(0.2)
    assert not heard
    post(service, "p-0", "joined", 5)
    service.propose(GROUPS, ["p-0"], now_s=0)
    waiter.join(10)
    assert heard[0].plan is not None
    assert heard[0].serial == 1


def test_a_long_poll_without_news_answers_after_its_wait(service: PlanService) -> None:
    assert get(service, "?after=0&wait_s=0.05").serial == 0


def test_a_serial_of_a_predecessor_is_answered_at_once(service: PlanService) -> None:
    assert get(service, "?after=900&wait_s=20").serial == 0


def test_the_first_report_of_each_phase_is_kept(service: PlanService) -> None:
    for at_ns, phase in enumerate(("started", "joining", "joined", "joined", "first-event", "leaving", "left")):
        post(service, "p-0", phase, at_ns)  # type: ignore[arg-type]
    steps = {"started": 0, "joining": 1, "joined": 2, "first-event": 4, "leaving": 5, "left": 6}
    assert service.snapshot().steps == {"p-0": steps}
    post(service, "p-0", "started", 7)
    assert service.snapshot().steps == {"p-0": {"started": 7}}


def test_a_restarted_service_keeps_what_was_reported_to_its_predecessor(service: PlanService) -> None:
    post(service, "p-0", "started", 1)
    post(service, "p-0", "joined", 2, (0, 1))
    successor = PlanService(
        service.snapshot(),
        group=service.group,
        fleet="payments",
        url=service.url,
    )
    assert successor.snapshot().assigned() == {"p-0": (0, 1)}
    successor.report("p-0", MemberReport(phase="joined", at_ns=3))
    successor.report("p-0", MemberReport(phase="first-event", at_ns=4))
    assert successor.snapshot().steps == {"p-0": {"started": 1, "joined": 2, "first-event": 4}}


def test_a_process_that_does_not_choose_its_name_learns_it_once_it_is_introduced(service: PlanService) -> None:
    client = PlanClient(service.url, "run.payments")
    heard: list[str] = []
    waiter = threading.Thread(target=lambda: heard.append(client.replica("pod-x2x", wait_s=20)))
    waiter.start()
    time.sleep(0.2)
    assert not heard
    service.assign_identity("pod-abc", "payments-1")
    service.assign_identity("pod-x2x", "payments-2")
    waiter.join(10)
    assert heard == ["payments-2"]
    client.close()


def test_a_process_that_nobody_introduces_is_told_so_after_its_wait(service: PlanService) -> None:
    client = PlanClient(service.url, "run.payments")
    with pytest.raises(PlanRefusedError, match="pod-x2x is no replica of"):
        client.replica("pod-x2x", wait_s=0.05)
    client.close()


def test_an_unknown_group_is_refused_with_the_one_that_is_served(service: PlanService) -> None:
    answer = http.get(f"{service.url}/groups/other/plan")
    assert answer.status_code == 404
    assert answer.text == "unknown group 'other': this controller serves 'run.payments'\n"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/groups/run.payments/plan?after=soon", b""),
        ("GET", "/groups/run.payments/plan?wait_s=long", b""),
        ("POST", "/groups/run.payments/members/p-0", b"{"),
        ("POST", "/groups/run.payments/members/p-0", b'{"phase":"sleeping","at_ns":1}'),
    ],
)
def test_bad_requests_are_told_so(service: PlanService, method: str, path: str, body: bytes) -> None:
    answer = http.request(method, service.url + path, content=body)
    assert answer.status_code == 400
    assert answer.text.count("\n") == 1


def test_health_tells_the_group(service: PlanService) -> None:
    assert http.get(f"{service.url}/healthz").json() == {"group": "run.payments", "serial": 0}


def test_a_taken_port_is_one_clear_line(service: PlanService) -> None:
    second = PlanService(AssignmentPlanner(join_timeout_s=5), group="g", fleet="f", url=service.url)
    with pytest.raises(PenstockError, match=r"cannot listen there .*PENSTOCK_CONTROLLER"):
        second.start()


def test_stopping_answers_those_who_wait_and_frees_the_port(service: PlanService) -> None:
    heard: list[PlanNotice] = []
    waiter = threading.Thread(target=lambda: heard.append(get(service, "?after=0&wait_s=50", timeout=60)))
    waiter.start()
    time.sleep(1.0)
    service.stop()
    waiter.join(10)
    assert heard[0].serial == 0
    host, port = service.url.removeprefix("http://").split(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, int(port)))


# --- hostile input ---------------------------------------------------------------------------------------------------


def send(service: PlanService, replica: str, content: bytes) -> int:
    url = f"{service.url}/groups/run.payments/members/{replica}"
    return http.post(url, content=content).status_code


@given(content=st.binary(max_size=200) | mutations(b'{"phase":"joined","at_ns":5,"partitions":[0,1],"epoch":1}'))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_whatever_is_reported_the_service_answers_and_can_be_written_down(service: PlanService, content: bytes) -> None:
    assert send(service, "p-0", content) in (204, 400)
    assert get(service).serial >= 0
    assert msgspec.json.encode(service.snapshot())


@pytest.mark.parametrize(
    "content",
    [
        b'{"phase":"joined","at_ns":5,"epoch":%d}' % 10**30,
        b'{"phase":"joined","at_ns":5,"epoch":%d}' % (2**63 - 1),
        b'{"phase":"joined","at_ns":5,"fallback":"\xff"}',
        b'{"phase":"joined","at_ns":5,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"phase":"joined","at_ns":5,"fallback":"' + b"x" * LARGEST_REPORT_BYTES + b'"}',
    ],
    ids=["100 bits", "64 bits", "not UTF-8", "deep", "large"],
)
def test_a_hostile_report_is_refused_and_changes_nothing(service: PlanService, content: bytes) -> None:
    service.propose(GROUPS, [], now_s=0)
    before = get(service)
    assert send(service, "p-0", content) in (400, 413)
    assert get(service) == before
    assert post(service, "p-0", "joined", 5) == 204


def test_names_that_report_are_bounded(service: PlanService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controller.fleets.stream.plan_service.MOST_MEMBERS", 3)
    assert [post(service, f"p-{number}", "joined", 5) for number in range(4)] == [204, 204, 204, 429]
    assert post(service, "p-0", "joined", 6) == 204


@given(query=st.text(max_size=30), value=st.sampled_from(["nan", "inf", "-1", "9" * 5000, "1e400", ""]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_query_hangs_or_breaks_the_service(service: PlanService, query: str, value: str) -> None:
    for parameters in (
        {"after": value},
        {"wait_s": "nan" if value in ("inf", "1e400") else value[:5]},
        {"after": query},
    ):
        answer = http.get(f"{service.url}/groups/run.payments/plan", params=parameters, timeout=5)
        assert answer.status_code in (200, 400)
