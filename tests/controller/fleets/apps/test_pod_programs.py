"""Function apps as pods, step by step, on a Deployment in memory; what they are told and the programs that stay here
are written down by the test.
"""

from pathlib import Path

from controller.fleets.apps.pod_programs import PodPrograms
from penstock.adapters.app_boards import PodBoard
from penstock.adapters.process_manager import Program, ProgramStatus
from penstock.apps import PodIdentity
from tests.penstock.adapters.kubernetes.memory_deployment import MemoryDeployment

RUN = "a-run"
FILES = {"run.json": b"{}"}


class Told(PodBoard):
    """What pods were told."""

    def __init__(self) -> None:
        self.apps: dict[str, PodIdentity] = {}

    def assign_identity(self, pod: str, app: PodIdentity) -> None:
        self.apps[pod] = app


class Here:
    """Programs that are no pods."""

    def __init__(self) -> None:
        self.kept: dict[str, ProgramStatus] = {}

    def add(self, program: Program) -> None:
        self.kept[program.name] = ProgramStatus(program.name, 1, "active")

    def remove(self, name: str, *, wait: bool = True) -> None:
        del wait
        self.kept.pop(name, None)

    def programs(self, prefix: str = "") -> dict[str, ProgramStatus]:
        return {name: status for name, status in self.kept.items() if name.startswith(prefix)}


class Scene:
    def __init__(self, deployment: MemoryDeployment | None = None) -> None:
        self.deployment = deployment or MemoryDeployment("apps")
        self.told, self.here = Told(), Here()
        self.programs = PodPrograms(RUN, self.deployment, self.told, FILES, self.here, ("forwarder",))

    def add(self, name: str) -> None:
        command = ("python", "-m", "consumers.app", "--run", "/a/folder", "--replica", name, "--queue", f"q-{name}")
        self.programs.add(Program(name=f"{RUN}:{name}", command=command, folder=Path(), log=Path()))

    def step(self, times: int = 3) -> dict[str, ProgramStatus]:
        for _ in range(times):
            self.programs.programs(f"{RUN}:")
            self.deployment.settle()
        return {name.removeprefix(f"{RUN}:"): each for name, each in self.programs.programs(f"{RUN}:").items()}

    def pod_of(self, app: str) -> str:
        return self.deployment.names()[app]


def test_a_program_becomes_a_pod_that_is_told_what_it_is() -> None:
    scene = Scene()
    scene.add("bank-1")
    assert {name: (each.pid, each.state) for name, each in scene.step(0).items()} == {"bank-1": (None, "starting")}
    found = scene.step()
    assert found["bank-1"].state == "active" and found["bank-1"].pid is not None
    arguments = ("--replica", "bank-1", "--queue", "q-bank-1")
    assert scene.told.apps == {scene.pod_of("bank-1"): PodIdentity("bank-1", arguments, FILES)}


def test_what_is_here_is_no_pod() -> None:
    scene = Scene()
    scene.add("forwarder")
    assert set(scene.here.kept) == {f"{RUN}:forwarder"}
    assert set(scene.step()) == {"forwarder"}
    assert scene.deployment.replicas == 0
    scene.programs.remove(f"{RUN}:forwarder")
    assert scene.step() == {}


def test_the_one_that_is_removed_goes_and_is_there_until_it_is_gone() -> None:
    scene = Scene()
    for name in ("bank-1", "bank-2"):
        scene.add(name)
    scene.step()
    first = scene.pod_of("bank-1")
    scene.programs.remove(f"{RUN}:bank-1", wait=False)
    assert scene.step(0)["bank-1"].state == "stopping"
    assert set(scene.step()) == {"bank-2"}
    assert first not in scene.deployment.names().values()


def test_a_lost_pod_is_another_process_of_the_same_app() -> None:
    scene = Scene()
    scene.add("bank-1")
    before = scene.step()["bank-1"].pid
    lost = scene.pod_of("bank-1")
    scene.deployment.kill(lost)
    scene.deployment.settle()
    after = scene.step()["bank-1"]
    assert after.pid not in (before, None)
    assert scene.told.apps[scene.pod_of("bank-1")] == scene.told.apps[lost]


def test_a_container_that_is_started_again_is_another_process() -> None:
    scene = Scene()
    scene.add("bank-1")
    before = scene.step()["bank-1"].pid
    scene.deployment.restart(scene.pod_of("bank-1"))
    assert scene.step()["bank-1"].pid not in (before, None)


def test_a_successor_finds_the_pods_and_leaves_them_alone() -> None:
    first = Scene()
    for name in ("bank-1", "bank-2"):
        first.add(name)
    before = first.step()
    second = Scene(first.deployment)
    assert second.step() == before
    assert second.told.apps == {}, "they know"
    second.programs.remove(f"{RUN}:bank-2")
    assert set(second.step()) == {"bank-1"}
