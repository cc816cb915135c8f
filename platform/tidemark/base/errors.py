"""What a user can do wrong or meet, as exceptions whose message is one clear sentence.

The CLI prints the sentence without a trace and exits with `exit_code`. Anything that is not a
`TidemarkError` is a fault of Tidemark and keeps its trace.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class TidemarkError(Exception):
    """The sentence that the user reads; everything below is a kind of it.

    Args:
        sentence: what is wrong, where, and what can be done.
        passing: whether it may pass by itself, as when a server does not answer just now: who goes
            on for ever waits, and asks nobody.
    """

    exit_code = 2

    def __init__(self, sentence: str, *, passing: bool = False) -> None:
        super().__init__(sentence)
        self.passing = passing


class DefinitionError(TidemarkError):
    """A source, transform or setting is not lawful.

    What is wrong may be a text with a line break, which must not break the sentence.
    """

    def __init__(self, sentence: str, *, passing: bool = False) -> None:
        super().__init__(sentence.replace("\n", "\\n"), passing=passing)


class DataError(TidemarkError):
    """Data is missing, unreadable, or not what a definition says it is."""


class HistoryGone(DataError):  # noqa: N818 (it names what is the matter)
    """A table's history does not go back as far as a reader of its changes would have it."""


class EngineError(TidemarkError):
    """The Spark engine can't be started, reached or used."""


class StoreError(TidemarkError):
    """An object store can't be reached, refuses a request, or lacks what commits need."""

    exit_code = 3


class NotInstalled(TidemarkError):  # noqa: N818 (it names what is the matter)
    """A package is missing that not every installation has."""


class ConflictError(TidemarkError):
    """Another run changed the same table first, and trying again did not help."""


class DefinitionChanged(TidemarkError):  # noqa: N818 (it is no error of the user's)
    """A run of an older definition met what a newer one has written since."""


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The sentence for a name that nothing has: what there is, and what was probably meant."""
    there = sorted(known)
    close = get_close_matches(name, there, n=1)
    meant = f" Did you mean '{close[0]}'?" if close else ""
    return f"There is no {what} '{name}'; there are: {', '.join(there) or 'none'}.{meant}"
