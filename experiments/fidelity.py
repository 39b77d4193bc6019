"""Live runs beside their simulation, over all papers: how far they are apart, and whether both rank the scalers alike.

``fidelity.csv`` has what the papers' READMEs tell of live runs, each value with that of the same run simulated:
``penstock paper fidelity all --format markdown`` makes ``docs/fidelity.md`` of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np

from experiments.paper import UNKNOWN, Cells, PaperTable, Request, printed_values
from experiments.ranking import compare, kendall_tau

TOLERANCE: Final = 0.10
"""Live and simulated values agree within this share of the simulated one."""
LEAST_TAU: Final = 0.9
EQUAL: Final = 0.02
"""Two scalers are equal in a measure that differs by this share at most: one run cannot tell them apart."""
PAIRS: Final = printed_values(__file__, "fidelity.csv")
"""``held``: whether the pair has to agree. Misses and longest queues of one run do not, they rank the scalers only."""
REASONS: Final = {row["reason"]: row["text"] for row in printed_values(__file__, "fidelity_reasons.csv")}
NOT_EXPLAINED: Final = "not explained"

Pair = Mapping[str, Any]


def difference(pair: Pair) -> float:
    """Live against simulated, as a share of the simulated value; 0 where both are 0."""
    live, simulated = float(pair["live"]), float(pair["simulated"])
    if simulated == 0:
        return 0.0 if live == 0 else float("inf")
    return live / simulated - 1


def agrees(pair: Pair) -> bool:
    """Whether the pair is within the tolerance."""
    return abs(difference(pair)) <= TOLERANCE + 1e-9


def of_each(pairs: Iterable[Pair], *names: str) -> Iterator[tuple[tuple[str, ...], list[Pair]]]:
    """The pairs that are equal in these columns, in the order of their first one."""
    found: dict[tuple[str, ...], list[Pair]] = {}
    for pair in pairs:
        found.setdefault(tuple(str(pair[name]) for name in names), []).append(pair)
    yield from found.items()


class Ranking(NamedTuple):
    """Several scalers in both worlds. ``opposite``: how many two of them are the other way round in one of the worlds.
    ``tau``: Kendall's; None where one world has no order.
    """

    case: str
    measure: str
    orders: Cells
    opposite: int
    tau: float | None


def all_rankings(pairs: Iterable[Pair]) -> Iterator[Ranking]:
    """Wherever there are several scalers."""
    for (case, measure), some in of_each(pairs, "case", "measure"):
        if len(some) > 1:
            orders = {world: order(some, world) for world in ("live", "simulated")}
            live, simulated = ([float(pair[world]) for pair in some] for world in orders)
            signs = ([compare(a, b, EQUAL) for a, b in combinations(each, 2)] for each in (live, simulated))
            opposite = sum(a * b < 0 for a, b in zip(*signs, strict=True))
            yield Ranking(case, measure, orders, opposite, kendall_tau(live, simulated, EQUAL))


def order(pairs: Iterable[Pair], world: str) -> str:
    """The scalers from the lowest to the highest value."""
    first, *others = sorted(pairs, key=itemgetter(world))
    text, last = str(first["scaler"]), first
    for pair in others:
        text += f" {'<' if compare(pair[world], last[world], EQUAL) else '='} {pair['scaler']}"
        last = pair
    return text


# --- tables ----------------------------------------------------------------------------------------------------------


def summary(_: Request) -> Iterator[Cells]:
    """A row for each paper."""
    for (paper,), pairs in of_each(PAIRS, "paper"):
        held = [pair for pair in pairs if pair["held"] == "yes"]
        beyond = [pair for pair in held if not agrees(pair)]
        unexplained = sum(pair["reason"] == NOT_EXPLAINED for pair in beyond)
        ranked = [ranking for ranking in all_rankings(pairs) if ranking.tau is not None]
        known = [ranking.tau for ranking in ranked if ranking.tau is not None]
        yield {
            "paper": paper,
            "pairs": len(held),
            "within 10 %": len(held) - len(beyond),
            "explained": len(beyond) - unexplained,
            "not explained": unexplained,
            "rankings": len(known),
            "τ, median": float(np.median(known)) if known else None,
            "τ, lowest": min(known, default=None),
            f"τ of at least {LEAST_TAU:g}": sum(tau >= LEAST_TAU for tau in known),
            "with opposite pairs": sum(ranking.opposite > 0 for ranking in ranked),
        }


def pair_rows(_: Request) -> Iterator[Cells]:
    """A row for each scaler of each case: live / simulated of every measure, with the difference where it has to agree;
    and the reason for a larger one.
    """
    for (paper, case, scaler), pairs in of_each(PAIRS, "paper", "case", "scaler"):
        reasons = dict.fromkeys(pair["reason"] for pair in pairs if "reason" in pair)
        yield {
            "paper": paper,
            "case": case,
            "scaler": scaler,
            "runs": pairs[0]["runs"],
            "live / simulated": "; ".join(map(pair_text, pairs)),
            "beyond 10 %": ", ".join(reasons) or UNKNOWN,
        }


def pair_text(pair: Pair) -> str:
    """A pair as text."""
    values = f"{pair['measure']} {pair['live']:g} / {pair['simulated']:g}"
    if pair["held"] != "yes":
        return values
    share = f"{difference(pair):+.0%}".replace("%", " %")
    return f"{values} ({share})" if agrees(pair) else f"{values} (**{share}**)"


def reasons(_: Request) -> Iterator[Cells]:
    """What explains the differences beyond the tolerance, and how many pairs it explains."""
    for reason, text in REASONS.items():
        yield {"reason": reason, "pairs": sum(pair.get("reason") == reason for pair in PAIRS), "because": text}


def rankings(_: Request) -> Iterator[Cells]:
    """Every ranking of several scalers."""
    for (paper,), pairs in of_each(PAIRS, "paper"):
        for case, measure, orders, opposite, tau in all_rankings(pairs):
            shown = UNKNOWN if tau is None else f"{tau:.2f}"
            head = {"paper": paper, "case": case, "ranked by": measure}
            yield {**head, **orders, "opposite pairs": opposite, "Kendall's τ": shown}


def _of_ties(rows: Sequence[Cells]) -> str:
    low = [row for row in rows if row["Kendall's τ"] != UNKNOWN and float(row["Kendall's τ"]) < LEAST_TAU]
    ties = sum(row["opposite pairs"] == 0 for row in low)
    return (
        f"Values within {EQUAL:.0%} of each other count as equal (=): one run cannot tell them apart. {len(low)} of "
        f"{len(rows)} rankings have a τ below {LEAST_TAU:g}; in {ties} of these no two scalers are in opposite order, "
        "and one world sees a difference where the other sees none."
    ).replace("%", " %")


def _conclusion(_: Sequence[Any]) -> str:
    return (
        "A pair is a value of a live run and of the same run simulated: the same events, and the live run's service or "
        "call times. Shares close to 1 agree easily; percentiles, costs and losses are the test. All live values are "
        "those of the papers' READMEs."
    )


TABLES: Final = (
    PaperTable("summary", "By paper", summary, note=_conclusion, source="committed"),
    PaperTable("rankings", "Rankings of the scalers", rankings, section="paper", note=_of_ties, source="committed"),
    PaperTable("reasons", "Differences beyond 10 %", reasons, source="committed"),
    PaperTable("pairs", "Every pair", pair_rows, section="paper", source="committed"),
)
