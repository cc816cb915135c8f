"""A column that producers have changed: nothing of it fits any more, and its source stops.

What does not fit is a dead letter, and a stream goes on without it. Where many rows came and all of
them fail on the same column, that is no damage of some: whoever goes on publishes windows without
them. So the arrival is not brought in, and a person decides.
"""

import re
from collections.abc import Mapping

from tidemark.base.errors import DataError
from tidemark_streaming.observed import Facts

MANY = 100
"""Rows of an arrival from which on that none of them fits tells of a change."""

_FIELD = re.compile(r"The field '.+' is no .+\.")


class ColumnChanged(DataError):  # noqa: N818 (it names what is the matter)
    """An arrival all of whose rows fail on one column.

    Args:
        before: how many of a commit's arrivals come before it.
    """

    def __init__(self, sentence: str, before: int) -> None:
        super().__init__(sentence)
        self.before = before


def check(source: str, facts: Mapping[int, Facts]) -> None:
    """Refuse what the rows of some arrivals are, by their places in the commit.

    Raises:
        ColumnChanged: of the first whose rows all fail on one column.
    """
    for place, found in sorted(facts.items()):
        misfit = found.misfit or ""
        if found.rows == 0 and found.dead_letters >= MANY and _FIELD.fullmatch(misfit):
            raise ColumnChanged(
                f"All {found.dead_letters:,} rows of the next arrival of source '{source}' fail on "
                f"one column: {misfit.removesuffix('.')}. Its producers seem to have changed it, "
                "so the source stops here: nothing of that arrival is in, and it waits where it "
                "is. Have it come as before, or declare what comes now; or "
                f"say `tidemark ingest {source} --accept-change`, and such rows are dead letters.",
                place,
            )
