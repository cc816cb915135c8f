"""The end of a test session: no process of the session outlives it, even after a signal.

pytest ends on KeyboardInterrupt, but a command or a Dagster run in the tests' process may catch it.
A thread therefore also sees each signal, regardless of the handler.
"""

import os
import select
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from helpers.processes import ending
from tidemark import engine as spark_engine
from tidemark.base.settings import Settings

HOMES = "TESTS_HOMES"
"""The variable with the folder of the session's homes. All processes of the session inherit it,
which identifies them."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE_SECONDS = 20.0
"""The time that the session has after a signal for a clean end."""


@contextmanager
def signals_expected() -> Iterator[None]:
    """Allow a test to send signals to this process without ending the session."""
    before = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)


class Interruption:
    """A pytest plugin of the main process.

    With xdist, it kills workers that do not end within ten seconds.
    """

    def __init__(self, homes: Path) -> None:
        self._homes = homes
        self._signaled = threading.Event()
        self._status = 0
        self._children: list[psutil.Process] = []
        self._numbers, writer = os.pipe()
        for end in (self._numbers, writer):
            os.set_blocking(end, False)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
        threading.Thread(target=self._watch, daemon=True).start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> None:
        """Start no test after a signal that the previous test caught."""
        if self._has_signal():
            raise KeyboardInterrupt

    def pytest_keyboard_interrupt(self) -> None:
        """Store the processes that lose their parent when a worker is killed."""
        self._remember_children()

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Store the exit status of the session."""
        self._status = exitstatus

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Stop all processes. After a signal, exit without waiting for threads.

        A gRPC channel never ends if its call was interrupted in a frame that pytest keeps.
        """
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        self._stop_everything()
        if self._status == pytest.ExitCode.INTERRUPTED:
            sys.stdout.flush()
            os._exit(self._status)

    def _has_signal(self) -> bool:
        with suppress(BlockingIOError):
            while not self._signaled.is_set():
                if os.read(self._numbers, 1)[0] in SIGNALS:
                    self._signaled.set()
        return self._signaled.is_set()

    def _watch(self) -> None:
        while not self._has_signal():
            select.select([self._numbers], [], [])
        time.sleep(PATIENCE_SECONDS)
        self._remember_children()
        self._stop_everything()
        sys.stderr.write("The test that was running did not end: the session was killed.\n")
        sys.stderr.flush()
        os._exit(pytest.ExitCode.INTERRUPTED)

    def _remember_children(self) -> None:
        self._children += psutil.Process().children(recursive=True)

    def _stop_everything(self) -> None:
        while left := [*filter(psutil.Process.is_running, self._children), *self._marked()]:
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self._children = []
            ending.left(left, patience=10)
        # Processes with a custom environment do not have the variable.
        for home in self._homes.iterdir():
            for name in ("daemon", "webserver", "watch", "kafka"):
                spark_engine.ManagedProcess(home, name).stop()
            spark_engine.stop_engine(Settings(home=home))
        shutil.rmtree(self._homes, ignore_errors=True)

    def _marked(self) -> Iterator[psutil.Process]:
        """Yield the processes that inherited the variable, except this one."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                marked = process.environ().get(HOMES) == str(self._homes)
                alive = process.status() != psutil.STATUS_ZOMBIE
                if marked and alive and process.pid != os.getpid():
                    yield process
