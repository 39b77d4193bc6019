import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from pipelines.session import CONNECTOR, SPARK_VERSION, connector_jars, executors_elsewhere, spark_session

POM = Path(__file__).parents[2] / "infra" / "local" / "jars" / "spark" / "pom.xml"


def open_session(folder: Path) -> None:
    with spark_session("test", folder):
        pass


def test_without_java_the_way_out_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PenstockError, match="there is no java in PATH: install one with `penstock setup`"):
        open_session(tmp_path)


def test_a_java_home_that_holds_no_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    with pytest.raises(PenstockError, match=re.escape(f"{tmp_path}/none/bin/java does not exist")):
        open_session(tmp_path)


def test_a_missing_jar_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_JARS", str(tmp_path))
    (tmp_path / "spark").mkdir()
    for name in CONNECTOR[:-1]:
        (tmp_path / "spark" / name).touch()
    with pytest.raises(PenstockError, match=rf"lacks {re.escape(CONNECTOR[-1])}; fetch them with `penstock setup`"):
        connector_jars()


def test_the_pom_fetches_the_connector_of_the_version_that_was_tested() -> None:
    pom = POM.read_text()
    assert f"<spark.version>{SPARK_VERSION}</spark.version>" in pom
    artifacts = re.findall(r"<artifactId>([^<*]+)</artifactId>\s*<version>([^<]+)</version>", pom)
    named = {f"{name}-{version.replace('${spark.version}', SPARK_VERSION)}.jar" for name, version in artifacts}
    assert set(CONNECTOR) <= named


def test_everything_that_spark_writes_lies_in_the_folder_it_was_given(spark: SparkSession) -> None:
    spark.range(3).write.format("noop").mode("overwrite").save()
    assert not any((Path() / name).exists() for name in ("artifacts", "spark-warehouse", "derby.log", "metastore_db"))
    warehouse = str(spark.conf.get("spark.sql.warehouse.dir"))
    assert not warehouse.startswith(Path().absolute().as_uri())


def test_where_executors_are_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_SPARK", raising=False)
    assert executors_elsewhere() == {}
    monkeypatch.setenv("PENSTOCK_SPARK", "spark.master=k8s://https://a\n\n  spark.driver.host = b=c\n")
    assert executors_elsewhere() == {"spark.master": "k8s://https://a", "spark.driver.host": "b=c"}
    monkeypatch.setenv("PENSTOCK_SPARK", "spark.master=local\nmaster=x")
    with pytest.raises(PenstockError, match=r"PENSTOCK_SPARK: master=x: must be spark"):
        executors_elsewhere()
