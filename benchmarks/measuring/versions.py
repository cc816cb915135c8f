"""Read the number of events in each version of a table, and the time of its commit."""

import time
from pathlib import Path

import numpy as np
from deltalake import DeltaTable

PATIENCE = 120.0


class Versions:
    """The versions of a table, with the number of events of each."""

    def __init__(self, table: Path) -> None:
        self.table = table
        self._known: dict[int, tuple[float, int]] = {}

    def look(self) -> tuple[np.ndarray, np.ndarray]:
        """Return commit times (in seconds since 1970) and numbers of events of all versions."""
        for file in sorted((self.table / "_delta_log").glob("*.json")):
            number = int(file.stem)
            if number not in self._known:
                rows = DeltaTable(self.table, version=number).to_pyarrow_table(columns=["events"])
                total = sum(rows["events"].to_pylist())
                self._known[number] = (file.stat().st_mtime, total)
        known = np.array([self._known[n] for n in sorted(self._known)]).reshape(-1, 2)
        return known[:, 0], known[:, 1]

    def total(self) -> int:
        _, totals = self.look()
        return int(totals[-1]) if len(totals) else 0

    def await_total(self, total: int) -> None:
        """Wait until the table has `total` events. Raise a RuntimeError if it has more."""
        deadline = time.monotonic() + PATIENCE + total / 10_000
        while (found := self.total()) < total:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.table.name}: {found:,} of {total:,} events arrived.")
            time.sleep(1)
        if found > total:
            raise RuntimeError(
                f"{self.table.name}: {found:,} events, more than the {total:,} that were sent."
            )
