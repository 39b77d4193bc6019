"""``make kind`` and ``make kind-down``: a kind cluster on this machine with Penstock up on it, from docker, kind and
kubectl alone.

``python -m infra.kubernetes.kind up`` builds images whose sources have changed, creates cluster ``penstock`` unless it
is there, loads the images that its node lacks, and runs ``up`` on overlay ``kind``. KIND_OPTIONS are handed to ``kind
create cluster``; infra/images/build.sh names the variables for the build.
"""

import argparse
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import typer
import yaml

from infra.kubernetes.kubectl import Kubectl
from infra.kubernetes.services import DRIVER, NAMESPACE, OVERLAYS, ClusterServices
from infra.local.services import LocalServices
from infra.waiting import wait_until
from penstock.errors import PenstockError
from penstock.process_main import run_main
from penstock.settings import Folders
from penstock.world import Progress

ROOT: Final = Path(__file__).resolve().parents[2]
CLUSTER: Final = "penstock"
CONTEXT: Final = f"kind-{CLUSTER}"
NODE: Final = f"{CLUSTER}-control-plane"
OVERLAY: Final = "kind"
OURS: Final = "penstock/"
"""Prefix of the images that are built here."""
SOURCES: Final = "dev.penstock.sources"
"""Label of our images: the digest of the files that they were built from."""
PROGRAMS: Final = {
    "docker": "https://docs.docker.com/get-docker",
    "kind": "https://kind.sigs.k8s.io/docs/user/quick-start/#installation",
    "kubectl": "https://kubernetes.io/docs/tasks/tools",
}
CPUS: Final = 2
NEW_BYTES: Final = 16e9
"""Free disk for a first time: images, build cache, node, and the images again on the node (README has the figures)."""
AGAIN_BYTES: Final = 6e9
"""Free disk where the cluster is there: new images, and their archive on the way to the node."""
ARCHIVE_BYTES: Final = 4e9
"""Free disk in TMPDIR, where ``kind load`` writes that archive; counted apart where it is on another disk."""
START_TIMEOUT_S: Final = 120.0
LAST_LINES: Final = 5
NEXT: Final = (
    ".venv/bin/penstock run binpack-workload-1 --scaler binpack-tail --world kubernetes --from 420 --seconds 110"
)


class KindCluster:
    """Cluster ``penstock``. ``tell`` receives a line for each step that takes a while. ``root``: the checkout."""

    def __init__(self, tell: Progress, root: Path = ROOT) -> None:
        self._tell = tell
        self._root = root
        self._folders = Folders()

    def up(self) -> None:
        """Bring everything up; what is there already stays. Raises PenstockError with one line: a program that is
        missing, too few CPUs, too little disk, a build that fails.
        """
        self._require_programs(*PROGRAMS)
        there = self.exists()
        self._require_resources(AGAIN_BYTES if there else NEW_BYTES)
        self._build()
        if there:
            run("docker", "start", NODE)  # it may have been stopped with the machine
        else:
            self._create()
        try:
            self._select()
            self._load()
            ClusterServices(LocalServices.from_settings(self._tell), self._tell, OVERLAY).up()
        except PenstockError:
            self._tell(f"kind: cluster {CLUSTER} stays: `make kind` continues with it, `make kind-down` deletes it")
            raise
        self._tell(f"up. Next: {NEXT}")

    def down(self) -> None:
        """Delete the cluster with everything in it; images stay in the engine."""
        self._require_programs("docker", "kind")
        if not self.exists():
            self._tell(f"kind: there is no cluster {CLUSTER}")
            return
        run("kind", "delete", "cluster", "--name", CLUSTER)
        self._tell(f"kind: cluster {CLUSTER} is deleted; `docker image ls` lists the images, which stay")

    def exists(self) -> bool:
        """Whether kind has made the cluster."""
        return CLUSTER in run("kind", "get", "clusters").split()

    def _require_programs(self, *programs: str) -> None:
        missing = [f"{name} ({PROGRAMS[name]})" for name in programs if shutil.which(name) is None]
        if missing:
            raise PenstockError(f"not on PATH: {', '.join(missing)}")
        try:
            run("docker", "version", "--format={{.Server.Version}}")
        except PenstockError as error:
            raise PenstockError(f"no Docker engine answers: {error}") from None

    def _require_resources(self, least_bytes: float) -> None:
        cpus, _, folder = run("docker", "info", "--format={{.NCPU}} {{.DockerRootDir}}").strip().partition(" ")
        if int(cpus) < CPUS:
            raise PenstockError(f"Docker has {cpus} CPU, Penstock needs {CPUS}")
        # Docker Desktop's folder is on the disk of its virtual machine, which nothing can be asked about from here.
        there = Path(folder).is_dir()
        if there:
            _require_disk(folder, least_bytes, "`docker system prune` deletes images and caches that nothing uses")
        archives = tempfile.gettempdir()
        if not there or Path(archives).stat().st_dev != Path(folder).stat().st_dev:
            _require_disk(archives, ARCHIVE_BYTES, "TMPDIR names a folder on another disk")

    # --- images ------------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        """Build our images unless their label names the present sources."""
        digest = sources_digest(self._root)
        label = f'{{{{index .Config.Labels "{SOURCES}"}}}}'
        if all(built == digest for built in self._inspected(self._ours(), label)):
            return
        jars = self._folders.jars.absolute()
        if not (jars / "spark" / ".complete").exists():
            self._tell("kind: fetching the jars of Spark's Kafka connector")
            self._logged("infra/local/setup.sh", "jars", str(jars), "spark")
        self._tell("kind: building the images; minutes the first time")
        self._logged("infra/images/build.sh", "driver", PENSTOCK_JARS=str(jars), SOURCES=digest)

    def _load(self) -> None:
        """Load images that this machine has and the node lacks; the node pulls all others. Ours are compared by id, as
        they keep their tags.
        """
        images = self._images()
        lacking = [
            image
            for image, id_ in zip(images, self._inspected(images, "{{.Id}}"), strict=True)
            if id_ and (on_node := self._id_on_node(image)) != id_ and (not on_node or image.startswith(OURS))
        ]
        if not lacking:
            return
        self._tell(f"kind: loading {', '.join(lacking)} into the node")
        run("kind", "load", "docker-image", "--name", CLUSTER, *lacking)
        # Pods of an earlier `up` still run the images that they were started with.
        kubectl = Kubectl(NAMESPACE)
        kubectl.run("delete", "pods", f"--selector=app.kubernetes.io/name in (gateway,{DRIVER})", "--ignore-not-found")

    def _id_on_node(self, image: str) -> str:
        """Id of an image on the node, empty for one that is not there."""
        asked = ["docker", "exec", NODE, "crictl", "inspecti", image]
        found = subprocess.run(asked, capture_output=True, check=False)
        return str(msgspec.json.decode(found.stdout)["status"]["id"]) if found.returncode == 0 else ""

    def _images(self) -> list[str]:
        """Images of the overlay."""
        text = run("kubectl", "kustomize", str(OVERLAYS / OVERLAY))
        return sorted({image for each in yaml.safe_load_all(text) for image in images_in(each)})

    def _ours(self) -> list[str]:
        return [image for image in self._images() if image.startswith(OURS)]

    def _inspected(self, images: Sequence[str], wanted: str) -> list[str]:
        """What ``docker image inspect`` says of each, empty for one that is not there."""
        done = [
            subprocess.run(
                ["docker", "image", "inspect", f"--format={wanted}", image], capture_output=True, text=True, check=False
            )
            for image in images
        ]
        return [each.stdout.strip() if each.returncode == 0 else "" for each in done]

    # --- the cluster -------------------------------------------------------------------------------------------------

    def _create(self) -> None:
        """Create the cluster; delete what a failed or interrupted creation leaves."""
        self._tell(f"kind: creating cluster {CLUSTER}")
        options = shlex.split(os.environ.get("KIND_OPTIONS", ""))
        try:
            self._logged("kind", "create", "cluster", "--name", CLUSTER, "--wait=3m", *options)
        except BaseException:
            try:
                run("kind", "delete", "cluster", "--name", CLUSTER)
            except PenstockError as error:  # the first error is the reason
                self._tell(f"kind: cleaning up failed, too: {error}")
            raise

    def _select(self) -> None:
        """Make it kubectl's current cluster and wait until it answers."""
        before = subprocess.run(["kubectl", "config", "current-context"], capture_output=True, text=True).stdout.strip()
        if before != CONTEXT:
            run("kind", "export", "kubeconfig", "--name", CLUSTER)
            self._tell(f"kind: kubectl's context is {CONTEXT} now, it was {before or 'not set'}")
        kubectl = Kubectl(NAMESPACE)

        def answers() -> bool:
            try:
                kubectl.require_cluster()
            except PenstockError:
                return False
            return True

        wait_until(answers, START_TIMEOUT_S, lambda: f"cluster {CLUSTER} does not answer: `make kind-down` deletes it")

    def _logged(self, *command: str, **environment: str) -> None:
        """Run a command in the checkout, with its output in a log. PenstockError has the last lines of a failed one."""
        log = self._folders.state.absolute() / "logs" / "kind.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as out:
            done = subprocess.run(
                command, cwd=self._root, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
        if done.returncode != 0:
            lines = log.read_text(errors="replace").split("\n")
            end = " ".join(" ".join(line for line in lines[-LAST_LINES:] if line).split())
            raise PenstockError(f"{' '.join(command[:3])}: {end or done.returncode}; {log} has all of it")


def run(*command: str) -> str:
    """Standard output of a command. Raises PenstockError with the last line of its errors."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise PenstockError(f"{' '.join(command[:3])}: {lines[-1] if lines else done.returncode}")
    return done.stdout


def _require_disk(folder: str, least_bytes: float, way_out: str) -> None:
    if (free := shutil.disk_usage(folder).free) < least_bytes:
        raise PenstockError(f"{folder} has {free / 1e9:.1f} GB free, {least_bytes / 1e9:.0f} GB are needed: {way_out}")


def images_in(manifest: object) -> Iterator[str]:
    """Images of all containers in an object."""
    if isinstance(manifest, dict):
        if isinstance(image := manifest.get("image"), str):
            yield image
        for each in manifest.values():
            yield from images_in(each)
    elif isinstance(manifest, list):
        for each in manifest:
            yield from images_in(each)


def sources_digest(root: Path) -> str:
    """SHA-256 of the files that our images are built from: what ``.dockerignore`` lets in, and the images' own."""
    named = [line[1:] for line in (root / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    roots = [*(root / name for name in named if "*" not in name), root / "infra" / "local" / "jars"]
    files = {file for each in roots for file in (each.rglob("*") if each.is_dir() else (each,)) if file.is_file()}
    digest = hashlib.sha256()
    for file in sorted(files):
        path = file.relative_to(root)
        manifest = path.parts[:2] == ("infra", "kubernetes") and file.suffix != ".py"  # read here, not in the image
        if "__pycache__" not in path.parts and not manifest:
            digest.update(f"{path}\0{file.stat().st_size}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def main() -> int:
    """Exit code 2 and one line for bad input."""
    parser = argparse.ArgumentParser(prog="python -m infra.kubernetes.kind", description="Penstock on kind.")
    parser.add_argument("action", choices=("up", "down"))
    action = parser.parse_args().action
    cluster = KindCluster(lambda line: typer.echo(line, err=True))
    return run_main(cluster.up if action == "up" else cluster.down)


if __name__ == "__main__":
    sys.exit(main())
