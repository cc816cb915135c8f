"""Lanes: stateless pipelines that copy records from topic to topic within milliseconds, one by one
and without a table."""

from typing import TYPE_CHECKING

from tidemark_streaming.extras.lane.extra import EXTRA as EXTRA

if TYPE_CHECKING:
    from tidemark_streaming.extras.lane.definition import Lane

__all__ = ["Lane"]


def __getattr__(name: str) -> object:
    """Import `Lane` when it is used, so that commands that don't need it do not import Spark."""
    if name == "Lane":
        from tidemark_streaming.extras.lane.definition import Lane

        return Lane
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
