"""Interruption of commands that run until Ctrl-C or SIGTERM."""

import signal
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from types import FrameType

_OWN = ("tidemark.", "tidemark_streaming.")
"""Prefixes of the names of this project's modules."""

_CLIENT = ("grpc.", "concurrent.futures.")
"""Prefixes of the names of modules that send a request to the engine and wait for its answer."""

_PATIENCE = 10.0
"""Seconds to wait for a call of a library to return. After that, the call is interrupted: a request
to an engine that does not answer may never return.
"""

_AGAIN = 0.005
"""Seconds before the next attempt to interrupt."""


def handle_termination() -> None:
    """Let SIGTERM end this process as Ctrl-C does.

    Service managers send SIGTERM. A background process of a shell inherits that Ctrl-C is ignored,
    but still reacts to SIGTERM.

    Both signals take effect only in this project's own code, or after `_PATIENCE` seconds. If a
    request to the engine is interrupted, the engine's client may crash, or keep a lock for which
    the process then waits forever. A library in C may swallow the exception, so that the signal is
    lost.
    """
    interrupt = _Interrupt()
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGALRM, interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


def suppress_interrupt(*, following: bool) -> AbstractContextManager[object, bool | None]:
    """Return a context that Ctrl-C ends without an error, if the command runs until Ctrl-C."""
    if following:
        return suppress(KeyboardInterrupt)
    return nullcontext()


class _Interrupt:
    """A signal handler that raises KeyboardInterrupt.

    If the signal arrives during a call of a library, the exception is raised after the call, but at
    the latest after `_PATIENCE` seconds.
    """

    def __init__(self) -> None:
        self._since: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        pressed_at = time.monotonic()
        if self._since is None:
            self._since = pressed_at
        if not _runs_own_code(frame) and pressed_at - self._since < _PATIENCE:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
            return
        self._since = None
        raise KeyboardInterrupt


def _runs_own_code(frame: FrameType | None) -> bool:
    """Return whether the frame runs this project's own code, and not during a request to the
    engine."""
    if frame is None or not _module_name(frame).startswith(_OWN):
        return False
    while frame is not None:
        if _module_name(frame).startswith(_CLIENT):
            return False
        frame = frame.f_back
    return True


def _module_name(frame: FrameType) -> str:
    return frame.f_globals.get("__name__", "")
