"""Settings of a scaler: those it starts from (``Parameters.candidates``), and those around a good one."""

import math
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import islice, product, zip_longest
from typing import Any, Final, get_args, get_type_hints

import numpy as np

from controller.scalers.shared.parameters import Candidates, in_range
from penstock.registry import ScalerClass, emulated_system

TICK_PHASE: Final = "--tick-phase"
"""Of the controller, in seconds: searched like a parameter of the scaler."""
TICK_PHASES_S: Final = (0.1, 0.35, 0.6, 0.85)
FIRST: Final = 40
"""Settings of a scaler that are tried before any is refined."""
AROUND: Final = 24
"""Settings that one round of refinement tries."""

Setting = tuple[tuple[str, Any], ...]
"""Parameters with their values, by name; empty: as published."""


@dataclass(frozen=True, slots=True)
class Space:
    """The settings of one scaler: the values from which each parameter starts, in order. ``whole``: parameters that are
    whole numbers; ``steps``: of which others are multiples. ``in_range``: whether a parameter may have a number.
    """

    scaler: str
    values: Mapping[str, tuple[Any, ...]]
    whole: Collection[str]
    steps: Mapping[str, float] = field(default_factory=dict)
    in_range: Callable[[str, float], bool] = lambda _, __: True

    def first(self, seed: int) -> list[Setting]:
        """The published setting, and combinations of all values: every one, or as many as are tried, drawn by seed."""
        names = [name for name in self.values if name != TICK_PHASE]
        sizes = [len(self.values[name]) for name in names]
        combinations = math.prod(sizes)
        drawn: Iterable[Sequence[Any]] = product(*(self.values[name] for name in names))
        if combinations > FIRST:
            rng = self._rng(seed)
            drawn = [
                [values[rng.integers(len(values))] for values in (self.values[name] for name in names)]
                for _ in range(FIRST)
            ]
        return list(dict.fromkeys([(), *(_setting(zip(names, each, strict=True)) for each in drawn)]))

    def around(
        self,
        good: Sequence[Setting],
        tried: Collection[Setting],
        alike: Callable[[Setting, Setting], bool] = lambda _, __: False,
    ) -> list[Setting]:
        """New settings that differ from a good one in one parameter: the nearest values that were tried, the middles
        between them, and every other choice of what is no number. In turn from each good one; of each in an order that
        is drawn, so that no parameter comes first in every round. Where two settings that were tried did the same
        (``alike``), nothing between or behind them is tried.
        """
        known = {name: {*self.values[name], *_tried_values(name, tried)} for name in self.values}
        rng = self._rng(len(tried))
        of_each = []
        for base in good:
            if base:
                moves = [
                    _setting({**dict(base), name: value}.items())
                    for name, values in known.items()
                    for value in self._near(name, base, values, tried, alike)
                ]
                of_each.append([moves[number] for number in rng.permutation(len(moves))])
        found = (each for turn in zip_longest(*of_each) for each in turn if each is not None)
        return list(islice((each for each in dict.fromkeys(found) if each not in tried), AROUND))

    def joint(self, good: Sequence[Setting], tried: Collection[Setting]) -> list[Setting]:
        """New settings between two good ones, which differ in several parameters at once: each value is that of either,
        or of numbers the middle. Drawn.
        """
        bases = [dict(each) for each in good if each]
        if len(bases) < 2:
            return []
        rng = self._rng(len(tried))
        found: dict[Setting, None] = {}
        for _ in range(2 * AROUND):
            one, other = (bases[number] for number in rng.choice(len(bases), 2, replace=False))
            mixed = {
                name: self._mixed(
                    name, one.get(name, other.get(name)), other.get(name, one.get(name)), int(rng.integers(3))
                )
                for name in one | other
            }
            if (child := _setting(mixed.items())) not in tried:
                found[child] = None
        return list(islice(found, AROUND))

    def _mixed(self, name: str, one: Any, other: Any, choice: int) -> Any:
        if choice == 2 and not isinstance(one, str | bool):
            return self._rounded(name, _middle(one, other)) if one != other else one
        return other if choice == 1 else one

    def _rng(self, *seed: int) -> np.random.Generator:
        return np.random.default_rng([*seed, zlib.crc32(self.scaler.encode())])

    def _near(
        self,
        name: str,
        base: Setting,
        known: Collection[Any],
        tried: Collection[Setting],
        alike: Callable[[Setting, Setting], bool],
    ) -> list[Any]:
        value = dict(base).get(name)
        if value is None or isinstance(value, str | bool):
            return [each for each in known if each != value]
        below = max((each for each in known if each < value), default=None)
        above = min((each for each in known if each > value), default=None)
        ends = []
        for each in (below, above):
            if each is not None:
                neighbour = _setting({**dict(base), name: each}.items())
                if neighbour not in tried or not alike(base, neighbour):
                    ends.append((value, each))
        middles = [_middle(a, b) for a, b in ends]
        # Beyond the last value that was tried, as far again as to the one before.
        outside = [2 * value - each for _, each in ends] if None in (below, above) else []
        nearby = [*(each for _, each in ends), *middles, *(each for each in outside if each > 0)]
        rounded = (self._rounded(name, each) for each in nearby)
        return [each for each in rounded if each != value and self.in_range(name, each)]

    def _rounded(self, name: str, value: float) -> float | int:
        if name in self.whole:
            return round(value)
        return _on_step(float(f"{value:.3g}"), self.steps.get(name, 0.0))


def space_of(scaler: str, kind: ScalerClass, facts: Mapping[str, Any], *, tick_phase: bool) -> Space:
    """The space of a scaler in a fleet of which ``facts`` are known. The ticks of systems that we emulate are nobody's
    to choose.
    """
    candidates: Mapping[str, Candidates] = getattr(kind.Parameters, "candidates", {})
    hints = get_type_hints(kind.Parameters)
    parameters = {each.name for each in fields(kind.Parameters)}
    whole = {name for name in parameters if int in (hints[name], *get_args(hints[name])) and hints[name] is not bool}
    values: dict[str, tuple[Any, ...]] = {}
    for name, each in candidates.items():
        if name not in parameters or not all(facts.get(fact) for fact in each.of):
            continue
        factor = math.prod(facts[fact] for fact in each.of)
        scaled = [value * factor for value in each.values] if each.of else each.values
        if name in whole:
            scaled = [max(1, round(value)) for value in scaled]
        elif each.of:
            scaled = [_on_step(float(f"{value:.3g}"), each.step) for value in scaled]
        values[name] = tuple(dict.fromkeys(scaled))
    if tick_phase and not emulated_system(kind):
        values[TICK_PHASE] = TICK_PHASES_S
    steps = {name: candidates[name].step for name in values if name in candidates and candidates[name].step}
    return Space(scaler, values, whole, steps, partial(in_range, kind.Parameters))


def _middle(one: float, other: float) -> float:
    """Geometric where both are positive."""
    return math.sqrt(one * other) if one > 0 and other > 0 else (one + other) / 2


def _on_step(value: float, step: float) -> float:
    """The nearest multiple, as its decimal number: 0.3 and not 3 · 0.1."""
    return round(round(value / step) * step, 9) if step else value


def _setting(values: Iterable[tuple[str, Any]]) -> Setting:
    return tuple(sorted(values))


def _tried_values(name: str, tried: Iterable[Setting]) -> set[Any]:
    return {value for setting in tried for key, value in setting if key == name}
