"""kubectl on the current kubeconfig, in one namespace; errors become one line."""

import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from penstock.adapters.kubernetes.pods import WORKLOAD, Pod
from penstock.errors import PenstockError

TIMEOUT_S: Final = 60.0
LAST_LINES: Final = 3


class NoClusterError(PenstockError):
    """There is no kubectl, no kubeconfig, or no answer."""


class Kubectl:
    """Every call is a process of its own. Raises PenstockError with the last lines of kubectl's output."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def run(self, *arguments: str, given: bytes | None = None, timeout_s: float = TIMEOUT_S) -> bytes:
        """Its standard output. ``given``: its standard input."""
        try:
            done = subprocess.run(self._command(arguments), input=given or b"", capture_output=True, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise PenstockError(f"kubectl {_short(arguments)}: no answer within {timeout_s:g} s") from None
        if done.returncode != 0:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            raise PenstockError(f"kubectl {_short(arguments)}: {' '.join(lines[-LAST_LINES:]) or done.returncode}")
        return done.stdout

    def open(self, *arguments: str) -> subprocess.Popen[bytes]:
        """The process, with standard output as a pipe. It does not receive Ctrl-C of the terminal."""
        return subprocess.Popen(
            self._command(arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _command(self, arguments: tuple[str, ...]) -> tuple[str, ...]:
        program = shutil.which("kubectl")
        if program is None:
            raise NoClusterError(
                "there is no kubectl on PATH: https://kubernetes.io/docs/tasks/tools describes the installation"
            )
        return (program, "--namespace", self.namespace, *arguments)

    def get(self, *arguments: str) -> Any:
        """Objects, decoded from JSON."""
        return msgspec.json.decode(self.run("get", *arguments, "--output=json"))

    def pods(self, *arguments: str) -> list[Pod]:
        """The namespace's, or those that ``arguments`` choose."""
        return [msgspec.convert(each, Pod) for each in self.get("pods", *arguments)["items"]]

    def pods_of(self, name: str) -> list[Pod]:
        """Pods of the Deployment or other workload of that name."""
        return self.pods(f"--selector={WORKLOAD}={name}")

    def kill_first(self, pods: Sequence[Pod]) -> str | None:
        """Delete the first of these replicas' pods without grace; return its name, None if there are none."""
        if not pods:
            return None
        pod = min(pods, key=lambda pod: pod.replica)
        self.run("delete", "pod", pod.name, "--grace-period=0", "--force", "--wait=false")
        return f"{pod.replica} (pod {pod.name})"

    def save_logs(self, pods: Iterable[Pod], folder: Path) -> None:
        """Write the log of each pod to a file."""
        for pod in pods:
            with suppress(PenstockError):  # it has just been deleted
                log = self.run("logs", pod.name, "--all-containers=true", "--prefix=false")
                (folder / f"{pod.replica or pod.name}.log").write_bytes(log)

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Create or update objects."""
        listed = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.run("apply", "--filename=-", given=msgspec.json.encode(listed))

    def patch(self, what: str, body: Mapping[str, Any]) -> None:
        """Patch an object (``deployment/name``); lists are merged by name."""
        self.run("patch", what, "--type=strategic", f"--patch={msgspec.json.encode(body).decode()}")

    def execute(
        self, pod: str, container: str, script: str, given: bytes | None = None, timeout_s: float = 30
    ) -> bytes:
        """Run a shell script in a container of a pod (``pod-name`` or ``deployment/name``)."""
        stdin = () if given is None else ("--stdin",)
        command = ("exec", pod, f"--container={container}", *stdin, "--", "sh", "-euc", script)
        return self.run(*command, given=given, timeout_s=timeout_s)

    def require_cluster(self) -> None:
        """Raise NoClusterError if no cluster can be reached."""
        try:
            self.run("get", "--raw=/readyz", timeout_s=20)
        except NoClusterError:
            raise
        except PenstockError as error:
            raise NoClusterError(f"no Kubernetes cluster to be reached by the current kubeconfig: {error}") from None


def unpack(stream: IO[bytes], folder: Path) -> list[str]:
    """Write the files of a tar stream into ``folder``; the names at its top. Raises TarError for a stream that is cut
    off, and for anything that is not a file in that folder.
    """
    names: dict[str, None] = {}
    # Member by member: ``extractall`` with a filter needs Python 3.11.4; Debian 12 has 3.11.2.
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            target = folder / member.name
            inside = target.resolve().is_relative_to(folder.resolve())
            if not inside or not (member.isdir() or member.isreg()):
                raise tarfile.ExtractError(f"{member.name} is no file in the folder")
            content = archive.extractfile(member)
            if content is None:
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                with content, target.open("wb") as file:
                    shutil.copyfileobj(content, file)
            names[Path(member.name).parts[0]] = None
    return list(names)


def _short(arguments: tuple[str, ...]) -> str:
    """The call without its long arguments, which may hold anything."""
    return " ".join(argument for argument in arguments[:4] if len(argument) < 60 and "\n" not in argument)
