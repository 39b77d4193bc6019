"""docs/your-own-scaler.md keeps what it says: its code is the examples', its commands run, its scalers behave."""

import contextlib
import dataclasses
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from controller.command import describe
from controller.journal import read_ticks
from controller.scalers.shared.single_fleet import SingleFleetScaler
from experiments.catalogue import find_experiment
from experiments.compare import ComparisonDirectory
from experiments.experiment import Options, run_spec
from penstock.command import build
from penstock.contracts import Decision, FleetObservation, ReplicaCounts, StreamObservation
from penstock.errors import EXIT_INVALID, PenstockError
from penstock.parameters import parse_settings
from penstock.registry import find_scaler, make_scaler, parse_scaler
from penstock.rundir import RunDirectory
from report.analysis.measurement import summary_of
from report.analysis.run_data import RunData
from report.explain import explain

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "your-own-scaler.md").read_text()
EXAMPLE = ROOT / "docs" / "examples" / "steady_pace.py"
OWN = f"{EXAMPLE}:SteadyPace"
GROUPING = EXAMPLE.with_name("even_load.py")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    return [line for block in blocks("console") for line in block.splitlines()]


def is_live(command: str) -> bool:
    """Whether it needs services: a run without a world."""
    return command.startswith("penstock run") and "--world" not in command


def run(command: str, runs: Path) -> Result:
    """One line of the page as its reader types it, in the root of the repository."""
    program, *arguments = shlex.split(command)
    assert program == "penstock"
    return CliRunner().invoke(build(), arguments, env={"PENSTOCK_RUNS": str(runs), "COLUMNS": "120"})


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """What the page's commands in virtual time said, in their order, and the folder of their runs."""
    runs, said = tmp_path_factory.mktemp("runs"), dict[str, str]()
    with contextlib.chdir(ROOT):
        for command in commands():
            if command.startswith("penstock") and not is_live(command):
                if "<run>" in command:
                    path = run_of(runs, "steady-pace").path
                done = run(command.replace("runs/<run>", str(path)) if "<run>" in command else command, runs)
                assert done.exit_code == 0, (done.output, done.exception)
                said[command] = done.output
        yield runs, said


def run_of(runs: Path, scaler: str) -> RunDirectory:
    (found,) = runs.glob(f"*-{scaler}")
    return RunDirectory.open(found)


def comparisons(runs: Path) -> list[ComparisonDirectory]:
    return [ComparisonDirectory(file.parent) for file in runs.glob("*/compare.json")]


def seen(time_s: float, arrived: int | None, backlog: int | None = 0) -> FleetObservation:
    return FleetObservation(
        time_s=time_s,
        fleet="f",
        replicas=ReplicaCounts(joined=2),
        arrived=arrived,
        backlog=backlog,
        service_rate_per_s=20.0,
        unknown={"arrived": "the monitor is away"} if arrived is None else {},
    )


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_code_on_the_page_is_the_code_of_the_example() -> None:
    assert len(blocks("python")) == 4
    for block in blocks("python"):
        assert block in EXAMPLE.read_text() + GROUPING.read_text()


def test_it_is_one_page_and_its_links_lead_somewhere() -> None:
    assert len(PAGE.splitlines()) <= 135
    links = re.findall(r"\]\(([^)]+)\)", PAGE)
    assert len(links) >= 3
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []


def test_every_command_in_virtual_time_does_what_the_page_says(played: tuple[Path, dict[str, str]]) -> None:
    listed, compared, explained, shadowed, grouped = played[1].values()
    assert "catch_up_s=5.0 s" in listed
    for scaler in ("steady-pace", "linear"):
        assert re.search(rf"^{scaler}\s+\d+\.\d\s%.*\sVALID\s*$", compared, re.MULTILINE)
    assert "steady-pace: acting" in explained
    assert "steady-pace on payments" in explained
    assert "backlog: " in explained
    assert re.search(r"^linear\s+\d+\.\d\s%", shadowed, re.MULTILINE)
    assert re.search(r"^even-load\s+\d+\.\d\s%.*\sVALID\s*$", grouped, re.MULTILINE)


def test_groups_matter_where_partitions_differ(played: tuple[Path, dict[str, str]]) -> None:
    """On the experiment with skew the example serves more events in time than ranges, with fewer replicas."""
    (skewed,) = [each for each in comparisons(played[0]) if "-skewed-" in each.path.name]
    even, linear = (summary_of(RunData(each)) for each in skewed.runs())
    assert even.slo_share > linear.slo_share  # type: ignore[operator]
    assert even.replica_minutes < linear.replica_minutes
    decisions = [tick.decisions["even-load"] for tick in read_ticks(skewed.runs()[0]) if tick.decisions]
    assert {"up", "down", "reassign", "none"} <= {decision.action for decision in decisions}
    assert len(decisions) == pytest.approx(110 / 2, abs=1), "it decides every two seconds"


def test_the_examples_own_test_passes() -> None:
    (command,) = (command for command in commands() if not command.startswith("penstock"))
    program, *arguments = shlex.split(command)
    done = subprocess.run(
        [sys.executable, "-m", program, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_the_comparison_lost_nothing_and_all_decisions_were_the_scalers_own(
    played: tuple[Path, dict[str, str]],
) -> None:
    (comparison,) = [
        each for each in comparisons(played[0]) if len(each.runs()) == 2 and "-skewed-" not in each.path.name
    ]
    own, other = comparison.runs()
    assert "steady-pace" in comparison.report_file.read_text()
    assert own.schedule_file.read_bytes() == other.schedule_file.read_bytes()
    assert (own.spec().scaler.name, summary_of(RunData(own)).verdict) == ("steady-pace", "VALID")
    ticks = list(read_ticks(own))
    assert len(ticks) >= 60
    assert not any(tick.errors for tick in ticks)
    needed = [tick.decisions["steady-pace"].why["payments"].get("needed") for tick in ticks]
    assert needed[0] is None, "the first reading is no rate yet"
    assert set(needed[1:]) <= {1, 2, 3, 4, 5}


def test_a_shadow_from_a_file_decides_beside_the_acting_one(played: tuple[Path, dict[str, str]]) -> None:
    (shadowing,) = [each for each in comparisons(played[0]) if len(each.runs()) == 1]
    (shadowed,) = shadowing.runs()
    decided = {name for tick in read_ticks(shadowed) for name in tick.decisions}
    assert decided == {"linear", "steady-pace"}


def test_the_live_command_describes_a_run_of_the_same_scaler() -> None:
    (words,) = (shlex.split(command) for command in commands() if is_live(command))
    given = dict(zip(words[3::2], words[4::2], strict=True))
    options = Options(world="local", from_s=float(given["--from"]), seconds=float(given["--seconds"]))
    spec = run_spec(find_experiment(words[2]), str(ROOT / given["--scaler"]), options, run="a-run")
    assert (spec.world, spec.scaler.name, spec.duration_s) == ("local", "steady-pace", 110.0)
    assert spec.scaler.parameters["service_rate_per_s"] == 200.0
    # The controller is another process, with a working directory of its own.
    assert Path(spec.scaler.file.rpartition(":")[0]).is_absolute()
    assert make_scaler(spec.scaler).period_s == 1.0


def test_an_entry_point_makes_it_one_of_the_scalers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site, runs = tmp_path / "site", tmp_path / "runs"
    command = "penstock run binpack-workload-1 --scaler steady-pace --world sim --seconds 10"
    with pytest.raises(PenstockError, match="unknown scaler 'steady-pace'"):
        raise run(command, runs).exception or AssertionError("it is there before it was installed")
    (entry_point,) = blocks("toml")
    assert '[project.entry-points."penstock.scalers"]' in entry_point
    (line,) = re.findall(r'^steady-pace = "(.+)"$', entry_point, re.MULTILINE)
    info = site / "steady_pace-1.dist-info"  # what installing the package leaves behind
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: steady-pace\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[penstock.scalers]\nsteady-pace = {line}\n")
    shutil.copy(EXAMPLE, site / EXAMPLE.name)
    monkeypatch.syspath_prepend(site)
    listed = json.loads(run("penstock scalers --json", runs).output)
    assert "steady-pace" in {each["name"] for each in listed}
    done = run(command, runs)
    assert done.exit_code == 0, (done.output, done.exception)
    assert run_of(runs, "steady-pace").spec().scaler.file == ""


# --- the scaler ------------------------------------------------------------------------------------------------------


def test_it_is_described_like_the_others() -> None:
    spec = parse_scaler(OWN, parse_settings(["steady-pace.rho=0.7"]))
    described = describe(spec.name, find_scaler(spec))
    assert described["fleet"] == "any"
    parameters = {each["name"]: each for each in described["parameters"]}
    assert parameters["catch_up_s"] == {"name": "catch_up_s", "default": 5.0, "unit": "s"}
    assert parameters["service_rate_per_s"]["unit"] == "1/s"
    assert make_scaler(spec).parameters.rho == 0.7


def test_its_arithmetic_is_explained_with_units() -> None:
    scaler = make_scaler(parse_scaler(OWN))
    _, state = scaler.decide(seen(0, 0), scaler.start(1))
    decision, _ = scaler.decide(seen(1, 100, backlog=50), state)
    text = explain("steady-pace", decision)
    assert "steady-pace on f: scale up to 7 replicas" in text
    assert "load: 110/s" in text
    assert "needed lately: 7" in text
    assert "_" not in text


@pytest.mark.parametrize(("arrived", "backlog", "told"), [(None, 3, "the monitor is away"), (9, None, "backlog")])
def test_it_holds_on_what_is_unknown(arrived: int | None, backlog: int | None, told: str) -> None:
    scaler = make_scaler(parse_scaler(OWN))
    _, state = scaler.decide(seen(0, 0), scaler.start(1))
    decision, _ = scaler.decide(seen(1, arrived, backlog), state)
    assert (decision.action, decision.targets) == ("hold", {})
    assert told in str(decision.why["f"]["reason"])


def test_a_restart_from_what_was_written_changes_no_decision() -> None:
    def decisions(*, restarted: bool) -> list[Decision]:
        scaler: Any = make_scaler(parse_scaler(OWN))
        state, taken = scaler.start(1), []
        for second in range(40):
            if restarted:
                scaler = make_scaler(parse_scaler(OWN))
                state = msgspec.json.decode(msgspec.json.encode(state), type=scaler.State)
            decision, state = scaler.decide(seen(second, second * 37, 80 if second == 9 else 0), state)
            taken.append(decision)
        return taken

    assert decisions(restarted=True) == decisions(restarted=False)
    assert {decision.action for decision in decisions(restarted=False)} == {"up", "hold"}


# --- what a stranger gets wrong --------------------------------------------------------------------------------------

BROKEN = {
    "a syntax error": ("class SteadyPace(", "class SteadyPace((", r"steady_pace\.py:\d+: SyntaxError while importing"),
    "an error at import": ("TOP = 1", "TOP = 1 / 0", r"steady_pace\.py:1: ZeroDivisionError while importing it: div"),
    "no such class": ("class SteadyPace(", "class Steadypace(", r"no scaler class 'SteadyPace' .*; it has Steadypace"),
    "no name": ("    name: ClassVar[str] =", "    called: ClassVar[str] =", r"has no `name`"),
    "no paper": ("    paper: ClassVar[str] =", "    of: ClassVar[str] =", r"has no `paper` \(a text"),
    "no parameters": ("Scaler[SteadyPaceParameters,", "Scaler[int,", r"has no `Parameters` \(a frozen dataclass\)"),
    "no fleets": ("class SteadyPaceState", "SingleFleetScaler.fleets = None\n\n\nclass SteadyPaceState", "no `fleets`"),
    "no state": ("SteadyPaceState]", "int]", r"has no `State` \(a msgspec\.Struct"),
    "decide fails": ('part, "arrived"', 'part, "arived"', r"steady_pace\.py:\d+: .* decides on what is unknown: Attr"),
    "arithmetic fails": (
        "load = rate",
        "load = rat",
        r"steady_pace\.py:\d+: .* decides on reading 2 .*NameError: name",
    ),
    "a wrong answer": (
        "return resize(part, wanted, why), msgspec.structs.replace(state, needs=needs)",
        "return resize(part, wanted, why)",
        r"steady_pace\.py.* fails when it decides on reading 2",
    ),
    "a state of sets": ("return msgspec.structs.replace(state, arr", "return {1}  # (", "fails when it decides on wh"),
    "no first state": ("Window = Window()", "Window", r"steady_pace\.py: .* decides on .*TypeError: Missing required"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_mistake_is_told_in_one_line_before_anything_starts(what: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(SingleFleetScaler, "fleets", SingleFleetScaler.fleets)
    right, wrong, told = BROKEN[what]
    source = "TOP = 1\n" + EXAMPLE.read_text()
    assert right in source
    path = tmp_path / "steady_pace.py"
    path.write_text(source.replace(right, wrong))
    with pytest.raises(PenstockError, match=told) as caught:
        run_spec(find_experiment("binpack-workload-1"), f"{path}:SteadyPace", Options(world="local"), run="a-run")
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_setting_reaches_it(tmp_path: Path) -> None:
    command = f"penstock run binpack-workload-1 --scaler {OWN} --set steady-pace.rho=0.5 --world sim --seconds 10"
    assert run(command, tmp_path).exit_code == 0
    spec = run_of(tmp_path, "steady-pace").spec()
    assert make_scaler(spec.scaler).parameters.rho == 0.5
    refused = run(command.replace("rho=", "roh="), tmp_path).exception
    assert "unknown parameter 'steady-pace.roh' (did you mean steady-pace.rho" in str(refused)


def test_a_mistake_ends_the_command_with_one_line_and_exit_code_2(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def f(:\n")
    done = subprocess.run(
        [Path(sys.executable).parent / "penstock", "run", "binpack-workload-1", "--scaler", f"{path}:Mine"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == f"error: {path}:1: SyntaxError while importing it: invalid syntax\n"


def test_a_decide_that_raises_in_mid_run_holds_and_explain_tells_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(EXAMPLE.read_text().replace("load = rate +", "load = rate / (now_s < 4.5) +"))
    command = f"penstock run binpack-workload-1 --scaler {path}:SteadyPace --world sim --seconds 10"
    assert run(command, tmp_path).exit_code == EXIT_INVALID
    told = run(f"penstock explain {run_of(tmp_path, 'steady-pace').path} --at 5", tmp_path).output
    assert "steady-pace on payments: hold\n  reason: scaler failed: ZeroDivisionError: float division by zero\n" in told
    before = run(f"penstock explain {run_of(tmp_path, 'steady-pace').path} --at 3", tmp_path).output
    assert "load: " in before


def test_two_files_of_the_same_name_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    path = tmp_path / EXAMPLE.name
    text = EXAMPLE.read_text().replace("rho: OpenShare = 0.8", "rho: OpenShare = 0.5")
    path.write_text(text.replace("steady-p", "hasty-p"))
    own, other = make_scaler(parse_scaler(OWN)), make_scaler(parse_scaler(f"{path}:SteadyPace"))
    assert (own.name, own.parameters.rho, other.name, other.parameters.rho) == ("steady-pace", 0.8, "hasty-pace", 0.5)
    assert dataclasses.fields(own.Parameters) != dataclasses.fields(other.Parameters)
    assert issubclass(StreamObservation, own.fleets)
