"""Every workload by its name, and the text that names one: ``constant:rate_per_s=200,duration_s=30``.

``load.csv`` is short for ``trace:path=load.csv``. ``path.py:Class`` is a class of one's own, with parameters as others.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from penstock.errors import PenstockError
from penstock.own_class import failure, is_own, load_own, page_of
from penstock.parameters import make_parameters, unknown
from producers.workloads.azure import AmesosWorkload, Azure2019, Azure2021
from producers.workloads.contract import Floats, Workload, positive, rates_per_s
from producers.workloads.drawn import Drawn
from producers.workloads.published import BinpackWorkload1, NycTaxi
from producers.workloads.synthetic import Constant, OnOff, Poisson, Sinusoid, Step
from producers.workloads.trace import Trace

WORKLOADS: dict[str, type[Workload]] = {
    kind.name: kind
    for kind in (
        BinpackWorkload1,
        NycTaxi,
        AmesosWorkload,
        Trace,
        Azure2019,
        Azure2021,
        Constant,
        Poisson,
        Sinusoid,
        OnOff,
        Step,
        Drawn,
    )
}


def parse_workload(text: str) -> Workload:
    """A workload from ``name`` or ``name:parameter=value[,parameter=value…]``, ``FILE.csv`` or ``path.py:Class[:…]``.

    Raises PenstockError for an unknown name or parameter, an impossible value, an invalid trace, or a class that fails.
    """
    name, given = split_workload(text)
    kind = _kind(name)
    missing = [parameter for parameter in _required(kind) if parameter not in given]
    # For a misspelt parameter, make_parameters has the better message.
    if missing and given.keys() <= {field.name for field in parameter_fields(kind)}:
        raise PenstockError(f"{text}: {name} needs {', '.join(missing)}, as in {example(kind, name)}")
    try:
        made: Workload = make_parameters(kind.name, kind, given)
        if is_own(name):
            _check(made)
    except PenstockError:
        raise
    except Exception as error:
        raise failure(name, f"workload {kind.name}", "gives its rates", error) from error
    return made


def split_workload(text: str) -> tuple[str, dict[str, str]]:
    """The name and the parameters of a workload, as given. PenstockError for what is no parameter."""
    if text.endswith(".csv") and "=" not in text:
        return Trace.name, {"path": text}
    file, own, rest = text.rpartition(".py:") if is_own(text) else ("", "", text)
    name, _, rest = rest.partition(":")
    return f"{file}{own}{name.strip()}", _parameters(text, rest)


def join_workload(name: str, parameters: Mapping[str, str]) -> str:
    """The text of a workload's name and parameters."""
    given = ",".join(f"{parameter}={value}" for parameter, value in parameters.items())
    return f"{name}:{given}" if given else name


def _kind(name: str) -> type[Workload]:
    if not is_own(name):
        if name not in WORKLOADS:
            remedy = (
                f"there are {', '.join(WORKLOADS)} (see `penstock workloads`); a file of rates is FILE.csv, "
                "a class of your own path.py:Class"
            )
            raise unknown("workload", name, WORKLOADS, remedy)
        return WORKLOADS[name]
    kind: type[Workload] = load_own(name, "workload", "rate_at")
    if Workload not in kind.__mro__ or not dataclasses.is_dataclass(kind):
        raise PenstockError(
            f"{name}: workload {kind.name} is not a dataclass derived from Workload; {page_of('workload')}"
        )
    return kind


def _check(workload: Workload) -> None:
    """Raise ValueError for a length or a rate that a schedule cannot use."""
    positive(duration_s=workload.duration_s)
    rates = rates_per_s(workload)
    expected = f"expected {int(np.ceil(workload.duration_s))} rates of at least 0, an array like the times"
    if not (isinstance(rates, np.ndarray) and rates.shape == (int(np.ceil(workload.duration_s)),)):
        raise ValueError(f"rate_at answers {rates!r:.60}; {expected}")
    if (wrong := np.flatnonzero(~(np.isfinite(rates) & (rates >= 0)))).size:
        raise ValueError(f"rate_at answers {rates[wrong[0]]:g} in second {wrong[0]}; {expected}")


@dataclass(frozen=True)
class AtRate(Workload):
    """The workload named ``of``, scaled to a mean of ``mean_per_s`` events per second."""

    of: str
    mean_per_s: float

    name: ClassVar[str] = "at-rate"
    summary: ClassVar[str] = "another workload's shape at a mean rate of one's own"

    def __post_init__(self) -> None:
        positive(mean_per_s=self.mean_per_s)

    @cached_property
    def shape(self) -> Workload:
        """The other workload."""
        return parse_workload(self.of)

    @property
    def duration_s(self) -> float:
        """The duration of the other workload."""
        return self.shape.duration_s

    @cached_property
    def factor(self) -> float:
        """Factor of the rates. Raises PenstockError for a workload without an event."""
        mean_per_s = float(rates_per_s(self.shape).mean())
        if not mean_per_s:
            raise PenstockError(
                f"{self.of}: all its rates are 0; leave the rate out or name another workload: "
                f"nothing can be scaled to {self.mean_per_s:g} events/s"
            )
        return self.mean_per_s / mean_per_s

    def rate_at(self, time_s: npt.ArrayLike) -> Floats:
        """The other workload's rate, scaled."""
        return self.factor * self.shape.rate_at(time_s)


def describe(workload: Workload) -> dict[str, Any]:
    """The workload's name and parameters, as they are stored with a schedule."""
    fields = parameter_fields(type(workload))
    return {"name": workload.name, **{field.name: getattr(workload, field.name) for field in fields}}


def parameter_fields(kind: type[Workload]) -> tuple["dataclasses.Field[Any]", ...]:
    """The parameters of a kind of workload, in order."""
    return dataclasses.fields(kind)  # type: ignore[arg-type]


def parameter_texts(kind: type[Workload]) -> list[str]:
    """Each parameter of a kind of workload as ``name=default``, or ``name`` where one has to be given."""
    return [
        field.name if field.default is dataclasses.MISSING else f"{field.name}={field.default!r}"
        for field in parameter_fields(kind)
    ]


def example(kind: type[Workload], name: str = "") -> str:
    """Text that names a workload of this kind, by ``name`` or its own, with its required parameters filled in."""
    samples = {
        "path": "load.csv" if kind is Trace else f"{kind.name}.csv",
        "rate_per_s": "200", "mean_per_s": "200", "amplitude_per_s": "100", "period_s": "120",
        "on_per_s": "300", "on_s": "20", "off_s": "40", "before_per_s": "100", "after_per_s": "300", "at_s": "60",
        "number": "7",
    }  # fmt: skip
    return join_workload(name or kind.name, {each: samples.get(each, "100") for each in _required(kind)})


def _required(kind: type[Workload]) -> list[str]:
    return [field.name for field in parameter_fields(kind) if field.default is dataclasses.MISSING]


def _parameters(text: str, rest: str) -> dict[str, str]:
    given: dict[str, str] = {}
    for part in rest.split(",") if rest else []:
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value):
            raise PenstockError(f"{text}: {part!r} is not parameter=value; write name:parameter=value,parameter=value")
        if key in given:
            raise PenstockError(f"{text}: {key} is given twice; leave one out")
        given[key] = value
    return given
