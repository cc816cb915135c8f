"""Tables that stay open: looked at again, they read only what was committed since.

Opening a table reads its newest checkpoint and the commits after it, ten milliseconds of a run's
second each time; looking whether there is a newer commit takes one. A run looks at its tables some
forty times.
"""

import os
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError


@dataclass(frozen=True)
class _Open:
    """A table that is open.

    Args:
        log: the folder of its log, held open: as long as it is, no other folder is taken for it.
    """

    table: DeltaTable
    log: int


class OpenTables:
    """The tables below a folder, each open once in a thread."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._own = threading.local()

    def path(self, table: str) -> str:
        """Where a table lies."""
        return f"{self._place}/{table}"

    def afresh(self, table: str) -> DeltaTable:
        """A table as it is now, which no other look at it moves on.

        Raises:
            TableNotFoundError: there is none.
        """
        return DeltaTable(self.path(table))

    def now(self, table: str) -> DeltaTable:
        """A table as it is now; the next look at it moves it on.

        Raises:
            TableNotFoundError: there is none.
        """
        if "://" in self._place:
            # What lies at a path may be another table by now, which a store does not tell.
            return self.afresh(table)
        there: dict[str, _Open] = self._own.__dict__
        known = there.get(table)
        if known is not None and self._stands(table, known):
            try:
                known.table.update_incremental()
            except DeltaError:
                # It was put back as it was before, or is as bad when it is opened anew.
                pass
            else:
                return known.table
        there.pop(table, None)
        try:
            log = os.open(self._log(table), os.O_RDONLY)
        except OSError:
            return self.afresh(table)
        try:
            opened = self.afresh(table)
        except BaseException:
            os.close(log)
            raise
        weakref.finalize(opened, os.close, log)
        there[table] = _Open(opened, log)
        return opened

    def known(self, table: str) -> int | None:
        """Return the newest version of a table that this thread has seen; None if none."""
        open_: _Open | None = self._own.__dict__.get(table)
        return None if open_ is None else open_.table.version()

    def forget(self, table: str) -> None:
        """Open a table anew at the next look: it may have been changed by half."""
        self._own.__dict__.pop(table, None)

    def _stands(self, table: str, known: _Open) -> bool:
        """Whether what is open is what lies there: a table can be dropped and made anew."""
        try:
            return os.path.samestat(Path(self._log(table)).stat(), os.fstat(known.log))
        except OSError:
            return False

    def _log(self, table: str) -> str:
        return f"{self.path(table)}/_delta_log"
