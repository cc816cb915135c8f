"""A command's settings in the engine's worker, which has another folder and environment."""

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from pyspark import cloudpickle

from tidemark.base.settings import FILE, PREFIX, Settings
from tidemark_streaming.kafka import KafkaSink
from tidemark_streaming.streams.continuous import with_settings

_WORKER = """
import pickle, sys
run = pickle.load(sys.stdin.buffer)
run(None, 0)
"""


def write_settings(_batch: object, _number: int) -> None:
    from tidemark.base.settings import Settings

    settings = Settings()
    values = (settings.kafka_servers, settings.durable, settings.schema_registry)
    sys.stdout.write(f"{values} {settings.warehouse}\n{settings!r}\n")


def in_worker(folder: Path, environment: dict[str, str]) -> list[str]:
    """Run `write_settings` in a process as the engine's worker does, and return its lines."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        sent = cloudpickle.dumps(with_settings(write_settings))
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    assert b"a-secret-of-the-client" not in sent
    result = subprocess.run(
        [sys.executable, "-c", _WORKER],
        input=sent,
        cwd=folder,
        env=environment,
        capture_output=True,
        check=True,
    )
    return result.stdout.decode().splitlines()


@pytest.mark.parametrize("seed", range(3))
def test_the_settings_file_reaches_the_worker(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(seed)
    project, scratch = tmp_path / "project", tmp_path / "scratch"
    project.mkdir()
    scratch.mkdir()
    port, durable = rng.randint(1025, 60_000), rng.choice(["true", "false"])
    file = project / FILE
    file.write_text(
        f"kafka_port = {port}\ndurable = {durable}\nschema_registry = '/schemas/{port}'\n"
        "token = 'a-secret-of-the-client'\n"
    )
    file.chmod(0o600)
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(project)
    # The engine was started from another project, with another port in its environment.
    environment = {**os.environ, f"{PREFIX}KAFKA_PORT": "9", f"{PREFIX}TOKEN": "the-engines"}
    first, shown = in_worker(scratch, environment)
    warehouse = project / ".tidemark" / "warehouse"
    values = (f"127.0.0.1:{port}", durable == "true", f"/schemas/{port}")
    assert first == f"{values} {warehouse}"
    assert f"kafka_port={port}" in shown
    assert KafkaSink("orders").broker_addresses == Settings().kafka_servers == f"127.0.0.1:{port}"
