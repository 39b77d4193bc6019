import pytest
from confluent_kafka.admin import AdminClient

from infra.local.warm_up import EVENTS, warm_up
from penstock.settings import Endpoints


@pytest.mark.live
def test_what_was_produced_to_warm_the_broker_up_came_back_and_is_gone(services: Endpoints) -> None:
    kafka = services.require("kafka")
    assert warm_up(kafka) == EVENTS
    topics = AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=10).topics
    assert not [topic for topic in topics if topic.startswith("warm-up-")]
