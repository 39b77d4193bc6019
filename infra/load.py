"""Locust's page for load sessions: on this machine, or with consumers and senders as pods of a cluster.

On a cluster Locust's master runs where runs are driven from (this machine, or the driver's pod), and its workers, which
send, are the pods of Deployment ``senders``.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import producers
from infra.kubernetes.driver_pod import HERE, DriverPod
from infra.kubernetes.run_pods import CONTROLLER, empty, require_idle
from infra.kubernetes.services import ClusterServices
from infra.kubernetes.world import KubernetesWorld
from infra.local.ports import free_port, require_free
from infra.local.services import ALL_SERVICES, LocalServices
from penstock.settings import Folders
from penstock.world import Progress

LOCUSTFILE: Final = Path(producers.__file__).with_name("locustfile.py")
PAGE: Final = "Locust's page"
SENDERS: Final = "senders"
MASTER_PORT: Final = 5557
"""Of the master in the driver's pod: its network policy lets senders connect to this one."""
GRACE_S: Final = 360.0
"""After Ctrl-C: what was sent is waited for, and the pods' end."""
CONNECT_S: Final = 60
HUNG_UP: Final = 129


def play_here(services: LocalServices, port: int, options: Sequence[str]) -> None:
    """Locust on this machine, in place of this process. Services that are not up are brought up, and stay. Raises
    PenstockError.
    """
    require_free(port, "--port", PAGE)
    if not services.is_up():
        services.up(ALL_SERVICES)
    command = _locust(port, options)
    os.execve(command[0], command, {**os.environ, **services.exports()})  # noqa: S606 - no shell is wanted


def play_on_cluster(
    services: ClusterServices, overlay: str, port: int, senders: int, options: Sequence[str], tell: Progress
) -> int:
    """Locust with ``senders`` pods for workers: its exit code. What is not up is brought up, and stays. Raises
    PenstockError.
    """
    require_free(port, "--port", PAGE)
    driver = DriverPod(tell)
    if HERE not in os.environ and not services.is_up():
        services.up()
    if driver.there():
        handed_on = ("load", "--target", overlay, "--port", str(port), "--senders", str(senders), "--", *options)
        with driver.forwarding(port):
            return driver.play(handed_on, Folders().runs.absolute(), sys.stdout.buffer)
    with KubernetesWorld(tell, services):
        environment = {**os.environ, **services.environment(), "PENSTOCK_LOAD_SESSION": "infra.kubernetes.load_session"}
        address = own_address(environment["PENSTOCK_KAFKA"])
        master_port = MASTER_PORT if HERE in os.environ else free_port()
        master = ("--master", "--master-bind-host", address, "--master-bind-port", str(master_port))
        expected = ("--expect-workers", str(senders), "--expect-workers-max-wait", str(CONNECT_S))
        with sender_pods(services, senders, address, master_port):
            tell(f"{PAGE}: http://127.0.0.1:{port}; {senders} sender pods are about to connect; Ctrl-C ends all")
            return _run(_locust(port, (*master, *expected, *options)), environment)


@contextmanager
def sender_pods(services: ClusterServices, count: int, address: str, port: int) -> Iterator[None]:
    """That many workers of the master at ``address``, for a while. PenstockError if others use them, or if they do not
    come up.
    """
    kubectl = services.kubectl
    require_idle(kubectl, SENDERS, CONTROLLER)
    env = [{"name": "LOAD_MASTER", "value": address}, {"name": "LOAD_PORT", "value": str(port)}]
    template = {"spec": {"containers": [{"name": "sender", "env": env}]}}
    try:
        kubectl.patch(f"deployment/{SENDERS}", {"spec": {"replicas": count, "template": template}})
        services.await_pods(
            lambda: sum(pod.ready and pod.alive for pod in kubectl.pods_of(SENDERS)) >= count,
            "sender pods do not come up",
        )
        yield
    finally:
        empty(kubectl, SENDERS)


def own_address(towards: str) -> str:
    """Of this machine's addresses the one from which it reaches ``towards`` (host:port)."""
    host, _, port = towards.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(port)))  # nothing is sent
        return str(probe.getsockname()[0])


def _locust(port: int, options: Sequence[str]) -> list[str]:
    page = ("--web-host", "127.0.0.1", "--web-port", str(port))
    return [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), *page, *options]


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Until it ends by itself, or Ctrl-C, SIGTERM or a closed terminal ends it."""
    signal.signal(signal.SIGHUP, lambda *_: sys.exit(HUNG_UP))
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        try:
            return process.wait()
        except (KeyboardInterrupt, SystemExit) as end:
            process.send_signal(signal.SIGINT)
            code = process.wait(GRACE_S)
            if isinstance(end, SystemExit):
                raise
            return code
        finally:
            if process.poll() is None:
                process.kill()
