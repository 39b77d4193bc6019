"""The core runs without the packages of its extras, and a missing one is told in one line."""

import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from penstock.extras import MODULES, remedy

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
BLOCKED = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {modules!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
from penstock.command import main
main()
"""


def penstock(
    *arguments: str, runs: Path, without: tuple[str, ...] = tuple(MODULES)
) -> subprocess.CompletedProcess[str]:
    """The command in a process in which no module of these extras can be imported."""
    modules = {module for extra in without for module in MODULES[extra]}
    return subprocess.run(
        [sys.executable, "-c", BLOCKED.format(modules=modules), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=runs,
        env={"PENSTOCK_RUNS": str(runs), "PENSTOCK_STATE": str(runs / "state"), "PATH": "/usr/bin:/bin"},
    )


distributions_of = cache(packages_distributions)


@pytest.mark.parametrize("extra", MODULES)
def test_the_modules_of_an_extra_are_those_of_its_packages(extra: str) -> None:
    normal = {re.split(r"[\[<>=~!]", line)[0].lower().replace("_", "-") for line in EXTRAS[extra]} - {"penstock"}
    distributions = distributions_of()
    found = {each.lower().replace("_", "-") for module in MODULES[extra] for each in distributions[module]}
    assert normal <= found
    assert found - normal <= {"pyzmq", "protobuf", "googleapis-common-protos", "grpc-google-iam-v1"}


def test_all_and_the_checkout_have_every_extra() -> None:
    (everything,) = EXTRAS["all"]
    assert everything == f"penstock[{','.join(sorted(MODULES))}]"
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    assert "penstock[all]" in groups["dev"]


def test_only_a_module_of_an_extra_has_a_remedy() -> None:
    assert (
        remedy("pika.exceptions") == "this needs pika.exceptions, which is not installed: pip install 'penstock[live]'"
    )
    assert remedy("pyspark") == "this needs pyspark, which is not installed: pip install 'penstock[spark]'"
    assert remedy("my_module") is None


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        ("run binpack-workload-1 --scaler hpa --seconds 30", "live"),
        ("run binpack-workload-1 --scaler hpa --world kubernetes --seconds 30", "live"),
        ("up", "live"),
        ("keda --kafka localhost:1", "live"),
        ("control --kafka localhost:1 --topic t --group g --scaler hpa -- true", "live"),
        ("load", "live"),
        ("calibrate functions amesos-document", "functions"),
    ],
)
def test_a_command_whose_extra_is_missing_says_how_to_install_it(arguments: str, extra: str, tmp_path: Path) -> None:
    done = penstock(*arguments.split(), runs=tmp_path)
    assert done.returncode == 2, done.stderr
    assert re.fullmatch(
        rf"error: this needs \w[\w.]*, which is not installed: pip install 'penstock\[{extra}\]'\n", done.stderr
    )


@pytest.mark.long
def test_the_core_simulates_advises_and_reports_without_any_extra(tmp_path: Path) -> None:
    (tmp_path / "load.csv").write_text("rate_per_s\n" + "\n".join(["100", "140"] * 30))
    for arguments in (
        "--help",
        "scalers",
        "demo",
        "run binpack-workload-1 --scaler binpack-tail --world sim --seconds 20",
        "compare multiqueue --scalers multiqueue-damped --world sim --seconds 10",
        "compare pubsub --scalers min-time --world sim",
        "compare amesos-document --scalers amesos --world sim --seconds 10",
        "bound binpack-workload-1 --tick-phase 0.71 --seconds 30",
        "replay load.csv --slo 500ms --scaler rps",
        "advise load.csv --slo 500ms --scalers rps --seeds 1",
        "runs list",
    ):
        done = penstock(*arguments.split(), runs=tmp_path)
        assert done.returncode == 0, (arguments, done.stderr)
    run = max(tmp_path.glob("*-binpack-tail"))
    written = run / "report.html"
    written.unlink(missing_ok=True)
    done = penstock("report", str(run), runs=tmp_path)
    assert done.returncode == 0, done.stderr
    assert written.is_file()


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        "compare binpack-workload-1 --scalers binpack-tail,newsvendor --from 420 --seconds 60",
        "compare multiqueue --scalers multiqueue-damped,single-queue --seconds 20",
    ],
)
def test_interpreted_and_compiled_simulators_give_the_same_figures(command: str, tmp_path: Path) -> None:
    found = []
    for without in ((), ("fast",)):
        runs = tmp_path / f"without-{len(without)}"
        runs.mkdir()
        done = penstock(*command.split(), "--world", "sim", "--json", runs=runs, without=without)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)["runs"]
        found.append([{name: value for name, value in each.items() if name != "run"} for each in answer])
    assert found[0] == found[1]
