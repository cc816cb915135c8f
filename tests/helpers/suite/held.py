"""Calls that a test blocks, to show which code waits for them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest

LONG = 30.0
"""Seconds after which a blocked call continues."""


class Held:
    """A function that blocks until `let_go` is called.

    Args:
        usual: the function that it calls then.
    """

    def __init__(self, usual: Callable[..., Any]) -> None:
        self.asked = Event()
        """Set when it is called."""
        self._may, self._usual, self._over = Event(), usual, False

    @property
    def still(self) -> bool:
        """Whether a call is blocked and has not timed out."""
        return self.asked.wait(LONG) and not self._over

    def __call__(self, *given: Any) -> Any:  # noqa: ANN401
        self.asked.set()
        self._over |= not self._may.wait(LONG)
        return self._usual(*given)

    def let_go(self) -> None:
        self._may.set()


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch, of: object, name: str) -> Iterator[Held]:
    """Block calls of the function with this name until the end of the block."""
    usual = getattr(of, name)
    holds = Held(usual)
    with monkeypatch.context() as patch:
        # A plain function also works as a method.
        patch.setattr(of, name, lambda *given: holds(*given))
        try:
            yield holds
        finally:
            holds.let_go()
