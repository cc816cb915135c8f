"""What the ledger has of a commit."""

import time
from collections import Counter
from collections.abc import Mapping

from tidemark.define import verdict as judge
from tidemark.store.asset import Asset
from tidemark.store.ledger import RunFacts
from tidemark.store.marker import Marker, Mode


def of_commit(
    asset: Asset,
    marker: Marker,
    counts: Counter[int],
    *,
    windows: int,
    quarantined: int,
    warned: int = 0,
    reported: bool = False,
    limited_by: str | None = None,
    ended: Mapping[str, int] | None = None,
) -> RunFacts:
    """The facts of a commit that has ended just now.

    Args:
        counts: events by the codes of their verdicts.
        windows, quarantined, warned, reported, limited_by: as `RunFacts` has them.
        ended: when its steps ended, as the ledger names it.
    """
    assert asset.life is not None
    # A run of a roll-up is about all windows, whichever it replaces.
    ranges = () if marker.mode is Mode.ROLLUP else marker.ranges
    return RunFacts(
        run=marker.run,
        asset=asset.transform.name,
        life=asset.life,
        mode=marker.mode.value,
        answer=marker.answer,
        seq=marker.seq,
        from_arrival=-1 if marker.replaces else marker.before.at.arrival,
        through_arrival=marker.at.arrival,
        window_from=min((start for start, _ in ranges), default=None),
        window_to=max((end for _, end in ranges), default=None),
        started_at=marker.started,
        ended_at=time.time_ns() // 1000,
        watermark=marker.at.watermark,
        windows=windows,
        quarantined=quarantined,
        warned=warned,
        **{word: counts[code] for code, word in judge.VERDICTS.items()},
        reported=reported,
        limited_by=limited_by,
        **(ended or {}),
    )
