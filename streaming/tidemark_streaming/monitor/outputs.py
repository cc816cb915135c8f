"""The progress of sinks and lanes, polled in the background.

A sink's topic has the version of its asset's table. A lane's checkpoints have the offsets that it
has processed. Neither needs an engine, and brokers that don't answer delay nothing.
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
from tidemark_streaming.monitor.answers import Answers
from tidemark_streaming.sink.status import sink_status
from tidemark_streaming.sink.writer import topic_of

EVERY = 5.0
"""Seconds between two requests for a sink or a lane."""

PATIENCE = 2.0
"""Seconds to wait for the brokers of a lane."""


@dataclass(frozen=True)
class SinkOverview:
    """The progress of an asset's sink.

    Args:
        behind: versions of the table that the topic lacks; None if that is unknown.
        since: the time of the first of these commits, in microseconds.
        run: the id of the newest published run, if that is known.
        trouble: why the progress is unknown.
    """

    asset: str
    topic: str
    behind: int | None = None
    since: int | None = None
    run: str | None = None
    trouble: str | None = None

    def waits(self, now: int) -> float | None:
        """Return the time since the first missing version was committed, in seconds."""
        if self.behind is None:
            return None
        return max(0, now - self.since) / 1e6 if self.behind and self.since is not None else 0.0


@dataclass(frozen=True)
class LaneOverview:
    """The progress of a lane.

    Args:
        come, go: the topics that it reads, as its connector names them, and that it writes.
        batch: the number of its newest checkpoint; None before the first.
        waiting: offsets that the checkpoint lacks, by topic and partition.
        trouble: why these are unknown.
    """

    name: str
    come: tuple[str, ...]
    go: tuple[str, ...]
    batch: int | None = None
    waiting: Mapping[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    trouble: str | None = None


class Outputs:
    """Polls the progress of sinks and lanes.

    Args:
        assets: only those with a sink are polled.
    """

    def __init__(
        self, settings: Settings, assets: Iterable[Definition], lanes: Iterable[Lane]
    ) -> None:
        self._settings = settings
        self._assets = [asset for asset in assets if asset.sink is not None]
        self._lanes = [*lanes]
        self._sinks = Answers[SinkOverview](EVERY)
        self._lane_lag = Answers[LaneOverview](EVERY)

    def sinks(self) -> tuple[SinkOverview, ...]:
        """Return the newest progress of each sink; none before the first answer."""
        asked = (
            self._sinks.newest(a.name, partial(_sink, self._settings, a)) for a in self._assets
        )
        return tuple(answer for answer in asked if answer is not None)

    def lanes(self) -> tuple[LaneOverview, ...]:
        """Return the newest progress of each lane."""
        asked = (
            (n, self._lane_lag.newest(n.name, partial(_lane, self._settings, n)))
            for n in self._lanes
        )
        return tuple(_describe(lane) if answer is None else answer for lane, answer in asked)


def _sink(settings: Settings, asset: Definition) -> SinkOverview:
    no_spark, topic = cast(SparkSession, None), topic_of(asset).name
    tables = Warehouse(no_spark, settings.warehouse, settings.database, registered=False)
    try:
        found = sink_status(tables, asset)
    except (TidemarkError, DeltaError, OSError) as error:
        return SinkOverview(asset.name, topic, trouble=str(error))
    return SinkOverview(asset.name, topic, found.behind, found.since, found.run)


def _describe(lane: Lane) -> LaneOverview:
    return LaneOverview(lane.name, tuple(lane.connector.topics), tuple(t.name for t in lane.topics))


def _lane(settings: Settings, lane: Lane) -> LaneOverview:
    overview, at = _describe(lane), newest(home.lane_folder(settings, lane.name))
    if at is None:
        return overview
    connector = lane.connector
    try:
        available = Cluster(connector.at, connector.client, PATIENCE).topics(connector.topics)
    except TidemarkError as error:
        return replace(overview, batch=at.batch, trouble=str(error))
    waiting = {
        (name, n): max(0, end - at.ends.get((name, n), low))
        for name, topic in available.items()
        for n, (low, end) in topic.offsets.items()
    }
    return replace(overview, batch=at.batch, waiting=waiting)
