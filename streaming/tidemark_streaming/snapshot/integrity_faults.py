"""Open integrity failures: windows that currently fail `matches_log()` or `unique_key()`.

Such a failure indicates a fault in Tidemark itself.

A window counts while its failure is open (`check_results.open_failures`).
"""

from dataclasses import dataclass
from datetime import datetime

import pyarrow.dataset as ds

from tidemark.base.instants import iso
from tidemark.define.definition import Definition
from tidemark.quality.results import TABLE, CheckResult
from tidemark.store.commits.conditions import Equals, text_field
from tidemark.verify.integrity_checks import FAULT_TEXT, INTEGRITY_CHECKS, remedy
from tidemark_streaming.snapshot.check_results import failed_windows, key_types, open_failures
from tidemark_streaming.snapshot.snapshot import Snapshot


@dataclass(frozen=True)
class IntegrityFault:
    """Windows of one asset that currently fail an integrity check.

    Args:
        expectations: the expectations that they fail.
        windows: the number of windows.
        first: the start of the first of them, in microseconds.
        since: when a run found the first of them.
        remedy: an instruction that resolves them.
    """

    asset: str
    expectations: list[str]
    windows: int
    first: int
    since: datetime
    remedy: str

    def __str__(self) -> str:
        """Return the fault as one message."""
        some = "1 window fails" if self.windows == 1 else f"{self.windows:,} windows fail"
        return (
            f"{self.asset}: {some} {' and '.join(self.expectations)} since "
            f"{self.since:%Y-%m-%d %H:%M} UTC, the first at {iso(self.first)}; this is "
            f"{FAULT_TEXT}: {self.remedy}"
        )


def find_integrity_fault(snapshot: Snapshot, transform: Definition) -> IntegrityFault | None:
    """Return the open integrity failures of an asset; None if there are none.

    Without failures, that takes one read of the results.
    """
    own = text_field("expectation").isin(list(INTEGRITY_CHECKS))
    asset = [Equals("asset", transform.name)]
    failed = snapshot.tables.read(TABLE, ["asset"], own & ~ds.field("success"), asset)
    if failed is None or not failed.num_rows:
        return None
    found = snapshot.tables.read(TABLE, None, own, asset)
    last = snapshot.last_run(transform.name)
    rows = [] if found is None or last is None else found.to_pylist()
    table_id = "" if last is None else last["table_id"]
    results = sorted(
        (CheckResult(**r) for r in rows if r["table_id"] == table_id), key=lambda r: r.commit_number
    )
    failing, types = open_failures(snapshot, transform, results), key_types(snapshot, transform)
    blamed = {place for r in results for place in failed_windows(r, types)}
    at_fault = {
        place: names
        for place in blamed
        if (names := INTEGRITY_CHECKS.intersection(failing.get(place, ())))
    }
    if not at_fault:
        return None
    reporting = [r for r in results if not failed_windows(r, types).keys().isdisjoint(at_fault)]
    return IntegrityFault(
        asset=transform.name,
        expectations=sorted({e for es in at_fault.values() for e in es}),
        windows=len(at_fault),
        first=min(start for start, _ in at_fault),
        since=min(r.at for r in reporting),
        remedy=remedy(transform),
    )
