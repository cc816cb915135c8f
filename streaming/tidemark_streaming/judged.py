"""What the gates found, read without the engine: results as they come, and what is withheld."""

from collections.abc import Mapping
from typing import Any

import pyarrow.dataset as ds

from tidemark.base.instants import instant
from tidemark.define.definition import Definition
from tidemark.quality.quarantine import Choice
from tidemark.quality.results import TABLE, CheckResult
from tidemark.store.rows import told
from tidemark_streaming.glance import Glance


def results_since(glance: Glance, asset: str, after: int = -1) -> list[CheckResult]:
    """The results of the commits after the number `after` of an asset's present life, in order."""
    own = (ds.field("asset") == asset) & (ds.field("life") == (glance.life(asset) or ""))
    chosen = own & (ds.field("seq") > after)
    table = glance.select(TABLE, None, chosen)
    rows = [] if table is None else table.sort_by([("seq", "ascending")]).to_pylist()
    return [CheckResult(**row) for row in rows]


def withheld(
    glance: Glance, transform: Definition, choice: Choice | None = None
) -> list[dict[str, Any]]:
    """The rows in quarantine, by window and keys.

    Raises:
        DefinitionError: a key that the asset has not.
    """
    chosen = choice or Choice()
    chosen.check(transform)
    table = glance.read(transform.quarantine_table, None)
    rows: list[dict[str, Any]] = [] if table is None else told(table)

    def wanted(row: Mapping[str, Any]) -> bool:
        start = instant(row["window_start"])
        return (
            (chosen.start is None or start >= chosen.start)
            and (chosen.end is None or start < chosen.end)
            and all(str(row[k]) == v for k, v in chosen.keys.items())
        )

    keys = ("window_start", *transform.keys)
    return sorted(filter(wanted, rows), key=lambda r: [str(r[k]) for k in keys])
