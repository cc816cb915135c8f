"""Build the Java command that starts the engine's server.

Spark's launcher returns the command that Spark's own shell script would run. Running the command
without that script saves a second. It also makes it possible to leave out a Java module that only
Spark's linear algebra uses and that a small Java lacks.
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
from tidemark.engine import conf
from tidemark.engine.launch.java import Java
from tidemark.engine.launch.private_arguments import write_arguments, write_properties
from tidemark.engine.process import summarize_output
from tidemark.engine.project_code import HAS_CODE
from tidemark.engine.token import token_of

TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
"""The environment variable that contains the engine's token."""

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
# After the first queries, loaded classes take 150 MB. At the default threshold of 21 MB, Java would
# pause for full garbage collections. The machine code of an engine with many assets takes 180 MB.
# At the default limit of 240 MB, half of it for code that is not fully optimized, Java would
# discard code and compile it again. The user's options come later in the command and take
# precedence.
_MEMORY = ("-XX:MetaspaceSize=192m", "-XX:ReservedCodeCacheSize=480m")
_VECTOR = "--add-modules=jdk.incubator.vector"

# For local files, Hadoop starts a process for each chmod and readlink: 130 in a small run, most of
# its time. These classes avoid that. The log store is safe with a single writing server, as here.
_LOCAL_FILES = {
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
    "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming"
    ".checkpointing.FileSystemBasedCheckpointFileManager",
}


# With these settings, Spark's own ports require a secret that Spark generates at its start
# (`file_server` closes the one service that requires no secret). The secret stays in memory,
# because all tasks run in the same process. Task results stay in memory too: above the default
# limit of 1 MB, Spark could spill them to disk, with the raw values of masked columns.
# `spark.io.encryption` would also prevent that, but with this setting, sessions can't send many
# rows.
_CLOSED = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.saslFallback": "false",
    # Not the default cipher, CTR: its library loads classes with the class loader of the first
    # task. That task waits for the port that is being opened, which causes a deadlock.
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.task.maxDirectResultSize": "128m",
}


_REDACTION = "spark.redaction.regex"
_REDACTED_BY_DEFAULT = "(?i)secret|password|token|access[.]?key"
"""Spark's default for `spark.redaction.regex`."""

_HADOOP = "spark.hadoop."
_JAVA_PROPERTY = re.compile(r"-D([^=\s\"']+)=")


def start_command(
    settings: Settings,
    java: Java,
    paths: Sequence[Path],
    scratch: Path,
    archive: Sequence[str],
    tasks: int | None = None,
) -> list[str]:
    """Return the command that starts a server. Its settings are in private files.

    Args:
        paths: the jars in addition to Spark's own.
        scratch: the server's folder for temporary files, and for the files of its settings.
        archive: the Java options that name the AppCDS archive.
        tasks: the number of concurrent tasks; the default is one for each processor.
    """
    cores = os.cpu_count() or 1
    properties = write_properties(scratch, _server_conf(settings, paths, scratch, cores))
    arguments = [
        "--class",
        _SERVER,
        "--master",
        f"local[{tasks or cores}]",
        "--name",
        "tidemark",
        "--properties-file",
        str(properties),
        "spark-internal",
    ]
    command = submit_command(java, arguments, archive)
    options_file = write_arguments(scratch, command[1:])
    return [command[0], f"@{options_file}"]


def server_environment(settings: Settings, scratch: Path) -> dict[str, str]:
    """Return the environment variables of a server, which include the token."""
    return {
        **_without_spark(os.environ),
        # The server's Python workers import the same packages as transforms.
        **python_path(),
        "SPARK_HOME": str(_spark_home(scratch)),
        "PYSPARK_PYTHON": sys.executable,
        # Spark's script sets this too: all workers must hash text in the same way.
        "PYTHONHASHSEED": "0",
        TOKEN: token_of(settings),
        # Otherwise, Spark's web UI would be open to other machines.
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def pyspark_home() -> Path:
    """Return the folder of the installed PySpark, which contains Spark's jars."""
    import pyspark

    return Path(pyspark.__file__).parent


def _server_conf(
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
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": settings.engine_memory,
        "spark.driver.extraJavaOptions": " ".join(
            [settings.engine_java_options, *(f'"-D{name}={value}"' for name, value in java.items())]
        ),
        # Not `spark.jars`: Spark needs the local file system before it loads the jars listed there.
        "spark.driver.extraClassPath": os.pathsep.join(str(path) for path in paths),
        "spark.local.dir": scratch,
        # The only executor is in this process. If the machine sleeps for two minutes, Spark would
        # remove it for its missing heartbeats, and exit ten minutes later, because an executor of
        # a local master can't register again.
        "spark.storage.blockManagerHeartbeatTimeoutMs": "365d",
        "spark.log.level": "WARN",
        **{setting.name: setting.value for setting in conf.SETTINGS},
        **_CLOSED,
        HAS_CODE: "true",
        **_ui_settings(settings),
        # The default is 200. On a small machine, task overhead would be most of a small query's
        # time.
        "spark.sql.shuffle.partitions": 2 * cores,
        "spark.sql.warehouse.dir": settings.warehouse,
        "spark.hadoop.hive.exec.scratchdir": scratch / "hive",
        # The default is 10,000 tasks for a VACUUM, which takes most of a minute even for few files.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": 8 * cores,
        "spark.ui.retainedJobs": 20,
        "spark.ui.retainedStages": 20,
        "spark.ui.retainedTasks": 100,
        **_LOCAL_FILES,
        # `spark_conf.check_conf` has refused the settings that Tidemark depends on.
        **settings.engine_conf,
        _REDACTION: _redaction_pattern(settings),
    }


def _redaction_pattern(settings: Settings) -> str:
    """Return the pattern of the settings whose values Spark hides in its web UI and event log.

    Any setting of the user may be a secret. Hadoop's settings also appear without their prefix.
    """
    pattern = settings.engine_conf.get(_REDACTION, _REDACTED_BY_DEFAULT)
    names = {"spark.driver.extraJavaOptions", *settings.engine_conf}
    names |= set(_JAVA_PROPERTY.findall(settings.engine_java_options))
    hidden = "|".join(re.escape(name.removeprefix(_HADOOP)) for name in sorted(names))
    return f"{pattern}|^({re.escape(_HADOOP)})?({hidden})$"


def _ui_settings(settings: Settings) -> dict[str, object]:
    """Return the settings of Spark's web UI and event log."""
    port = settings.engine_ui_port
    log = settings.engine_event_log
    ui_settings: dict[str, object] = {"spark.ui.enabled": str(port is not None).lower()}
    if port is not None:
        # The pages do not require a token.
        ui_settings |= {"spark.ui.port": port, "spark.ui.killEnabled": "false"}
    if log is not None:
        ui_settings |= {"spark.eventLog.enabled": "true", "spark.eventLog.dir": log.as_uri()}
    return ui_settings


def submit_command(java: Java, arguments: Sequence[str], archive: Sequence[str] = ()) -> list[str]:
    """Return the command that Spark's launcher returns for `SparkSubmit`, with some changes.

    Each jar is named once in the class path, the Java options of the server and of the archive are
    added, and the Java module for vectors is removed.

    Args:
        arguments: the arguments of `spark-submit`.
        archive: the Java options that name the AppCDS archive.

    Raises:
        EngineError: the launcher failed.
    """
    home = pyspark_home()
    launcher = next((home / "jars").glob("spark-launcher_*.jar"))
    scala = re.match(r"spark-launcher_([\d.]+)-", launcher.name)
    assert scala is not None
    command = [java.command, "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", str(launcher)]
    command += ["org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit"]
    command += arguments
    launch = subprocess.run(
        command,
        env=_without_spark(os.environ) | {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": scala[1]},
        capture_output=True,
        text=True,
    )
    # The launcher prints text for users before this separator. After the separator, each part of
    # the command ends with a NUL.
    _, separator, app_arguments = launch.stdout.partition("\0\n")
    if launch.returncode != 0 or not separator:
        reason = summarize_output(launch.stderr.splitlines())
        raise EngineError(
            f"Spark's launcher failed with '{java.command}': {reason}. Check the setting "
            "engine_conf, or set JAVA_HOME to another Java 17 or 21."
        )
    app_command = app_arguments.split("\0")[:-1]
    classes = app_command.index("-cp") + 1
    app_command[classes] = _name_each_once(app_command[classes])
    # The user's options are among the launcher's arguments, and take precedence over earlier ones.
    changed_command = [app_command[0]]
    changed_command += _MEMORY
    changed_command += archive
    changed_command += [argument for argument in app_command[1:] if argument != _VECTOR]
    return changed_command


def _name_each_once(class_path: str) -> str:
    """Return a class path with each existing jar and folder once, without wildcards.

    With duplicates, Java 21 refuses the AppCDS archive of the same class path.
    """
    existing = dict[Path, None]()
    for entry in map(Path, class_path.split(os.pathsep)):
        candidates = [entry]
        if entry.name == "*":
            candidates = sorted(entry.parent.glob("*.jar"))
        existing |= dict.fromkeys(path for path in candidates if path.exists())
    return os.pathsep.join(map(str, existing))


def _without_spark(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables except those of Spark.

    Variables for another Spark installation would change the engine, and `SPARK_REMOTE` would make
    it a client of another server.
    """
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_"))
    }


def _spark_home(scratch: Path) -> Path:
    """Create a Spark home without the zip file of PySpark, and return its folder.

    A Python worker would prefer the zip file to the installed PySpark, and compile it at each
    start. On a busy machine, compiling takes longer than a stream waits for its worker.
    """
    home = scratch / "spark"
    home.mkdir()
    (home / "jars").symlink_to(pyspark_home() / "jars")
    return home
