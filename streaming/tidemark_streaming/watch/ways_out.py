"""The ways out to Kafka: how far the topics of assets and the lanes are, asked in the background.

A topic says itself which version of its asset's table it has; a lane's checkpoints which offsets it
has carried. Neither asks an engine, and brokers that don't answer hold nobody up.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from tidemark.base.errors import TidemarkError
from tidemark.base.settings import Settings
from tidemark.define.definition import Definition
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.kafka.cluster import Cluster
from tidemark_streaming.lane import Lane, home
from tidemark_streaming.lane.checkpoints import newest
from tidemark_streaming.outbox.outbox import topic_of
from tidemark_streaming.outbox.status import sink_status
from tidemark_streaming.watch.answers import Answers

EVERY = 5.0
"""Seconds between two questions of a topic or a lane."""

PATIENCE = 2.0
"""Seconds that a lane's brokers have to answer."""


@dataclass(frozen=True)
class OutletSight:
    """How far the topic of an asset is.

    Args:
        behind: versions of the table that it has not; None where that is not known.
        since: when the first of these was committed, in microseconds.
        run: the id of the newest run that is out, where that is known.
        trouble: why it is not known.
    """

    asset: str
    topic: str
    behind: int | None = None
    since: int | None = None
    run: str | None = None
    trouble: str | None = None

    def waits(self, now: int) -> float | None:
        """How long the first of these has waited, in seconds."""
        if self.behind is None:
            return None
        return max(0, now - self.since) / 1e6 if self.behind and self.since is not None else 0.0


@dataclass(frozen=True)
class LaneSight:
    """How far a lane is.

    Args:
        come, go: the topics that it reads, as its feed names them, and those that it writes.
        batch: the number of its newest checkpoint; None before the first.
        waiting: offsets by topic and partition that this has not.
        trouble: why they are not known.
    """

    name: str
    come: tuple[str, ...]
    go: tuple[str, ...]
    batch: int | None = None
    waiting: Mapping[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    trouble: str | None = None


class WaysOut:
    """Asks of them.

    Args:
        assets: those of them that publish to a topic are asked of.
    """

    def __init__(
        self, settings: Settings, assets: Iterable[Definition], lanes: Iterable[Lane]
    ) -> None:
        self._settings = settings
        self._assets = [asset for asset in assets if asset.sink is not None]
        self._lanes = [*lanes]
        self._outlets = Answers[OutletSight](EVERY)
        self._carried = Answers[LaneSight](EVERY)

    def outlets(self) -> tuple[OutletSight, ...]:
        """How far each topic was when it was asked last; before the first answer nothing of it."""
        asked = (
            self._outlets.newest(a.name, partial(_outlet, self._settings, a)) for a in self._assets
        )
        return tuple(answer for answer in asked if answer is not None)

    def lanes(self) -> tuple[LaneSight, ...]:
        """How far each lane was when it was asked last."""
        asked = (
            (n, self._carried.newest(n.name, partial(_lane, self._settings, n)))
            for n in self._lanes
        )
        return tuple(_named(lane) if answer is None else answer for lane, answer in asked)


def _outlet(settings: Settings, asset: Definition) -> OutletSight:
    nobody, topic = cast(SparkSession, None), topic_of(asset).name
    tables = Warehouse(nobody, settings.warehouse, settings.database, registered=False)
    if tables.committer.name != "direct":
        return OutletSight(
            asset.name, topic, trouble="Only the engine can read the asset's tables."
        )
    try:
        found = sink_status(tables, asset)
    except (TidemarkError, DeltaError, OSError) as error:
        return OutletSight(asset.name, topic, trouble=str(error))
    return OutletSight(asset.name, topic, found.behind, found.since, found.run)


def _named(lane: Lane) -> LaneSight:
    return LaneSight(lane.name, tuple(lane.feed.topics), tuple(t.name for t in lane.topics))


def _lane(settings: Settings, lane: Lane) -> LaneSight:
    sight, at = _named(lane), newest(home.lane_folder(settings, lane.name))
    if at is None:
        return sight
    feed = lane.feed
    try:
        there = Cluster(feed.at, feed.client, PATIENCE).topics(feed.topics)
    except TidemarkError as error:
        return replace(sight, batch=at.batch, trouble=str(error))
    waiting = {
        (name, n): max(0, end - at.ends.get((name, n), low))
        for name, topic in there.items()
        for n, (low, end) in topic.offsets.items()
    }
    return replace(sight, batch=at.batch, waiting=waiting)
