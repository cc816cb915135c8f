"""A Spark Connect server that Tidemark has not started, as on a user's cluster.

It has the settings of `tidemark engine-conf` and Delta's jars. Its Python has the libraries that
Tidemark depends on, but neither Tidemark nor a project.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from tidemark.engine.conf import as_properties
from tidemark.engine.launch import jars
from tidemark.engine.launch.command import TOKEN, _spark_home, pyspark_home, submit
from tidemark.engine.launch.java import find_java
from tidemark.engine.ports import free_port
from tidemark.engine.probe import Answer, probe

_START_SECONDS = 180.0


@contextmanager
def own_engine(
    folder: Path,
    *,
    python: Path | None = None,
    token: str | None = None,
    conf: Mapping[str, object] | None = None,
    extra_jars: tuple[Path, ...] = (),
    libraries: Path | None = None,
) -> Iterator[str]:
    """Yield the address of a server, without its token.

    Args:
        folder: an existing folder for the server's files.
        python: the server's Python; by default one that `python_without_tidemark` creates.
        token: the token that the server requires, if any.
        conf: further settings of Spark.
    """
    port = free_port()
    java = find_java()
    properties = folder / "spark-defaults.conf"
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraClassPath": os.pathsep.join(map(str, [*jars.ensure(java), *extra_jars])),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder} -Duser.timezone=UTC",
        "spark.local.dir": folder / "scratch",
        "spark.log.level": "WARN",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": folder / "spark-warehouse",
        **(conf or {}),
    }
    lines = [*as_properties(), *(f"{name} {value}" for name, value in settings.items())]
    properties.write_text("\n".join(lines))
    arguments = [
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", "local[2]"),
        *("--properties-file", str(properties)),
        "spark-internal",
    ]
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_", "TIDEMARK_")) and name != "PYTHONPATH"
    }
    environment = {
        **kept,
        "SPARK_HOME": str(_spark_home(folder)),
        "PYSPARK_PYTHON": str(python or python_without_tidemark(folder / "python")),
        "PYTHONHASHSEED": "0",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    if token is not None:
        environment[TOKEN] = token
    parameters = "" if token is None else f"/;token={token}"
    address = f"sc://localhost:{port}"
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(
            submit(java, arguments), cwd=folder, env=environment, stdout=log, stderr=log
        )
        try:
            deadline = monotonic() + _START_SECONDS
            while probe(address + parameters, 1) is not Answer.READY:
                assert server.poll() is None, (folder / "server.log").read_text()[-5000:]
                assert monotonic() < deadline
                sleep(0.2)
            yield address
        finally:
            server.terminate()
            server.wait(60)


def python_without_tidemark(folder: Path) -> Path:
    """Create a virtual environment with the packages of this one, except Tidemark."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site_packages,) = (folder / "lib").glob("python*/site-packages")
    # The packages of a folder that a path file names may not have path files themselves. The one of
    # Tidemark, an editable installation, is therefore not read.
    (site_packages / "packages.pth").write_text(str(pyspark_home().parent))
    return folder / "bin" / "python"
