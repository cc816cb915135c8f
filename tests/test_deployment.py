"""Test the units and the container of `ops`: systemd accepts the units, and commands exist."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

from helpers.processes.commands import call
from helpers.suite.pages import ROOT
from tidemark.base.settings import Settings

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
