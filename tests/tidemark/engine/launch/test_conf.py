"""Tests of Spark settings for the embedded engine, its web UI and its event log."""

import json
import urllib.request
import zipfile
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from conftest import SHORT_LIVED
from helpers.data.secrets import SECRET_JAVA_PROPERTY, SECRET_SETTINGS
from helpers.processes.commands import call
from tidemark import engine as spark_engine
from tidemark.base.errors import DefinitionError, EngineError
from tidemark.base.settings import Settings
from tidemark.engine.launch import jars
from tidemark.engine.ports import free_port
from tidemark.engine.server import managed_of

CANARY = "canary/of+secrets=="


# Starts its own engine.
@pytest.mark.slow
def test_an_engine_uses_the_configured_settings_and_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "own.jar", "w") as jar:
        jar.writestr("own.txt", "here")
    given = {
        "HOME": tmp_path / "home",
        "ENGINE_PORT": free_port(),
        "ENGINE_MEMORY": "1g",
        "ENGINE_JAVA_OPTIONS": f"{SHORT_LIVED} -D{SECRET_JAVA_PROPERTY}={CANARY}",
        "ENGINE_CONF": "; ".join(
            [
                "spark.sql.shuffle.partitions=7",
                "spark.hadoop.fs.s3a.endpoint=http://x",
                *(f"{name}={CANARY}" for name in SECRET_SETTINGS),
            ]
        ),
        "ENGINE_JARS": tmp_path / "own.jar",
        "ENGINE_UI_PORT": free_port(),
        "ENGINE_EVENT_LOG": tmp_path / "events",
    }
    for name, value in given.items():
        monkeypatch.setenv(f"TIDEMARK_{name}", str(value))
    settings = Settings()
    spark_engine.ensure_engine(settings)
    try:
        spark = spark_engine.connect_session(settings)
        assert spark.conf.get("spark.sql.shuffle.partitions") == "7"
        assert spark.conf.get("spark.hadoop.fs.s3a.endpoint") == "http://x"
        assert [name for name in SECRET_SETTINGS if spark.conf.get(name) != CANARY] == []
        asked = f"SELECT java_method('java.lang.System', 'getProperty', '{SECRET_JAVA_PROPERTY}')"
        assert spark.sql(asked).collect()[0][0] == CANARY
        found = spark.sql(
            "SELECT reflect('java.lang.ClassLoader', 'getSystemResource', 'own.txt')"
        ).collect()
        assert str(found[0][0]).endswith("own.jar!/own.txt")
        pages = f"http://127.0.0.1:{settings.engine_ui_port}"
        with urllib.request.urlopen(f"{pages}/jobs/", timeout=60) as answer:
            assert b"tidemark" in answer.read()
        api = f"{pages}/api/v1/applications/{spark.conf.get('spark.app.id')}/environment"
        with urllib.request.urlopen(api, timeout=60) as answer:
            environment = answer.read().decode()
        assert SECRET_JAVA_PROPERTY in environment
        assert CANARY not in environment
        record = managed_of(settings).find_running()
        assert record is not None
        server = psutil.Process(record.pid)
        processes = [server, *server.children(recursive=True)]
        assert [p.cmdline() for p in processes if CANARY in " ".join(p.cmdline())] == []
        open_to = [
            c.laddr.ip for c in server.net_connections("inet") if c.status == psutil.CONN_LISTEN
        ]
        assert {ip.removeprefix("::ffff:") for ip in open_to} == {"127.0.0.1"}
        assert any(p.is_file() and p.stat().st_size for p in (tmp_path / "events").rglob("*"))
        told = json.loads(call("status", "--json").stdout)["processes"][0]
        assert (told["pages"], told["event_log"]) == (pages, str(tmp_path / "events"))
        spark.stop()
    finally:
        spark_engine.stop_engine(settings)
    logs = [p for name in ("home/logs", "events") for p in (tmp_path / name).rglob("*")]
    assert [str(p) for p in logs if p.is_file() and CANARY in contents(p)] == []


def contents(file: Path) -> str:
    """Return the text of a log, which may be compressed."""
    compression = "zstd" if file.suffix in (".zstd", ".zst") else None
    with pa.input_stream(file, compression=compression) as stream:
        return stream.read().decode(errors="replace")


def test_engine_conf_is_read_from_toml_with_and_without_quotes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEMARK_ENGINE_CONF", raising=False)
    (tmp_path / "tidemark.toml").write_text(
        '[engine_conf]\n"spark.task.maxFailures" = 2\nspark.sql.adaptive.enabled = false\n'
    )
    assert Settings().engine_conf == {
        "spark.task.maxFailures": "2",
        "spark.sql.adaptive.enabled": "false",
    }


@pytest.mark.parametrize(
    ("conf", "sentence"),
    [
        (
            {"spark.driver.memory": "8g"},
            "which Tidemark's setting engine_memory specifies: use that setting instead.",
        ),
        ({"spark.sql.ansi.enabled": "false"}, "which Tidemark depends on"),
        ({"spark.connect.grpc.binding.port": "1"}, "which Tidemark depends on"),
        ({"shuffle": "1"}, "'shuffle', which is not a setting of Spark"),
    ],
)
def test_unsupported_spark_settings_are_refused_with_a_reason(
    conf: dict[str, str], sentence: str
) -> None:
    with pytest.raises(DefinitionError) as raised:
        Settings(engine_conf=conf)
    assert sentence in str(raised.value)


def test_an_invalid_or_missing_jar_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.jar").write_text("no zip")
    with pytest.raises(EngineError, match=r"text.jar', which is not a jar file"):
        jars.check_extra_jars([tmp_path / "text.jar"])
    with pytest.raises(EngineError, match=r"none.jar', which does not exist"):
        jars.check_extra_jars([tmp_path / "none.jar"])
