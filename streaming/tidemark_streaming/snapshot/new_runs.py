"""The runs of an asset that are new since the last call.

The number of a run is unique only within one table id of its asset: after a drop, numbers start
at 0 again.
"""

from typing import Any

from tidemark_streaming.snapshot.snapshot import Snapshot


class NewRuns:
    """Remembers the newest run of an asset that was returned."""

    def __init__(self, snapshot: Snapshot, asset: str) -> None:
        self._snapshot = snapshot
        self._asset = asset
        self._last: tuple[str | None, int] = None, -1

    def take(self) -> list[dict[str, Any]]:
        """Return the ledger's rows of the runs since the last call, in order.

        The first call returns all runs, and so does one after the asset was recreated.
        """
        table_id, (before, commit_number) = self._snapshot.table_id(self._asset), self._last
        rows = self._snapshot.runs_after(self._asset, commit_number if table_id == before else -1)
        # The asset may be recreated between the two reads.
        found = [row for row in rows if row["table_id"] == table_id]
        if found:
            self._last = table_id, found[-1]["commit_number"]
        return found
