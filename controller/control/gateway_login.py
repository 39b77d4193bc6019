"""The login that ``faas-cli login`` has stored for a gateway."""

import base64
import binascii
import os
from pathlib import Path
from typing import Any

import httpx
import yaml

from penstock.errors import PenstockError


def with_login(url: str) -> str:
    """``url`` with user and password: its own, or those of ``faas-cli login`` for it. PenstockError without any."""
    try:
        gateway = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise PenstockError(f"--gateway: no URL ({error}): http://user:password@host:port") from None
    if gateway.userinfo:
        return url
    file = Path(os.environ.get("OPENFAAS_CONFIG") or Path.home() / ".openfaas").expanduser() / "config.yml"
    try:
        found: Any = yaml.safe_load(file.read_bytes())
        for each in found["auths"]:
            if each["gateway"].rstrip("/").lower() == url.rstrip("/").lower() and each["auth"] == "basic":
                user, _, password = base64.b64decode(each["token"], validate=True).decode().partition(":")
                return str(gateway.copy_with(username=user, password=password))
    except OSError:
        pass
    except (yaml.YAMLError, LookupError, TypeError, AttributeError, binascii.Error, UnicodeDecodeError) as error:
        raise PenstockError(
            f"{file}: not faas-cli's file ({type(error).__name__}); run `faas-cli login` again"
        ) from None
    raise PenstockError(
        f"{url}: no user and password; run `faas-cli login --gateway {url}`, or --gateway http://user:password@host:port"
    )
