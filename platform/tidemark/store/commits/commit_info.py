"""Define the records of commits. The properties of a record describe what its commit changes.

Each kind of commit is a class. Other packages read the properties, and never check the class. The
kinds are:

| kind | reads | state | published table |
| --- | --- | --- | --- |
| `Increment` | events of new arrivals | adds partials | merges changed windows |
| `Replacement` | all events of some windows | replaces their partials | replaces them |
| `SessionReplacement` | the same | the same | merges changed sessions |
| `Promotion`, `Rollback` | versions of other tables | replaces all rows | replaces all rows |
| `Following` | the state of a roll-up's base | has none | merges or replaces windows |
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from tidemark.define.identity.parts import Part
from tidemark.store.commits.coverage import Coverage, TimelinePosition
from tidemark.store.commits.ranges import Ranges
from tidemark.store.commits.scope import Scope


@dataclass(frozen=True, kw_only=True)
class CommitInfo(ABC):
    """The record of a run's commit: the events that it counts, and the windows that it replaces.

    Args:
        run: the id of the run that made the commit.
        started: when the run began, in microseconds.
        before: the coverage that the run started from.
        after: the coverage with this commit.
    """

    counts_all_events: ClassVar[bool] = False
    """True if the commit counts all events of its windows, and so needs no stored partials."""

    run: str = ""
    started: int = 0
    commit_number: int = -1
    before: Coverage = field(default_factory=Coverage)
    after: Coverage = field(default_factory=Coverage)

    @property
    @abstractmethod
    def mode(self) -> str:
        """The kind of the run, as the ledger names it."""

    @property
    def recomputed_ranges(self) -> Ranges | None:
        """The ranges of the windows that the commit recomputes completely.

        An empty tuple stands for all windows. None means that the commit recomputes no window: it
        adds new events to the existing ones.
        """
        return None

    @property
    def replaced_ranges(self) -> Ranges | None:
        """The ranges of the windows whose published rows the commit replaces.

        An empty tuple stands for all windows. None means that the commit replaces no range: it
        merges the changed rows into the published ones.
        """
        return self.recomputed_ranges

    @property
    def is_first_commit(self) -> bool:
        """True if this is a state's first commit.

        If it is, any published rows are from an earlier state.
        """
        return False

    @property
    def overwritten_ranges(self) -> Ranges | None:
        """The ranges of the windows whose published rows the commit deletes.

        An empty tuple stands for all windows, and None for none. A state's first commit deletes all
        published rows. Any other commit deletes the rows that it replaces.
        """
        if self.is_first_commit:
            return ()
        return self.replaced_ranges

    @property
    def late_events(self) -> str:
        """`include` if too-late events count, else `exclude`."""
        return "exclude"

    @property
    def changing_from(self) -> int | None:
        """For session windows, the start of the first session that the commit can change.

        None means that it can change all sessions.
        """
        return None

    @property
    def furthest_position(self) -> TimelinePosition:
        """The position through which the commit's windows are up to date.

        If the position differs between windows, this is the furthest one.
        """
        return self.after.at

    @property
    def start_bounds(self) -> tuple[int | None, int | None]:
        """The range [first, bound) of the starts of the commit's windows; None means no bound."""
        return None, None


@dataclass(frozen=True, kw_only=True)
class StateCommit(CommitInfo):
    """The record of a commit to a state. The state stores it.

    Args:
        definition: the fingerprint of the definition that made the commit.
        defined: the number of the commit that records the parts of that definition; -1 before the
            first commit.
        parts: the parts of the definition, if this commit records them.
        promoted: the number of the newest promotion of rebuilt tables, if it kept a backup of the
            earlier rows and was not rolled back; otherwise -1.
        open_from: for session windows, the start of the first session that later arrivals may still
            change, in microseconds; None if they may change all sessions.
    """

    can_repeat: ClassVar[bool] = True
    """True if the commit can be published again even if it is not the newest one."""
    allows_changes: ClassVar[bool] = True
    """True if a changed definition can continue from the commit."""

    definition: str = ""
    defined: int = -1
    parts: Mapping[str, Part] | None = None
    promoted: int = -1
    open_from: int | None = None

    @abstractmethod
    def counted_scope(self) -> Scope:
        """Return the scope of the commit: which events it counts, and in which windows."""

    @property
    def is_first_commit(self) -> bool:
        return self.commit_number == 0

    @property
    def replaces_all(self) -> bool:
        """True if the commit recomputes all windows."""
        return self.recomputed_ranges == ()

    @property
    def changes_definition(self) -> bool:
        """True if the commit replaces all rows of another definition."""
        return self.replaces_all and not self.is_first_commit and self.parts is not None

    @property
    def adds_partials(self) -> bool:
        """True if the commit adds to the partials of earlier commits."""
        return self.recomputed_ranges is None and not self.is_first_commit

    @property
    def lists_late_events(self) -> bool:
        return True


_C = TypeVar("_C", bound=StateCommit)


def drop_superseded(commits: Sequence[_C]) -> Sequence[_C]:
    """Return the commits from the newest one that replaced all rows; all commits if none did."""
    starts = [n for n, commit in enumerate(commits) if commit.replaces_all]
    return commits[max(starts, default=0) :]
