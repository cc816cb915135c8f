"""Losses that a person accepts: those that there are by then, recorded where they are passed over.

What is gone from Kafka or from a Delta table before it was ingested stops its source. Who accepts
that knows of what the sentence has told, and of nothing that goes later.
"""

import json
from collections.abc import Sequence

_KEY = "passed over"
"""Of a position; no topic can be named so."""


class Acceptance:
    """Which losses a feed goes on after: with `given`, those of its first look, for as long as
    they are found; later ones are not accepted."""

    def __init__(self, *, given: bool) -> None:
        self._given = given
        self._first: frozenset[str] | None = None

    def refused(self, lost: Sequence[str]) -> list[str]:
        """Those of the losses, in words, that a look has found and that are not accepted."""
        if self._first is None:
            self._first = frozenset(lost if self._given else ())
        return [each for each in lost if each not in self._first]


def recorded(position: str, lost: Sequence[str]) -> str:
    """A position, as JSON, with the losses that are passed over by the arrival that has it."""
    return json.dumps({**json.loads(position), _KEY: [*lost]}) if lost else position


def passed_over(position: str) -> list[str]:
    """The losses that an arrival has passed over, in words, by its position."""
    told = json.loads(position)
    return list(told.get(_KEY, ())) if isinstance(told, dict) else []
