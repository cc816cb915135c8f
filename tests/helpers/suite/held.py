"""What others are asked is held back by a test: who does not wait for it goes on meanwhile."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest

LONG = 30.0
"""Seconds after which what is held back goes on by itself."""


class Held:
    """A function that goes on once it may.

    Args:
        usual: what it does then.
    """

    def __init__(self, usual: Callable[..., Any]) -> None:
        self.asked = Event()
        """Whether somebody has called it."""
        self._may, self._usual, self._over = Event(), usual, False

    @property
    def still(self) -> bool:
        """Whether somebody is held back now, by what nobody has waited for."""
        return self.asked.wait(LONG) and not self._over

    def __call__(self, *given: Any) -> Any:  # noqa: ANN401
        self.asked.set()
        self._over |= not self._may.wait(LONG)
        return self._usual(*given)

    def let_go(self) -> None:
        self._may.set()


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch, of: object, name: str) -> Iterator[Held]:
    """Hold back what has this name, until the block's end."""
    usual = getattr(of, name)
    holds = Held(usual)
    with monkeypatch.context() as patch:
        # A function, which may be a method too.
        patch.setattr(of, name, lambda *given: holds(*given))
        try:
            yield holds
        finally:
            holds.let_go()
