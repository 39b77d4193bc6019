"""``penstock load``: Locust's page on this machine, with consumers and senders here or as pods of a cluster.

On a cluster, Locust's master runs where runs are driven from (this machine, or the driver's pod). Its workers, which
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
from infra.kubernetes.services import ClusterServices
from infra.local.ports import free_port, require_free
from infra.local.services import ALL_SERVICES, LOAD_SESSION, LocalServices
from infra.runs.kubernetes_world import KubernetesWorld
from infra.runs.pods import CONTROLLER, SENDERS, empty, require_idle
from penstock.settings import Folders
from penstock.world import Progress

LOCUSTFILE: Final = Path(producers.__file__).with_name("locustfile.py")
PAGE: Final = "Locust's page"
MASTER_PORT: Final = 5557
"""Port of the master in the driver's pod; the network policy opens it to sender pods."""
GRACE_S: Final = 360.0
"""Longest wait after Ctrl-C: for events in flight, and for the end of the pods."""
CONNECT_S: Final = 60
HUNG_UP: Final = 129


def run_here(services: LocalServices, port: int, options: Sequence[str]) -> None:
    """Replace this process by Locust. Services that are not up are started, and stay up. Raises PenstockError."""
    require_free(port, "--port", PAGE)
    if not services.is_up():
        services.up(ALL_SERVICES)
    command = _locust(port, options)
    os.execve(command[0], command, {**os.environ, **services.exports()})  # noqa: S606 - no shell is wanted


def run_on_cluster(
    services: ClusterServices, overlay: str, port: int, senders: int, options: Sequence[str], tell: Progress
) -> int:
    """Run Locust with ``senders`` pods as workers; return its exit code. Services that are not up are started, and stay
    up. Raises PenstockError.
    """
    require_free(port, "--port", PAGE)
    driver = DriverPod(tell)
    if HERE not in os.environ and not services.is_up():
        services.up()
    if driver.exists():
        command = ("load", "--target", overlay, "--port", str(port), "--senders", str(senders), "--", *options)
        with driver.forwarding(port):
            return driver.run(command, Folders().runs.absolute(), sys.stdout.buffer)
    with KubernetesWorld(tell, services):
        environment = {**os.environ, **services.environment()}
        environment["PENSTOCK_LOAD_SESSION"] = f"{LOAD_SESSION} --world kubernetes"
        address = own_address(environment["PENSTOCK_KAFKA"])
        master_port = MASTER_PORT if HERE in os.environ else free_port()
        master = ("--master", "--master-bind-host", address, "--master-bind-port", str(master_port))
        expected = ("--expect-workers", str(senders), "--expect-workers-max-wait", str(CONNECT_S))
        with sender_pods(services, senders, address, master_port):
            tell(f"{PAGE}: http://127.0.0.1:{port}; waiting for {senders} sender pods; Ctrl-C ends all")
            return _run(_locust(port, (*master, *expected, *options)), environment)


@contextmanager
def sender_pods(services: ClusterServices, count: int, address: str, port: int) -> Iterator[None]:
    """Run ``count`` workers of the master at ``address``. PenstockError if they are in use, or do not come up."""
    kubectl = services.kubectl
    require_idle(kubectl, SENDERS, CONTROLLER)
    env = [{"name": "LOAD_MASTER", "value": address}, {"name": "LOAD_PORT", "value": str(port)}]
    template = {"spec": {"containers": [{"name": "sender", "env": env}]}}
    try:
        kubectl.patch(f"deployment/{SENDERS}", {"spec": {"replicas": count, "template": template}})
        services.await_pods(
            lambda: sum(pod.ready and pod.alive for pod in kubectl.pods_of(SENDERS)) >= count,
            "sender pods do not come up",
            of=(SENDERS,),
        )
        yield
    finally:
        empty(kubectl, SENDERS)


def own_address(towards: str) -> str:
    """The address of this machine from which it reaches ``towards`` (host:port)."""
    host, _, port = towards.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, int(port)))  # nothing is sent
        return str(probe.getsockname()[0])


def _locust(port: int, options: Sequence[str]) -> list[str]:
    page = ("--web-host", "127.0.0.1", "--web-port", str(port))
    quiet = ("--only-summary",) if "--headless" in options else ()  # no table every other second
    return [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), *page, *quiet, *options]


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command until it ends; end it on Ctrl-C, SIGTERM or a closed terminal. Return its exit code."""
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
