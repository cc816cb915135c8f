"""A simulated service manager, which restarts a command whenever it exits.

Tidemark itself restarts the engine and its workers. Separate processes (`ingest --follow`,
`stream`) are restarted by a service manager, such as systemd with `Restart=always`.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

COMMAND = str(Path(sys.executable).with_name("tidemark"))


class Kept:
    """A command that is restarted until `stop` is called.

    Args:
        arguments: the arguments of `tidemark`.
        log: the file that gets its output.
        env: its environment.
        at_work: the output that shows that it works; if empty, it works as soon as it runs.
    """

    def __init__(
        self, *arguments: str, log: Path, env: Mapping[str, str], at_work: str = ""
    ) -> None:
        self.name = arguments[0]
        self.ended: list[int] = []
        """The exit codes of unexpected exits."""
        self._arguments, self._log = arguments, log
        self._env = {**env, "PYTHONFAULTHANDLER": "1"}
        self._at_work = at_work.encode()
        self._stopping = threading.Event()
        self._process, self._began = self._start()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def kill(self) -> None:
        """Send SIGKILL and wait for the exit."""
        process = self._process
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def said(self, lines: int = 60) -> str:
        """Return the last lines of its output."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    def works(self) -> bool:
        """Return whether it runs and works."""
        if self._process.poll() is not None:
            return False
        with self._log.open("rb") as said:
            said.seek(self._began)
            return self._at_work in said.read()

    def stop(self, patience: float = 180) -> int | None:
        """Terminate it, as a service manager does.

        Return its exit code, or None if it had to be killed. Its log then has the stack of each
        thread.
        """
        self._stopping.set()
        self._thread.join()
        self._process.terminate()
        try:
            return self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)
            self._process.wait()
            return None

    def _start(self) -> "tuple[subprocess.Popen[bytes], int]":
        with self._log.open("ab") as out:
            command = [COMMAND, *self._arguments]
            began = out.tell()
            return subprocess.Popen(command, stdout=out, stderr=out, env=self._env), began

    def _keep(self) -> None:
        while not self._stopping.wait(0.1):
            code = self._process.poll()
            if code is not None:
                if code != -signal.SIGKILL:
                    self.ended.append(code)
                self._process, self._began = self._start()
