"""Runs that belong together: repetitions of one scaler under the same conditions, with one name and one colour."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.measures import bootstrap_interval
from penstock.registry import emulated_scalers
from penstock.rundir import Verdict
from report.analysis.summary import RunSummary

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#7F7F7F")
"""Okabe and Ito's colours (distinguishable for the colour-blind) without black and yellow, and two more."""

EMULATED = " (emulated)"
"""End of the label of a scaler that emulates another system's."""
WORST_FIRST: tuple[Verdict, ...] = ("INVALID", "DEGRADED", "VALID")


@dataclass(frozen=True, slots=True)
class Group:
    """One line of a comparison. ``members`` are positions in the list of runs; charts show the first one bold."""

    label: str
    colour: str
    summaries: tuple[RunSummary, ...]
    members: tuple[int, ...]

    @property
    def first(self) -> RunSummary:
        """The repetition that charts show bold."""
        return self.summaries[0]

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of the repetitions."""
        return min((summary.verdict for summary in self.summaries), key=WORST_FIRST.index)

    def mean(self, measure: Callable[[RunSummary], float | None]) -> float | None:
        """Mean of a measure over the repetitions; None where it is unknown in all."""
        known = self._known(measure)
        return sum(known) / len(known) if known else None

    def interval(self, measure: Callable[[RunSummary], float | None]) -> tuple[float, float] | None:
        """95 % bootstrap interval of that mean; None for one repetition."""
        known = self._known(measure)
        return bootstrap_interval(known) if len(known) > 1 else None

    def _known(self, measure: Callable[[RunSummary], float | None]) -> list[float]:
        return [value for value in map(measure, self.summaries) if value is not None]


def group_runs(summaries: Sequence[RunSummary]) -> list[Group]:
    """Groups in the order of their first run.

    Where one scaler ran under several conditions, its label says what differs: "linear (tick_phase_s 0.05)".
    """
    members: dict[tuple[str, str], list[int]] = {}
    for position, summary in enumerate(summaries):
        key = (summary.scaler, repr(sorted(summary.conditions.items())))
        members.setdefault(key, []).append(position)
    kinds = [[summaries[position] for position in positions] for positions in members.values()]
    labels = [_label(kind[0], [other[0] for other in kinds if other[0].scaler == kind[0].scaler]) for kind in kinds]
    return [
        Group(label, PALETTE[index % len(PALETTE)], tuple(kind), tuple(positions))
        for index, (label, kind, positions) in enumerate(zip(labels, kinds, members.values(), strict=True))
    ]


def is_emulated(scaler: str) -> bool:
    """Whether this registered scaler is our emulation of another system's."""
    return scaler in emulated_scalers()


def _label(summary: RunSummary, same_scaler: Sequence[RunSummary]) -> str:
    name = summary.scaler + (EMULATED if is_emulated(summary.scaler) else "")
    names = sorted({name for other in same_scaler for name in other.conditions})
    differing = [
        f"{name.removeprefix('scaler.parameters.')} {summary.conditions.get(name)}"
        for name in names
        if len({repr(other.conditions.get(name)) for other in same_scaler}) > 1
    ]
    return f"{name} ({', '.join(differing)})" if differing else name
