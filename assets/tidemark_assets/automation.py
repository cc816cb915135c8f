"""What keeps a domain's assets current: its sensors and their jobs, put together."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from tidemark.base.instants import duration
from tidemark_assets import (
    arrivals,
    corrections,
    ingests,
    lags,
    nightly,
    outboxes,
    rebuilds,
    reporter,
    streams,
)
from tidemark_assets.build import Presentation
from tidemark_assets.current import current_check
from tidemark_assets.fresh import fresh_check
from tidemark_assets.stream_checks import stream_check
from tidemark_streaming.domains import Domains
from tidemark_streaming.kafka import KafkaFeed, KafkaTopic

CARRY_ON = dg.AutomationCondition.eager().without(~dg.AutomationCondition.any_deps_missing())
"""For what is made of windows: again when any of their partitions changed, however many of the
others have never been computed."""


def automation(domain: str, found: Domains, show: Presentation) -> Iterator[dg.Definitions]:
    """The sensors and jobs of one domain, named after it or its sources."""
    for inlet in found.inlets.values():
        yield arrivals.landing(inlet)
        yield ingests.ingests(inlet.source)
        if isinstance(inlet.feed(Path(inlet.source.name)), KafkaFeed):
            yield lags.lags(inlet)
    if found.transforms:
        transforms, partitions = found.transforms, show.partitions_of
        within = duration(show.fresh_within)
        # What is computed anew from the log; a roll-up follows it.
        counted = {name: t for name, t in transforms.items() if t.follows is None}
        yield arrivals.arrivals(domain, transforms)
        yield reporter.windows(domain, transforms, partitions, within)
        yield streams.streams(domain, transforms)
        yield nightly.nightly(domain, counted, partitions)
        yield corrections.corrections(domain, counted)
        yield rebuilds.rebuilds(domain, counted)
        for transform in transforms.values():
            checks = [
                fresh_check(transform, within),
                stream_check(transform),
                nightly.parity_check(transform, partitions(transform.name)),
            ]
            if transform.follows is None:
                checks.append(current_check(transform))
            yield dg.Definitions(asset_checks=checks)
            if isinstance(transform.publishes_to, KafkaTopic):
                yield outboxes.outbox(transform)
