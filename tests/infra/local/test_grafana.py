"""Grafana as a service of the local world. The server itself has no package here: what it is given is looked at."""

import configparser
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import grafana
from grafana import generate
from infra.local.grafana import Grafana, board_link
from infra.local.ports import free_port
from infra.local.state import StateFolder
from penstock.errors import PenstockError

URL = "http://127.0.0.1:9090"


@pytest.fixture
def service(state_folder: Path) -> Grafana:
    state = StateFolder(state_folder / "state #1")
    state.create()
    return Grafana(state, free_port(), URL)


SERVER = f"""#!{sys.executable}
import configparser, http.server, sys
config = configparser.ConfigParser(interpolation=None)
config.read(next(word for word in sys.argv if word.startswith("--config=")).partition("=")[2])
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/api/health" else 404)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", config["server"].getint("http_port")), Health).serve_forever()
"""
"""Answers as Grafana does when it is well, on the port that its configuration names."""


def install(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An unpacked archive of Grafana, as far as starting it goes."""
    executable = folder / "bin" / name
    executable.parent.mkdir(parents=True)
    executable.write_text(SERVER)
    executable.chmod(0o755)
    (folder / "conf").mkdir()
    (folder / "conf" / "defaults.ini").touch()
    monkeypatch.setenv("PATH", str(executable.parent))
    return executable


def config_of(service: Grafana) -> configparser.ConfigParser:
    (file,) = (word.partition("=")[2] for word in service.prepare().command if word.startswith("--config="))
    assert Path(file).stat().st_mode & 0o777 == 0o600
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(Path(file).read_text())
    return parser


@pytest.mark.parametrize(("name", "more"), [("grafana", ["server"]), ("grafana-server", [])])
def test_both_ways_of_starting_it_are_known(
    service: Grafana, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, more: list[str]
) -> None:
    executable = install(tmp_path / "grafana", name, monkeypatch)
    program = service.prepare()
    assert list(program.command[: 1 + len(more)]) == [str(executable), *more]
    assert f"--homepath={tmp_path / 'grafana'}" in program.command
    assert not program.respawn


def test_it_listens_on_loopback_without_an_account_and_fetches_nothing(
    service: Grafana, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "grafana", "grafana", monkeypatch)
    config = config_of(service)
    assert config["server"]["http_addr"] == "127.0.0.1"
    assert service.ports == {"PENSTOCK_GRAFANA_PORT": config["server"].getint("http_port")}
    assert service.exports == {"PENSTOCK_GRAFANA": f"http://127.0.0.1:{config['server']['http_port']}"}
    assert config["security"].getboolean("disable_initial_admin_creation")
    assert config["auth.anonymous"]["org_role"] == "Viewer"
    assert not config["analytics"].getboolean("reporting_enabled")
    assert config["plugins"].getboolean("preinstall_disabled")


def test_all_that_it_writes_lies_in_the_state_folder(
    service: Grafana, state_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "grafana", "grafana", monkeypatch)
    paths = config_of(service)["paths"]
    for name in ("data", "logs", "plugins"):
        assert paths[name] == f'"""{state_folder / "state #1" / "grafana" / name}"""'


def test_what_provisioning_asks_of_the_environment_is_there(
    service: Grafana, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "grafana", "grafana", monkeypatch)
    provisioning = Path(config_of(service)["paths"]["provisioning"].strip('"'))
    assert provisioning == Path(grafana.__file__).parent / "provisioning"
    asked = {name for file in provisioning.rglob("*.yaml") for name in re.findall(r": \$(\w+)", file.read_text())}
    environment = service.prepare().env
    assert asked == {"PENSTOCK_PROMETHEUS", "PENSTOCK_DASHBOARDS"}
    assert environment["PENSTOCK_PROMETHEUS"] == URL
    assert (Path(environment["PENSTOCK_DASHBOARDS"]) / "overview.json").is_file()
    for folder in ("plugins", "alerting", "notifiers"):  # it logs an error for each that is missing
        assert (provisioning / folder).is_dir(), folder


def test_without_grafana_one_is_told_what_to_do(service: Grafana, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    if not Grafana.installed():  # a package's /usr/sbin is looked into as well
        with pytest.raises(PenstockError, match="no grafana-server on PATH: install Grafana"):
            service.prepare()


def test_an_executable_without_its_pages_is_told(
    service: Grafana, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = install(tmp_path / "grafana", "grafana", monkeypatch)
    (tmp_path / "grafana" / "conf" / "defaults.ini").unlink()
    if not Path("/usr/share/grafana/conf/defaults.ini").exists():
        with pytest.raises(PenstockError, match=f"{executable}: its conf/defaults.ini is neither in"):
            service.prepare()


def test_it_answers_when_its_server_does(service: Grafana, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "grafana", "grafana-server", monkeypatch)
    program = service.prepare()
    assert not service.answers()
    with subprocess.Popen(program.command, env=dict(program.env), stderr=subprocess.DEVNULL) as process:
        try:
            until_s = time.monotonic() + 60
            while not service.answers():
                assert process.poll() is None
                assert time.monotonic() < until_s
                time.sleep(0.1)
        finally:
            process.kill()


def test_a_link_opens_the_overview_at_the_run() -> None:
    link = board_link("http://localhost:27191", "run-1", 1_700_000_000_123_000_000)
    board = json.loads((generate.FOLDER / "overview.json").read_text())
    assert link == f"http://localhost:27191/d/{board['uid']}?var-run=run-1&from=1700000000123&to=now"
    assert "run" in [variable["name"] for variable in board["templating"]["list"]]
