"""Runs that belong together: repetitions of one scaler under the same conditions, with one name and one colour."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean

from penstock.measures import bootstrap_interval
from penstock.registry import emulated_scalers
from penstock.rundir import Verdict
from report.analysis.summary import RunSummary

PALETTE = tuple(f"var(--series-{number})" for number in range(1, 9))
"""Defined in the style sheet for light and for dark: after Okabe and Ito's colours (distinguishable for the
colour-blind) without black and yellow, and two more.
"""

EMULATED = " (emulated)"
"""End of the label of a scaler that emulates another system's."""
MOST_SETTINGS, LONGEST_VALUE = 2, 16
"""Settings that a label names, characters of the value of each."""
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
        """Mean of a measure over the repetitions; None where it is unknown in all. Exact but for its last
        digit: the mean of three shares of 0.99 is 0.99, and no miss.
        """
        known = self._known(measure)
        return float(mean(known)) if known else None

    def interval(self, measure: Callable[[RunSummary], float | None]) -> tuple[float, float] | None:
        """95 % bootstrap interval of that mean; None for one repetition."""
        known = self._known(measure)
        return bootstrap_interval(known) if len(known) > 1 else None

    def _known(self, measure: Callable[[RunSummary], float | None]) -> list[float]:
        return [value for value in map(measure, self.summaries) if value is not None]


def group_runs(summaries: Sequence[RunSummary], *, apart: bool = False) -> list[Group]:
    """Groups in the order of their first run.

    ``apart``: each run is a group, and repetitions are told apart by their time. Where one scaler
    ran under several conditions, its label says what differs: "linear (tick_phase_s 0.05)".
    """
    members: dict[tuple[str, str, int], list[int]] = {}
    for position, summary in enumerate(summaries):
        key = (summary.scaler, repr(sorted(summary.conditions.items())), position if apart else 0)
        members.setdefault(key, []).append(position)
    kinds = [[summaries[position] for position in positions] for positions in members.values()]
    labels = [_label(kind[0], [other[0] for other in kinds if other[0].scaler == kind[0].scaler]) for kind in kinds]
    alike = [label for label in labels if labels.count(label) > 1]
    labels = [
        f"{label} {kind[0].run.partition('-')[0]}" if label in alike else label
        for label, kind in zip(labels, kinds, strict=True)
    ]
    return [
        Group(label, PALETTE[index % len(PALETTE)], tuple(kind), tuple(positions))
        for index, (label, kind, positions) in enumerate(zip(labels, kinds, members.values(), strict=True))
    ]


def is_emulated(scaler: str) -> bool:
    """Whether this registered scaler is our emulation of another system's."""
    return scaler in emulated_scalers()


def _label(summary: RunSummary, same_scaler: Sequence[RunSummary]) -> str:
    label = summary.scaler + (EMULATED if is_emulated(summary.scaler) else "")
    names = sorted({name for other in same_scaler for name in other.conditions})
    differing = [name for name in names if len({repr(other.conditions.get(name)) for other in same_scaler}) > 1]
    shown = [_setting(name, summary.conditions.get(name)) for name in differing[:MOST_SETTINGS]]
    if len(differing) > MOST_SETTINGS:
        shown.append(f"{len(differing) - MOST_SETTINGS} more")
    return f"{label} ({', '.join(shown)})" if shown else label


def _setting(name: str, value: object) -> str:
    """With its value, if that is short."""
    last = name.removeprefix("scaler.parameters.")
    return last if isinstance(value, list | dict) or len(str(value)) > LONGEST_VALUE else f"{last} {value}"
