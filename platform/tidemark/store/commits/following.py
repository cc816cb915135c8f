"""Define the commits of roll-ups."""

from dataclasses import dataclass

from tidemark.store.commits.commit_info import CommitInfo
from tidemark.store.commits.ranges import Ranges


@dataclass(frozen=True, kw_only=True)
class Following(CommitInfo):
    """A commit of a roll-up, which follows its base's commits up to `commit_number`.

    It is not stored, because it is a function of the base's state.

    Args:
        ranges: the ranges of the windows that the commit replaces; empty means all windows; None
            if the base has replaced no window.
    """

    ranges: Ranges | None = None

    @property
    def mode(self) -> str:
        return "rollup"

    @property
    def recomputed(self) -> Ranges | None:
        return self.ranges
