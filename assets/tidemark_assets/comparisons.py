"""Comparisons of what is published with a bounded computation, as results of the check `parity`.

The nightly job and the asset's page compare by themselves. What was compared on the command line,
which knows nothing of Dagster, is on record in the table `parities`: the sensor `<domain>_windows`
reports those that it has not reported yet.
"""

from collections.abc import Mapping

import dagster as dg

from tidemark.base.instants import iso
from tidemark.define.definition import Definition
from tidemark.verify.parity import ParityReport
from tidemark.verify.record import TABLE, Comparison
from tidemark_assets.names import Names
from tidemark_assets.tables import as_table
from tidemark_streaming.glance import Glance

PARITY = "parity"
SHOWN = 20
"""Differences that a result lists."""
MOST = 100
"""Comparisons reported in a tick; the rest follows in the next ones."""

_COLUMNS = ("kind", "window", "keys", "column", "published", "recomputed")

Told = tuple[str | None, int]
"""Through where comparisons were reported: which record, and the number; -1 before the first."""


def judged(
    names: Names, verified: ParityReport, span: str, made_by: str
) -> dg.AssetCheckEvaluation:
    """What was found, as the result of a check; a complete answer is no fault.

    Args:
        span: which windows were compared.
        made_by: who compared them.
    """
    rows = [
        (d.kind, d.window_start, d.keys, d.column, d.published, d.recomputed)
        for d in verified.differences[:SHOWN]
    ]
    withheld = [f"{name}: {count:,}" for name, count in verified.withheld.items()]
    said = f", {verified.quarantined:,} of them withheld" if verified.quarantined else ""
    return dg.AssetCheckEvaluation(
        asset_key=names.key(verified.asset),
        check_name=PARITY,
        passed=not verified.wrong,
        severity=dg.AssetCheckSeverity.ERROR,
        description=f"{span}: {verified.windows:,} windows{said}, compared with a bounded "
        f"computation of the log, {verified.total:,} differences.",
        metadata={
            "windows": verified.windows,
            "differences": verified.total,
            "too late": verified.lost,
            "withheld": verified.quarantined,
            "made by": made_by,
            **({"withheld by": "; ".join(withheld)} if withheld else {}),
            **({"first differences": as_table(_COLUMNS, rows)} if rows else {}),
        },
    )


def recorded(
    names: Names, glance: Glance, transforms: Mapping[str, Definition], told: Told
) -> tuple[list[dg.AssetCheckEvaluation], Told]:
    """What was compared on the command line since the comparison `told`: the results of these
    assets, and the last of them."""
    record, number = told
    present = glance.identity(TABLE)
    if present is None:
        return [], told
    table = glance.read(TABLE, None)
    rows = [] if table is None else table.sort_by("number").to_pylist()
    # A cursor of before has the number alone.
    if record not in (None, present):
        number = -1
    found = [Comparison.of(row) for row in rows if row["number"] > number][:MOST]
    events = [
        judged(names, c.report, _span(c), "`tidemark parity` or `tidemark demo`")
        for c in found
        if c.report.asset in transforms
    ]
    return events, (present, max([number, *(c.number for c in found)]))


def _span(comparison: Comparison) -> str:
    if comparison.start is None or comparison.end is None:
        return "all windows"
    return f"{iso(comparison.start)} to {iso(comparison.end)}"
