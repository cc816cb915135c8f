"""Test that a signal ends a test session and all its processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from helpers.processes.ending import left

# Each test starts a session and waits until it is killed.
pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
CONFTEST = """
import os
from pathlib import Path

from helpers.suite import interruption
from xdist.workermanage import NodeManager

interruption.PATIENCE_SECONDS = NodeManager.EXIT_TIMEOUT = 1


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        homes = Path("homes").absolute()
        (homes / "one").mkdir(parents=True)
        os.environ[interruption.HOMES] = str(homes)
        config.pluginmanager.register(interruption.Interruption(homes))
"""
START = f"""
import os
import subprocess
import time
from pathlib import Path

import pytest

from tidemark.engine import ManagedProcess

SLEEP = {SLEEP!r}


@pytest.fixture(scope="session", autouse=True)
def processes():
    home = Path(os.environ["{{homes}}"]) / "one"
    broker = ManagedProcess(home, "kafka").start(SLEEP, 1, {{{{}}}}, home)
    of_a_test = subprocess.Popen(SLEEP, start_new_session=True)
    without_the_variable = subprocess.Popen(SLEEP, start_new_session=True, env={{{{}}}})
    started = broker.pid, of_a_test.pid, without_the_variable.pid, os.getpid()
    Path("started.new").write_text(" ".join(map(str, started)))
    os.rename("started.new", "started")


def test_first():
    {{body}}


def test_second():
    Path("second").touch()
"""
TAKES_ALL = """while True:
        try:
            time.sleep(600)
        except KeyboardInterrupt:
            pass"""
TAKES_ONE = """try:
        time.sleep(600)
    except KeyboardInterrupt:
        pass"""


@pytest.mark.parametrize(
    ("number", "body", "options"),
    [
        pytest.param(signal.SIGTERM, "time.sleep(600)", [], id="it waits"),
        pytest.param(signal.SIGINT, TAKES_ONE, [], id="it takes one", marks=pytest.mark.nightly),
        pytest.param(signal.SIGTERM, TAKES_ALL, [], id="it takes all", marks=pytest.mark.nightly),
        pytest.param(signal.SIGINT, TAKES_ALL, ["-n", "1"], id="it takes all in a worker"),
    ],
)
def test_a_signal_ends_the_session_even_if_the_test_catches_it(
    tmp_path: Path, number: signal.Signals, body: str, options: list[str]
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    test = START.format(homes="TESTS_HOMES", body=body)
    (tmp_path / "test_sample.py").write_text(test)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    with subprocess.Popen(
        [*command, "--rootdir", tmp_path],
        cwd=tmp_path,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Background processes of a shell, and their children, ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as session:
        while not (tmp_path / "started").exists():
            assert session.poll() is None, session.communicate()
            time.sleep(0.05)
        started = [psutil.Process(int(pid)) for pid in (tmp_path / "started").read_text().split()]
        session.send_signal(number)
        said, _ = session.communicate(timeout=60)
    assert session.returncode == pytest.ExitCode.INTERRUPTED, said
    assert left(started, patience=0) == []
    assert not (tmp_path / "homes").exists()
    assert not (tmp_path / "second").exists()
