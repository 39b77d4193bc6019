"""Every dashboard, in the order in which one would look at them. A board is a function without arguments."""

from collections.abc import Callable
from typing import Final

from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.boards import functions, health, networks, overview, queues, rabbitmq, streams, why

BOARDS: Final[tuple[Callable[[], Dashboard], ...]] = (
    overview.board,
    why.board,
    streams.board,
    queues.board,
    functions.board,
    networks.board,
    health.board,
    rabbitmq.board,
)
