"""Test the units and the images of `ops`: systemd accepts the units, scripts start the right
programs, and the commands, packages, files, and classes exist."""

import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from helpers.processes.commands import call
from helpers.suite.pages import ROOT
from tidemark.base.settings import Settings
from tidemark.engine.launch.command import pyspark_home

UNITS = sorted((ROOT / "ops/systemd").glob("*.service"))
CONTAINER = ROOT / "ops/container"


def commands(text: str) -> list[list[str]]:
    """Return the `tidemark` commands in a text as lists of words."""
    found = re.findall(r"tidemark ((?:up|down|ingest|stream|status)\b[^&\"\n]*)", text)
    return [line.split() for line in found]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    own = Path(sys.executable).with_name("tidemark")
    for each in UNITS:
        text = each.read_text().replace("/srv/venv/bin/tidemark", str(own))
        (tmp_path / each.name).write_text(text)
    name = unit.name.replace("@.", "@orders.")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)],
        capture_output=True,
        text=True,
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:", "PATH": "/usr/bin:/bin"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert unit.name.partition("@")[0] not in done.stderr, done.stderr


def test_commands_in_units_and_container_exist() -> None:
    texts = [*(u.read_text() for u in UNITS), (CONTAINER / "Dockerfile").read_text()]
    found = [words for text in texts for words in commands(text)]
    assert {words[0] for words in found} == {"up", "down", "ingest", "stream"}
    for words in found:
        options = [word for word in words if word.startswith("--")]
        told = call(words[0], "--help").stdout
        assert all(option in told for option in options), words


def test_the_container_files_are_consistent_with_the_project() -> None:
    text = (CONTAINER / "Dockerfile").read_text()
    (extras,) = re.findall(r"\.whl\)\[([\w,]+)\]", text)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= set(known["optional-dependencies"])
    (python,) = re.findall(r"python:([\d.]+)-", text)
    assert python in SpecifierSet(known["requires-python"])
    services = yaml.safe_load((CONTAINER / "compose.yaml").read_text())["services"]
    (service,) = services.values()
    assert (CONTAINER / service["build"]["dockerfile"]).is_file()
    # The check reads nothing: `tidemark status` reads every table.
    watch_port = Settings.model_fields["watch_port"].default
    assert f"//127.0.0.1:{watch_port}/alive'" in service["healthcheck"]["test"][-1]
    # The user owns the volume of the home, and the build ignores local data.
    (home,) = (volume.partition(":")[2] for volume in service["volumes"])
    (owned,) = re.findall(r"install --directory --owner tidemark (.+)", text)
    assert home in owned.split()
    assert ".tidemark" in (CONTAINER / ".dockerignore").read_text().splitlines()
    # All ports are on loopback, so no unreachable port is published.
    assert service["network_mode"] == "host"
    assert "ports" not in service


def run_script(name: str, *arguments: str, **environment: str) -> list[str]:
    """Run a script of the engine's image, and return the words of the command that it becomes.

    The programs that it calls are replaced: they print their arguments.
    """
    done = subprocess.run(
        [CONTAINER / name, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A `SPARK_HOME` whose programs, and `java`, print their names and arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("java", "spark-submit"):
        program = folder / name
        program.write_text('#!/bin/sh\nprintf "%s\\n" "${0##*/}" "$@"\n')
        program.chmod(0o755)
    return tmp_path


def has_class(artifact: str, name: str) -> bool:
    """Return whether one of PySpark's jars contains a Java class."""
    (jar,) = (pyspark_home() / "jars").glob(f"{artifact}_*.jar")
    with zipfile.ZipFile(jar) as archive:
        return f"{name.replace('.', '/')}.class" in archive.namelist()


def test_the_script_of_the_engine_starts_a_connect_server(programs: Path) -> None:
    command = run_script(
        "start-connect-server.sh",
        *("--master", "local[2]", "--conf", "a=b c"),
        SPARK_HOME=str(programs),
        PATH="/usr/bin:/bin",
    )
    assert command[:2] == ["spark-submit", "--class"]
    assert has_class("spark-connect", command[2])
    assert command[-5:] == ["--master", "local[2]", "--conf", "a=b c", "spark-internal"]


def test_the_entrypoint_starts_an_executor_or_another_command(programs: Path) -> None:
    environment = {
        "SPARK_HOME": "/opt/spark",
        "PATH": f"{programs / 'bin'}:/usr/bin:/bin",
        "SPARK_JAVA_OPT_0": "-Dspark.driver.port=7078",
        "SPARK_JAVA_OPT_1": "-Da=b c",
        "SPARK_EXECUTOR_MEMORY": "2g",
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@engine-server:7078",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "10.1.2.3",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "engine-exec-1",
    }
    command = run_script("entrypoint.sh", "executor", **environment)
    assert command[:5] == [
        "java",
        "-Dspark.driver.port=7078",
        "-Da=b c",
        "-Xms2g",
        "-Xmx2g",
    ]
    assert command[command.index("-cp") + 1] == "/opt/spark/conf:/opt/spark/jars/*"
    assert has_class("spark-kubernetes", command[command.index("-cp") + 2])
    # Without one of Spark's variables, the script ends with its name.
    del environment["SPARK_DRIVER_URL"]
    with pytest.raises(subprocess.CalledProcessError) as failure:
        run_script("entrypoint.sh", "executor", **environment)
    assert "SPARK_DRIVER_URL" in failure.value.stderr
    assert run_script("entrypoint.sh", "echo", "a b", **environment) == ["a b"]


def test_the_jars_of_the_image_fit_spark() -> None:
    """The object store's client is that of Spark's Hadoop, and no jar is there twice."""
    image: dict[str, Any] = runpy.run_path(str(CONTAINER / "engine_jars.py"))
    versions = {jar.artifact: jar.version for jar in image["OBJECT_STORE"]}
    names = [jar.name for jar in (pyspark_home() / "jars").glob("*.jar")]
    assert f"hadoop-client-api-{versions['hadoop-aws']}.jar" in names
    for artifact in versions:
        assert not any(name.startswith(f"{artifact}-") for name in names)


@pytest.mark.parametrize("image", ["engine", "client"])
def test_the_files_and_packages_of_an_image_exist(image: str) -> None:
    text = (CONTAINER / f"{image}.Dockerfile").read_text().replace("\\\n", " ")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for line in re.findall(r"^COPY (.+)", text, re.MULTILINE):
        words = [word for word in line.split() if not word.startswith("--")]
        for source in words[:-1]:
            assert source in (".", "tidemark-*.whl") or (CONTAINER / source).is_file(), source
    for extras in re.findall(r"\.whl\)\[([\w,]+)\]", text):
        assert set(extras.split(",")) <= set(project["optional-dependencies"])
    (python,) = re.findall(r"^FROM python:([\d.]+)-", text, re.MULTILINE)
    assert python in SpecifierSet(project["requires-python"])
    for removed in re.findall(r"pip uninstall --yes (\S+)", text):
        assert any(entry.startswith(f"{removed}==") for entry in project["dependencies"])
    for command in re.findall(r"tidemark (engine-\w+)", text):
        assert call(command, "--help").exit_code == 0
    # The user has a number: Kubernetes can't verify a name against `runAsNonRoot`.
    (number,) = re.findall(r"--uid (\d+)", text)
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE) == [number]


def test_the_docs_name_each_file_and_an_existing_server() -> None:
    page = (ROOT / "docs/deployment.md").read_text()
    files = [*CONTAINER.iterdir(), *(ROOT / "ops/kubernetes").iterdir()]
    unnamed = [file.name for file in files if file.is_file() and file.name not in page]
    assert unnamed == []
    commands = page + (ROOT / "docs/managed_platforms.md").read_text()
    for server in set(re.findall(r"--class (\S+)", commands)):
        assert has_class("spark-connect", server)
