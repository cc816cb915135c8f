"""Extras are found by their folder, and nothing needs them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tidemark_streaming.base.extra import find_extras
from tidemark_streaming.cli.app import PANELS

ROOT = Path(__file__).parents[3]
WITHOUT = """
import sys
import tidemark_assets.definitions
from tidemark_streaming.cli.app import app, PANELS
from tidemark_streaming.home import domains
from tidemark_streaming.monitor import app as service
found = domains.load_domains(["tidemark_assets.flights"])
print(list(PANELS["Extras"]), len(found.pipelines), [m for m in sys.modules if ".extras." in m])
"""


def test_lanes_are_found() -> None:
    assert [(extra.name, extra.module) for extra in find_extras()] == [("lane", "lanes")]
    assert list(PANELS["Extras"]) == ["lane"]


@pytest.mark.parametrize("module", ["extras.lane", "extras.lane.query", "cli"])
def test_any_module_can_be_imported_first(module: str) -> None:
    code = (
        f"import tidemark_streaming.{module} as m; from tidemark_streaming.extras.lane import Lane"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_everything_else_works_if_the_folders_of_the_extras_are_empty(tmp_path: Path) -> None:
    for package in ("streaming/tidemark_streaming", "assets/tidemark_assets"):
        copy = tmp_path / Path(package).name
        shutil.copytree(ROOT / package, copy, ignore=shutil.ignore_patterns("__pycache__", "lane*"))
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[] 0 []"
