"""All dashboards in reading order."""

from typing import Final

from grafana.boards import function, health, network, overview, queue, rabbitmq, stream, two_runs, why

BOARDS: Final = tuple(
    board.BOARD for board in (overview, why, two_runs, stream, queue, function, network, health, rabbitmq)
)
