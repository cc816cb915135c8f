"""Build the ledger row of a commit."""

import time
from collections import Counter
from collections.abc import Mapping

from tidemark.define import classification
from tidemark.store.asset import Asset
from tidemark.store.commits.commit_info import CommitInfo
from tidemark.store.ledger import RunFacts


def build_run_facts(
    asset: Asset,
    marker: CommitInfo,
    counts: Counter[int],
    *,
    windows: int,
    quarantined: int,
    warned: int = 0,
    reported: bool = False,
    limited_by: str | None = None,
    ended: Mapping[str, int] | None = None,
) -> RunFacts:
    """Return the facts of a commit that has just finished.

    Args:
        windows, quarantined, warned, reported, limited_by: as in `RunFacts`.
        ended: end time of each step in microseconds, by the ledger's column name.
    """
    assert asset.table_id is not None
    window_from, window_to = marker.bounds
    return RunFacts(
        run=marker.run,
        asset=asset.transform.name,
        table_id=asset.table_id,
        mode=marker.mode,
        late_events=marker.late_events,
        commit_number=marker.commit_number,
        from_arrival=marker.before.at.arrival if marker.recomputed is None else -1,
        through_arrival=marker.at.arrival,
        window_from=window_from,
        window_to=window_to,
        started_at=marker.started,
        ended_at=time.time_ns() // 1000,
        watermark=marker.at.watermark,
        windows=windows,
        quarantined=quarantined,
        warned=warned,
        **{word: counts[code] for code, word in classification.VERDICTS.items()},
        reported=reported,
        limited_by=limited_by,
        **(ended or {}),
    )
