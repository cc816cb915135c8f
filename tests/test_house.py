"""The house stands: Python's own `platform` is not hidden, layers hold, the version is one."""

import subprocess
import sys
import tomllib
from pathlib import Path

import tidemark

ROOT = Path(__file__).parents[1]


def test_pythons_own_platform_imports_from_the_root() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "import platform; print(platform.system())"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.strip()


def test_the_folders_that_hold_packages_are_none_themselves() -> None:
    holders = ("platform", "streaming", "assets", "tests", "tests/tidemark")
    assert [folder for folder in holders if (ROOT / folder / "__init__.py").exists()] == []


def test_the_layers_hold() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    told = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert tidemark.__version__ == project["version"]


def test_no_dagster_table_makes_dagster_dev_ignore_the_workspace() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert not {"dagster", "dg"} & tools.keys()


def test_the_locks_hold_a_hash_for_each_package_and_no_address() -> None:
    for name in ("requirements.lock", "tools/bootstrap.lock"):
        text = (ROOT / name).read_text()
        assert "://" not in text
        packages = [block for block in text.split("\n") if "==" in block]
        assert packages
        assert all(line.endswith("\\") for line in packages)
