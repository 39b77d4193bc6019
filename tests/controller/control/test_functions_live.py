"""``penstock control --functions`` on Penstock's own gateway, a real one, and its metrics."""

from collections.abc import Iterator

import pytest

from penstock.contracts import FunctionObservation
from tests.controller.control.attached_functions import AttachedFunctions
from tests.functions.gateway_process import PASSWORD, GatewayProcess

pytestmark = pytest.mark.live


@pytest.fixture
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    made = GatewayProcess(tmp_path_factory.mktemp("g"))
    made.start()
    yield made
    made.stop()
    assert made.left() == []


def test_functions_of_a_user_are_scaled_by_their_calls_and_stay_as_they_are(
    gateway: GatewayProcess, attached: AttachedFunctions
) -> None:
    gateway.deploy("probe")
    gateway.deploy("sha256", replicas=2)
    before = gateway.client.get("/system/function/probe").json()
    for _ in range(3):
        assert gateway.call("sleep:0.05").status_code == 200
    url = gateway.url.replace("//", f"//admin:{PASSWORD.replace(' ', '%20')}@")
    attached.start("probe,sha256", url, "--shadows", "lass,ds2")
    attached.wait("three of probe", lambda: gateway.available() == 3)
    attached.wait("one of sha256", lambda: gateway.available("sha256") == 1)  # nobody called it
    assert gateway.call("sleep:0.05").status_code == 200
    attached.wait("four of probe", lambda: gateway.available() == 4)
    attached.wait("the call's duration", lambda: any(service_rate_per_s(tick.observation) for tick in attached.ticks()))
    assert attached.interrupt() == 0
    assert attached.said("replicas stay as they are: probe 4, sha256 1") and not attached.said("Traceback")
    after = gateway.client.get("/system/function/probe").json()
    for each in ("envVars", "labels", "annotations", "image", "createdAt"):
        assert after[each] == before[each]
    # Four calls of 50 ms and more: no replica can serve more than 20 a second.
    rates = [rate for tick in attached.ticks() if (rate := service_rate_per_s(tick.observation))]
    assert all(1 < rate <= 20 for rate in rates)


def service_rate_per_s(observation: object) -> float | None:
    assert isinstance(observation, FunctionObservation)
    return observation.functions[0].service_rate_per_s
