"""A finding: a fact that needs a person's attention, with the command that settles it."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Literal

from tidemark.base.instants import format_instant
from tidemark.define import tables

Level = Literal["error", "warning"]


class Kind(StrEnum):
    """The kinds of findings; docs/monitoring.md explains each of them."""

    DEFINITION = "definition"
    DAMAGED_TABLE = "damaged_table"
    UNREADABLE = "unreadable"
    UNFINISHED = "unfinished_operation"
    STALE = "stale"
    BLOCKED_SOURCE = "blocked_source"
    STOPPED_INGEST = "stopped_ingest"
    STOPPED_STREAM = "stopped_stream"
    STOPPED_SINK = "stopped_sink"
    STOPPED_PIPELINE = "stopped_pipeline"
    KAFKA_UNAVAILABLE = "kafka_unavailable"
    SINK_BEHIND = "sink_behind"
    WATERMARK_AHEAD = "watermark_ahead"
    HELD_BACK = "held_back"
    INTEGRITY_FAULT = "integrity_fault"
    QUARANTINE = "quarantine"
    DEAD_LETTERS = "dead_letters"
    UNDECLARED_FIELDS = "undeclared_fields"
    DISK_FULL = "disk_full"


HOME = "home"
"""The node of findings about the whole home."""


def source_node(name: str) -> str:
    """Return the node of a source, which is also the owner of the source's tables."""
    return tables.source_owner(name)


def asset_node(name: str) -> str:
    """Return the node of an asset, which is also the owner of the asset's tables."""
    return tables.asset_owner(name)


@dataclass(frozen=True)
class Finding:
    """A fact that needs a person's attention.

    Args:
        level: `error` if data is not processed, or if results are wrong; otherwise `warning`.
        node: the part of the home that the finding is about, such as `source orders` or
            `asset orders_hourly`; `home` for the whole home.
        cause: one or more sentences about the fact and its cause.
        remedy: a sentence with the command that settles the finding.
        since: the time since which it is so, in microseconds; None if that is unknown.
    """

    kind: Kind
    level: Level
    node: str
    cause: str
    remedy: str
    since: int | None = None

    def __str__(self) -> str:
        return f"{self.cause} {self.remedy}"

    def to_json(self) -> dict[str, Any]:
        """Return the finding for JSON, with `since` as an ISO 8601 time."""
        return {**asdict(self), "kind": self.kind.value, "since": format_instant(self.since)}
