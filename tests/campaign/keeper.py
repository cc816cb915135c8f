"""A service manager, played: it starts a command again whenever that has ended.

The engine and its workers are for the product to bring back. What is a process of its own, `ingest
--follow` or `stream`, is for who runs it, such as systemd with `Restart=always`.
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
    """A command that is kept running until it is told to stop.

    Args:
        arguments: of `tidemark`.
        log: where its output goes.
        env: its environment.
        at_work: what it says once it is at work; without, it is as soon as it is there.
    """

    def __init__(
        self, *arguments: str, log: Path, env: Mapping[str, str], at_work: str = ""
    ) -> None:
        self.name = arguments[0]
        self.ended: list[int] = []
        """The exit codes with which it ended by itself."""
        self._arguments, self._log = arguments, log
        self._env = {**env, "PYTHONFAULTHANDLER": "1"}
        self._at_work = at_work.encode()
        self._stopping = threading.Event()
        self._process, self._began = self._start()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def kill(self) -> None:
        """End it without a farewell, and wait until it is gone."""
        process = self._process
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def said(self, lines: int = 60) -> str:
        """The end of what it said."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    @property
    def stopped(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping.is_set()

    def works(self) -> bool:
        """Whether it runs and is at work."""
        if self._process.poll() is not None:
            return False
        with self._log.open("rb") as said:
            said.seek(self._began)
            return self._at_work in said.read()

    def stop(self, patience: float = 180) -> int | None:
        """Ask it to end, as a service manager does; its exit code, None where it had to be
        killed: its log then tells where each of its threads was."""
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
