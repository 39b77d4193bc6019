"""Pipelines as JSON: which functions there are, where results go, what each function is given.

AMESoS, sections 3.1 and 4: the user describes the pipeline in a JSON file, with the arguments that each function
expects; they are matched with the keys of the request's DataFlow, in which every function's result is kept under its
name and what came in under ``input``. An example::

    {"pipeline": "matrix", "deadline_s": 3.5, "entry": ["split"], "functions": {
        "split": {"service_time_s": 0.325, "to": ["left", "right"]},
        "left":  {"service_time_s": 0.325, "to": ["merge"]},
        "right": {"service_time_s": 0.325, "to": ["merge"]},
        "merge": {"service_time_s": 0.325, "arguments": ["left", "right"]}}}

A function without ``arguments`` is given the results of those before it, in the order in which they are named.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.errors import PenstockError
from penstock.graph import Graph
from penstock.records import read_record
from penstock.systems import FunctionSpec, FunctionSystem

INPUT = "input"
"""The reserved key of a DataFlow: what came in."""


class FunctionNode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One function: its mean processing time (what laxity reckons with), its successors, its arguments."""

    service_time_s: float
    to: tuple[str, ...] = ()
    arguments: tuple[str, ...] | None = None


class PipelineFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pipeline as it is written down. ``entry``: the functions that what comes in goes to."""

    pipeline: str
    deadline_s: float
    entry: tuple[str, ...]
    functions: dict[str, FunctionNode]


class Pipeline:
    """A pipeline that can be run: its functions by number, in topological order, and what each is given.

    ``arguments[i]`` are numbers of functions, -1 for what came in. Raises PenstockError, which names the function.
    """

    def __init__(
        self,
        name: str,
        deadline_s: float,
        functions: Sequence[FunctionSpec],
        arguments: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        if not deadline_s > 0:
            raise PenstockError(f"pipeline {name!r}: deadline_s {deadline_s:g} has to be above 0")
        if not functions:
            raise PenstockError(f"pipeline {name!r} has no functions: name one at least")
        for function in functions:
            if function.name == INPUT or not re.fullmatch(r"[A-Za-z0-9-]*[A-Za-z0-9][A-Za-z0-9-]*", function.name):
                raise PenstockError(
                    f"pipeline {name!r}: function {function.name!r} has to be letters, digits and dashes, and not "
                    f"{INPUT!r}"
                )
            if not function.service_time_s >= 0:
                raise PenstockError(
                    f"function {function.name!r}: service_time_s {function.service_time_s:g} has to be at least 0"
                )
        self.name, self.deadline_s = name, deadline_s
        self.graph = Graph(functions)
        self.names = tuple(function.name for function in self.graph.functions)
        self._numbers = {INPUT: -1, **{each: i for i, each in enumerate(self.names)}}
        given = arguments or {}
        upstream: list[set[int]] = []  # all functions on some way to each
        for before in self.graph.before:
            upstream.append(set(before).union(*(upstream[j] for j in before)))
        self.arguments = tuple(
            self._arguments(i, upstream[i], given.get(function.name, function.after or (INPUT,)))
            for i, function in enumerate(self.graph.functions)
        )

    @classmethod
    def of_system(cls, name: str, system: FunctionSystem) -> "Pipeline":
        """The pipeline of a run."""
        return cls(name, system.deadline_s, system.functions)

    @classmethod
    def read(cls, file: Path) -> "Pipeline":
        """A pipeline from its JSON file."""
        try:
            return cls.parse(file.read_bytes())
        except OSError as error:
            raise PenstockError(f"{file}: cannot be read ({error.strerror})") from None
        except PenstockError as error:
            raise PenstockError(f"{file}: {error}") from None

    @classmethod
    def parse(cls, text: bytes) -> "Pipeline":
        """A pipeline from JSON."""
        try:
            written = read_record(msgspec.json.Decoder(PipelineFile), text)
        except msgspec.DecodeError as error:
            raise PenstockError(f"not a pipeline: {error}") from None
        there = ", ".join(written.functions)
        before: dict[str, list[str]] = {name: [] for name in written.functions}
        for name, node in written.functions.items():
            for successor in node.to:
                if successor not in before:
                    raise PenstockError(
                        f"function {name!r} sends to {successor!r}, which is not there; there are {there}"
                    )
                if (times := node.to.count(successor)) > 1:
                    raise PenstockError(f"function {name!r} sends to {successor!r} {times} times")
                before[successor].append(name)
        for name in written.entry:
            if name not in before:
                raise PenstockError(f"entry {name!r} is not there; there are {there}")
        specs = [
            FunctionSpec(name=name, service_time_s=node.service_time_s, after=tuple(before[name]))
            for name, node in written.functions.items()
        ]
        given = {name: node.arguments for name, node in written.functions.items() if node.arguments is not None}
        made = cls(written.pipeline, written.deadline_s, specs, given)
        for name in made.names:
            if not before[name] and name not in written.entry:
                raise PenstockError(
                    f"function {name!r} is never reached: nothing sends to it; send to it, or add it to entry"
                )
            if before[name] and name in written.entry:
                raise PenstockError(f"entry {name!r} waits for other functions; an entry can have none before it")
        return made

    def body(self, i: int, results: Mapping[int, bytes]) -> bytes:
        """What function ``i`` is given: the one argument as it is, or an object with each argument under its name."""
        wanted = self.arguments[i]
        if len(wanted) == 1:
            return results[wanted[0]]
        names = (INPUT if argument < 0 else self.names[argument] for argument in wanted)
        return msgspec.json.encode({name: as_json(results[j]) for name, j in zip(names, wanted, strict=True)})

    def _arguments(self, i: int, upstream: set[int], wanted: Sequence[str]) -> tuple[int, ...]:
        name = self.names[i]
        if not wanted or len(set(wanted)) < len(wanted):
            raise PenstockError(f"function {name!r}: arguments {list(wanted)} have to name one at least, each once")
        for argument in wanted:
            wants = f"function {name!r} wants the result of {argument!r}"
            if argument not in self._numbers:
                raise PenstockError(f"{wants}; there are {', '.join(self._numbers)}")
            if argument != INPUT and self._numbers[argument] not in upstream:
                raise PenstockError(f"{wants}, which does not come before it")
        for j in self.graph.before[i] if len(self.graph.before[i]) > 1 else ():
            if self.names[j] not in wanted:
                raise PenstockError(
                    f"function {name!r} merges {self.names[j]!r} with others but does not take its result: "
                    f"add it to the arguments {list(wanted)}"
                )
        return tuple(self._numbers[argument] for argument in wanted)


def as_json(result: bytes) -> Any:
    """A result as part of a JSON document: as it is if it is JSON, otherwise its text, or Base64 if it is none."""
    try:
        msgspec.json.decode(result)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            return result.decode()
        except UnicodeDecodeError:
            return {"base64": result}
    return msgspec.Raw(result)
