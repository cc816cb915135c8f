"""How the engine's server is started: Java, run as Spark's own launcher would run it.

The launcher is asked for its command, which says what Java must be told for Spark, and the command
is run without the shell script around it. That takes a second less, and does without a module that
only Spark's linear algebra uses and that a small Java lacks.
"""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidemark.base.errors import EngineError
from tidemark.base.project import python_path
from tidemark.base.settings import Settings
from tidemark.engine.java import Java
from tidemark.engine.rules import EXCLUDED_RULES, UNSAFE_RULE
from tidemark.engine.token import token_of

TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""The variable that holds the engine's token."""

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
# Classes take 150 MB within the first queries, and from 21 MB on, the default, Java would stop for
# a collection of everything. The user's options come later, and prevail.
_METASPACE = ("-XX:MetaspaceSize=192m",)
_VECTOR = "--add-modules=jdk.incubator.vector"

# On local files Hadoop starts a process for each chmod and readlink, 130 in a small run, which took
# most of its time. These classes do without. The log store is safe for one writing server, as here.
_LOCAL_FILES = {
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
    "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming"
    ".checkpointing.FileSystemBasedCheckpointFileManager",
}


# Spark's own ports ask for a secret that Spark draws at its start and keeps in its memory, as all
# tasks run there (`file_server` closes what is served without it). What a task gives back stays in
# the memory: beyond a megabyte, the default, it could be put aside on the disk, with the raw values
# of masked columns. Not by `spark.io.encryption`: with it, sessions can't send many rows.
_CLOSED = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.saslFallback": "false",
    # Not the default, CTR: the library behind it looks for its classes by the class loader of the
    # first task, which waits for the very port that is being opened, and both stand still.
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.task.maxDirectResultSize": "128m",
}


def command(
    settings: Settings,
    java: Java,
    paths: Sequence[Path],
    scratch: Path,
    archive: Sequence[str],
    tasks: int | None = None,
) -> list[str]:
    """The command of a server.

    Args:
        paths: the jars beside Spark's own.
        scratch: its folder for what goes when it ends.
        archive: options of Java that name the archive of classes.
        tasks: how many it runs at once; by default one for each processor.

    Raises:
        EngineError: Spark's launcher does not say how to start.
    """
    cores = os.cpu_count() or 1
    conf = _conf(settings, paths, scratch, cores)
    arguments = [
        *("--class", _SERVER),
        *("--master", f"local[{tasks or cores}]"),
        *("--name", "tidemark"),
        *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
        "spark-internal",
    ]
    return submit(java, arguments, archive)


def environment(settings: Settings, scratch: Path) -> dict[str, str]:
    """The environment of a server, with its token."""
    return {
        **_without_spark(os.environ),
        # Its workers import what transforms import.
        **python_path(),
        "SPARK_HOME": str(_spark_home(scratch)),
        "PYSPARK_PYTHON": sys.executable,
        # As Spark's script has it: workers that hash text must agree.
        "PYTHONHASHSEED": "0",
        TOKEN: token_of(settings),
        # Spark's own pages would be open to other machines.
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def pyspark_home() -> Path:
    """The folder of the installed PySpark, which holds Spark's jars."""
    import pyspark

    return Path(pyspark.__file__).parent


def _conf(
    settings: Settings, paths: Sequence[Path], scratch: Path, cores: int
) -> dict[str, object]:
    java = {
        "derby.system.home": settings.home / "metastore",
        "derby.stream.error.file": settings.home / "logs" / "metastore.log",
        "java.io.tmpdir": scratch,
        "user.timezone": "UTC",
    }
    return {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": settings.engine_port,
        # A session holds its streaming queries' state and a client's temporary views.
        "spark.connect.session.manager.defaultSessionTimeout": "1d",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": settings.engine_memory,
        "spark.driver.extraJavaOptions": " ".join(
            [settings.engine_java_options, *(f'"-D{name}={value}"' for name, value in java.items())]
        ),
        # Not `spark.jars`: the local file system is needed before those are loaded.
        "spark.driver.extraClassPath": os.pathsep.join(str(path) for path in paths),
        "spark.local.dir": scratch,
        "spark.log.level": "WARN",
        **_CLOSED,
        **_shown(settings),
        "spark.sql.ansi.enabled": "true",
        EXCLUDED_RULES: UNSAFE_RULE,
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.session.timeZone": "UTC",
        # 200 by default: on a small machine the tasks' overhead is most of a small query's time.
        "spark.sql.shuffle.partitions": 2 * cores,
        "spark.sql.warehouse.dir": settings.warehouse,
        "spark.hadoop.hive.exec.scratchdir": scratch / "hive",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # 10 ms by default: an idle stream lists its table's log each time, without a pause.
        "spark.sql.streaming.pollingDelay": "200ms",
        # 50 by default: one task reads a small table's log ten times quicker.
        "spark.databricks.delta.snapshotPartitions": 1,
        # 10,000 tasks by default for a VACUUM, whatever there is to list: most of a minute.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": 8 * cores,
        # 10,000 tables for an hour by default, at one or two megabytes each.
        "spark.databricks.delta.delta.log.cacheSize": 200,
        "spark.databricks.delta.delta.log.cacheRetentionMinutes": 5,
        # Nobody looks at Spark's own pages: 1,000 plans of each session by default.
        "spark.sql.ui.retainedExecutions": 20,
        "spark.sql.ui.explainMode": "simple",
        # Each call on a column would look through the stack for its place in the user's code: a
        # tenth of a small run. What is wrong with a definition is told by its asset and column.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.ui.retainedJobs": 20,
        "spark.ui.retainedStages": 20,
        "spark.ui.retainedTasks": 100,
        "spark.databricks.delta.schema.autoMerge.enabled": "false",
        **_LOCAL_FILES,
        # What Tidemark itself stands on is not among them.
        **settings.engine_conf,
    }


def _shown(settings: Settings) -> dict[str, object]:
    """What Spark shows of itself, to people and to a history server."""
    port, log = settings.engine_ui_port, settings.engine_event_log
    found: dict[str, object] = {"spark.ui.enabled": str(port is not None).lower()}
    if port is not None:
        # Whoever sees the pages has shown no token.
        found |= {"spark.ui.port": port, "spark.ui.killEnabled": "false"}
    if log is not None:
        found |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": log.as_uri()}
    return found


def submit(java: Java, arguments: Sequence[str], archive: Sequence[str] = ()) -> list[str]:
    """The command with which Spark's own script would run `SparkSubmit`, told by its launcher.

    Raises:
        EngineError: the launcher does not run.
    """
    home = pyspark_home()
    launcher = next((home / "jars").glob("spark-launcher_*.jar"))
    scala = re.match(r"spark-launcher_([\d.]+)-", launcher.name)
    assert scala is not None
    done = subprocess.run(
        [
            *(java.command, "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", str(launcher)),
            "org.apache.spark.launcher.Main",
            *("org.apache.spark.deploy.SparkSubmit", *arguments),
        ],
        env=_without_spark(os.environ) | {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": scala[1]},
        capture_output=True,
        text=True,
    )
    # What comes before this mark is for people; each part of the command ends with a NUL.
    _, mark, told = done.stdout.partition("\0\n")
    if done.returncode != 0 or not mark:
        reasons = done.stderr.strip().splitlines() or ["it said nothing"]
        raise EngineError(f"Spark's launcher does not run with '{java.command}': {reasons[0]}")
    program, *rest = told.split("\0")[:-1]
    return [program, *_METASPACE, *archive, *(part for part in rest if part != _VECTOR)]


def _without_spark(environ: Mapping[str, str]) -> dict[str, str]:
    """Another Spark would change this one by its variables; a remote would make it a client."""
    return {k: v for k, v in environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}


def _spark_home(scratch: Path) -> Path:
    """Spark's home, without the zip of its Python: a worker would take it before the installed
    one, and compile it anew at each start, for longer than a stream waits on a busy machine."""
    home = scratch / "spark"
    home.mkdir()
    (home / "jars").symlink_to(pyspark_home() / "jars")
    return home
