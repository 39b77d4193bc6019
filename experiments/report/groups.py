"""Runs that belong together: repetitions of one scaler under the same conditions, with one name and one colour."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from experiments.analysis.summary import Summary
from experiments.report.wording import interval, mean
from penstock.registry import emulated_scalers

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#7F7F7F")
"""Okabe and Ito's colours (distinguishable for the colour-blind) without black and yellow, and two more."""

EMULATED = " (emulated)"
"""What the label of a scaler ends in that we wrote again to compare with: it is not that system itself."""


@dataclass(frozen=True, slots=True)
class Group:
    """One line of a comparison. ``members`` are positions in the list of runs; charts show the first one bold."""

    label: str
    colour: str
    summaries: tuple[Summary, ...]
    members: tuple[int, ...]

    @property
    def first(self) -> Summary:
        """The repetition that charts show bold."""
        return self.summaries[0]

    def mean(self, measure: Callable[[Summary], float | None]) -> float | None:
        """Mean of a measure over the repetitions."""
        return mean([measure(summary) for summary in self.summaries])

    def interval(self, measure: Callable[[Summary], float | None]) -> tuple[float, float] | None:
        """95 % bootstrap interval of that mean; None for one repetition."""
        return interval([measure(summary) for summary in self.summaries])


def group_runs(summaries: Sequence[Summary]) -> list[Group]:
    """Groups in the order of their first run.

    Where one scaler ran under several conditions, its label says what differs: "linear (tick_phase_s 0.05)".
    """
    members: dict[tuple[str, str], list[int]] = {}
    for position, summary in enumerate(summaries):
        members.setdefault((summary.scaler, _key(summary)), []).append(position)
    kinds = [[summaries[position] for position in positions] for positions in members.values()]
    labels = [_label(kind[0], [other[0] for other in kinds if other[0].scaler == kind[0].scaler]) for kind in kinds]
    return [
        Group(label, PALETTE[index % len(PALETTE)], tuple(kind), tuple(positions))
        for index, (label, kind, positions) in enumerate(zip(labels, kinds, members.values(), strict=True))
    ]


def is_emulated(scaler: str) -> bool:
    """Whether this registered scaler is our emulation of another system's."""
    return scaler in emulated_scalers()


def _key(summary: Summary) -> str:
    return repr(sorted(summary.conditions.items()))


def _label(summary: Summary, same_scaler: Sequence[Summary]) -> str:
    name = summary.scaler + (EMULATED if is_emulated(summary.scaler) else "")
    names = sorted({name for other in same_scaler for name in other.conditions})
    differing = [
        f"{name.removeprefix('scaler.parameters.')} {summary.conditions.get(name)}"
        for name in names
        if len({repr(other.conditions.get(name)) for other in same_scaler}) > 1
    ]
    return f"{name} ({', '.join(differing)})" if differing else name
