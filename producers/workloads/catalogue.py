"""Every workload by its name, and the text that names one: ``constant:rate_per_s=200,duration_s=30``."""

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy.typing as npt

from penstock.errors import PenstockError
from penstock.parameters import make_parameters, unknown
from producers.workloads.azure import AmesosWorkload, Azure2019, Azure2021
from producers.workloads.contract import Floats, Workload, positive, rates_per_s
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
    )
}


def parse_workload(text: str) -> Workload:
    """A workload from ``name`` or ``name:parameter=value[,parameter=value…]``.

    Raises PenstockError for an unknown name or parameter, an impossible value, or an invalid trace.
    """
    name, _, rest = text.partition(":")
    name = name.strip()
    if name not in WORKLOADS:
        remedy = f"there are {', '.join(WORKLOADS)} (see `penstock workloads`); a file is trace:path=FILE.csv"
        raise unknown("workload", name, WORKLOADS, remedy)
    kind = WORKLOADS[name]
    given = _parameters(text, rest)
    missing = [parameter for parameter in _required(kind) if parameter not in given]
    # For a misspelt parameter, make_parameters has the better message.
    if missing and given.keys() <= {field.name for field in parameter_fields(kind)}:
        raise PenstockError(f"{text}: {name} needs {', '.join(missing)}, as in {example(kind)}")
    made: Workload = make_parameters(name, kind, given)
    return made


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
        """Factor of the rates."""
        return self.mean_per_s / float(rates_per_s(self.shape).mean())

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


def example(kind: type[Workload]) -> str:
    """Text that names a workload of this kind, with its required parameters filled in."""
    samples = {
        "path": "load.csv" if kind is Trace else f"{kind.name}.csv",
        "rate_per_s": "200", "mean_per_s": "200", "amplitude_per_s": "100", "period_s": "120",
        "on_per_s": "300", "on_s": "20", "off_s": "40", "before_per_s": "100", "after_per_s": "300", "at_s": "60",
    }  # fmt: skip
    given = ",".join(f"{name}={samples.get(name, '100')}" for name in _required(kind))
    return f"{kind.name}:{given}".removesuffix(":")


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
