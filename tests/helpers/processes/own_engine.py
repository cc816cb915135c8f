"""A Spark Connect server that Tidemark has not started, as on a user's cluster.

It has the settings of `tidemark engine conf` and Delta's jars. Its Python has the libraries that
Tidemark depends on, but neither Tidemark nor a project.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

import psutil

from tidemark.engine.conf import as_properties
from tidemark.engine.launch import jars
from tidemark.engine.launch.command import TOKEN, _spark_home, pyspark_home, submit_command
from tidemark.engine.launch.java import find_java
from tidemark.engine.ports import free_port
from tidemark.engine.probe import Answer, probe_engine

_START_SECONDS = 180.0

CLUSTER = "local-cluster[2,1,1024]"
"""The master that starts two workers, each with one executor: processes with 1 GB and one core."""

_EXECUTOR = "CoarseGrainedExecutorBackend"
"""The class of an executor of `CLUSTER`."""

_HIDE = """
empty=$1
shift
while [ "$1" != -- ]; do
    mount --bind "$empty" "$1" || exit 9
    shift
done
shift
exec "$@"
"""
"""A program that replaces the given folders by an empty one, for itself and its children."""


@dataclass
class OwnEngine:
    """A server, which can be killed and started again.

    Args:
        folder: an existing folder for the server's files.
        token: the token that the server requires, if any.
        conf: further settings of Spark.
        master: Spark's master, which determines where tasks run.
        extra_jars: jars for the server and its executors, in addition to Delta's.
        hidden: folders that are empty for the server and its executors, as on another machine.
    """

    folder: Path
    token: str | None = None
    conf: Mapping[str, object] = field(default_factory=dict[str, object])
    master: str = "local[2]"
    extra_jars: Sequence[Path] = ()
    hidden: Sequence[Path] = ()
    port: int = field(default_factory=free_port)
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def address(self) -> str:
        """The address of the server, without its token."""
        return f"sc://localhost:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "server.log").read_text()

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        command = submit_command(find_java(), self._arguments())
        if self.hidden:
            command = [*_hide(self.folder / "empty", self.hidden), *command]
        with (self.folder / "server.log").open("a") as log:
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=self._environment(), stdout=log, stderr=log
            )
        parameters = "" if self.token is None else f"/;token={self.token}"
        deadline = monotonic() + _START_SECONDS
        while probe_engine(self.address + parameters, 1) is not Answer.READY:
            assert self.process.poll() is None, self.log[-5000:]
            assert monotonic() < deadline
            sleep(0.2)

    def kill(self) -> None:
        """Kill the server. Its executors end with it."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def stop(self) -> None:
        """Stop the server, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)

    def executors(self) -> list[psutil.Process]:
        """Return the processes of the executors."""
        assert self.process is not None
        children = psutil.Process(self.process.pid).children(recursive=True)
        return [child for child in children if any(_EXECUTOR in part for part in child.cmdline())]

    def kill_executor(self) -> None:
        """Kill one of the executors."""
        self.executors()[0].send_signal(signal.SIGKILL)

    def _arguments(self) -> list[str]:
        class_path = os.pathsep.join(map(str, [*jars.ensure_jars(find_java()), *self.extra_jars]))
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": self.port,
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.driver.extraClassPath": class_path,
            "spark.executor.extraClassPath": class_path,
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={self.folder} "
            "-Duser.timezone=UTC",
            "spark.local.dir": self.folder / "scratch",
            "spark.log.level": "WARN",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.warehouse.dir": self.folder / "spark-warehouse",
            **self.conf,
        }
        lines = [*as_properties(), *(f"{name} {value}" for name, value in settings.items())]
        properties = self.folder / "spark-defaults.conf"
        properties.write_text("\n".join(lines))
        return [
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            *("--master", self.master),
            *("--properties-file", str(properties)),
            "spark-internal",
        ]

    def _environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SPARK_", "PYSPARK_", "TIDEMARK_")) and name != "PYTHONPATH"
        }
        python, home = self.folder / "python", self.folder / "spark"
        environment = {
            **kept,
            "SPARK_HOME": str(home if home.exists() else _spark_home(self.folder)),
            # For the commands of executors, which Spark's launcher creates in the server.
            "SPARK_SCALA_VERSION": "2.13",
            "PYSPARK_PYTHON": str(
                python / "bin" / "python" if python.exists() else python_without_tidemark(python)
            ),
            "PYTHONHASHSEED": "0",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        return environment if self.token is None else {**environment, TOKEN: self.token}


@contextmanager
def own_engine(engine: OwnEngine) -> Iterator[OwnEngine]:
    """Start a server, yield it, and stop it at the end."""
    try:
        engine.start()
        yield engine
    finally:
        engine.stop()


def python_without_tidemark(folder: Path) -> Path:
    """Create a virtual environment with the packages of this one, except Tidemark."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site_packages,) = (folder / "lib").glob("python*/site-packages")
    # The packages of a folder that a path file names may not have path files themselves. The one of
    # Tidemark, an editable installation, is therefore not read.
    (site_packages / "packages.pth").write_text(str(pyspark_home().parent))
    return folder / "bin" / "python"


def can_hide() -> bool:
    """Return whether this user may create a mount namespace."""
    try:
        return subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def _hide(empty: Path, folders: Sequence[Path]) -> list[str]:
    """Return the beginning of a command for which the folders are empty."""
    empty.mkdir(exist_ok=True)
    shell = ["unshare", "-m", "bash", "-c", _HIDE, "hide", str(empty)]
    return [*shell, *map(str, folders), "--"]
