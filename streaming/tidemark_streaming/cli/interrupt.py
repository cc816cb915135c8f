"""The end of commands that run until they are told to end."""

import signal
from types import FrameType

_CLIENT = ("grpc.", "concurrent.futures.")
"""Modules in which a request to the engine is sent and awaited, by how their names begin."""

_AGAIN = 0.005
"""Seconds after which it is tried again to interrupt a request."""


def until_terminated() -> None:
    """Let SIGTERM end this process as Ctrl-C does: so services are stopped, and unlike Ctrl-C it is
    not inherited as ignored by what a shell starts in the background.

    Both wait for the end of a request to the engine: interrupted within one, its client may keep
    a lock for which the process then waits at its end, for ever, or crash.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGALRM, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_globals["__name__"].startswith(_CLIENT):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
            return
        frame = frame.f_back
    raise KeyboardInterrupt
