"""Faults, and how a seed draws them."""

import random
from collections.abc import Mapping, Sequence

import msgspec

from tests.faults.network import Modes

UNREST_S = 10.0
"""Faults begin within this time."""
LASTS_S = (0.3, 3.0)
MOST = 6


class Fault(msgspec.Struct, frozen=True):
    """``kind`` at ``at_s``, on ``target``, for ``seconds``. ``amount``: steps until a crash, seconds of a clock's step,
    starts that fail.
    """

    kind: str
    at_s: float
    target: str = ""
    seconds: float = 0.0
    amount: float = 0.0

    def __str__(self) -> str:
        lasting = f"+{self.seconds:g}" if self.seconds else ""
        return f"{self.kind}({self.target})@{self.at_s:g}{lasting}" + (f" {self.amount:g}" if self.amount else "")


class Menu(msgspec.Struct, frozen=True):
    """What can fail in a kind of fleet: ``parts`` are processes, ``services`` answer; ``links`` of client and service;
    ``foreign``: what other people do; ``weights`` by kind of fault.
    """

    parts: Sequence[str]
    services: Sequence[str]
    links: Sequence[tuple[str, str]]
    foreign: Sequence[str]
    weights: Mapping[str, int]


APP_WEIGHTS: Mapping[str, int] = {
    "crash": 6,
    "freeze": 2,
    "away": 4,
    "link": 5,
    "clock": 1,
    "no-start": 1,
    "foreign": 2,
    "blind": 1,
    "full": 1,
}
"""Of fleets of apps on RabbitMQ."""


def draw(seed: int, menu: Menu) -> list[Fault]:
    """The faults of a seed, in order of time."""
    rng = random.Random(f"faults {seed}")
    kinds = list(menu.weights)
    drawn = []
    for _ in range(rng.randint(1, MOST)):
        kind = rng.choices(kinds, [menu.weights[each] for each in kinds])[0]
        at_s, seconds = round(rng.uniform(0.5, UNREST_S), 3), round(rng.uniform(*LASTS_S), 2)
        match kind:
            case "crash":
                fault = Fault(kind, at_s, rng.choice(menu.parts), amount=rng.randrange(30))
            case "freeze":
                fault = Fault(kind, at_s, rng.choice(menu.parts), seconds)
            case "away":
                fault = Fault(kind, at_s, rng.choice(menu.services), seconds)
            case "link":
                client, service = rng.choice(menu.links)
                fault = Fault(kind, at_s, f"{client}>{service}:{rng.choice(Modes)}", seconds)
            case "clock":
                fault = Fault(kind, at_s, amount=round(rng.choice((-1, 1)) * rng.choice((0.02, 0.2, 1, 3)), 2))
            case "no-start":
                fault = Fault(kind, at_s, rng.choice(("hangs", "dies")), amount=rng.randint(1, 6))
            case "foreign":
                fault = Fault(kind, at_s, rng.choice(menu.foreign))
            case _:  # stale, blind, full
                fault = Fault(kind, at_s, seconds=seconds)
        drawn.append(fault)
    return sorted(drawn, key=lambda fault: fault.at_s)
