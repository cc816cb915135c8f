"""Accepted losses: lost records that a user has agreed to skip.

Records that were deleted from Kafka or a Delta table before they were ingested stop their source. A
user who accepts the losses knows only the losses in the error message, so later losses are not
accepted. An arrival records the losses that it skips.
"""

import json
from collections.abc import Sequence

_KEY = "skipped records"
"""The key of the losses in a position. It has a space, which the name of a Kafka topic can't have:
the other keys of a position may be topics."""


class Acceptance:
    """Separates the lost records that a connector may skip from those that must stop its source.

    A connector has one object for all its polls. The object remembers the losses of the first poll.

    Args:
        is_accepted: true if the user accepts losses. This covers only the losses that the
            connector's first poll finds; losses that later polls find are refused.
    """

    def __init__(self, *, is_accepted: bool) -> None:
        self._is_accepted = is_accepted
        self._first: frozenset[str] | None = None

    def select_refused(self, lost: Sequence[str]) -> list[str]:
        """Return the losses that are not accepted, so that the ingest must stop.

        Args:
            lost: descriptions of all losses that a poll has found. Two losses with the same
                description are the same loss.
        """
        if self._first is None:
            self._first = frozenset(lost if self._is_accepted else ())
        return [loss for loss in lost if loss not in self._first]


def with_losses(position: str, lost: Sequence[str]) -> str:
    """Return the position of an arrival, with the losses that the arrival skips.

    The losses are a list under the key `skipped records`. Without losses, the position stays as it
    is.

    Args:
        position: the position, as the text of a JSON object.
        lost: descriptions of the losses.
    """
    if lost:
        return json.dumps({**json.loads(position), _KEY: list(lost)})
    return position


def without_losses(position: str) -> str:
    """Remove the losses from a position, as JSON, and return it.

    A heartbeat, for example, repeats the position of the previous arrival, but skips no records.
    """
    parsed = json.loads(position)
    if not isinstance(parsed, dict) or _KEY not in parsed:
        return position
    return json.dumps({name: value for name, value in parsed.items() if name != _KEY})


def skipped_losses(position: str) -> list[str]:
    """Return descriptions of the losses that an arrival has skipped, from its position."""
    parsed = json.loads(position)
    if isinstance(parsed, dict):
        return list(parsed.get(_KEY, ()))
    return []
