"""Report comparisons of published windows with the event log, as results of the check `parity`.

The operation `nightly` and the asset's page report their own comparisons. The command line, which
knows nothing of Dagster, records its comparisons in the table `parities`; the sensor
`<domain>_reports` reports the new comparisons.
"""

from collections.abc import Mapping

import dagster as dg

from tidemark.base.counts import format_count
from tidemark.base.instants import format_instant
from tidemark.define.definition import Definition
from tidemark.verify.parity import ParityReport
from tidemark.verify.record import TABLE, Comparison
from tidemark_assets.base.cells import as_table
from tidemark_assets.base.names import Names
from tidemark_streaming.snapshot.snapshot import Snapshot

PARITY = "parity"
_MAX_SHOWN_DIFFERENCES = 20
"""Maximum number of differences that a result lists."""
MAX_COMPARISONS_PER_TICK = 100
"""The maximum number of comparisons reported in a tick; later ticks report the rest."""

_COLUMNS = ("kind", "window", "keys", "column", "published", "recomputed")

ReportedComparisons = tuple[str | None, int]
"""The last reported comparison: the identity of the table of comparisons, and the comparison's
number; -1 before the first.
"""


def parity_result(
    names: Names, verified: ParityReport, span: str, made_by: str
) -> dg.AssetCheckEvaluation:
    """Return a comparison as a check result. Differences due to late events do not fail the check.

    Args:
        span: a text that names the windows that were compared.
        made_by: the origin of the comparison.
    """
    rows = [
        (d.kind, d.window_start, d.keys, d.column, d.published, d.recomputed)
        for d in verified.differences[:_MAX_SHOWN_DIFFERENCES]
    ]
    counts = [f"{name}: {count:,}" for name, count in verified.quarantined_by.items()]
    quarantined = f", {verified.quarantined:,} of them quarantined" if verified.quarantined else ""
    return dg.AssetCheckEvaluation(
        asset_key=names.key(verified.asset),
        check_name=PARITY,
        passed=not verified.unexplained_count,
        severity=dg.AssetCheckSeverity.ERROR,
        description=(
            f"{span}: compared {format_count(verified.windows, 'window')}{quarantined} with a "
            f"bounded computation of the event log, {format_count(verified.total, 'difference')}."
        ),
        metadata={
            "windows": verified.windows,
            "differences": verified.total,
            "too late": verified.lost,
            "quarantined": verified.quarantined,
            "made by": made_by,
            **({"quarantined by": "; ".join(counts)} if counts else {}),
            **({"first differences": as_table(_COLUMNS, rows)} if rows else {}),
        },
    )


def report_new_comparisons(
    names: Names,
    snapshot: Snapshot,
    transforms: Mapping[str, Definition],
    reported: ReportedComparisons,
) -> tuple[list[dg.AssetCheckEvaluation], ReportedComparisons]:
    """Return the check results of comparisons on the command line since the last report, and the
    newest reported comparison.

    Args:
        reported: the last comparison that was reported.
    """
    record, number = reported
    present = snapshot.tables.table_id(TABLE)
    if present is None:
        return [], reported
    table = snapshot.tables.read(TABLE)
    rows = [] if table is None else table.sort_by("number").to_pylist()
    if record != present:
        number = -1
    new_comparisons = [Comparison.from_row(row) for row in rows if row["number"] > number][
        :MAX_COMPARISONS_PER_TICK
    ]
    events = [
        parity_result(names, c.report, _span(c), "`tidemark parity` or `tidemark demo`")
        for c in new_comparisons
        if c.report.asset in transforms
    ]
    return events, (present, max([number, *(c.number for c in new_comparisons)]))


def _span(comparison: Comparison) -> str:
    if comparison.start is None or comparison.end is None:
        return "all windows"
    return f"{format_instant(comparison.start)} to {format_instant(comparison.end)}"
