"""One small Spark session: a guest on a machine whose latencies it measures.

One task at a time, a heap of 1 GB, no web page, no code generation (batches are small, compiling them is not), loopback
only; every file lies in a folder that the caller names and may remove.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Final

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from penstock.settings import Folders

SPARK_VERSION: Final = "4.0.0"
CONNECTOR: Final = (
    "spark-sql-kafka-0-10_2.13-4.0.0.jar",
    "spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    "kafka-clients-3.9.0.jar",
    "commons-pool2-2.12.0.jar",
)
"""Spark and its Kafka connector: the pair that was tested. infra/local/jars/spark/pom.xml fetches these jars."""

JVM_OPTIONS: Final = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Xshare:auto",
    "-Djava.net.preferIPv4Stack=true",
)
"""One collector thread and the quick compiler only: the optimising one would cost more than small batches give back.
No performance counters, which would be files in /tmp.
"""

STOP_TIMEOUT_S = 10.0
EXECUTORS: Final = "PENSTOCK_SPARK"


@contextmanager
def spark_session(
    name: str,
    folder: Path,
    *,
    jars: Sequence[Path] = (),
    cores: int = 1,
    elsewhere: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A session of its own JVM that ends with the block, whatever happens.

    ``folder`` takes everything that Spark writes. ``jars``: see ``connector_jars``. ``elsewhere``: see
    ``executors_elsewhere``. Raises PenstockError where there is no Java, or where pyspark is not the version that was
    tested.
    """
    _require_java()
    if pyspark.__version__ != SPARK_VERSION:
        raise PenstockError(
            f"pyspark {pyspark.__version__}: Penstock was tested with {SPARK_VERSION}; run `make setup`"
        )
    folder = folder.absolute()
    for part in ("local", "tmp", "warehouse", "ivy"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    _set_environment(folder, loopback=not elsewhere)
    settings = _configuration(name, folder, jars, cores)
    conf = SparkConf(loadDefaults=False).setAll(list({**settings, **(elsewhere or {})}.items()))
    try:
        # The JVM's own current folder: Spark 4.0.0 makes a folder "artifacts" there.
        with chdir(folder):
            session = SparkSession.builder.config(conf=conf).getOrCreate()
    except PySparkRuntimeError as error:
        raise PenstockError(
            f"Java did not start Spark ({error}): it needs Java 17 or 21: `penstock setup`, or point JAVA_HOME at one"
        ) from None
    try:
        yield session
    finally:
        _end(session)


def executors_elsewhere() -> dict[str, str]:
    """Settings of Spark, ``name=value`` a line, from PENSTOCK_SPARK: where its executors are if not in the session's
    own process, and at which address they reach that. Empty if it is not set. Raises PenstockError that names a line.
    """
    settings = {}
    for line in filter(None, map(str.strip, os.environ.get(EXECUTORS, "").splitlines())):
        name, equals, value = line.partition("=")
        if not equals or not name.startswith("spark."):
            raise PenstockError(f"{EXECUTORS}: {line}: must be spark.….…=value")
        settings[name.strip()] = value.strip()
    return settings


def connector_jars() -> list[Path]:
    """Spark's Kafka connector. Raises PenstockError that names a jar that is missing."""
    jars = {jar.name: jar for jar in Folders().jars_of("spark")}
    missing = [name for name in CONNECTOR if name not in jars]
    if missing:
        raise PenstockError(
            f"{Folders().jars.absolute() / 'spark'}: lacks {', '.join(missing)}; fetch them with `penstock setup`"
        )
    return [jars[name] for name in CONNECTOR]


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else shutil.which("java")
    if java is None or not Path(java).is_file():
        where = f"{java} does not exist" if home else "there is no java in PATH"
        raise PenstockError(f"Spark needs Java 17 or 21 and {where}: install one with `penstock setup`")


def _set_environment(folder: Path, *, loopback: bool) -> None:
    """The variables that Spark reads; settings of another Spark on the machine are removed."""
    for name in ("SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
        os.environ.pop(name, None)
    os.environ |= {
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
        "PYSPARK_PYTHON": sys.executable,
        **({"SPARK_LOCAL_IP": "127.0.0.1"} if loopback else {}),
    }


def _configuration(name: str, folder: Path, jars: Sequence[Path], cores: int) -> dict[str, str]:
    options = [
        *JVM_OPTIONS,
        f"-Djava.io.tmpdir={folder / 'tmp'}",
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}",
    ]
    return {
        "spark.master": f"local[{cores}]",
        "spark.app.name": name,
        "spark.submit.deployMode": "client",
        "spark.jars": ",".join(jar.absolute().as_uri() for jar in jars),
        "spark.jars.ivy": str(folder / "ivy"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.structuredLogging.enabled": "false",
        "spark.python.worker.reuse": "true",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.ui.retainedExecutions": "1",
        "spark.ui.retainedJobs": "1",
        "spark.ui.retainedStages": "1",
        "spark.ui.retainedTasks": "1",
        # Checkpoints without checksums or permissions: each file would cost three forks of chmod.
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
        ),
        "spark.sql.streaming.numRecentProgressUpdates": "1",
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }


def _end(session: SparkSession) -> None:
    """Stop Spark and wait until its JVM is gone; pyspark itself would leave that to the end of the process."""
    gateway = SparkContext._gateway
    session.stop()
    SparkSession._instantiatedSession = None
    SparkContext._gateway = SparkContext._jvm = None
    if gateway is None:
        return
    gateway.shutdown()
    process: subprocess.Popen[bytes] = gateway.proc
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
