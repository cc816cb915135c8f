"""Tests of the files with the engine's settings: Java reads from them what was written."""

import os
import random
import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from helpers.data.secrets import SECRET_SETTINGS
from tidemark.base.settings import Settings
from tidemark.engine.launch import command as launch
from tidemark.engine.launch.command import pyspark_home
from tidemark.engine.launch.java import find_java
from tidemark.engine.launch.private_arguments import write_arguments, write_properties

SPECIAL = "\\\"'#!=:; \t\n\r\f@$%*?äß€😀,{}()|&<>`~^"


def drawn(count: int, without: str = "") -> list[str]:
    """Return texts of special characters."""
    chance = random.Random(7)
    characters = [c for c in f"{SPECIAL}abc" if c not in without]
    return ["".join(chance.choices(characters, k=chance.randrange(1, 12))) for _ in range(count)]


def launched(arguments: list[str], folder: Path) -> list[str]:
    """Return the command that Spark's launcher creates, with Java's arguments from a file."""
    launcher = next((pyspark_home() / "jars").glob("spark-launcher_*.jar"))
    options = ["-cp", str(launcher), "org.apache.spark.launcher.Main"]
    file = write_arguments(folder, [*options, "org.apache.spark.deploy.SparkSubmit", *arguments])
    done = subprocess.run(
        [find_java().command, f"@{file}"],
        env={"SPARK_HOME": str(pyspark_home()), "SPARK_SCALA_VERSION": "2.13", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().partition("\0\n")[2].split("\0")


def test_java_reads_the_arguments_that_were_written(tmp_path: Path) -> None:
    # The launcher removes a final carriage return when it prints its result.
    values = [value.rstrip("\r") or "x" for value in drawn(200)]
    pairs = [part for value in values for part in ("--conf", f"spark.a={value}")]
    command = launched([*pairs, "--class", "some.Class", "spark-internal"], tmp_path)
    read = [part.removeprefix("spark.a=") for part in command if part.startswith("spark.a=")]
    # The launcher keeps one value of each setting.
    assert read == values[-1:]
    command = launched(["--class", "some.Class", "spark-internal", *values], tmp_path)
    assert command[-len(values) - 1 : -1] == values


def test_spark_reads_the_properties_that_were_written(tmp_path: Path) -> None:
    # Spark trims values, splits this one at the separator of paths, and removes duplicates.
    texts = [value.strip() or "x" for value in drawn(200, without=os.pathsep)]
    values = [*dict.fromkeys(texts)]
    conf = {"spark.driver.extraClassPath": os.pathsep.join(values)}
    file = write_properties(tmp_path, conf)
    arguments = ["--properties-file", str(file), "--class", "some.Class", "spark-internal"]
    command = launched(arguments, tmp_path)
    class_path = command[command.index("-cp") + 1].split(os.pathsep)
    assert class_path[: len(values)] == values


def test_the_files_are_private_even_if_earlier_ones_were_not(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / "engine.properties").symlink_to(victim)
    (tmp_path / "engine.arguments").touch(mode=0o666)
    files = [write_properties(tmp_path, {"a": "b"}), write_arguments(tmp_path, ["c"])]
    assert [stat.S_IMODE(file.lstat().st_mode) for file in files] == [0o600, 0o600]
    assert victim.read_text() == "kept"


@pytest.mark.parametrize("seed", range(3))
def test_no_setting_is_on_a_command_line(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    names = [f"spark.{chance.getrandbits(64):x}.{kind}" for kind in ("key", "sas", "other")]
    names += SECRET_SETTINGS
    secrets = {name: f"canary{chance.getrandbits(64):x}" for name in names}
    started = list[object]()
    start = subprocess.Popen.__init__

    def watch(self: Any, *given: Any, **options: Any) -> None:  # noqa: ANN401 (as in the library)
        started.append(given)
        start(self, *given, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", watch)
    settings = Settings(
        home=tmp_path, engine_conf=secrets, engine_java_options="-Dother.name=canary-of-java"
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = launch.start_command(settings, find_java(), [], scratch, [])
    assert started, "Spark's launcher"
    assert "canary" not in f"{command} {started}"
    assert "canary" not in repr(settings)
    properties = (scratch / "engine.properties").read_text()
    assert all(value in properties for value in secrets.values())
    assert "-Dother.name=canary-of-java" in (scratch / "engine.arguments").read_text()


def test_spark_hides_the_values_of_all_settings_of_the_user(tmp_path: Path) -> None:
    names = ["spark.hadoop.fs.azure.account.key.shop", "spark.hadoop.some.thing", "spark.sas"]
    settings = Settings(
        home=tmp_path,
        engine_conf=dict.fromkeys(names, "canary"),
        engine_java_options='-XX:+UseG1GC -Dsome.pin=canary "-Dother.pin=canary"',
    )
    launch.start_command(settings, find_java(), [], tmp_path, [])
    lines = (tmp_path / "engine.properties").read_text().splitlines()
    line = next(line for line in lines if line.startswith("spark.redaction.regex="))
    pattern = re.compile(re.sub(r"\\(.)", r"\1", line.partition("=")[2]))
    hidden = [*names, "fs.azure.account.key.shop", "some.thing", "some.pin", "other.pin"]
    hidden += ["spark.driver.extraJavaOptions", "spark.some.password"]
    assert [name for name in hidden if not pattern.search(name)] == []
    shown = ["spark.app.name", "spark.hadoop.some.things", "some-thing", "canary"]
    assert [text for text in shown if pattern.search(text)] == []
