"""``penstock keda`` refuses wrong defaults before it serves: KEDA would ask in vain."""

import pytest
from typer.testing import CliRunner

from penstock.command import build
from penstock.errors import PenstockError

GROUP = ("--topic", "orders", "--group", "shop")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What would have been served."""
    given: list[object] = []

    async def serve(*arguments: object) -> None:
        given.append(arguments)

    monkeypatch.setattr("controller.keda.service.serve", serve)
    return given


def keda(*arguments: str, kafka: str = "kafka:9092") -> BaseException | None:
    return CliRunner().invoke(build(), ["keda", "--kafka", kafka, *arguments]).exception


@pytest.mark.parametrize("group", [(), GROUP], ids=["without a group", "with a group"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--scaler nope", "unknown scaler 'nope'"),
        ("--scaler multiqueue", "multiqueue"),
        ("--scaler optimal", "needs the load in advance"),
        ("--scaler linear --set linear.foo=1", "unknown parameter 'linear.foo'"),
        ("--scaler linear --set hpa.target=1", "is for another scaler than linear"),
        ("--set linear.foo=1", "--set linear.foo=1: it is of --scaler, which is not given"),
    ],
)
def test_a_wrong_default_is_one_line_and_nothing_is_served(
    served: list[object], group: tuple[str, ...], arguments: str, said: str
) -> None:
    error = keda(*group, *arguments.split())
    assert isinstance(error, PenstockError) and error.exit_code == 2
    assert said in str(error) and "\n" not in str(error)
    assert served == []


@pytest.mark.parametrize("kafka", ["nohost", "", ":9092", "kafka:", "kafka:port", "http://kafka:9092", "a:1,", "a:1,b"])
def test_servers_are_host_and_port(served: list[object], kafka: str) -> None:
    error = keda(kafka=kafka)
    assert isinstance(error, PenstockError) and error.exit_code == 2
    assert str(error).startswith(f"--kafka {kafka}: ") and str(error).endswith("is not host:port, such as kafka:9092")
    assert served == []


@pytest.mark.parametrize("kafka", ["kafka:9092", "a.example:9092,b_2:9093", "a:1, b:2", "[::1]:9092", "127.0.0.1:1"])
@pytest.mark.parametrize("arguments", ["", "--scaler linear --set linear.slo_s=1"])
def test_right_defaults_are_served(served: list[object], kafka: str, arguments: str) -> None:
    assert keda(*arguments.split(), kafka=kafka) is None
    assert len(served) == 1
