"""Values of ``--set``: numbers as people write them, and errors that name the one value that is wrong."""

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
import pytest

from penstock.errors import PenstockError
from penstock.parameters import make_parameters, parse_settings


@dataclass(frozen=True)
class Toy:
    share: float = 0.5
    count: int | None = None
    on: bool = False
    mode: Literal["fast", "slow"] = "fast"
    level: Annotated[int, msgspec.Meta(ge=0)] = 0
    wait_s: float = 1.0

    def __post_init__(self) -> None:
        if self.wait_s < 0:
            raise ValueError(f"wait_s={self.wait_s:g}: expected a number of at least 0")


@pytest.mark.parametrize(("text", "value"), [(".25", 0.25), ("-.25", -0.25), ("0.25", 0.25), ("1e-3", 0.001)])
def test_a_number_needs_no_leading_zero(text: str, value: float) -> None:
    assert make_parameters("toy", Toy, parse_settings([f"toy.share={text}"])["toy"]).share == value


def test_a_path_keeps_its_leading_dot() -> None:
    assert parse_settings(["toy.file=./x.csv"]) == {"toy": {"file": "./x.csv"}}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"share": "abc"}, "toy.share=abc: expected a number"),
        ({"count": "x"}, "toy.count=x: expected a whole number or none"),
        ({"on": "maybe"}, "toy.on=maybe: expected true or false"),
        ({"mode": "walking"}, "toy.mode=walking: expected fast or slow"),
        ({"level": "-1"}, "toy.level=-1: expected a whole number >= 0"),
        ({"wait_s": "-1"}, "toy.wait_s=-1: expected a number of at least 0"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_alone(wrong: dict[str, str], said: str) -> None:
    with pytest.raises(PenstockError) as error:
        make_parameters("toy", Toy, {"share": "0.1", "count": "3"} | wrong)
    assert str(error.value) == said
