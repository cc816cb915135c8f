"""The victims of a campaign, and manual restarts of the broker and with `tidemark up`."""

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from campaign.home import Home
from campaign.keeper import COMMAND
from helpers.processes.ending import left
from numbered.transforms import numbers_counted
from tidemark.engine.process import ManagedProcess, Record
from tidemark.engine.server import managed_of
from tidemark.run import commit
from tidemark_streaming.home import services
from tidemark_streaming.kafka import broker

ALL = ("worker", "engine", "ingest", "stream", "broker")
PROCESSES = (*ALL, "machine")
"""`machine` is all of them at once, as in a restart."""

AWAY = "broker for a minute"
REBUILDS = ("rebuild", "switch")
"""A command that rebuilds the tables next to the current ones, and one that promotes them. The
stream and the ingest's runs complete an interrupted promotion."""

SUPERVISED = ("daemon", "engine", "worker")
INGEST = ("log", "dead_letters", "timeline")
WIDEN = ("schema", "columns")
"""Fail points of an ingest whose source has a new column."""

OUT = ("send", "sent", "committed")
POINTS = tuple(f"at {point}" for point in (*INGEST, *WIDEN, *commit.STEPS, *OUT))
"""Kinds of victims: the next process that reaches the fail point."""

MINUTE = 65.0
"""Seconds without the broker: longer than the clients' timeout."""

TAKES = {"rebuild": 15.0, "switch": 9.0}
"""The latest time of the kill in seconds; the command starts its work after two or three."""

_WORKER = "foreach_batch_worker"
_TAKEN = 180.0
"""Seconds in which a process must reach a fail point."""


class Victims:
    """The possible victims in a home, by kind.

    Args:
        chance: chooses the time of a command's kill.
    """

    def __init__(self, home: Home, chance: random.Random) -> None:
        self._home, self._chance = home, chance
        self._engine = managed_of(home.settings)
        self._daemon = services.find_service(home.settings, "daemon")
        self._broker = broker.broker_process(home.settings)

    def kill(self, kind: str) -> Callable[[], bool] | None:
        """Kill a victim and wait for its exit.

        Returns:
            A function that tests whether a replacement works, or None if there was no victim.
        """
        home = self._home
        if kind in POINTS:
            point = kind.removeprefix("at ")
            if point not in WIDEN:
                return self._reach(point)
            home.widen()
            # The restarted ingest sees the new column.
            return self._reach(point, home.ingest.kill)
        match kind:
            case "machine":
                backs = [self.kill(each) for each in ALL]
                return lambda: all(back is None or back() for back in backs)
            case "engine":
                workers, back = self._workers(), _another(self._engine)
                # The orphaned workers must exit.
                return back and (lambda: back() and not left(workers, 0))
            case "worker":
                return self._kill_worker()
            case "broker" | "broker for a minute":
                back = _another(self._broker)
                away = MINUTE if kind == AWAY else 0.0
                threading.Thread(target=self._start_broker, args=(away,)).start()
                return back
            case "rebuild" | "switch":
                return self._kill_command(kind)
            case "daemon":
                killed = time.time_ns() // 1000
                back = _another(self._daemon)
                threading.Thread(target=home.up).start()
                return lambda: back is not None and back() and home.looked_after(killed)
            case _:
                kept = {"ingest": home.ingest, "stream": home.stream}[kind]
                if kept.stopped:
                    return None
                kept.kill()
                return kept.works

    def _reach(
        self, point: str, act: Callable[[], None] = lambda: None
    ) -> Callable[[], bool] | None:
        """Kill the next process that reaches a fail point.

        Args:
            act: an action that leads a process there.
        """
        asked, deadline = self._home.fail_at, time.monotonic() + _TAKEN
        asked.write_text(point)
        act()
        while asked.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        if not asked.exists():
            return lambda: True
        asked.unlink(missing_ok=True)
        return None

    def _start_broker(self, away: float) -> None:
        if not self._home.ending.wait(away):
            broker.start_broker(self._home.settings)

    def _kill_command(self, kind: str) -> Callable[[], bool] | None:
        """Kill a rebuild, or the promotion of a finished one, at a random moment."""
        rebuild, env = [COMMAND, "rebuild", numbers_counted.name], self._home.env
        quiet = subprocess.DEVNULL
        if kind == "switch":
            if subprocess.run(rebuild, env=env, stdout=quiet, stderr=quiet, check=False).returncode:
                return None
            rebuild.append("--promote")
        with subprocess.Popen(rebuild, env=env, stdout=quiet, stderr=quiet) as process:
            with suppress(subprocess.TimeoutExpired):
                process.wait(self._chance.uniform(2, TAKES[kind]))
            if process.poll() is not None:
                return None
            process.kill()
        return lambda: True

    def _kill_worker(self) -> Callable[[], bool] | None:
        before = self._workers()
        if not before:
            return None
        for worker in before:
            _kill(worker)
        return lambda: bool(self._workers())

    def _workers(self) -> list[psutil.Process]:
        record = self._engine.find_running()
        with suppress(psutil.NoSuchProcess):
            children = [] if record is None else psutil.Process(record.pid).children(recursive=True)
            return [child for child in children if _WORKER in " ".join(child.cmdline())]
        return []


def _another(managed: ManagedProcess) -> Callable[[], bool] | None:
    """Kill a process of the home. Return a test for its replacement, or None without a process."""
    record = managed.find_running()
    if record is None:
        return None
    with suppress(psutil.NoSuchProcess):
        _kill(psutil.Process(record.pid))

    def back(before: Record = record) -> bool:
        now = managed.find_running()
        return now is not None and now.pid != before.pid

    return back


def _kill(process: psutil.Process) -> None:
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    left([process])
