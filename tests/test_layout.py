"""The tree tells the architecture: test paths mirror module paths, packages are in every list that needs them."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
SUFFIXES = ("live", "faults", "theory", "properties", "vectors", "conformance", "experiments", "hostile")
"""Of one module several test files may speak: ``test_queue.py``, ``test_queue_theory.py``."""
SEVERAL_MODULES = {
    "bench": "benchmarks, one per claim",
    "cluster": "runs on a Kubernetes cluster, whatever takes part in them",
    "conformance": "suites that several worlds inherit",
    "docs": "documentation pages",
    "faults": "the control plane under faults by seed, whatever takes part in it",
    "support": "helpers",
}
"""Folders of tests whose subject is not one module."""
EXCEPTIONS = {
    "tests/controller/fleets/test_toy_kind.py": "adds a kind of fleet that is no module here",
    "tests/controller/scalers/test_every_scaler.py": "holds all scalers to one contract",
    "tests/controller/scalers/test_stream_scalers.py": "holds all scalers of streams to one contract",
    "tests/controller/scalers/test_workload_costs.py": "costs of several scalers on one workload",
    "tests/functions/test_faas_cli.py": "a program of others",
    "tests/functions/test_handlers.py": "handlers and template are no package",
    "tests/functions/test_template.py": "handlers and template are no package",
    "tests/infra/images/test_of_watchdog.py": "a program of an image",
    "tests/infra/local/test_setup.py": "setup.sh",
    "tests/infra/test_prometheus_rules.py": "alert rules in YAML",
    "tests/report/test_browser.py": "scripts and style sheet of the pages",
}
"""Test files without a module of their name, with the reason."""


def tracked(pattern: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(name) for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def mirrors(test: Path) -> bool:
    """Whether there is a module or package that the test file is named after."""
    folder, name = ROOT.joinpath(*test.parts[1:-1]), test.stem.removeprefix("test_")
    names = {name, *(name.removesuffix(f"_{suffix}") for suffix in SUFFIXES)}
    return any((folder / f"{each}.py").exists() or (folder / each / "__init__.py").exists() for each in names)


def test_each_test_file_lies_where_its_module_lies() -> None:
    files = [path for path in tracked("tests/*.py") if path.name.startswith("test_") and len(path.parts) > 2]
    elsewhere = {
        str(path)
        for path in files
        if path.parts[1] not in SEVERAL_MODULES and str(path) not in EXCEPTIONS and not mirrors(path)
    }
    assert not elsewhere


def test_each_exception_is_needed() -> None:
    assert all((ROOT / path).exists() and not mirrors(Path(path)) for path in EXCEPTIONS)


@pytest.mark.parametrize("file", [".dockerignore", "pyproject.toml"])
def test_each_package_is_listed_wherever_packages_are(file: str) -> None:
    text = (ROOT / file).read_text()
    if file == ".dockerignore":
        assert {package for package in PACKAGES if f"!{package}\n" not in text} == set()
        return
    tool = PROJECT["tool"]
    assert sorted(tool["ruff"]["lint"]["isort"]["known-first-party"]) == sorted(PACKAGES)
    assert sorted(tool["mypy"]["files"]) == sorted([*PACKAGES, "tests", "hatch_build.py"])
    assert sorted(tool["importlinter"]["root_packages"]) == sorted(PACKAGES)


def test_the_top_level_packages_are_those_of_the_project() -> None:
    folders = {path.parts[0] for path in tracked("*.py") if len(path.parts) > 1}
    assert folders - {"tests", "docs"} == set(PACKAGES)


def test_the_controller_has_at_most_sixteen_entries() -> None:
    entries = {path.parts[1] for path in tracked("controller/*") if len(path.parts) > 1}
    assert len(entries) <= 16, sorted(entries)


def test_helpers_of_scalers_are_apart_from_scalers() -> None:
    scalers = {path.stem for path in tracked("controller/scalers/*.py") if len(path.parts) == 3} - {"__init__"}
    registered = {
        re.split("[.:]", target)[2] for target in PROJECT["project"]["entry-points"]["penstock.scalers"].values()
    }
    assert scalers == registered
