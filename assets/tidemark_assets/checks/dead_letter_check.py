"""A check that warns about new dead letters: rows of a source that could not be decoded."""

from collections.abc import Sequence

import dagster as dg

from tidemark.base.counts import format_count
from tidemark.define.source import Source
from tidemark.store.event_log.arrival import Arrival
from tidemark_assets.base.names import Names

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


def evaluation(
    names: Names, source: Source, arrivals: Sequence[Arrival]
) -> dg.AssetCheckEvaluation:
    """Check arrivals that were just ingested."""
    letters = {a.arrival: a.dead_letters for a in arrivals if a.dead_letters}
    count = sum(letters.values())
    text = "All rows could be decoded."
    if letters:
        text = (
            f"{format_count(count, 'row')} could not be decoded, the first in arrival "
            f"{min(letters)}: `tidemark dead-letters list {source.name}` shows why."
        )
    return dg.AssetCheckEvaluation(
        asset_key=names.key(source.log_table),
        check_name=NAME,
        passed=not count,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"dead letters": count, "arrivals with dead letters": len(letters)},
        description=text,
    )
