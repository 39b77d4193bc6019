"""Live runs beside their simulation, over all papers: how far they are apart, and whether both rank the scalers alike.

``fidelity.csv`` has what the papers' READMEs tell of live runs, each value with that of the same run simulated:
``penstock paper fidelity all --format markdown`` makes ``docs/fidelity.md`` of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations
from operator import itemgetter
from typing import Any, Final, NamedTuple

from experiments.orders import order_rows
from experiments.paper import UNKNOWN, Cells, PaperTable, Request, printed_values
from experiments.ranking import EQUAL, compare, tau

TOLERANCE: Final = 0.10
"""Live and simulated values agree within this share of the simulated one."""
LEAST_TAU: Final = 0.9
SURE: Final = 0.95
"""One run can be expected to show an order that so many of the simulated runs show."""
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


def simulated_orders() -> dict[tuple[str, str, str, str], int]:
    """By case, measure and two scalers: −1 if the first one is lower in nearly all of twenty simulated runs, 1 if the
    second one is, and 0 if one run cannot tell.
    """
    found = {}
    for row in printed_values(__file__, "fidelity_orders.csv"):
        sign = (row["second lower"] >= SURE * row["seeds"]) - (row["first lower"] >= SURE * row["seeds"])
        found[row["case"], row["measure"], row["first"], row["second"]] = sign
        found[row["case"], row["measure"], row["second"], row["first"]] = -sign
    return found


ORDERS: Final = simulated_orders()


class Ranking(NamedTuple):
    """Several scalers in both worlds. ``live`` and ``simulated``: −1, 0 or 1 for each two of them; 0 in both where one
    run cannot tell. ``tau``: Kendall's; None where one world has no order. ``of_single_runs``: the same from one
    simulated run, which takes each difference above ``EQUAL`` for an order.
    """

    case: str
    measure: str
    orders: Cells
    live: Sequence[int]
    simulated: Sequence[int]
    of_single_runs: float | None

    @property
    def tau(self) -> float | None:
        """Kendall's τ of the two worlds."""
        return tau(self.live, self.simulated)

    @property
    def opposite(self) -> int:
        """How many two scalers are the other way round in one of the worlds."""
        return sum(a * b < 0 for a, b in zip(self.live, self.simulated, strict=True))


def all_rankings(pairs: Iterable[Pair], known: Mapping[tuple[str, str, str, str], int] = ORDERS) -> Iterator[Ranking]:
    """Wherever there are several scalers. ``known``: the orders of twenty simulated runs; without them that of the one
    simulated run counts.
    """
    for (case, measure), some in of_each(pairs, "case", "measure"):
        if len(some) < 2:
            continue

        def signs(world: str, some: Sequence[Pair] = some) -> list[int]:
            return [compare(a[world], b[world], EQUAL) for a, b in combinations(some, 2)]

        twin = signs("simulated")
        keys = [(case, measure, str(a["scaler"]), str(b["scaler"])) for a, b in combinations(some, 2)]
        simulated = [known.get(key, sign) for key, sign in zip(keys, twin, strict=True)]
        live = [sign if known.get(key, 1) else 0 for key, sign in zip(keys, signs("live"), strict=True)]
        orders = {world: order(some, world) for world in ("live", "simulated")}
        yield Ranking(case, measure, orders, live, simulated, tau(signs("live"), twin))


def order(pairs: Iterable[Pair], world: str) -> str:
    """The scalers from the lowest to the highest value of the one run."""
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
        live, simulated = (list(chain.from_iterable(getattr(one, name) for one in ranked)) for name in WORLDS)
        yield {
            "paper": paper,
            "pairs": len(held),
            "within 10 %": len(held) - len(beyond),
            "explained": len(beyond) - unexplained,
            "not explained": unexplained,
            "rankings": len(known),
            "orders": sum(map(abs, simulated)),
            "opposite": sum(ranking.opposite for ranking in ranked),
            "Kendall's τ": tau(live, simulated),
            "τ, lowest": min(known, default=None),
            f"τ of at least {LEAST_TAU:g}": sum(each >= LEAST_TAU for each in known),
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
        for one in all_rankings(pairs):
            yield {
                "paper": paper,
                "case": one.case,
                "ranked by": one.measure,
                **one.orders,
                "orders": f"{sum(map(abs, one.simulated))} of {len(one.simulated)}",
                "opposite": one.opposite,
                "Kendall's τ": _tau_text(one.tau),
                "by single runs": _tau_text(one.of_single_runs),
            }


def _tau_text(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.2f}"


def _of_ties(rows: Sequence[Cells]) -> str:
    low, single = (
        sum(row[title] != UNKNOWN and float(row[title]) < LEAST_TAU for row in rows)
        for title in ("Kendall's τ", "by single runs")
    )
    return (
        f"Live and simulated: one run of each scaler; = within {EQUAL:.0%}. Orders: of so many two scalers one is "
        f"lower, by more than {EQUAL:.0%}, in at least {SURE:.0%} of twenty simulated runs with the same events "
        "(fidelity_orders.csv, made by `penstock paper fidelity orders`). A live run has to show these. Any other two "
        "are equal within what runs differ by, and count in neither world, as ties in both do in τ-b (Kendall 1945). "
        "An order that the live run reverses, or does not show, lowers τ. By single runs: the simulated side is one "
        f"run, and each of its differences is an order. {low} of {len(rows)} rankings are below {LEAST_TAU:g}; by "
        f"single runs {single}."
    ).replace("%", " %")


def _conclusion(_: Sequence[Any]) -> str:
    return (
        "A pair is a value of a live run and of the same run simulated: the same events, and the live run's service or "
        "call times. Shares close to 1 agree easily; percentiles, costs and losses are the test. All live values are "
        "those of the papers' READMEs. τ is over all orders of a paper."
    )


WORLDS: Final = ("live", "simulated")

TABLES: Final = (
    PaperTable("summary", "By paper", summary, note=_conclusion, source="committed"),
    PaperTable("rankings", "Rankings of the scalers", rankings, section="paper", note=_of_ties, source="committed"),
    PaperTable("reasons", "Differences beyond 10 %", reasons, source="committed"),
    PaperTable("pairs", "Every pair", pair_rows, section="paper", source="committed"),
    PaperTable("orders", "Which of two scalers is lower, by seeds", order_rows, source="run"),
)
