"""Checks of a source's event log that warn about the newest arrivals. An ingest reports them."""

from collections.abc import Iterator, Mapping, Sequence

import dagster as dg

from tidemark.base.counts import format_count
from tidemark.define.source import Source
from tidemark.store.event_log.arrival import Arrival
from tidemark_assets.base.names import Names
from tidemark_streaming.ingest.future_watermark import find_future_watermark, future_timestamps
from tidemark_streaming.snapshot.snapshot import Snapshot

NO_DEAD_LETTERS = "no_new_dead_letters"
NO_FUTURE_EVENTS = "no_events_from_the_future"

_DESCRIPTIONS = {
    NO_DEAD_LETTERS: (
        "Warns if rows of the newest arrivals could not be decoded. They are kept as dead letters, "
        "and can be ingested once they are fixed."
    ),
    NO_FUTURE_EVENTS: (
        "Warns if the watermark is far ahead of the processing clock, or if events of the newest "
        "arrivals are dated later than the source accepts."
    ),
}


def source_checks(names: Names, source: Source) -> list[dg.AssetCheckSpec]:
    """Return the checks of a source's log."""
    key = names.key(source.log_table)
    return [
        dg.AssetCheckSpec(name, asset=key, description=description)
        for name, description in _DESCRIPTIONS.items()
    ]


def check_arrivals(
    names: Names, source: Source, snapshot: Snapshot, arrivals: Sequence[Arrival]
) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the results of the checks, for arrivals just ingested and for the watermark."""

    def evaluation(
        name: str, warning: str, otherwise: str, metadata: Mapping[str, int]
    ) -> dg.AssetCheckEvaluation:
        return dg.AssetCheckEvaluation(
            asset_key=names.key(source.log_table),
            check_name=name,
            passed=not warning,
            severity=dg.AssetCheckSeverity.WARN,
            metadata=metadata,
            description=warning or otherwise,
        )

    letters = {a.arrival: a.dead_letters for a in arrivals if a.dead_letters}
    count = sum(letters.values())
    if letters:
        undecodable = (
            f"{format_count(count, 'row')} could not be decoded, the first in arrival "
            f"{min(letters)}: `tidemark dead-letters list {source.name}` shows why."
        )
    else:
        undecodable = ""
    counts = {"dead letters": count, "arrivals with dead letters": len(letters)}
    yield evaluation(NO_DEAD_LETTERS, undecodable, "All rows could be decoded.", counts)
    warnings = (
        find_future_watermark(snapshot, source),
        future_timestamps(snapshot, source, arrivals),
    )
    yield evaluation(
        NO_FUTURE_EVENTS,
        " ".join(str(warning_text) for warning_text in warnings if warning_text is not None),
        "The watermark is not ahead of the clock.",
        {"events dated ahead": sum(a.future_timestamps for a in arrivals)},
    )
