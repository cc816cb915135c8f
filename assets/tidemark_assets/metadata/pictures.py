"""Draw charts for the metadata of materializations."""

from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress

import altair as alt
import dagster as dg
from pyspark.sql import functions as F

from tidemark.base import thresholds
from tidemark.base.errors import DataError
from tidemark.charts import chart
from tidemark.define.definition import Definition
from tidemark.define.source import Source
from tidemark.define.watermarks import BoundedOutOfOrderness
from tidemark.store.commits.conditions import InRanges
from tidemark.store.event_log.arrival import Arrival
from tidemark.store.warehouse import Warehouse
from tidemark.verify import bounds as lateness

_MAX_PICTURE_BYTES = 200_000
"""Pictures of more bytes are left out, because Dagster stores metadata with each event."""

HOUR, DAY = 3_600_000_000, 86_400_000_000
_MAX_KEYS = 20
"""Maximum number of keys in a heat map: the keys with the most events."""


def draw_arrivals(
    warehouse: Warehouse, source: Source, timeline: list[Arrival]
) -> Mapping[str, dg.MarkdownMetadataValue]:
    """Return pictures of how a source's events arrive."""
    images = {"arrivals, drawn": chart.timeline_chart(timeline)}
    if sum(a.rows for a in timeline) <= thresholds.MEASURED_EVENTS:
        mark = source.watermark
        bound = mark.bound if isinstance(mark, BoundedOutOfOrderness) else None
        # Lateness is undefined without event times.
        with suppress(DataError):
            images["lateness, drawn"] = chart.lateness_chart(
                lateness.measure_lags(warehouse, source), bound
            )
    return _draw(images)


def draw_windows(
    warehouse: Warehouse, transform: Definition, start: int, end: int
) -> Mapping[str, dg.MarkdownMetadataValue]:
    """Return a picture of the windows that start in [start, end), by key and time."""
    unit, span = ("hour", HOUR) if end - start <= 7 * DAY else ("day", DAY)
    window_start = F.unix_micros("window_start")
    key = F.concat_ws(
        " ", *(F.coalesce(F.col(k).cast("string"), F.lit("(none)")) for k in transform.keys)
    )
    cells = (
        warehouse.read_frame(transform.published_table, InRanges("window_start", ((start, end),)))
        .groupBy(
            (window_start - F.pmod(window_start, F.lit(span))).alias("start"), key.alias("key")
        )
        .agg(F.sum("events").alias("events"))
    )
    often = cells.groupBy("key").agg(F.sum("events").alias("all")).orderBy(F.desc("all"), "key")
    shown = cells.join(often.limit(_MAX_KEYS).select("key"), "key").toPandas()
    return _draw({"windows, drawn": chart.heat_map(shown, unit)})


def _draw(
    charts: Mapping[str, alt.LayerChart | None],
) -> dict[str, dg.MarkdownMetadataValue]:
    embedded: dict[str, dg.MarkdownMetadataValue] = {}
    for name, drawn in charts.items():
        image = "" if drawn is None else chart.to_svg(drawn)
        if 0 < len(image.encode()) <= _MAX_PICTURE_BYTES:
            embedded[name] = embed_svg(name, image)
    return embedded


def embed_svg(name: str, svg: str) -> dg.MarkdownMetadataValue:
    """Return an SVG as metadata that the page shows."""
    data = b64encode(svg.encode()).decode()
    return dg.MetadataValue.md(f"![{name}](data:image/svg+xml;base64,{data})")
