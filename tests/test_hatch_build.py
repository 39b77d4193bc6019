"""The wheel: its packages lie in ``penstock``, and hide none of a user's."""

import csv
import io
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from controller.scalers import rps
from hatch_build import KERNEL, Names, rename
from infra.local.orphans import stop_marked
from penstock.checkout_names import FOLDERS
from tests.infra.commanding import any_ports
from tests.test_layout import PACKAGES

ROOT = Path(__file__).resolve().parents[1]
MODULES = ("controller", "controller.loop", "functions", "functions.pod", "producers", "producers.send", "penstock")
KINDS = {
    "stream": ("binpack-workload-1", "--scaler=hpa", "--from=420", "--seconds=10"),
    "queue": ("multiqueue", "--scaler=multiqueue-damped", "--seconds=10", "--no-spark"),
    "network": ("pubsub-mintime", "--scaler=min-time", "--speed=20", "--seconds=240", "--no-spark"),
    "function": ("amesos-document", "--scaler=amesos", "--set=workload.scale=0.05", "--seconds=10", "--no-spark"),
}
"""A run of each kind of fleet; one of them with Spark."""
SCALER = """
from ours import TARGET
from penstock.controller.scalers.rps import Rps

class Mine(Rps):
    name = "mine"
    assert TARGET == 95
"""


class Installed(NamedTuple):
    """A command of the wheel, its folder, and where packages are installed."""

    folder: Path
    site: Path
    run: Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def names() -> Names:
    return Names(FOLDERS, MODULES)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("from controller.loop import Loop\n", "from penstock.controller.loop import Loop\n"),
        ("from controller import loop\n", "from penstock.controller import loop\n"),
        ("    from functions import (\n        pod)\n", "    from penstock.functions import (\n        pod)\n"),
        ("import functions\n", "from penstock import functions\n"),
        ("import functions; import x\n", "from penstock import functions; import x\n"),
        ("import functions_framework\n", "import functions_framework\n"),
        ("raise X from functions.error\n", "raise X from functions.error\n"),
        ('["-m", "producers.send"]\n', '["-m", "penstock.producers.send"]\n'),
        ('"controller.loop:Loop.run"\n', '"penstock.controller.loop:Loop.run"\n'),
        ('f"functions.pod {n}"  # functions.pod\n', 'f"penstock.functions.pod {n}"  # penstock.functions.pod\n'),
        ('"""A.\n\nSee ``functions.pod``.\n"""\n', '"""A.\n\nSee ``penstock.functions.pod``.\n"""\n'),
        ('"functions.json", "logs/controller.loop", "penstock.controller.loop"\n',) * 2,
        ("functions.pod(controller.loop)\n",) * 2,
    ],
)  # fmt: skip
def test_names_of_modules_are_renamed_and_no_others(names: Names, short: str, long: str) -> None:
    body = "if x:\n" if short.startswith(" ") else ""
    assert names.source(body + short) == body + long


@pytest.mark.parametrize("line", ["import controller.loop\n", "import functions as f\n", "import functions, x\n"])
def test_an_import_that_binds_another_name_is_refused(names: Names, line: str) -> None:
    with pytest.raises(ValueError, match="line 1: write it as `from … import …`"):
        names.source(line)


def test_strings_of_files_about_images_stay(names: Names) -> None:
    source = 'from functions.pod import PORT\nCOMMAND = "python -m functions.pod"\n'
    assert names.source(source, strings=False) == source.replace("from functions", "from penstock.functions")


def test_the_record_of_a_rewritten_wheel_is_that_of_its_files(tmp_path: Path) -> None:
    wheel = tmp_path / "a-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("functions/__init__.py", "")
        archive.writestr("functions/pod.py", "import functions\n")
        archive.writestr("functions/a, b.txt", "functions.pod\n")
        archive.writestr("a-1.dist-info/entry_points.txt", "[x]\ny = functions.pod:Z\n")
        archive.writestr("a-1.dist-info/RECORD", "functions/pod.py,sha256=0,1\n")
    rename(wheel, FOLDERS)
    with zipfile.ZipFile(wheel) as archive:
        record = {row[0]: row[1:] for row in csv.reader(io.TextIOWrapper(archive.open("a-1.dist-info/RECORD")))}
        assert sorted(record) == sorted(archive.namelist())
        assert record["penstock/functions/pod.py"][1] == str(len(archive.read("penstock/functions/pod.py")))
        assert archive.read("penstock/functions/pod.py") == b"from penstock import functions\n"
        assert archive.read("penstock/functions/a, b.txt") == b"functions.pod\n"
        assert archive.read("a-1.dist-info/entry_points.txt") == b"[x]\ny = penstock.functions.pod:Z\n"


def test_every_package_of_the_wheel_has_both_names() -> None:
    assert {KERNEL, *FOLDERS} == set(PACKAGES)


def test_a_checkout_has_the_names_of_the_wheel() -> None:
    assert import_module("penstock.controller.scalers.rps") is rps
    assert import_module("penstock.controller") is sys.modules["controller"]
    assert rps.__spec__ is not None and rps.__spec__.name == rps.__name__ == "controller.scalers.rps"
    with pytest.raises(ModuleNotFoundError, match=r"penstock\.controller\.nothing"):
        import_module("penstock.controller.nothing")
    command = (sys.executable, "-m", "penstock.controller.main", "--help")
    assert "Controller" in subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.title()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """A command of the wheel, beside a user's packages of the same names, which cannot be imported."""
    folder = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder))
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run((sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")), check=True)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # the packages that Penstock needs, without the checkout, which another .pth file adds
    (site / "needed.pth").write_text(sysconfig.get_path("purelib"))
    for name in FOLDERS:
        (site / name).mkdir()
        (site / name / "__init__.py").write_text("raise RuntimeError('a package of the user')\n")
    environment = {
        **os.environ,
        "PENSTOCK_STATE": str(folder / "state"),
        "PENSTOCK_RUNS": str(folder / "runs"),
        "PENSTOCK_JARS": os.environ.get("PENSTOCK_JARS", str(ROOT / ".penstock" / "jars")),
        **any_ports(),
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = (str(folder / "venv" / "bin" / "python"), *arguments)
        whole = {**environment, "PATH": os.environ["PATH"]}  # which differs from test to test
        return subprocess.run(command, cwd=folder, env=whole, capture_output=True, text=True, check=False)

    environment.pop("PYTHONPATH", None)
    yield Installed(folder, site, run)
    stop_marked(folder / "state", grace_s=30)


def found(text: str) -> Any:
    return msgspec.json.decode(text)


@pytest.mark.long
def test_every_module_of_the_wheel_can_be_imported(installed: Installed) -> None:
    script = """
import importlib, pkgutil, sys, penstock
for each in pkgutil.walk_packages(penstock.__path__, "penstock."):
    # Locust has to be the first to be imported; a handler is imported as `function`
    if "locust" not in each.name and ".template" not in each.name and not each.name.endswith("__main__"):
        importlib.import_module(each.name)
print(len([name for name in sys.modules if name.startswith("penstock.")]), penstock.__file__)
"""
    done = installed.run("-W", "ignore", "-c", script)
    assert done.returncode == 0, done.stderr
    modules, file = done.stdout.split()
    assert int(modules) > 400 and Path(file).is_relative_to(installed.site)


@pytest.mark.long
def test_a_simulated_run_and_its_report_with_a_scaler_that_uses_its_users_package(installed: Installed) -> None:
    (installed.site / "ours.py").write_text("TARGET = 95.0\n")
    (installed.folder / "mine.py").write_text(SCALER)
    command = ("-m", "penstock", "compare", "binpack-workload-1", "--scalers=mine.py:Mine,linear", "--seconds=20")
    done = installed.run(*command, "--world=sim", "--json")
    assert done.returncode == 0, done.stderr
    assert [each["scaler"] for each in found(done.stdout)["runs"]] == ["mine", "linear"]
    (page,) = (installed.folder / "runs").glob("*-compare/report.html")
    assert "mine" in page.read_text()


@pytest.mark.live
@pytest.mark.when_changed("hatch_build.py", "pyproject.toml", "penstock/checkout_names.py")
def test_live_runs_of_every_kind_of_fleet(installed: Installed) -> None:
    up = installed.run("-m", "penstock", "up")
    assert up.returncode == 0, up.stderr
    try:
        for options in KINDS.values():
            done = installed.run("-m", "penstock", "run", *options, "--world=local", "--json")
            assert done.returncode == 0, done.stderr
            (run,) = found(done.stdout)["runs"]
            counts = found((installed.folder / "runs" / run["run"] / "summary.json").read_text())["conservation"]
            assert counts["agree"] and counts["lost"] == 0 and counts["completed"] > 0
    finally:
        down = installed.run("-m", "penstock", "down")
    assert down.returncode == 0, down.stderr
