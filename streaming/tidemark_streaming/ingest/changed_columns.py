"""Stop a source if producers have changed a column's type, so that no row fits any more.

A row that does not fit becomes a dead letter, and the stream continues without it. If many rows
arrive and all of them fail on the same column, the cause is not a few damaged rows. Continuing
would publish windows without any of them. The arrival is therefore not ingested, and a person must
decide.
"""

from collections.abc import Mapping

from tidemark.base.errors import DataError
from tidemark_streaming.ingest.arrival_facts import Facts
from tidemark_streaming.payloads.payload import MISFIT

MANY = 100
"""The minimum number of rows of an arrival that, if all of them fail, indicates a changed column.
"""


class ColumnChangedError(DataError):
    """An arrival whose rows all fail on one column.

    Args:
        before: the number of the commit's arrivals that come before it.
    """

    def __init__(self, message: str, before: int) -> None:
        super().__init__(message)
        self.before = before


def check(source: str, facts: Mapping[int, Facts]) -> None:
    """Refuse arrivals whose rows all fail on one column.

    Args:
        facts: the facts of the arrivals of a commit, by their index in it.
    """
    for place, found in sorted(facts.items()):
        misfit = found.misfit or ""
        if found.rows == 0 and found.dead_letters >= MANY and MISFIT.fullmatch(misfit):
            raise ColumnChangedError(
                f"All {found.dead_letters:,} rows of the next arrival of source '{source}' fail on "
                f"one column: {misfit.removesuffix('.')}. The producers have probably changed this "
                "column, so the source stops: the arrival is not ingested, and remains pending. "
                "Restore the old type, or declare the new one. To write these rows to the dead "
                f"letters instead, run `tidemark ingest {source} --allow-schema-change`.",
                place,
            )
