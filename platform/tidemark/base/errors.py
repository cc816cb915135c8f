"""Define the exceptions for problems that a user can cause or meet.

The CLI prints the message without a traceback, and exits with `exit_code`. Any other exception is a
bug in Tidemark, and its traceback is shown.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class TidemarkError(Exception):
    """The base class of all errors that a user can cause or meet.

    Args:
        message: the error message: the problem, where it occurred, and the remedy.
        retriable: true if the problem may pass by itself, for example because a server does not
            answer at the moment. Long-running processes then wait and retry.
    """

    exit_code = 2

    def __init__(self, message: str, *, retriable: bool = False) -> None:
        super().__init__(message)
        self.retriable = retriable


class DefinitionError(TidemarkError):
    """An invalid source, transform or setting.

    A line break in the message, which may come from an invalid value, is escaped.
    """

    def __init__(self, message: str, *, retriable: bool = False) -> None:
        super().__init__(message.replace("\n", "\\n"), retriable=retriable)


class DataError(TidemarkError):
    """Data that is missing, unreadable, or different from its definition."""


class HistoryExpiredError(DataError):
    """A table whose history no longer has the versions that a reader of its changes needs."""


class EngineError(TidemarkError):
    """A failure to start, reach or use the Spark engine."""


class EngineLostError(EngineError):
    """The engine exited or was replaced while it was in use: its sessions and DataFrames are lost.

    A new session may work again, so the error is retriable.
    """

    def __init__(self) -> None:
        super().__init__("The engine has exited, or lost this session.", retriable=True)


class StoreError(TidemarkError):
    """An object store that can't be reached, refuses a request, or lacks a required feature."""

    exit_code = 3


class MissingDependencyError(TidemarkError):
    """An optional package that is not installed."""


class ConflictError(TidemarkError):
    """A conflict that all retries failed to resolve: another run changed the same table first."""


class DefinitionChangedError(TidemarkError):
    """A definition other than the one with which another process wrote the asset's tables."""


def summarize_error(error: BaseException) -> str:
    """Return the first line of an exception's message, or its type, without a final period."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".;")


def describe_unknown(kind: str, name: str, names: Iterable[str]) -> str:
    """Return the error message for an unknown name, with the known names and the closest match."""
    available = sorted(names)
    close = get_close_matches(name, available, n=1)
    meant = f" Did you mean '{close[0]}'?" if close else ""
    return f"There is no {kind} '{name}'. Available: {', '.join(available) or 'none'}.{meant}"
