"""A check that warns about events from the future, and a watermark far ahead of the clock."""

from collections.abc import Sequence

import dagster as dg

from tidemark.define.source import Source
from tidemark.store.event_log.arrival import Arrival
from tidemark_assets.base.names import Names
from tidemark_streaming.ingest.future_watermark import find, future_timestamps
from tidemark_streaming.snapshot.snapshot import Snapshot

NAME = "no_events_from_the_future"


def spec(names: Names, source: Source) -> dg.AssetCheckSpec:
    """Return the check of a source's log."""
    return dg.AssetCheckSpec(
        NAME,
        asset=names.key(source.log_table),
        description=(
            "Warns if the watermark is far ahead of the processing clock, or if events of the "
            "newest arrivals are dated later than the source accepts."
        ),
    )


def evaluation(
    names: Names, source: Source, snapshot: Snapshot, arrivals: Sequence[Arrival]
) -> dg.AssetCheckEvaluation:
    """Check arrivals that were just ingested, and the watermark."""
    ahead, dated = find(snapshot, source), future_timestamps(snapshot, source, arrivals)
    sentences = [str(each) for each in (ahead, dated) if each is not None]
    return dg.AssetCheckEvaluation(
        asset_key=names.key(source.log_table),
        check_name=NAME,
        passed=not sentences,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"events dated ahead": sum(a.future_timestamps for a in arrivals)},
        description=" ".join(sentences) or "The watermark is not ahead of the clock.",
    )
