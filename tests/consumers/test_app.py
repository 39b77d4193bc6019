from consumers.app import Stop, stop_at, stops_of
from tests.consumers.test_service_times import NETWORK


def test_a_route_counts_visits_and_ends_nowhere() -> None:
    routes = stops_of(NETWORK)
    assert [stop_at(routes["long"], step) for step in range(4)] == [
        Stop("A", 1, "D"),
        Stop("D", 1, "D"),
        Stop("D", 2, ""),
        None,
    ]
    assert stop_at(routes["long"], -1) is None
    assert "none" not in routes
