"""The end of commands that run until they are told to end."""

import signal
import time
from types import FrameType

_CLIENT = ("grpc.", "concurrent.futures.")
"""Modules in which a request to the engine is sent and awaited, by how their names begin."""

_PATIENCE = 10.0
"""Seconds that a request has to end: one to an engine that does not answer may never."""

_AGAIN = 0.005
"""Seconds after which it is tried again to interrupt a request."""


def until_terminated() -> None:
    """Let SIGTERM end this process as Ctrl-C does: so services are stopped, and unlike Ctrl-C it is
    not inherited as ignored by what a shell starts in the background.

    Both wait for the end of a request to the engine: interrupted within one, its client may keep
    a lock for which the process then waits at its end, for ever, or crash.
    """
    interrupt = _Interrupt()
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGALRM, interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)


class _Interrupt:
    """Raises KeyboardInterrupt, after the request that is under way."""

    def __init__(self) -> None:
        self._since: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        if _asks(frame) and now - self._since < _PATIENCE:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
            return
        self._since = None
        raise KeyboardInterrupt


def _asks(frame: FrameType | None) -> bool:
    """Whether the engine is being asked there."""
    while frame is not None:
        if frame.f_globals["__name__"].startswith(_CLIENT):
            return True
        frame = frame.f_back
    return False
