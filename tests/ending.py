"""Commands that end though nobody ends them."""

from collections.abc import Sequence
from contextlib import suppress

from tidemark.base.errors import DataError
from tidemark.base.settings import Settings
from tidemark_streaming import foreground

GONE = "Records are gone."


def end_with_an_error(settings: Settings, kind: str, name: str, assets: Sequence[str] = ()) -> None:
    """A command that begins, and ends with the sentence `GONE`."""
    with suppress(DataError), foreground.running(settings, kind, name, tuple(assets)):
        raise DataError(GONE)
