"""What a run leaves on RabbitMQ, for tests of several worlds."""

import time

from penstock.settings import Endpoints
from tests.support.broker_view import BrokerView

PATIENCE_S = 60.0


def nothing_is_left(endpoints: Endpoints, run: str) -> None:
    """No queue, exchange, policy or connection of the run. The broker's list of connections comes a second late."""
    management = BrokerView(endpoints.require("rabbitmq_management"), timeout_s=PATIENCE_S)
    try:
        until_s = time.monotonic() + PATIENCE_S
        while len(left := management.objects(run)) and time.monotonic() < until_s:
            time.sleep(0.2)
        assert len(left) == 0, left
    finally:
        management.close()
