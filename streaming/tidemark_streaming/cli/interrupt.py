"""Interruption of commands that run until Ctrl-C or SIGTERM."""

import signal
import time
from types import FrameType

_OWN = ("tidemark.", "tidemark_streaming.")
"""How the names of this project's modules begin."""

_CLIENT = ("grpc.", "concurrent.futures.")
"""Modules in which a request to the engine is sent and awaited, by how their names begin."""

_PATIENCE = 10.0
"""Seconds that a library's call has to end: a request to an engine that does not answer may
never."""

_AGAIN = 0.005
"""Seconds after which it is tried again to interrupt."""


def handle_termination() -> None:
    """Let SIGTERM end this process as Ctrl-C does: so services are stopped, and unlike Ctrl-C it is
    not inherited as ignored by what a shell starts in the background.

    Both wait until this project's own code is at work. Interrupted within a request to the engine,
    its client may keep a lock for which the process then waits at its end, for ever, or crash; and
    a library that is not of Python may take the exception for an answer, so that it is lost.
    """
    interrupt = _Interrupt()
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGALRM, interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


class _Interrupt:
    """Raises KeyboardInterrupt, but not within a call of a library."""

    def __init__(self) -> None:
        self._since: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if not _own(frame) and now - self._since < _PATIENCE:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
            return
        self._since = None
        raise KeyboardInterrupt


def _own(frame: FrameType | None) -> bool:
    """Return whether the frame runs this project's own code outside a request."""
    if frame is None or not _name(frame).startswith(_OWN):
        return False
    while frame is not None:
        if _name(frame).startswith(_CLIENT):
            return False
        frame = frame.f_back
    return True


def _name(frame: FrameType) -> str:
    """Return the name of the frame's module."""
    return frame.f_globals.get("__name__", "")
