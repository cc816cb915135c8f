"""Test the repository: the standard module `platform` is visible, layers hold, one version."""

import ast
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidemark

ROOT = Path(__file__).parents[1]


def test_the_standard_module_platform_is_importable_from_the_root() -> None:
    told = subprocess.run(
        [sys.executable, "-c", "import platform; print(platform.system())"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.strip()


def test_folders_that_contain_packages_are_not_packages() -> None:
    holders = ("platform", "streaming", "assets", "tests", "tests/tidemark")
    assert [folder for folder in holders if (ROOT / folder / "__init__.py").exists()] == []


def test_imports_respect_the_layers() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    told = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout


def test_the_package_version_equals_the_project_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert tidemark.__version__ == project["version"]


def test_the_wheel_contains_the_bundled_dbt_projects(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.iterdir()
    tracked = ["git", "ls-files", "dbt_project"]
    files = subprocess.run(tracked, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if "/dbt_project/" in name}
    assert {f"tidemark_assets/{file}" for file in files.split()} <= packed
    starter = "tidemark_streaming/starter/project/dbt_project/dbt_project.yml"
    assert starter in packed


def test_pyproject_has_no_dagster_table_that_hides_the_workspace() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    assert not {"dagster", "dg"} & tools.keys()


def test_lock_files_have_a_hash_per_package_and_no_url() -> None:
    for name in ("requirements.lock", "tools/bootstrap.lock"):
        text = (ROOT / name).read_text()
        assert "://" not in text
        packages = [block for block in text.split("\n") if "==" in block]
        assert packages
        assert all(line.endswith("\\") for line in packages)


def test_the_test_targets_cover_all_tests() -> None:
    """Each target selects tests by marker only, and CI runs all but the nightly ones."""
    makefile = (ROOT / "Makefile").read_text()
    command = r"\$\(PYTHON\) -m pytest -n \$\(WORKERS\) --dist loadfile --no-loadscope-reorder"
    assert re.search(rf"^PYTEST = {command} --durations 15$", makefile, re.MULTILINE)
    assert re.findall(r"^\t.*\$\(PYTEST\)(.*)$", makefile, re.MULTILINE) == [
        ' -m "not slow"',
        ' -m "slow and not nightly"',
        ' -m "not nightly"',
        " -m nightly",
    ]
    steps = (ROOT / ".ci/run").read_text().splitlines()
    assert [step for step in steps if step.startswith("make ")] == [
        "make setup",
        "make lint",
        "make test-all",
    ]
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert options["testpaths"] == ["tests"]
    assert not any(option.startswith(("-m", "-k", "--deselect")) for option in options["addopts"])


@pytest.mark.parametrize(
    ("target", "fetches"),
    [
        *((name, True) for name in ("test", "test-slow", "test-all", "test-nightly")),
        ("demo", False),
    ],
)
def test_only_test_targets_fetch_the_brokers_jars(target: str, fetches: bool) -> None:
    command = ["make", "--dry-run", "--no-print-directory", target]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    assert ("tidemark_streaming.kafka.broker" in done.stdout) is fetches


def spoken(source: str) -> Iterator[str]:
    """Yield the strings of a module, without docstrings and bare strings."""
    tree = ast.parse(source)
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in silent:
                yield text
            case _:
                pass


def test_no_message_names_a_page_missing_from_an_installed_package() -> None:
    page = re.compile(r"\bdocs/|\b(?!README\b)\w+\.md\b")
    sample = """'docs/a.md'; f = f'docs/b.md {1}'; g = ('in ' 'c.md')"""
    assert sorted(spoken(sample)) == ["docs/b.md ", "in c.md"]
    found = {
        f"{path.relative_to(ROOT)}: {text}"
        for folder in ("platform", "streaming", "assets")
        for path in (ROOT / folder).rglob("*.py")
        for text in spoken(path.read_text())
        if page.search(text)
    }
    assert found == set()
