"""What `make setup` installs: pinned in one place, and told in one line where it cannot be had."""

import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from importlib.metadata import version
from pathlib import Path

import pytest

import infra.local
from infra.local import rabbitmq

LOCAL = Path(infra.local.__file__).parent
MAVEN = {"m": "http://maven.apache.org/POM/4.0.0"}


def setup(
    *arguments: str, programs: tuple[str, ...], folder: Path, docker: str = ""
) -> subprocess.CompletedProcess[str]:
    """setup.sh on a machine that has nothing but ``programs``, and perhaps a script as ``docker``."""
    path = folder / "bin"
    path.mkdir()
    for name in programs:
        found = shutil.which(name)
        assert found is not None
        (path / name).symlink_to(found)
    if docker:
        (path / "docker").write_text(docker)
        (path / "docker").chmod(0o755)
    bash = shutil.which("bash")
    assert bash is not None
    return subprocess.run(
        [bash, LOCAL / "setup.sh", *arguments],
        env={"PATH": str(path), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )


def test_the_connector_is_of_the_version_of_pyspark() -> None:
    pom = ET.parse(LOCAL / "jars" / "spark" / "pom.xml").getroot()
    assert pom.findtext("m:properties/m:spark.version", namespaces=MAVEN) == version("pyspark")


def test_the_connector_is_exactly_four_jars() -> None:
    pom = ET.parse(LOCAL / "jars" / "spark" / "pom.xml").getroot()
    assert [found.text for found in pom.findall("m:dependencies/m:dependency/m:artifactId", MAVEN)] == [
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
        "kafka-clients",
        "commons-pool2",
    ]
    assert len(pom.findall(".//m:exclusion", MAVEN)) == 4


def test_without_java_the_jars_are_refused_in_one_line(tmp_path: Path) -> None:
    done = setup("jars", str(tmp_path / "jars"), programs=("dirname",), folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "setup: no java on PATH: install Java 17 or 21 (Debian: openjdk-17-jre-headless)\n"


@pytest.mark.system
def test_without_java_docker_fetches_the_jars(tmp_path: Path) -> None:
    jars, log = tmp_path / "jars", tmp_path / "docker-log"
    # The output folder of the last argument; what is mounted is labelled for SELinux, as Fedora needs it.
    docker = f"""#!/bin/sh
echo "$@" >>{log}
for each; do case $each in -DoutputDirectory=*) touch "${{each#*=}}/connector.jar" ;; esac; done
"""
    needed = ("dirname", "mkdir", "mktemp", "rm", "mv", "touch", "id", "sh")
    done = setup("jars", str(jars), "spark", programs=needed, folder=tmp_path, docker=docker)
    assert (done.returncode, done.stderr) == (0, "setup: fetching the jars of spark\n")
    assert {each.name for each in (jars / "spark").iterdir()} == {".complete", "connector.jar"}
    asked = log.read_text()
    assert f"--user {os.getuid()}:{os.getgid()} " in asked
    assert f"--volume {LOCAL}/jars:{LOCAL}/jars:ro,z --volume {jars}:{jars}:z " in asked
    assert [each.name for each in jars.iterdir()] == ["spark"], "no half of a download stays"


def test_without_apt_what_is_missing_is_named_in_one_line(tmp_path: Path) -> None:
    done = setup("system", programs=("dirname", "tr"), folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    # Where RabbitMQ's server lies is not for PATH to say: this machine may have it.
    assert re.search(r"missing: java maven redis-server (rabbitmq-server )?prometheus ", done.stderr)


@pytest.mark.system
def test_what_is_there_already_is_not_touched(tmp_path: Path) -> None:
    for name in ("java", "mvn", "redis-server", "prometheus"):
        assert shutil.which(name), f"{name} is missing: run `make setup`"
    assert rabbitmq.SERVER.is_file(), "rabbitmq-server is missing: run `make setup`"
    done = setup("system", programs=("dirname", "tr", "java", "mvn", "redis-server", "prometheus"), folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]
