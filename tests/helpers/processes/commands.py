"""The command line, run in the process of the tests."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner, Result

from tidemark.base.settings import Settings
from tidemark_streaming.cli import app


def surround(patch: pytest.MonkeyPatch, settings: Settings) -> None:
    """Set the environment variables of a home for commands and child processes."""
    for name in ("home", "engine_port", "engine_memory", "landing", "database"):
        patch.setenv(f"TIDEMARK_{name.upper()}", str(getattr(settings, name)))


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Restore the signal handlers after the block."""
    numbers = (signal.SIGTERM, signal.SIGALRM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def call(*arguments: str) -> Result:
    """Run a command. Raise any unexpected exception, which a user must never see."""
    with handlers_kept():
        result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
