"""Define commits that replace all rows of an asset's tables by those of other table versions."""

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.commits.ranges import Ranges
from tidemark.store.commits.scope import Scope


@dataclass(frozen=True, kw_only=True)
class TableSwap(StateCommit):
    """A commit that copies other tables.

    Args:
        taken: for each table, the table and version that its rows are copied from; a table that is
            not named becomes empty.
    """

    # Publishing it drops the rebuilt tables.
    can_repeat = False

    taken: Mapping[str, tuple[str, int]]

    @property
    def recomputed(self) -> Ranges:
        return ()

    def scope(self) -> Scope:
        return Scope.from_coverage(self.after)


@dataclass(frozen=True, kw_only=True)
class Promotion(TableSwap):
    """A commit that replaces all rows by those of rebuilt tables.

    Args:
        kept: for each table, the version that has its earlier rows; empty if they are not kept.
    """

    kept: Mapping[str, int]

    @property
    def mode(self) -> str:
        return "promotion"


@dataclass(frozen=True, kw_only=True)
class Rollback(TableSwap):
    """A commit that restores the rows from before a promotion."""

    allows_changes = False

    @property
    def mode(self) -> str:
        return "rollback"
