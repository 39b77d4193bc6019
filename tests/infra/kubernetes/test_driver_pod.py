"""A command that is typed here and played in the driver's pod. The pod is this machine: only `kubectl exec` is faked,
by a script that does here what it is asked to do there.
"""

import io
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.kubernetes.driver_pod import DriverPod
from penstock.errors import PenstockError

KUBECTL = """#!/bin/sh
shift 2
case "$1" in
exec)
    while [ "$1" != -- ]; do shift; done; shift
    if [ "$1" = tail ] && [ -e {here}/cut-off ]; then
        rm {here}/cut-off; head -c 5 {here}/runs/.sessions/*/output; exit 1
    fi
    exec "$@" ;;
get)
    case "$2" in
    pods) cat {here}/pods.json ;;
    deployment/driver) cat {here}/deployment ;;
    esac ;;
esac
"""
PENSTOCK = """#!/bin/sh
trap 'echo interrupted; exit 130' INT
echo "penstock $*"
mkdir -p {here}/runs/run-2 && echo new >{here}/runs/run-2/run.json
while [ ! -e {here}/go ]; do sleep 0.05; done
echo end
exit 3
"""
READY_POD = {
    "metadata": {"name": "driver-1"},
    "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
}


class Scene:
    """A pod that is ready, with the runs of earlier commands in it."""

    def __init__(self, here: Path) -> None:
        self.here = here
        self.copied = here / "copied"
        self.told: list[str] = []
        for name, script in (("kubectl", KUBECTL), ("penstock", PENSTOCK)):
            (here / name).write_text(script.format(here=here))
            (here / name).chmod(0o755)
        (here / "runs" / "run-1").mkdir(parents=True)
        (here / "deployment").write_text("deployment.apps/driver\n")
        self.pods(READY_POD)

    def pods(self, *pods: object) -> None:
        (self.here / "pods.json").write_text(json.dumps({"items": pods}))

    def driver(self) -> DriverPod:
        return DriverPod(self.told.append, str(self.here / "runs"))

    def run(self, out: io.BytesIO, *arguments: str) -> int:
        return self.driver().run(arguments, self.copied, out)

    def pid(self) -> int:
        (file,) = (self.here / "runs" / ".sessions").glob("*/pid")
        return int(file.read_text())

    def end_command(self) -> None:
        (self.here / "go").touch()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Scene(tmp_path)


class Screen(io.BytesIO):
    """Does something once when it is written to."""

    def __init__(self, once: Callable[[], None]) -> None:
        super().__init__()
        self._todo = [once]

    def write(self, chunk: "bytes | bytearray | memoryview", /) -> int:  # type: ignore[override]
        written = super().write(chunk)
        if self._todo:
            self._todo.pop()()
        return written


def test_it_is_shown_as_it_comes_and_its_runs_are_copied(scene: Scene) -> None:
    screen = Screen(scene.end_command)  # so it would never end if nothing were shown before
    assert scene.run(screen, "run", "it's", "--set", "a b=$HOME") == 3
    assert screen.getvalue() == b"penstock run it's --set a b=$HOME\nend\n"
    assert [path.name for path in scene.copied.iterdir()] == ["run-2"], "what was there before is not copied again"
    assert (scene.copied / "run-2" / "run.json").read_text() == "new\n"
    assert not list((scene.here / "runs" / ".sessions").iterdir())
    assert scene.told == [f"copied from the driver's pod: {scene.copied / 'run-2'}"]


def test_the_report_is_named_where_it_is_here(scene: Scene) -> None:
    report = scene.here / "runs" / "run-2" / "report.html"

    def reported() -> None:
        report.write_text("<html>")
        scene.end_command()

    scene.run(Screen(reported), "run")
    assert scene.told == [f"copied from the driver's pod: {scene.copied / 'run-2' / 'report.html'}"]


def test_ctrl_c_ends_it_there_and_keeps_what_it_has(scene: Scene) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    screen = Screen(interrupt)
    assert scene.run(screen) == 130
    assert screen.getvalue().endswith(b"interrupted\n")
    assert (scene.copied / "run-2").is_dir()
    assert scene.told[0].startswith("interrupted")


def test_a_connection_that_breaks_is_made_again_where_it_was(scene: Scene) -> None:
    (scene.here / "cut-off").touch()
    screen = Screen(scene.end_command)
    assert scene.run(screen, "run") == 3
    assert screen.getvalue() == b"penstock run\nend\n"
    assert not (scene.here / "cut-off").exists()


def test_one_at_a_time(scene: Scene) -> None:
    def another() -> None:
        with pytest.raises(PenstockError, match="another run is active on this cluster"):
            scene.run(io.BytesIO())
        scene.end_command()

    assert scene.run(Screen(another)) == 3
    assert scene.run(io.BytesIO()) == 3, "the lock goes with the command"


def test_a_command_that_is_killed_there_is_said_to_be(scene: Scene) -> None:
    screen = Screen(lambda: os.kill(scene.pid(), signal.SIGKILL))
    assert scene.run(screen) == 128 + signal.SIGKILL


def test_a_pod_that_is_not_ready(scene: Scene) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    status = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}
    scene.pods({"metadata": {"name": "driver-1"}, "status": status})
    with pytest.raises(PenstockError, match=r"driver's pod is not ready: .*ImagePullBackOff"):
        scene.run(io.BytesIO())


def test_there_is_one_only_where_an_overlay_has_it_and_never_in_the_pod_itself(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scene.driver().exists()
    monkeypatch.setenv("PENSTOCK_DRIVER", "here")
    assert not scene.driver().exists()
    monkeypatch.delenv("PENSTOCK_DRIVER")
    (scene.here / "deployment").write_text("")
    assert not scene.driver().exists()
