"""Mutants of a module that its tests do not notice: ``python tests/bench/mutate.py MODULE.py [--only NAMES] TESTS…``.

Each mutant changes one operator, constant, condition or statement. It is compiled in memory and the tests run in a
forked process, so the tree is not touched. What survives is printed with its line; decision 20 explains the survivors.
"""

import argparse
import ast
import contextlib
import copy
import importlib
import importlib.abc
import importlib.util
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis
import pyarrow.compute
import pyarrow.parquet  # noqa: F401 - loaded once, before the forks
import pytest

ROOT = Path(__file__).resolve().parents[2]
CPU_LIMIT_S = 120
"""A mutant whose tests take longer does not end; on a busy machine that says nothing, so it is CPU time."""
STUCK_S = 1800
"""A mutant that waits for ever."""
SWAPS: dict[type[ast.AST], Any] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.Mult: ast.Div, ast.Div: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


def variants(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The node with one change each, and the change in words."""
    match node:
        case ast.Compare(ops=[first, *_]) if type(first) in SWAPS:
            yield "comparison", ast.Compare(node.left, [SWAPS[type(first)](), *node.ops[1:]], node.comparators)
        case ast.BinOp(op=operator) if type(operator) in SWAPS:
            yield "operator", ast.BinOp(node.left, SWAPS[type(operator)](), node.right)
        case ast.BoolOp(op=operator):
            yield "and/or", ast.BoolOp(SWAPS[type(operator)](), node.values)
            for value in node.values:
                yield f"only {ast.unparse(value)}", value
        case ast.UnaryOp(op=ast.Not() | ast.Invert() | ast.USub()):
            yield "operator dropped", node.operand
        case ast.Constant(value=bool(value)):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield "constant + 1", ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield "constant doubled", ast.Constant(2 * value + (value == 0))
        case ast.IfExp():
            yield "condition always", node.body
            yield "condition never", node.orelse
        case ast.AugAssign(op=operator) if type(operator) in SWAPS:
            yield "operator", ast.AugAssign(node.target, SWAPS[type(operator)](), node.value)
        case ast.If():
            yield "condition always", ast.If(ast.Constant(True), node.body, node.orelse)
            yield "condition never", ast.If(ast.Constant(False), node.body, node.orelse)
        case ast.Expr(value=ast.Call()):
            yield "call dropped", ast.Pass()
        case ast.comprehension(ifs=[_, *_]):
            yield "filter dropped", ast.comprehension(node.target, node.iter, [], node.is_async)


def mutants(source: str, only: Sequence[str]) -> Iterator[tuple[str, ast.Module]]:
    """Every mutant of a module, ``only`` of these functions and classes, with its description."""
    tree = ast.parse(source)
    chosen = [each for each in tree.body if not only or getattr(each, "name", "") in only]
    for top in chosen:
        for number, node in enumerate(ast.walk(top)):
            for words, changed in variants(node):
                mutant = copy.deepcopy(tree)
                twin = list(ast.walk(mutant.body[tree.body.index(top)]))[number]
                replacement = ast.copy_location(changed, twin) if hasattr(twin, "lineno") else changed
                _replace(mutant, twin, replacement)
                line = getattr(node, "lineno", 0)
                text = ast.unparse(node).splitlines()[0][:90]
                yield f"{line}: {words}: {text}", ast.fix_missing_locations(mutant)


def _replace(tree: ast.AST, old: ast.AST, new: ast.AST) -> None:
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, field, new)
                return
            if isinstance(value, list) and any(each is old for each in value):
                value[:] = [new if each is old else each for each in value]
                return


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports ``name`` from a mutant."""

    def __init__(self, name: str, file: Path, tree: ast.Module) -> None:
        self._name, self._file, self._tree = name, file, tree

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._file, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._tree, str(self._file), "exec"), module.__dict__)


def passes(mutated: Mutated | None, tests: Sequence[str]) -> bool:
    """Whether all tests pass with this mutant; None: without one."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:  # a mutant ends without cleaning up
        return _passes(mutated, tests, folder)


def _passes(mutated: Mutated | None, tests: Sequence[str], folder: str) -> bool:
    child = os.fork()
    if child == 0:
        tempfile.tempdir = folder
        code = 1
        with contextlib.suppress(BaseException):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            signal.setitimer(signal.ITIMER_PROF, CPU_LIMIT_S)
            signal.alarm(STUCK_S)
            if mutated is not None:
                sys.meta_path.insert(0, mutated)
            plugins = ["-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
            chosen = "not live and not cluster and not smoke and not system and not long"
            code = int(pytest.main(["-x", "-q", *plugins, "-m", chosen, *tests]))
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def load_libraries() -> None:
    """Have the libraries that the tests import ready in each fork. Modules of this repository are forgotten: they
    would hold the module as it is.
    """
    importlib.import_module("tests.conftest")
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name != "__main__" and file and Path(file).is_relative_to(ROOT) and "site-packages" not in file:
            del sys.modules[name]


def main() -> int:
    """Exit code 0 without survivors, 1 with some, 2 if the tests fail without a mutant."""
    parser = argparse.ArgumentParser(description="Mutants of a module that its tests do not notice.")
    parser.add_argument("module", type=Path)
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--only", default="", help="comma-separated functions and classes")
    given = parser.parse_args()
    hypothesis.settings.register_profile("mutants", derandomize=True, database=None)
    hypothesis.settings.load_profile("mutants")
    file = given.module.absolute()
    name = ".".join(given.module.with_suffix("").parts)
    load_libraries()
    if not passes(None, given.tests):
        print("the tests fail without a mutant")
        return 2
    survivors = count = 0
    for words, tree in mutants(file.read_text(), list(filter(None, given.only.split(",")))):
        count += 1
        if passes(Mutated(name, file, tree), given.tests):
            survivors += 1
            print(f"{given.module}:{words}", flush=True)
    print(f"{given.module}: {count} mutants, {survivors} survive")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
