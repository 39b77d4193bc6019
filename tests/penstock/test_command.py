"""What a user meets who mistypes a command: one clear line on standard error and exit code 2."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from penstock.command import GROUPS, build, main


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """This process keeps its own handler of SIGTERM; lines are not folded."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setenv("COLUMNS", "100")
    return monkeypatch


def exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rum"], "error: no such command 'rum'. Did you mean 'run'?; see penstock --help\n"),
        (["run", "--from"], "error: option '--from' requires an argument; see penstock --help\n"),
        (
            ["run", "--tick-phas", "1"],
            "error: no such option: --tick-phas (Possible options: --tick-phase); see penstock run --help\n",
        ),
        (["run"], "error: missing argument 'experiment'; see penstock run --help\n"),
        (["run", "x"], "error: missing option '--scaler'; see penstock run --help\n"),
        (["run", "x", "y", "--scaler", "z"], "error: got unexpected extra argument(s) (y); see penstock run --help\n"),
        (
            ["calibrate", "wrker"],
            "error: no such command 'wrker'. Did you mean 'worker'?; see penstock calibrate --help\n",
        ),
        (["formula", "mmsk", "--serverz", "1"], "see penstock formula mmsk --help\n"),
        (["run", "x", "--scaler", "linear", "--max-replicas", "few"], "'--max-replicas': expected a whole number"),
        (["run", "x", "--scaler", "linear", "--fail-under", "most"], "'--fail-under': expected a number"),
        (["formula", "mmsk", "--arrival-rate", "x"], "'--arrival-rate': expected a number"),
        (["compare", "x", "--repeat", "often"], "'--repeat': expected a whole number"),
        (["run", "no-such-[experiment]", "--scaler", "linear"], "error: unknown experiment 'no-such-[experiment]'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    ended: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert exit_code(ended, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err and err.startswith("error: ") and err.count("\n") == 1


def test_a_value_of_the_wrong_kind_names_its_option(
    ended: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(ended, "run", "x", "--scaler", "linear", "--seed", "one") == 2
    err = capsys.readouterr().err
    assert err == "error: invalid value for '--seed': expected a whole number; see penstock run --help\n"


@pytest.mark.parametrize("arguments", [[], ["formula"]])
def test_without_a_command_there_is_help_and_no_error(
    ended: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert exit_code(ended, *arguments) == 2
    out, err = capsys.readouterr()
    assert "Usage: penstock" in out + err and "error" not in err


def test_what_was_asked_for_ends_with_exit_code_0(
    ended: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(ended, "--version") == 0
    assert capsys.readouterr().out.startswith("penstock ")


@pytest.mark.parametrize("command", ["run", "compare"])
def test_help_tells_every_default(ended: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert exit_code(ended, command, "--help") == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "[default: (to the end)]" in shown
    assert shown.count("[default: (the experiment's") == 8


def commands(group: Any) -> Iterator[tuple[list[str], Any]]:
    for name, each in group.commands.items():
        yield [name], each
        if hasattr(each, "commands"):
            yield from (([name, *path], inner) for path, inner in commands(each))


ALL = {" ".join(path): each for path, each in commands(get_command(build()))}


def test_the_help_groups_all_commands_and_has_a_line_for_each(
    ended: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended.setenv("COLUMNS", "80")
    assert exit_code(ended, "-h") == 0
    shown = capsys.readouterr().out.splitlines()
    panels = [line.strip("╭─╮ ") for line in shown if line.startswith("╭")]
    assert panels == ["Options", *GROUPS], "a command without a group would be among others"
    lines = [line.strip("│ ") for line in shown]
    for name in (name for name in ALL if " " not in name):
        (said,) = (line for line in lines if line.split(" ")[0] == name)
        assert said.endswith("."), said


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_command_has_a_short_help_option_and_an_example(
    ended: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert exit_code(ended, *name.split(), "-h") == 0
    assert "Usage: penstock" in capsys.readouterr().out
    assert (ALL[name].epilog or "").startswith("Example: ")


@pytest.mark.parametrize("name", ["run", "compare", "demo", "replay", "advise", "runs", "runs list"])
def test_the_help_tells_where_runs_are_kept(
    ended: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    exit_code(ended, *name.split(), "--help")
    assert "PENSTOCK_RUNS (default: runs)" in " ".join(capsys.readouterr().out.split())


def test_python_runs_the_package_and_loads_nothing_that_only_some_commands_use() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "penstock", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("penstock ")
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "penstock.command" in loaded
    assert not loaded & {"numpy", "pyarrow", "pandas", "jinja2", "kafka", "flask", "httpx", "numba", "kubernetes"}


def test_a_flag_has_no_type_in_the_help(ended: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["run"], ["calibrate", "worker"]):
        assert exit_code(ended, *arguments, "--help") == 0
        told = capsys.readouterr().out
        assert "--help" in told and "bool" not in told
