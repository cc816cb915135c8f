"""Accepted losses: lost records that a user has agreed to skip.

Records that were deleted from Kafka or a Delta table before they were ingested stop their source. A
user who accepts the losses knows only those in the error message, so later ones are not accepted.
An arrival records the losses that it skips.
"""

import json
from collections.abc import Sequence

_KEY = "skipped"
"""The key in a position. Topic names can't contain a space, so it does not collide with one."""


class Acceptance:
    """The losses that a connector may skip.

    With `given`, these are the losses that its first poll finds. Later losses are not accepted.
    """

    def __init__(self, *, given: bool) -> None:
        self._is_accepted = given
        self._first: frozenset[str] | None = None

    def select_refused(self, lost: Sequence[str]) -> list[str]:
        """Return those losses that a poll has found and that are not accepted, in words."""
        if self._first is None:
            self._first = frozenset(lost if self._is_accepted else ())
        return [each for each in lost if each not in self._first]


def with_losses(position: str, lost: Sequence[str]) -> str:
    """Return a position, as JSON, with the losses that the arrival at this position skips."""
    return json.dumps({**json.loads(position), _KEY: [*lost]}) if lost else position


def without_losses(position: str) -> str:
    """Return a position for an arrival that repeats it, and skips nothing itself."""
    parsed = json.loads(position)
    if not isinstance(parsed, dict) or _KEY not in parsed:
        return position
    return json.dumps({name: value for name, value in parsed.items() if name != _KEY})


def skipped_losses(position: str) -> list[str]:
    """Return the losses that an arrival has skipped, in words, from its position."""
    parsed = json.loads(position)
    return list(parsed.get(_KEY, ())) if isinstance(parsed, dict) else []
