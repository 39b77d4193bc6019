import time

import pytest
from confluent_kafka.admin import AdminClient

from infra.local.warm_up import EVENTS, warm_up
from penstock.settings import Endpoints


@pytest.mark.live
def test_what_was_produced_to_warm_the_broker_up_came_back_and_is_gone(
    services: Endpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.local.warm_up.PATIENCE_S", 120.0)
    kafka = services.require("kafka")
    assert warm_up(kafka) == EVENTS
    admin, until_s = AdminClient({"bootstrap.servers": kafka}), time.monotonic() + 60
    while left := [topic for topic in admin.list_topics(timeout=10).topics if topic.startswith("warm-up-")]:
        assert time.monotonic() < until_s, left
        time.sleep(0.1)
