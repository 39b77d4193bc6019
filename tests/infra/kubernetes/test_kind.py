"""`make kind` with fake programs on PATH: what it does in which order, and its errors, one clear line each."""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from infra.kubernetes import kind
from infra.kubernetes.kind import CONTEXT, KindCluster, sources_digest
from penstock.errors import PenstockError
from tests.infra.kubernetes.fake_cluster import FakeCluster

OVERLAY = """
kind: Deployment
spec: {template: {spec: {containers: [{image: "penstock/app:1"}, {image: "redis:7"}, {image: "grafana:11"}]}}}
---
kind: Deployment
spec: {template: {spec: {containers: [{image: "penstock/driver:1"}]}}}
"""
DOCKER = """#!/bin/sh
cd {here}; echo "docker $@" >>programs
case "$*" in
version*) [ ! -e no-engine ] || {{ echo "Cannot connect to the Docker daemon" >&2; exit 1; }} ;;
info*) cat info ;;
"image inspect"*Labels*penstock/*) cat label ;;
"image inspect"*penstock/*) echo "sha256:${{4#penstock/}}" ;;
"image inspect"*redis*) echo sha256:redis ;;
"image inspect"*) exit 1 ;;
"exec "*) cat "on-node/${{5##*/}}" ;;
esac
"""
KIND = """#!/bin/sh
cd {here}; echo "kind $@" >>programs
case "$*" in
"get clusters") cat clusters ;;
"create cluster"*) [ ! -e broken ] || {{ echo "ERROR: failed to create cluster: port is in use" >&2; exit 1; }}
    echo penstock >clusters; echo kind-penstock >context ;;
"export kubeconfig"*) echo kind-penstock >context ;;
"delete cluster"*) [ ! -e stays ] || {{ echo "ERROR: failed to delete nodes" >&2; exit 1; }}; : >clusters ;;
"load docker-image"*) [ ! -e no-room ] || {{ echo "ERROR: no space left on device" >&2; exit 1; }} ;;
esac
"""
BUILD = """#!/bin/sh
echo "build $@ ($SOURCES)" >>{here}/programs
[ ! -e {here}/no-build ] || {{ echo "Step 3/19"; echo "no space left on device"; exit 1; }}
"""


class Machine(FakeCluster):
    """Programs of this machine, a checkout with one source file, and a cluster once kind has made it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        self.root = folder / "checkout"
        for path, script in {
            "docker": DOCKER,
            "kind": KIND,
            "checkout/infra/images/build.sh": BUILD,
            "checkout/infra/local/setup.sh": BUILD.replace("build", "jars"),
        }.items():
            program = folder / path
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(script.format(here=folder))
            program.chmod(0o755)
        (self.root / ".dockerignore").write_text("*\n!penstock\n!infra\ninfra/images\n")
        (self.root / "penstock").mkdir()
        (self.root / "penstock" / "source.py").write_text("1")
        (folder / "on-node").mkdir()
        (folder / "jars" / "spark").mkdir(parents=True)
        (folder / "jars" / "spark" / ".complete").touch()
        for name, text in {
            "overlay": OVERLAY, "clusters": "", "info": f"2 {folder}\n", "label": ""
        }.items():  # fmt: skip
            (folder / name).write_text(text)
        monkeypatch.delenv("KIND_OPTIONS", raising=False)
        monkeypatch.setenv("PENSTOCK_JARS", str(folder / "jars"))
        monkeypatch.setenv("PENSTOCK_STATE", str(folder / "state"))
        monkeypatch.setattr(kind, "NEW_BYTES", 0)
        monkeypatch.setattr(kind, "AGAIN_BYTES", 0)
        monkeypatch.setattr(kind, "ARCHIVE_BYTES", 0)
        self.cluster = KindCluster(self.told.append, self.root)

    def programs(self) -> list[str]:
        """Calls that change something."""
        asking = ("docker version", "docker info", "docker image", "docker exec", "kind get")
        calls = (self.folder / "programs").read_text().splitlines()
        return [call for call in calls if not call.startswith(asking)]

    def error(self) -> str:
        with pytest.raises(PenstockError) as raised:
            self.cluster.up()
        assert "\n" not in str(raised.value)
        return str(raised.value)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_from_nothing_it_builds_creates_loads_and_ends_with_the_next_command(machine: Machine) -> None:
    machine.cluster.up()
    assert machine.programs() == [
        f"build driver ({sources_digest(machine.root)})",
        "kind create cluster --name penstock --wait=3m",
        "kind load docker-image --name penstock penstock/app:1 penstock/driver:1 redis:7",
    ]
    assert machine.told[-1].endswith("--world kubernetes --from 420 --seconds 110")


def test_what_is_there_is_neither_built_nor_created_nor_loaded_again(machine: Machine) -> None:
    for image, id_ in {"app:1": "app:1", "driver:1": "driver:1", "redis:7": "another"}.items():
        machine.answer(f"on-node/{image}", {"status": {"id": f"sha256:{id_}"}})
    (machine.folder / "clusters").write_text("penstock\n")
    (machine.folder / "context").write_text(f"{CONTEXT}\n")
    (machine.folder / "label").write_text(sources_digest(machine.root))
    machine.cluster.up()
    assert machine.programs() == ["docker start penstock-control-plane"]


def test_an_image_of_ours_that_was_built_anew_is_loaded_again(machine: Machine) -> None:
    for image, id_ in {"app:1": "older", "driver:1": "driver:1", "redis:7": "another"}.items():
        machine.answer(f"on-node/{image}", {"status": {"id": f"sha256:{id_}"}})
    machine.cluster.up()
    assert "kind load docker-image --name penstock penstock/app:1" in machine.programs()


def test_a_changed_source_builds_the_images_and_a_changed_manifest_does_not(machine: Machine) -> None:
    manifest = machine.root / "infra" / "kubernetes" / "base" / "redis.yaml"
    manifest.parent.mkdir(parents=True)
    before = sources_digest(machine.root)
    manifest.write_text("replicas: 2")
    assert sources_digest(machine.root) == before
    (machine.root / "penstock" / "source.py").write_text("2")
    assert sources_digest(machine.root) != before


def test_pods_of_an_earlier_up_get_the_new_images(machine: Machine) -> None:
    (machine.folder / "clusters").write_text("penstock\n")
    machine.cluster.up()
    assert "delete pods --selector=app.kubernetes.io/name in (gateway,driver) --ignore-not-found" in machine.calls()


def test_another_context_is_left_for_the_clusters_own_in_a_line(machine: Machine) -> None:
    (machine.folder / "clusters").write_text("penstock\n")
    machine.cluster.up()
    assert "kind: kubectl's context is kind-penstock now, it was gke_project" in machine.told


def test_missing_programs_are_named_together(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(machine.folder / "empty"))
    assert machine.error() == (
        "not on PATH: docker (https://docs.docker.com/get-docker), "
        "kind (https://kind.sigs.k8s.io/docs/user/quick-start/#installation), "
        "kubectl (https://kubernetes.io/docs/tasks/tools)"
    )


def test_an_engine_that_does_not_answer(machine: Machine) -> None:
    (machine.folder / "no-engine").touch()
    asked = "docker version --format={{.Server.Version}}"
    assert machine.error() == f"no Docker engine answers: {asked}: Cannot connect to the Docker daemon"
    assert not machine.programs()


def test_too_few_cpus(machine: Machine) -> None:
    (machine.folder / "info").write_text(f"1 {machine.folder}\n")
    assert machine.error() == "Docker has 1 CPU, Penstock needs 2"
    assert not machine.programs()


def test_too_little_disk(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "NEW_BYTES", 1e18)
    assert "GB free, 1000000000 GB are needed: `docker system prune` deletes" in machine.error()
    assert not machine.programs()


def test_a_build_that_fails_makes_no_cluster(machine: Machine) -> None:
    (machine.folder / "no-build").touch()
    assert machine.error().startswith("infra/images/build.sh driver: Step 3/19 no space left on device; ")
    assert [call.split()[0] for call in machine.programs()] == ["build"]


def test_a_cluster_that_could_not_be_made_is_deleted(machine: Machine) -> None:
    (machine.folder / "broken").touch()
    assert "kind create cluster: ERROR: failed to create cluster: port is in use; " in machine.error()
    assert machine.programs()[-1] == "kind delete cluster --name penstock"


def test_a_failed_creation_keeps_its_reason_when_deleting_fails_too(machine: Machine) -> None:
    for name in ("broken", "stays"):
        (machine.folder / name).touch()
    assert "kind create cluster: ERROR: failed to create cluster: port is in use; " in machine.error()
    assert machine.told[-1] == "kind: cleaning up failed, too: kind delete cluster: ERROR: failed to delete nodes"


def test_too_little_disk_for_the_archive_of_images(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind, "ARCHIVE_BYTES", 1e18)
    monkeypatch.setattr(tempfile, "tempdir", str(machine.folder))
    machine.cluster.up()  # it is on Docker's disk, which has been checked
    (machine.folder / "info").write_text("2 /a/virtual/machine\n")
    assert "GB are needed: TMPDIR names a folder on another disk" in machine.error()


def test_a_failure_after_the_creation_says_that_the_cluster_stays(machine: Machine) -> None:
    (machine.folder / "no-room").touch()
    assert machine.error() == "kind load docker-image: ERROR: no space left on device"
    assert machine.told[-1].startswith("kind: cluster penstock stays: `make kind` continues")
    (machine.folder / "no-room").unlink()
    machine.cluster.up()
    assert sum(call.startswith("kind create") for call in machine.programs()) == 1


def test_missing_jars_are_fetched_before_the_build(machine: Machine) -> None:
    (machine.folder / "jars" / "spark" / ".complete").unlink()
    machine.cluster.up()
    assert [call.split()[0] for call in machine.programs()][:2] == ["jars", "build"]


def test_down_deletes_the_cluster_and_says_so_where_there_is_none(machine: Machine) -> None:
    machine.cluster.down()
    assert machine.told == ["kind: there is no cluster penstock"]
    (machine.folder / "clusters").write_text("penstock\n")
    machine.cluster.down()
    assert not machine.cluster.exists()


def test_the_command_ends_with_exit_code_2_and_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "infra.kubernetes.kind", "up"],
        env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("error: not on PATH: docker")


def test_images_know_their_revision_and_the_drivers_shares_the_apps_base(machine: Machine) -> None:
    (machine.folder / "jars" / "spark" / "connector.jar").touch()
    done = subprocess.run(
        [kind.ROOT / "infra" / "images" / "build.sh", "driver"],
        env={"PATH": f"{machine.folder}:/usr/bin:/bin", "PENSTOCK_JARS": str(machine.folder / "jars")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=kind.ROOT, capture_output=True, text=True).stdout.strip()
    builds = [call for call in machine.programs() if call.startswith("docker build")]
    (app,), (driver,) = ([call for call in builds if f"-t penstock/{name}:" in call] for name in ("app", "driver"))
    assert f"REVISION={head}" in app and f"REVISION={head}" in driver
    assert "PACKAGES=local/penstock-packages:" in driver
    for name in ("Dockerfile", "driver/Dockerfile"):
        assert "PENSTOCK_REVISION=${REVISION}" in (kind.ROOT / "infra" / "images" / name).read_text()


def test_the_build_names_missing_jars_before_it_builds(machine: Machine) -> None:
    for name in ("driver", "standins"):
        done = subprocess.run(
            [kind.ROOT / "infra" / "images" / "build.sh", name],
            env={"PATH": f"{machine.folder}:/usr/bin:/bin", "PENSTOCK_JARS": str(machine.folder / "none")},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 2
        assert done.stderr.startswith("build.sh: no jars of ")
    assert not (machine.folder / "programs").exists()
