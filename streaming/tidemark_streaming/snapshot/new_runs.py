"""The runs of an asset that are new to who looks again and again.

A run's number tells only with the life of its asset which one it is: after a drop they are counted
from 0 again.
"""

from typing import Any

from tidemark_streaming.snapshot.snapshot import Snapshot


class NewerRuns:
    """Remembers the last run of an asset that was told."""

    def __init__(self, snapshot: Snapshot, asset: str) -> None:
        self._snapshot = snapshot
        self._asset = asset
        self._told: tuple[str | None, int] = None, -1

    def take(self) -> list[dict[str, Any]]:
        """The runs since this was asked last, as the ledger has them, in order; the first time, and
        of an asset that was made anew, all."""
        life, (before, seq) = self._snapshot.life(self._asset), self._told
        rows = self._snapshot.runs_after(self._asset, seq if life == before else -1)
        # It may be made anew between the two looks.
        found = [row for row in rows if row["life"] == life]
        if found:
            self._told = life, found[-1]["seq"]
        return found
