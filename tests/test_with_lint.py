"""Test `tools/with_lint`: tests and linters run in parallel, and either can fail."""

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from dagster._utils.interrupts import capture_interrupts

ROOT = Path(__file__).parents[1]
MAKEFILE = """
lint:
\t@until [ -e tested ]; do sleep 0.01; done; echo a finding; exit {lint}
archive broker:
\t@touch $@
"""


@pytest.mark.parametrize(("lint", "tests", "status"), [(0, 0, 0), (1, 0, 1), (0, 3, 3), (1, 3, 1)])
def test_tests_and_linters_run_in_parallel_and_either_can_fail(
    tmp_path: Path, lint: int, tests: int, status: int
) -> None:
    (tmp_path / "tools").mkdir()
    script = shutil.copy(ROOT / "tools/with_lint", tmp_path / "tools")
    (tmp_path / "Makefile").write_text(MAKEFILE.format(lint=lint))
    # The linters end after the tests, and the tests begin after the preparation.
    command = f"test -e archive && test -e broker && echo passed && touch tested; exit {tests}"
    done = subprocess.run([script, "sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    assert [line for line in done.stdout.splitlines() if "make" not in line] == [
        "passed",
        "a finding",
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_tests(tmp_path: Path, number: signal.Signals) -> None:
    """The tests get SIGTERM, since background processes of a shell ignore SIGINT."""
    # As a run of Dagster does, which may come before in this process.
    with capture_interrupts():
        pass
    (tmp_path / "tools").mkdir()
    script = shutil.copy(ROOT / "tools/with_lint", tmp_path / "tools")
    (tmp_path / "Makefile").write_text(MAKEFILE.format(lint=0))
    command = (
        'trap "echo cleared; touch tested; exit 5" TERM; echo begun; while :; do sleep 0.01; done'
    )
    # With `nohup`, these tests ignore SIGHUP, and a shell can't trap a signal that it ignored when
    # it started.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        running = subprocess.Popen(
            [script, "sh", "-c", command], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
    finally:
        signal.signal(signal.SIGHUP, before)
    with running:
        try:
            assert running.stdout is not None
            assert any(line == "begun\n" for line in running.stdout)
            running.send_signal(number)
            assert "cleared" in running.communicate(timeout=60)[0]
            assert running.returncode == 5
        finally:
            # A process that is left would keep the pipe open, and the test waiting.
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
