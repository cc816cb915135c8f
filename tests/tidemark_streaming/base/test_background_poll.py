"""A function is called once in the background, as soon as a condition is true."""

import threading
from itertools import count

from tidemark_streaming.base.background_poll import call_when


def test_a_function_is_called_once_when_a_condition_becomes_true() -> None:
    polls, called = count(), threading.Event()
    calls = list[str]()

    def call() -> None:
        calls.append(threading.current_thread().name)
        called.set()

    with call_when(lambda: next(polls) >= 2, call, seconds=0.001, thread="poller"):
        assert called.wait(60)
    assert calls == ["poller"]
    assert next(polls) == 3


def test_a_function_is_not_called_after_the_block() -> None:
    calls = list[int]()
    with call_when(lambda: False, lambda: calls.append(1), seconds=0.001, thread="poller"):
        pass
    assert not calls
    assert "poller" not in {thread.name for thread in threading.enumerate()}
