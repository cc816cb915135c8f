"""Dagster's own commands, without telemetry."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def of_dagster(folder: Path) -> dict[str, str]:
    """Return variables that keep Dagster's files in a folder and disable update checks."""
    folder.mkdir(exist_ok=True)
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (folder / "user.toml").write_text("[cli.telemetry]\nenabled = false\n")
    places = {"DAGSTER_HOME": str(folder), "DG_CLI_CONFIG": str(folder / "user.toml")}
    return {**os.environ, **places, "DAGSTER_DG_UPDATE_CHECK_ENABLED": "0"}


def dagsters_own(name: str, *arguments: str, place: Path, env: Mapping[str, str]) -> str:
    """Run a command that must succeed. Return its output."""
    done = subprocess.run(
        [Path(sys.executable).with_name(name), *arguments],
        cwd=place,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
