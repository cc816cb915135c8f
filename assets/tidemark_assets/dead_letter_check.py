"""A check that warns about new dead letters: rows of a source that could not be decoded."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from tidemark.define.source import Source
from tidemark.store.arrival import Arrival
from tidemark_assets.names import Names

NAME = "no_new_dead_letters"


def spec(names: Names, source: Source) -> dg.AssetCheckSpec:
    """Return the check of a source's log."""
    return dg.AssetCheckSpec(
        NAME,
        asset=names.key(source.log_table),
        description=(
            "Warns if rows of the newest arrivals could not be decoded. They are kept as dead "
            "letters, and can be ingested once they are fixed."
        ),
    )


def check_result(names: Names, source: Source, arrivals: Sequence[Arrival]) -> dg.AssetCheckResult:
    """Check the arrivals that a step has ingested."""
    key = names.key(source.log_table)
    return dg.AssetCheckResult(asset_key=key, **_found(source, arrivals))


def evaluation(
    names: Names, source: Source, arrivals: Sequence[Arrival]
) -> dg.AssetCheckEvaluation:
    """Check arrivals that were ingested outside Dagster."""
    key = names.key(source.log_table)
    return dg.AssetCheckEvaluation(asset_key=key, **_found(source, arrivals))


def _found(source: Source, arrivals: Sequence[Arrival]) -> dict[str, Any]:
    letters = {a.arrival: a.dead_letters for a in arrivals if a.dead_letters}
    count = sum(letters.values())
    told = "All rows could be decoded."
    if letters:
        told = f"{count:,} rows could not be decoded, the first in arrival {min(letters)}: "
        told += f"`tidemark dead-letters list {source.name}` shows why."
    return {
        "check_name": NAME,
        "passed": not count,
        "severity": dg.AssetCheckSeverity.WARN,
        "metadata": {"dead letters": count, "arrivals with dead letters": len(letters)},
        "description": told,
    }
