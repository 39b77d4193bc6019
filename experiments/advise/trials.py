"""The trials of one request: their run descriptions, and outcomes that are kept in a file, for ``--resume``."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from experiments.advise.settings import TICK_PHASE, Setting
from experiments.advise.trial import NO_LIMITS, Limits, Outcome, Trial
from experiments.advise.workers import CarryOut
from experiments.experiment import Experiment, Options, run_spec
from penstock.errors import PenstockError
from penstock.registry import parse_scaler
from penstock.runspec import RunSpec, ScalerSpec

PartName = Literal["excerpt", "first", "rest"]
"""``excerpt``: of a long first part."""
PARTS: Final[tuple[PartName, ...]] = ("first", "rest")
"""On which a setting is proven."""


class Wanted(NamedTuple):
    """One scaler with one setting on one part by one seed."""

    scaler: str
    setting: Setting
    part: PartName
    seed: int


LONG_S: Final = 900
"""On a part of more than so many seconds trials take long."""


class Arrivals(NamedTuple):
    """The arrivals of a part by one seed, in a file; they begin with those of the lead-in."""

    file: Path
    lead_in_s: int


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the trace: the experiment on it, its arrivals by seed, and its length without a lead-in, in seconds."""

    experiment: Experiment
    arrivals: Mapping[int, Arrivals]
    seconds: int

    @property
    def minutes(self) -> float:
        """Its length without a lead-in."""
        return self.seconds / 60

    @property
    def is_long(self) -> bool:
        """Few trials on it are affordable, and one seed meets as many bursts as several on a short part."""
        return self.seconds > LONG_S

    def trial(self, spec: RunSpec, limits: Limits = NO_LIMITS) -> Trial:
        """The run on the arrivals of its seed."""
        file, lead_in_s = self.arrivals[spec.seed]
        spec = msgspec.structs.replace(spec, duration_s=float(lead_in_s + self.seconds))
        return Trial(spec=spec, schedule=str(file), lead_in_s=float(lead_in_s), limits=limits)


class Trials:
    """Outcomes by what was wanted: of whole trials, and of those that were given up. ``told`` is called after each new
    one.
    """

    def __init__(
        self,
        parts: Mapping[PartName, Part],
        options: Mapping[str, Options],
        file: Path,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        self.parts = parts
        self.outcomes: dict[Wanted, Outcome] = {}
        self.given_up: dict[Wanted, Outcome] = {}
        self._options, self._file, self._told = options, file, told
        if file.is_file():
            # The last line may be half of one where the process was killed.
            for line in file.read_bytes().splitlines(keepends=True):
                if line.endswith(b"\n"):
                    key, outcome = msgspec.json.decode(line, type=tuple[tuple[str, list[Any], PartName, int], Outcome])
                    scaler, setting, part, seed = key
                    wanted = Wanted(scaler, tuple((name, value) for name, value in setting), part, seed)
                    self._of(outcome)[wanted] = outcome

    def _of(self, outcome: Outcome) -> dict[Wanted, Outcome]:
        return self.given_up if outcome.given_up else self.outcomes

    @property
    def number(self) -> int:
        """Of trials by now."""
        return len(self.outcomes.keys() | self.given_up.keys())

    def found(self, wanted: Wanted, limits: Limits = NO_LIMITS) -> Outcome | None:
        """What is known of a trial: with limits, that it was given up comes first, so that a request which continues
        decides as it did before.
        """
        if limits != NO_LIMITS and wanted in self.given_up:
            return self.given_up[wanted]
        return self.outcomes.get(wanted)

    def spec(self, wanted: Wanted) -> RunSpec:
        """The run of a trial. Its parameters follow from the first part alone, also on the rest. PenstockError for a
        setting that the scaler refuses.
        """
        acting = self.parameters(wanted.scaler, wanted.setting)
        options = self._with(wanted.scaler, wanted.setting, wanted.seed)
        spec = run_spec(self.parts[wanted.part].experiment, wanted.scaler, options, run=f"advise-{wanted.part}")
        return msgspec.structs.replace(spec, scaler=acting)

    def parameters(self, scaler: str, setting: Setting) -> ScalerSpec:
        """The scaler with all its parameters, as they follow from the setting and the first part."""
        options = self._with(scaler, setting, seed=1)
        return run_spec(self.parts["first"].experiment, scaler, options, run="advise-first").scaler

    def _with(self, scaler: str, setting: Setting, seed: int) -> Options:
        options, name = self._options[scaler], parse_scaler(scaler).name
        values = dict(setting)
        phase_s = values.pop(TICK_PHASE, options.tick_phase_s)
        settings = {name: {**options.settings.get(name, {}), **values}}
        return replace(options, seed=seed, tick_phase_s=phase_s, settings=settings)

    def trial(self, wanted: Wanted, limits: Limits = NO_LIMITS) -> Trial:
        """What a worker carries out."""
        return self.parts[wanted.part].trial(self.spec(wanted), limits)

    def measure(self, wanted: Iterable[Wanted], carry_out: CarryOut, limits: Limits = NO_LIMITS) -> None:
        """Carry out what was not tried yet; a setting that the scaler refuses has no outcome."""
        trials: dict[Wanted, Trial] = {}
        for each in dict.fromkeys(wanted):
            if self.found(each, limits) is None:
                try:
                    trials[each] = self.trial(each, limits)
                except PenstockError:
                    if not each.setting:
                        raise
        keys = list(trials)
        with self._file.open("ab") as file:

            def tell(number: int, outcome: Outcome) -> None:
                self._of(outcome)[keys[number]] = outcome
                file.write(msgspec.json.encode((keys[number], outcome)) + b"\n")
                file.flush()
                self._told()

            if trials:
                carry_out(list(trials.values()), tell)
