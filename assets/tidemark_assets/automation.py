"""What keeps a domain's assets current: its sensors and their jobs, put together."""

from collections.abc import Iterator

import dagster as dg

from tidemark_assets import arrivals, reporter, streams
from tidemark_assets.build import Presentation
from tidemark_streaming.domains import Domains


def automation(domain: str, found: Domains, show: Presentation) -> Iterator[dg.Definitions]:
    """The sensors and jobs of one domain, named after it or its sources."""
    for inlet in found.inlets.values():
        yield arrivals.landing(inlet)
    if found.transforms:
        yield arrivals.arrivals(domain, found.transforms)
        yield reporter.windows(domain, found.transforms, show.partitions)
        yield streams.streams(domain, found.transforms)
