"""The provider API as OpenFaaS' own command uses it: the real faas-cli, 0.16.30 or newer, where it is installed.

``tests/functions/gateway/test_provider_live.py`` makes the same requests without it.
"""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.functions.gateway_process import PASSWORD, PATIENCE_S, GatewayProcess

pytestmark = pytest.mark.live

FUNCTIONS = Path(__file__).resolve().parents[2] / "functions"
"""Where stack.yaml is, and the template that it names."""


class FaasCli:
    """``faas-cli`` with a home of its own, at one gateway."""

    def __init__(self, program: Path, home: Path, url: str) -> None:
        self._program = program
        self._environment = {"HOME": str(home), "OPENFAAS_URL": url, "PATH": os.environ.get("PATH", os.defpath)}

    def ask(self, *arguments: str, stdin: str = "", folder: Path = FUNCTIONS) -> subprocess.CompletedProcess[str]:
        """What it says, whatever comes of it."""
        return subprocess.run(
            (str(self._program), *arguments),
            input=stdin,
            env=self._environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    def tell(self, *arguments: str, stdin: str = "") -> str:
        """What it says of what it has done."""
        done = self.ask(*arguments, stdin=stdin)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    def listed(self) -> dict[str, tuple[int, int]]:
        """(invocations, replicas) by function."""
        _, *rows = self.tell("list").splitlines()
        cells = [row.split() for row in rows if row.strip()]
        return {name: (int(invocations), int(replicas)) for name, invocations, replicas in cells}

    def described(self, name: str) -> dict[str, str]:
        """What there is to say of a function, by heading."""
        pairs = (line.partition(":") for line in self.tell("describe", name).splitlines())
        return {heading.strip().lower(): value.strip() for heading, _, value in pairs}


@pytest.fixture(scope="module")
def program() -> Path:
    """The one that is installed."""
    installed = shutil.which("faas-cli")
    if installed is None:
        pytest.skip("there is no faas-cli on PATH")
    return Path(installed)


@pytest.fixture
def faas_cli(program: Path, gateway: GatewayProcess, tmp_path: Path) -> FaasCli:
    """Logged in as admin."""
    cli = FaasCli(program, tmp_path, gateway.url)
    cli.tell("login", "--username", "admin", "--password-stdin", stdin=PASSWORD)
    return cli


def test_a_wrong_password_does_not_log_in(program: Path, gateway: GatewayProcess, tmp_path: Path) -> None:
    stranger = FaasCli(program, tmp_path, gateway.url)
    refused = stranger.ask("login", "--username", "admin", "--password-stdin", stdin="guessed")
    assert refused.returncode != 0
    assert "incorrect" in refused.stdout + refused.stderr
    assert stranger.ask("list").returncode != 0


def test_a_function_of_our_stack_is_deployed_called_changed_and_removed(
    faas_cli: FaasCli, gateway: GatewayProcess
) -> None:
    deploy = ("deploy", "--yaml", "stack.yaml", "--filter", "sha256")
    faas_cli.tell(*deploy, "--label", "com.openfaas.scale.min=2")
    faas_cli.tell("ready", "sha256")
    gateway.wait(lambda: gateway.available("sha256") == 2)
    assert faas_cli.listed() == {"sha256": (0, 2)}
    digest = hashlib.sha256(b"a document").hexdigest()
    assert json.loads(faas_cli.tell("invoke", "sha256", stdin="a document"))["sha256"] == digest
    faas_cli.tell("invoke", "sha256", "--async", stdin="a document")
    gateway.wait(lambda: faas_cli.listed()["sha256"][0] == 2)
    described = faas_cli.described("sha256")
    assert described["status"] == "Ready"
    assert (described["replicas"], described["available replicas"]) == ("2", "2")
    assert described["image"] == "penstock/sha256:0.1.0"
    faas_cli.tell(*deploy, "--env", "floor_s=0.05")
    assert gateway.client.get("/system/function/sha256").json()["envVars"]["floor_s"] == "0.05"
    faas_cli.tell("remove", "sha256")
    assert faas_cli.listed() == {}


def test_functions_are_called_and_listed_by_namespace(faas_cli: FaasCli, gateway: GatewayProcess) -> None:
    gateway.deploy()
    assert faas_cli.tell("invoke", "probe", "--namespace", "openfaas-fn", stdin="text") == "text"
    assert "- openfaas-fn" in faas_cli.tell("namespace", "list")
    assert faas_cli.ask("list", "--namespace", "other").returncode != 0
    faas_cli.tell("remove", "probe")


def test_what_is_not_there_is_an_error(faas_cli: FaasCli, tmp_path: Path) -> None:
    for arguments in (("describe", "none"), ("invoke", "none"), ("deploy", "--name", "x", "--image", "penstock/none")):
        # not beside stack.yaml, which faas-cli deploys unless it is told otherwise
        assert faas_cli.ask(*arguments, folder=tmp_path).returncode != 0, arguments
