"""Test that test files run in the order of their last durations."""

import subprocess
import sys
from pathlib import Path

from helpers.suite.durations import longest_first
from helpers.suite.longest import EXPECTED_SECONDS

ROOT = Path(__file__).parents[1]
CONFTEST = """
from helpers.suite.durations import Durations


def pytest_configure(config):
    config.pluginmanager.register(Durations(config))
"""


def session(folder: Path, *options: str) -> str:
    """Run pytest in a folder. Return what it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "xdist", *options],
        cwd=folder,
        # Other plugins take longer to load than these tests.
        env={"PYTHONPATH": str(Path(__file__).parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_new_files_run_first_and_then_the_longest() -> None:
    seconds = {"a.py::one": 1.0, "b.py::one": 2.0, "b.py::two": 2.0, "c.py::one": 3.0}
    tests = ["a.py::one", "a.py::two", "b.py::one", "b.py::two", "c.py::one", "d.py::one"]
    assert longest_first(tests, seconds, {}) == ["d.py", "b.py", "c.py", "a.py"]
    # Only selected tests count.
    tests = ["a.py::one", "b.py::one", "c.py::one"]
    assert longest_first(tests, seconds, {}) == ["c.py", "b.py", "a.py"]


def test_files_that_were_never_measured_run_by_their_expected_durations() -> None:
    tests = ["a.py::one", "a.py::two", "b.py::one", "c.py::one", "d.py::one"]
    expected = {"a.py": 5.0, "b.py": 2.0, "c.py": 3.0}
    assert longest_first(tests, {}, expected) == ["d.py", "a.py", "c.py", "b.py"]
    # Some tests of a file have run before, all of another.
    seconds = {"a.py::one": 1.0, "b.py::one": 4.0, "d.py::one": 6.0}
    assert longest_first(tests, seconds, expected) == ["d.py", "a.py", "b.py", "c.py"]
    assert [file for file in EXPECTED_SECONDS if not (ROOT / file).is_file()] == []


def test_durations_are_kept_between_runs_and_order_the_files(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name, seconds in {"a": 0.0, "b": 0.4, "c": 0.8}.items():
        body = f"import time\n\n\ndef test_it():\n    time.sleep({seconds})\n"
        (tmp_path / f"test_{name}.py").write_text(body)

    def order(*options: str) -> list[str]:
        said = session(tmp_path, *options)
        lines = [line for line in said.splitlines() if "PASSED" in line]
        return [name for line in lines for name in "abc" if f"test_{name}.py" in line]

    workers = ("-n", "1", "--dist", "loadfile", "--no-loadscope-reorder")
    assert order(*workers, "test_a.py", "test_b.py") == ["a", "b"]
    # A run keeps the durations of earlier runs.
    assert order("test_c.py") == ["c"]
    assert order(*workers) == ["c", "b", "a"]


def test_a_slow_test_without_the_marker_is_reported(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        f"from helpers.suite import durations\n{CONFTEST}\ndurations._SLOW_SECONDS = 0.2"
    )
    (tmp_path / "test_it.py").write_text(
        "import time\n\nimport pytest\n\n\n"
        "def test_quick():\n    pass\n\n\n"
        "def test_long():\n    time.sleep(0.3)\n\n\n"
        "@pytest.mark.slow\ndef test_marked():\n    time.sleep(0.3)\n"
    )
    said = session(tmp_path, "-W", "ignore")
    named = [line for line in said.splitlines() if "not marked as slow" in line]
    assert named == ["0 s, and not marked as slow: test_it.py::test_long"]
