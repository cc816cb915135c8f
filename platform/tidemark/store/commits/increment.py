"""Define increments: commits that add the events of new arrivals."""

from dataclasses import dataclass

from pyspark.sql import functions as F

from tidemark.store.commits.commit_info import StateCommit
from tidemark.store.commits.scope import Scope


@dataclass(frozen=True, kw_only=True)
class Increment(StateCommit):
    """A commit that adds the events of the arrivals since the newest commit.

    Args:
        open_before: the `open_from` of the newest commit; None if another definition made it.
    """

    open_before: int | None = None

    @property
    def mode(self) -> str:
        return "incremental"

    @property
    def changing_from(self) -> int | None:
        return self.open_before

    def scope(self) -> Scope:
        before = self.before
        beyond = F.col("arrival") > before.pick("arrival") if before.covers else None
        return Scope(before.at.arrival, self.at.arrival, arrivals=beyond)


NO_COMMIT = Increment()
"""Stands for the newest commit of a state without commits."""
