"""Every command of README and docs is one that the program has; it is run here, or a reason says why not."""

import contextlib
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from penstock.command import build
from penstock.errors import EXIT_MISSED

ROOT = Path(__file__).resolve().parents[2]
OWN_TESTS = {
    "docs/your-own-scaler.md": "tests/docs/test_tutorial.py runs them",
    "docs/your-own-workload.md": "tests/docs/test_your_own.py runs them",
    "docs/your-own-fault.md": "tests/docs/test_your_own.py runs them",
    "docs/examples/own-consumers/README.md": "needs a Kafka: tests/controller/control plays such a group",
    "docs/examples/keda/README.md": "needs a Kafka and KEDA: tests/controller/keda plays both",
    "docs/openfaas.md": "needs the gateway or an OpenFaaS: tests/functions and tests/cluster play both",
    "docs/dataflow.md": "needs live services: tests/functions/dataflow",
    "docs/reliability.md": "minutes of faults: tests/bench/reliability_page.py makes the page",
}
"""Pages whose commands are run elsewhere, or cannot be run alone."""
NOT_RUN = {
    r"--world kubernetes|TARGET=cluster|make kind|infra/images|--target cluster": "needs a cluster: tests/cluster",
    r"^penstock (run|compare|chaos) (?!.*--world sim)": "needs live services: tests/experiments/test_driver_live.py",
    r"^penstock (up|down|status|env|load|calibrate|watch|setup)|^eval": "needs live services: tests/infra",
    r"^penstock (keda|control) ": "needs a Kafka: tests/controller/keda, tests/controller/control",
    r"^(make|sudo|git|pip|uv) ": "installs or builds: .ci/run does it from a fresh clone",
    r"^penstock paper newsvendor ": "minutes of simulation: tests/experiments/newsvendor plays tiny searches",
    r"^python docs/examples/": "minutes of simulation: it made the picture that the page shows",
}
"""Commands that no test runs, with the reason."""
OTHER_BLOCKS = {"csv", "yaml", "python", "toml", "console", "text", "go", "json"}


def pages() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    wanted = ("README.md", "docs/", "experiments/advise/", "experiments/replay/", "infra/kubernetes/README.md")
    return [name for name in listed.splitlines() if name.startswith(wanted) and (ROOT / name).exists()]


def blocks(name: str) -> Iterator[tuple[str, str]]:
    """(language, text) of the code blocks of a page."""
    yield from re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / name).read_text(), re.MULTILINE | re.DOTALL)


def commands(name: str) -> Iterator[str]:
    """Commands of a page, one a line, without their remarks."""
    for language, text in blocks(name):
        if language in ("", "console"):
            for line in text.replace("\\\n", " ").splitlines():
                command = re.split(r"\s{2,}#|\s#\s", line)[0].strip()
                if re.match(r"(penstock |make|pip|sudo|git|uv|eval|infra/images|python docs/)", command):
                    yield command
        elif language == "yaml":  # the steps of a job
            yield from re.findall(r"^ *- run: (.+)$", text, re.MULTILINE)


COMMANDS = [(name, command) for name in pages() for command in commands(name)]
PENSTOCK = sorted({command for _, command in COMMANDS if command.startswith("penstock ")})


def reason(name: str, command: str) -> str | None:
    return OWN_TESTS.get(name) or next((why for form, why in NOT_RUN.items() if re.search(form, command)), None)


RUN = sorted({command for name, command in COMMANDS if reason(name, command) is None})


@pytest.mark.parametrize("command", PENSTOCK)
def test_every_command_of_a_page_exists_with_its_options(command: str) -> None:
    each: Any = get_command(build())
    words = [word for word in shlex.split(command) if word != "…"][1:]
    context, name = typer.Context(each, info_name="penstock"), "penstock"
    while getattr(each, "commands", None) and words:
        name = words.pop(0)
        assert name in each.commands, f"no command {name}"
        each = each.commands[name]
        context = typer.Context(each, info_name=name, parent=context)
    known = {option for parameter in each.params for option in (*parameter.opts, *parameter.secondary_opts)}
    own = words[: words.index("--")] if "--" in words else words
    unknown = [word for word in own if word.startswith("--") and word.partition("=")[0] not in known | {"--help"}]
    assert not unknown


def test_the_commands_of_the_pages_are_found() -> None:
    assert len(PENSTOCK) >= 45
    assert len(RUN) >= 18
    assert all(command.startswith("penstock ") for command in RUN), RUN


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder with the files that the pages name."""
    rates = "".join(f"{100 + 40 * (second % 30 > 20)}\n" for second in range(60))
    (tmp_path / "load.csv").write_text("rate_per_s\n" + rates)
    (tmp_path / "orders.csv").write_text("orders\n" + "6000\n" * 3)
    (tmp_path / "events.csv").write_text("ts\n" + "".join(f"{number / 50}\n" for number in range(3000)))
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    with contextlib.chdir(tmp_path):
        yield tmp_path


@pytest.mark.long
@pytest.mark.parametrize("command", RUN)
def test_every_command_without_a_service_runs(command: str, folder: Path) -> None:
    def invoke(words: list[str]) -> Any:
        return CliRunner().invoke(build(), words, env={"PENSTOCK_RUNS": str(folder / "runs"), "COLUMNS": "120"})

    if "<" in command:
        first = "run binpack-workload-1 --scaler newsvendor --world sim --seconds 60"
        assert invoke(shlex.split(first)).exit_code == 0
    own = f"{ROOT / 'docs' / 'examples' / 'steady_pace.py'}:SteadyPace"
    command = re.sub(r"path\.py:Class|\./my_scaler\.py:MyScaler", own, command).replace("TRACE.csv", "load.csv")
    for run in sorted((folder / "runs").glob("*-newsvendor")):
        command = re.sub(r"runs/<\w+>|RUN\b", str(run), command)
    command = re.sub(r"--at \d+", "--at 30", command)
    if command.startswith("penstock advise") and "--scalers" not in command:
        command += " --scalers rps"  # the choice among all is a matter of tests/experiments/advise
    done = invoke([*shlex.split(command)[1:], *(["--seeds", "1"] if "advise" in command or "paper" in command else [])])
    assert done.exit_code in ((0, EXIT_MISSED) if "--fail-under" in command else (0,)), done.output


def test_the_job_of_the_ci_page_can_fail() -> None:
    (job,) = (text for language, text in blocks("docs/in-ci.md") if language == "yaml")
    steps = [step["run"] for step in yaml.safe_load(job)["jobs"]["autoscaler"]["steps"] if "run" in step]
    assert [step for step in steps if step.startswith("penstock ") and "--fail-under" in step]


def test_blocks_of_other_languages_are_well_formed() -> None:
    for name in pages():
        for language, text in blocks(name):
            assert language in OTHER_BLOCKS | {""}, f"{name}: {language}"
            if language == "yaml":
                assert list(yaml.safe_load_all(text))
            elif language == "toml":
                assert tomllib.loads(text)
