"""A local Kafka broker for development and tests: real Kafka, one node, on loopback.

The broker's jars come from Maven, each pinned with its checksum in `broker.lock`. They are fetched
when a broker is first started, or by `main`. The broker's data is in the folder `kafka` of the
home.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tidemark.base.errors import EngineError, TidemarkError
from tidemark.base.files.private import make_folder
from tidemark.base.settings import Settings
from tidemark.engine import ManagedProcess
from tidemark.engine.launch import cache, jars
from tidemark.engine.launch.java import find_java
from tidemark.engine.ports import check_free, free_port
from tidemark.engine.process import ProgressCallback, ignore_progress, summarize_output
from tidemark_streaming.kafka.client import client_properties

_HERE = Path(__file__).parent
FOLDER = cache.cache_folder("kafka")
"""The folder of the broker's jars: one copy for every home."""

_MEMORY = "512m"
_START_DEADLINE = 180.0


def broker_process(settings: Settings) -> ManagedProcess:
    """Return the handle of the broker's process."""
    return ManagedProcess(settings.home, "kafka")


def broker_address(settings: Settings) -> str:
    """Return the address on which this home's broker listens."""
    return f"127.0.0.1:{settings.kafka_port}"


def start_broker(
    settings: Settings,
    on_progress: ProgressCallback = ignore_progress,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Start the broker if it is not running, and wait until it answers.

    Args:
        properties: properties of the broker that override or extend its defaults.
    """
    broker = broker_process(settings)
    port = (settings.kafka_port, "broker", "kafka_port", "tidemark dev kafka down")
    if broker.find_running_at(*port) is None:
        check_free(settings.kafka_port, "kafka_port")
        java = find_java()
        on_progress("fetching the broker's jars" if not FOLDER.exists() else "starting")
        paths = jars.ensure_jars(java, FOLDER, pinned_jars(), settings.maven_repository)
        command = [
            java.command,
            f"-Xmx{_MEMORY}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dlog4j2.configurationFile={_HERE / 'broker.log4j2.properties'}",
            "-cp",
            os.pathsep.join(map(str, paths)),
        ]
        file = _write_configuration(settings, properties or {})
        _format_data_folder(command, settings.home / "kafka" / "data", file)
        on_progress("starting")
        served = [*command, "kafka.Kafka", str(file)]
        broker.start(served, settings.kafka_port, os.environ, settings.home)
    broker.await_ready("broker", lambda: _is_responding(settings, timeout=5.0), _START_DEADLINE)


def pinned_jars() -> list[jars.Jar]:
    """Return the jars in `broker.lock`, whose lines are `group:artifact:version sha256`."""
    lines = (_HERE / "broker.lock").read_text().splitlines()
    return [jars.Jar(*line.replace(" ", ":").split(":")) for line in lines]


def main() -> None:
    """Fetch the broker's jars, so that tests which start a broker don't wait for them."""
    if not FOLDER.exists():
        sys.stderr.write("setup: jars of the Kafka broker that tests start\n")
    try:
        jars.ensure_jars(find_java(), FOLDER, pinned_jars(), Settings().maven_repository)
    except TidemarkError as error:
        sys.exit(f"setup: {error}")


def _write_configuration(settings: Settings, properties: Mapping[str, str]) -> Path:
    folder = settings.home / "kafka"
    make_folder(folder)
    controller = free_port()
    broker_properties = {
        "listeners": f"PLAINTEXT://{broker_address(settings)},CONTROLLER://127.0.0.1:{controller}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "log.dirs": str(folder / "data"),
        **properties,
    }
    file = folder / "server.properties"
    properties_text = "".join(f"{name}={value}\n" for name, value in broker_properties.items())
    file.write_text((_HERE / "broker.properties").read_text() + properties_text)
    return file


def _format_data_folder(command: list[str], data: Path, properties: Path) -> None:
    """Format the data folder with a new cluster ID, unless it is formatted already."""
    if (data / "meta.properties").exists():
        return
    tool = [*command, "kafka.tools.StorageTool", "format"]
    format_command = [*tool, "-t", str(uuid4()), "-c", str(properties)]
    process = subprocess.run(format_command, capture_output=True, text=True, check=False)
    if process.returncode:
        reason = summarize_output((process.stderr + process.stdout).splitlines())
        raise EngineError(
            f"The broker's data folder {data} can't be formatted: {reason}. Make it writable, or "
            "correct the properties of the broker."
        )


def _is_responding(settings: Settings, timeout: float) -> bool:
    client = AdminClient(client_properties(broker_address(settings), {}))
    try:
        client.list_topics(timeout=timeout)
    except KafkaException:
        return False
    return True


if __name__ == "__main__":
    main()
