"""Poll a condition in the background of other work."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def call_when(
    is_true: Callable[[], bool], action: Callable[[], object], *, seconds: float, thread: str
) -> Iterator[None]:
    """Call a function as soon as a condition is true, but only during the `with` block.

    Args:
        is_true: returns whether the condition is true. The function is called once, after the first
            time.
        seconds: the time between two polls.
        thread: the name of the thread that polls.
    """
    ended = threading.Event()

    def poll_condition() -> None:
        while not ended.wait(seconds):
            if is_true():
                action()
                return

    poller = threading.Thread(target=poll_condition, name=thread, daemon=True)
    poller.start()
    try:
        yield
    finally:
        ended.set()
        poller.join()
