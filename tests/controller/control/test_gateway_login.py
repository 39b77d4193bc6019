"""User and password of a gateway: those of its URL, else those that faas-cli has stored."""

import base64
from pathlib import Path

import pytest

from controller.control.gateway_login import with_login
from penstock.errors import PenstockError

TOKEN = base64.b64encode(b"admin:p/w:@").decode()
STORED = f"""auths:
- gateway: http://127.0.0.1:8080
  auth: basic
  token: {TOKEN}
  options: []
- gateway: http://other:8080
  auth: oauth2
  token: x
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENFAAS_CONFIG", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "http://127.0.0.1:8080/", "HTTP://127.0.0.1:8080"])
def test_the_login_of_faas_cli_is_used(folder: Path, url: str) -> None:
    (folder / "config.yml").write_text(STORED)
    assert with_login(url).rstrip("/").lower() == "http://admin:p%2fw%3a%40@127.0.0.1:8080"


def test_a_password_in_the_url_goes_first(folder: Path) -> None:
    (folder / "config.yml").write_text("nonsense: [")
    assert with_login("http://me:mine@127.0.0.1:8080") == "http://me:mine@127.0.0.1:8080"


@pytest.mark.parametrize("stored", [None, STORED])
def test_without_a_login_the_command_that_makes_one_is_named(folder: Path, stored: str | None) -> None:
    if stored is not None:
        (folder / "config.yml").write_text(stored)
    with pytest.raises(PenstockError, match="run `faas-cli login --gateway http://other:8080`"):
        with_login("http://other:8080")


@pytest.mark.parametrize("stored", ["auths: 5", "[", "auths:\n- gateway: http://g:1\n  auth: basic\n  token: '*'"])
def test_a_file_that_is_not_faas_clis_is_named(folder: Path, stored: str) -> None:
    (folder / "config.yml").write_text(stored)
    with pytest.raises(PenstockError, match=r"config\.yml: not faas-cli's file"):
        with_login("http://g:1")
