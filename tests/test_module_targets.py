"""Modules that product files start by name (``python -m``) exist, and obey the layers of the import contracts."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
IMPORTLINTER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
PACKAGES = IMPORTLINTER["root_packages"]
LAYERS = next(contract["layers"] for contract in IMPORTLINTER["contracts"] if contract["type"] == "layers")
LEVEL = {
    package.strip(): len(LAYERS) - index for index, layer in enumerate(LAYERS) for package in re.split(r"[|:]", layer)
}
"""Level of each package, the kernel's is 1."""

REPLICA_PROGRAMS = ("controller/fleets/", "consumers")
"""Actuators start the replicas of their fleets, whose program is a setting; these are the defaults."""
SUFFIXES = {".py", ".sh", ".yaml", ".yml", ""}
TARGET = re.compile(
    r"""(?<![\w-])-m['"]?                    # -m, or "-m" as an element of a list
        (?:\s*,\s*|\s+|\s*\n\s*-\s+)         # the next word, element, or item of a YAML list
        (?:f?['"])?(?P<module>[a-z_]\w*(?:\.\w+)*)(?![\w.]*[{…])""",
    re.VERBOSE,
)


def targets_in(text: str) -> list[str]:
    """Product modules that a text starts with ``-m``."""
    return [found["module"] for found in TARGET.finditer(text) if found["module"].partition(".")[0] in PACKAGES]


def files() -> list[Path]:
    """Product files that may start a module: Python, shell, manifests, Dockerfiles, and the Makefile."""
    found = [
        file
        for package in PACKAGES
        for file in (ROOT / package).rglob("*")
        if file.is_file() and file.suffix in SUFFIXES and "__pycache__" not in file.parts
    ]
    return [ROOT / "Makefile", *sorted(found)]


def exists(module: str) -> bool:
    """Whether ``python -m module`` finds something to run."""
    path = ROOT / Path(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("run `python -m consumers.app --run DIR`", ["consumers.app"]),
        ('[sys.executable, "-m", "consumers.worker"]', ["consumers.worker"]),
        ('*("-m", f"functions.{name}")', []),
        ("command: [python, -m, consumers.app_pod]", ["consumers.app_pod"]),
        ("  - -m\n  - functions.pod\n", ["functions.pod"]),
        ("python -m venv .venv; git commit -m functions-are-faster", []),
    ],
)  # fmt: skip
def test_targets_are_found_however_they_are_written(text: str, modules: list[str]) -> None:
    assert [module for module in targets_in(text) if exists(module)] == modules


def test_every_target_exists() -> None:
    missing = [
        f"{file.relative_to(ROOT)}: {module}"
        for file in files()
        for module in targets_in(file.read_text(errors="replace"))
        if not exists(module)
    ]
    assert not missing, "\n".join(missing)


def test_a_package_starts_modules_of_its_own_or_of_a_lower_layer() -> None:
    upwards = []
    for file in files():
        package = file.relative_to(ROOT).parts[0]
        for module in targets_in(file.read_text(errors="replace")):
            other = module.partition(".")[0]
            name = str(file.relative_to(ROOT))
            if name.startswith(REPLICA_PROGRAMS[0]) and other == REPLICA_PROGRAMS[1]:
                continue
            if package in LEVEL and other != package and LEVEL.get(other, 0) >= LEVEL[package]:
                upwards.append(f"{name} starts {module}")
    assert not upwards, "\n".join(upwards)
