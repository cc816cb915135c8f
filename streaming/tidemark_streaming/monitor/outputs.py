"""The progress of sinks, polled in the background.

A sink's topic has the version of its asset's table. It needs no engine, and brokers that don't
answer delay nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import cast

from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from tidemark.base.errors import TidemarkError
from tidemark.base.settings import Settings
from tidemark.define.definition import Definition
from tidemark.store.warehouse import Warehouse
from tidemark_streaming.monitor.answers import Answers
from tidemark_streaming.sink.status import sink_status
from tidemark_streaming.sink.writer import topic_of

EVERY = 5.0
"""Seconds between two requests for a sink."""


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


class Outputs:
    """Polls the progress of sinks.

    Args:
        assets: only those with a sink are polled.
    """

    def __init__(self, settings: Settings, assets: Iterable[Definition]) -> None:
        self._settings = settings
        self._assets = [asset for asset in assets if asset.sink is not None]
        self._sinks = Answers[SinkOverview](EVERY)

    def sinks(self) -> tuple[SinkOverview, ...]:
        """Return the newest progress of each sink; none before the first answer."""
        asked = (
            self._sinks.newest(a.name, partial(_sink, self._settings, a)) for a in self._assets
        )
        return tuple(answer for answer in asked if answer is not None)


def _sink(settings: Settings, asset: Definition) -> SinkOverview:
    no_spark, topic = cast(SparkSession, None), topic_of(asset).name
    tables = Warehouse(no_spark, settings.warehouse, settings.database, registered=False)
    try:
        found = sink_status(tables, asset)
    except (TidemarkError, DeltaError, OSError) as error:
        return SinkOverview(asset.name, topic, trouble=str(error))
    return SinkOverview(asset.name, topic, found.behind, found.since, found.run)
