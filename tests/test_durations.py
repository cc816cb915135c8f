"""The files of the suite run in the order of their last durations."""

import subprocess
import sys
from pathlib import Path

from durations import longest_first

CONFTEST = """
from durations import Durations


def pytest_configure(config):
    config.pluginmanager.register(Durations(config))
"""


def test_the_longest_file_comes_first_and_new_files_before_it() -> None:
    seconds = {"a.py::one": 1.0, "b.py::one": 2.0, "b.py::two": 2.0, "c.py::one": 3.0}
    tests = ["a.py::one", "a.py::two", "b.py::one", "b.py::two", "c.py::one", "d.py::one"]
    assert longest_first(tests, seconds) == ["d.py", "b.py", "c.py", "a.py"]
    # Only the tests that run now count.
    assert longest_first(["a.py::one", "b.py::one", "c.py::one"], seconds) == [
        "c.py",
        "b.py",
        "a.py",
    ]


def test_durations_are_kept_over_runs_and_order_the_files_of_workers(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name, seconds in {"a": 0.0, "b": 0.4, "c": 0.8}.items():
        body = f"import time\n\n\ndef test_it():\n    time.sleep({seconds})\n"
        (tmp_path / f"test_{name}.py").write_text(body)

    def order(*options: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-v", *options],
            cwd=tmp_path,
            env={"PYTHONPATH": str(Path(__file__).parent)},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert done.returncode == 0, done.stdout
        lines = [line for line in done.stdout.splitlines() if "PASSED" in line]
        return [name for line in lines for name in "abc" if f"test_{name}.py" in line]

    workers = ("-n", "1", "--dist", "loadfile", "--no-loadscope-reorder")
    assert order(*workers, "test_a.py", "test_b.py") == ["a", "b"]
    # A worker's run adds to what an earlier one measured.
    assert order("test_c.py") == ["c"]
    assert order(*workers) == ["c", "b", "a"]
