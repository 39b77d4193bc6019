"""The graph of a pipeline of functions: order, and remaining time from each function (AMESoS, section 3.2).

The simulator and the pipeline manager share these estimates.
"""

from collections.abc import Sequence

from penstock.errors import PenstockError
from penstock.systems import FunctionSpec


def topological(functions: Sequence[FunctionSpec]) -> list[FunctionSpec]:
    """Functions with every one after those it waits for, otherwise in the given order. PenstockError for a name that is
    there twice or not at all, and for a cycle.
    """
    names = [function.name for function in functions]
    for function in functions:
        if names.count(function.name) > 1:
            raise PenstockError(f"function {function.name!r} is there {names.count(function.name)} times; name it once")
        if missing := [before for before in function.after if before not in names]:
            raise PenstockError(f"function {function.name!r} waits for {missing[0]!r}; there are {', '.join(names)}")
    left = {function.name: function for function in functions}
    ordered: list[FunctionSpec] = []
    while left:
        ready = next((name for name, function in left.items() if left.keys().isdisjoint(function.after)), None)
        if ready is None:
            raise PenstockError(f"functions {', '.join(left)} wait for each other; break the cycle")
        ordered.append(left.pop(ready))
    return ordered


class Graph:
    """The pipeline's shape, functions as indices in topological order.

    ``remaining_s``: mean processing time that is left for a request after each function, along the longest way to a
    sink; ``total_s``: the same at the beginning (totalEstimate of AMESoS). The cumulative progress after function i is
    1 − remaining_s[i] / total_s (reading A4).
    """

    def __init__(self, functions: Sequence[FunctionSpec]) -> None:
        self.functions = topological(functions)
        index = {function.name: i for i, function in enumerate(self.functions)}
        self.before = [sorted({index[name] for name in function.after}) for function in self.functions]
        self.after: list[list[int]] = [[] for _ in self.functions]
        for i, before in enumerate(self.before):
            for j in before:
                self.after[j].append(i)
        self.sources = [i for i, before in enumerate(self.before) if not before]
        self.sinks = [i for i, after in enumerate(self.after) if not after]
        self.remaining_s = [0.0] * len(self.functions)
        for i in reversed(range(len(self.functions))):
            self.remaining_s[i] = max((self._from_s(j) for j in self.after[i]), default=0.0)
        self.total_s = max((self._from_s(i) for i in self.sources), default=0.0)

    def _from_s(self, i: int) -> float:
        return self.functions[i].service_time_s + self.remaining_s[i]
