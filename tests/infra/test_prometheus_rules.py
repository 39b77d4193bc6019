"""Alert rules and Prometheus' configuration, judged by promtool."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from infra.local.prometheus import RULES, Prometheus
from infra.local.state import StateFolder

TESTS = RULES.with_name("tests")

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool: `make setup`"),
]


def promtool(*arguments: str | Path) -> str:
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_are_well_formed() -> None:
    assert "SUCCESS" in promtool("check", "rules", *RULES.glob("*.yml"))


def test_every_alert_fires_when_it_should_and_only_then() -> None:
    assert "SUCCESS" in promtool("test", "rules", *TESTS.glob("*.yml"))


def test_every_alert_has_a_test_that_sees_it_fire() -> None:
    alerts = {name for file in RULES.glob("*.yml") for name in re.findall(r"alert: (\w+)", file.read_text())}
    fired = {
        name
        for file in TESTS.glob("*.yml")
        for name in re.findall(r"alertname: (\w+)\n\s+exp_alerts:\n", file.read_text())
    }
    assert alerts == fired
    assert len(alerts) == 7


def test_the_local_prometheus_loads_them(tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "it's here")
    state.create()
    program = Prometheus(state, 1).prepare()
    (config,) = (word.partition("=")[2] for word in program.command if word.startswith("--config.file="))
    said = promtool("check", "config", config)
    assert "SUCCESS: 7 rules found" in said
