"""How many events a table has had, and when."""

import time
from pathlib import Path

import numpy as np
from deltalake import DeltaTable

PATIENCE = 120.0


class Versions:
    """How many events a table has had, and when."""

    def __init__(self, table: Path) -> None:
        self.table = table
        self._known: dict[int, tuple[float, int]] = {}

    def look(self) -> tuple[np.ndarray, np.ndarray]:
        """When each version was committed, and how many events it has."""
        for file in sorted((self.table / "_delta_log").glob("*.json")):
            number = int(file.stem)
            if number not in self._known:
                rows = DeltaTable(self.table, version=number).to_pyarrow_table(columns=["events"])
                total = sum(rows["events"].to_pylist())
                self._known[number] = (file.stat().st_mtime, total)
        told = np.array([self._known[n] for n in sorted(self._known)]).reshape(-1, 2)
        return told[:, 0], told[:, 1]

    def total(self) -> int:
        _, totals = self.look()
        return int(totals[-1]) if len(totals) else 0

    def await_total(self, total: int) -> None:
        """Wait until all events are there, and none twice."""
        deadline = time.monotonic() + PATIENCE + total / 10_000
        while (found := self.total()) < total:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.table.name}: {found:,} of {total:,} events came.")
            time.sleep(1)
        if found > total:
            raise RuntimeError(f"{self.table.name}: {found:,} events are there, of {total:,}.")
